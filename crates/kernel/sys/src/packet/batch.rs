//! Batched receive of a plain packet socket: recvmmsg(2) into buffers that are allocated once.

use std::{io, mem, os::fd::AsFd, os::fd::AsRawFd, ptr};

use super::{PacketError, PacketSocket};

/// Room for the ancillary data of one packet: timestamp (16), auxdata (20) and drop count (4), each with its header.
const CONTROL_WORDS: usize = 16;

const CACHE_LINE: usize = 64;

const NO_NAME: libc::sockaddr_ll = libc::sockaddr_ll {
    sll_family: 0,
    sll_protocol: 0,
    sll_ifindex: 0,
    sll_hatype: 0,
    sll_pkttype: 0,
    sll_halen: 0,
    sll_addr: [0; 8],
};

/// Buffers for a batch of packets.
pub struct Batch {
    // The pointers in headers and vectors are only good during `receive`, which makes them anew each time.
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_ll>,
    control: Vec<[u64; CONTROL_WORDS]>,
    data: Vec<u8>,
    snaplen: usize,
    stride: usize,
}

// SAFETY: the pointers in `headers` and `vectors` are never followed but in `receive`, which sets them to heap memory that this value owns.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("packets", &self.headers.len()).field("snaplen", &self.snaplen).finish()
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Arrival in nanoseconds since the epoch; 0 if the kernel gave no timestamp.
    pub timestamp_ns: u64,
    /// Length on the wire in bytes, without a tag that was taken out.
    pub wire_len: u32,
    pub data: &'a [u8],
    /// Its direction by the kernel's number (sll_pkttype).
    pub kind: u8,
    /// TPID and TCI of a VLAN tag that the kernel took out.
    pub vlan: Option<(u16, u16)>,
    /// Packets that this socket had lost when this packet was queued, since it was opened (SO_RXQ_OVFL).
    pub drops: u32,
}

impl Batch {
    /// Buffers for `packets` packets of at most `snaplen` bytes each.
    pub fn new(packets: usize, snaplen: usize) -> Self {
        let packets = packets.max(1);
        // An odd number of cache lines: buffers a power of two apart would all begin in the same few sets of the cache.
        let stride = (snaplen.div_ceil(CACHE_LINE) | 1) * CACHE_LINE;
        let header = libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: ptr::null_mut(),
                msg_iovlen: 1,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        };
        Self {
            headers: vec![header; packets],
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: snaplen }; packets],
            names: vec![NO_NAME; packets],
            control: vec![[0u64; CONTROL_WORDS]; packets],
            data: vec![0u8; packets * stride],
            snaplen,
            stride,
        }
    }

    /// Receives what is there, up to the size of the batch, without waiting; gives how many packets.
    pub fn receive(&mut self, socket: &PacketSocket) -> Result<usize, PacketError> {
        let data = self.data.as_mut_ptr();
        for (n, vector) in self.vectors.iter_mut().enumerate() {
            vector.iov_base = data.wrapping_add(n * self.stride).cast();
        }
        let (vectors, control) = (self.vectors.as_mut_ptr(), self.control.as_mut_ptr());
        let names = self.names.as_mut_ptr();
        for (n, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = vectors.wrapping_add(n);
            header.msg_hdr.msg_name = names.wrapping_add(n).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_control = control.wrapping_add(n).cast();
            header.msg_hdr.msg_controllen = mem::size_of::<[u64; CONTROL_WORDS]>();
        }
        // SAFETY: headers, vectors, names, control and data have room for the same number of packets, so that header n points at the live
        // vector n, that at `snaplen` bytes inside the live data, and header n at the live name and control buffer of the lengths it states. All
        // these pointers were made just now from unique borrows of `self`, which nothing has used since.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_TRUNC | libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(PacketError::Receive(error)),
            };
        }
        Ok(n as usize)
    }

    /// The first `n` packets, as [`Batch::receive`] left them.
    pub fn packets(&self, n: usize) -> impl Iterator<Item = Received<'_>> {
        self.headers.iter().zip(&self.names).zip(&self.control).zip(self.data.chunks_exact(self.stride)).take(n).map(
            |(((header, name), control), data)| {
                let kept = (header.msg_len as usize).min(self.snaplen);
                let mut packet = Received {
                    timestamp_ns: 0,
                    wire_len: header.msg_len,
                    data: &data[..kept],
                    kind: name.sll_pkttype,
                    vlan: None,
                    drops: 0,
                };
                read_control(&control[..(header.msg_hdr.msg_controllen / 8).min(CONTROL_WORDS)], &mut packet);
                packet
            },
        )
    }
}

// Level and type share a word of `read_control`.
#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("AF_PACKET receive is written for 64-bit little-endian machines");

/// Reads the ancillary data, which are aligned to words (cmsg(3)): length of 8 bytes, level, type, data.
fn read_control(mut words: &[u64], packet: &mut Received<'_>) {
    while let [len, kind, data @ ..] = words {
        let len = *len as usize;
        if len < 16 {
            return;
        }
        let (level, kind) = (*kind as u32 as i32, (*kind >> 32) as i32);
        match (level, kind, data) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, [sec, nsec, ..]) => {
                packet.timestamp_ns = sec * 1_000_000_000 + nsec;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, [drops, ..]) => packet.drops = *drops as u32,
            // struct tpacket_auxdata: status, len | snaplen, mac, net | vlan_tci, vlan_tpid
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, [status_len, _, tag, ..]) => {
                packet.wire_len = (*status_len >> 32) as u32;
                packet.vlan = vlan(*status_len as u32, *tag as u16, (*tag >> 16) as u16);
            }
            _ => {}
        }
        words = words.get(len.div_ceil(8)..).unwrap_or(&[]);
    }
}

/// TPID and TCI, where the status says that they are valid.
#[inline]
pub(super) fn vlan(status: u32, tci: u16, tpid: u16) -> Option<(u16, u16)> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { libc::ETH_P_8021Q as u16 } else { tpid };
    Some((tpid, tci))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Received<'static> {
        Received { timestamp_ns: 0, wire_len: 60, data: &[], kind: 0, vlan: None, drops: 0 }
    }

    #[test]
    fn ancillary_data_are_read_in_any_order_and_number() {
        let kind = |level: i32, kind: i32| u64::from(level.cast_unsigned()) | u64::from(kind.cast_unsigned()) << 32;
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let words = [
            36,
            kind(libc::SOL_PACKET, libc::PACKET_AUXDATA),
            u64::from(status) | 1514 << 32,
            96,
            5 | 0x88a8 << 16,
            32,
            kind(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS),
            2,
            7,
            20,
            kind(libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
            9,
        ];
        let mut p = packet();
        read_control(&words, &mut p);
        assert_eq!((p.timestamp_ns, p.wire_len, p.vlan, p.drops), (2_000_000_007, 1514, Some((0x88a8, 5)), 9));
        for cut in 0..words.len() {
            read_control(&words[..cut], &mut packet());
        }
        read_control(&[3, 0, 0], &mut packet());
        read_control(&[u64::MAX, 0, 0], &mut packet());
    }

    #[test]
    fn buffers_do_not_share_their_cache_sets() {
        for snaplen in [1, 64, 2048, 262_144] {
            let batch = Batch::new(4, snaplen);
            assert!(batch.stride >= snaplen && batch.stride / CACHE_LINE % 2 == 1, "{snaplen}");
            assert_eq!(batch.data.len(), 4 * batch.stride);
        }
    }

    #[test]
    fn a_tag_without_protocol_is_802_1q() {
        assert_eq!(vlan(libc::TP_STATUS_VLAN_VALID, 5, 0), Some((0x8100, 5)));
        assert_eq!(vlan(0, 5, 0x8100), None);
    }
}
