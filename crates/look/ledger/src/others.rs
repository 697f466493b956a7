//! Counts what arrives of protocols other than IP, for which the kernel has no counters: a packet socket for each EtherType
//! that the kernel has a handler for. Packets of other types cost nothing by it.

use std::{collections::BTreeMap, fs, os::fd::AsRawFd};

use host::Root;
use sys::packet::PacketSocket;

/// EtherTypes whose packets the kernel counts itself.
const COUNTED: [u16; 2] = [0x0800, 0x86dd];
/// Nobody reads these sockets, so that their buffers are as small as can be (the kernel raises this to its least).
const BUFFER_BYTES: u32 = 1;

/// The sockets, and what they have counted so far.
#[derive(Debug)]
pub(crate) struct Others {
    sockets: Vec<(u16, PacketSocket)>,
    counts: BTreeMap<u16, u64>,
    inodes: Vec<u32>,
}

impl Others {
    /// Opens a socket per handler in /proc/net/ptype.
    pub(crate) fn open(root: &Root) -> Result<Self, String> {
        let list = root.read("proc/net/ptype").map_err(|e| e.to_string())?;
        let mut sockets = Vec::new();
        let mut inodes = Vec::new();
        for ethertype in handlers(&list) {
            let socket = PacketSocket::open_for(ethertype).map_err(|e| e.to_string())?;
            socket.set_receive_buffer(BUFFER_BYTES).map_err(|e| e.to_string())?;
            inodes.extend(inode(socket_fd(&socket)));
            sockets.push((ethertype, socket));
        }
        Ok(Self { sockets, counts: BTreeMap::new(), inodes })
    }

    /// Arrivals so far, by EtherType.
    pub(crate) fn read(&mut self) -> BTreeMap<u16, u64> {
        for (ethertype, socket) in &self.sockets {
            // Reading resets them, so that they are added up here.
            if let Ok(statistics) = socket.take_statistics() {
                *self.counts.entry(*ethertype).or_default() += u64::from(statistics.packets);
            }
        }
        self.counts.clone()
    }

    /// A socket is one of these: what it loses is nobody's loss.
    pub(crate) fn owns(&self, inode: u32) -> bool {
        inode != 0 && self.inodes.contains(&inode)
    }
}

fn socket_fd(socket: &PacketSocket) -> i32 {
    use std::os::fd::AsFd;
    socket.as_fd().as_raw_fd()
}

/// The inode number of a socket of this process.
fn inode(fd: i32) -> Option<u32> {
    let link = fs::read_link(format!("/proc/thread-self/fd/{fd}")).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The EtherTypes of the kernel's own handlers: `0806          arp_rcv`. Taps (`ALL`) and packet sockets are not among them.
fn handlers(ptype: &str) -> Vec<u16> {
    let mut found: Vec<u16> = ptype
        .lines()
        .skip(1)
        .filter(|line| !line.contains("packet_rcv")) // and tpacket_rcv
        .filter_map(|line| u16::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok())
        .filter(|ethertype| !COUNTED.contains(ethertype))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_of_the_kernel() {
        let text = "Type Device      Function\nALL  eth0     tpacket_rcv\n0800          ip_rcv\n0004          llc_rcv\n\
            0806          arp_rcv\n88cc eth0     packet_rcv\n86dd          ipv6_rcv\n";
        assert_eq!(handlers(text), [0x0004, 0x0806]);
        assert!(handlers("").is_empty());
    }
}
