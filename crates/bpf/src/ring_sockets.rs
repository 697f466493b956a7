//! What AF_PACKET and AF_XDP sockets received and lost, of all processes, without setting their counters back
//! (`src/bpf/ring_sockets.bpf.c`).

use std::{
    io::Read,
    mem::{MaybeUninit, offset_of},
};

use libbpf_rs::{
    Iter, Link,
    skel::{OpenSkel, SkelBuilder},
};
use model::{Classified, ErrorClass};

use crate::{
    skel::ring_sockets::{RingSocketsSkelBuilder, types::ring_socket as Raw},
    xdp::quiet_libbpf,
};

const ROW: usize = size_of::<Raw>();
const _: () = assert!(ROW == 88);
const AF_PACKET: u32 = 17;

/// The sockets could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum RingSocketsError {
    /// The program could not be loaded.
    #[error(
        "cannot load the kernel program `ring_sockets`: {0}; what AF_PACKET rings and AF_XDP sockets lose is known only to \
         their owners without it. It takes CAP_BPF and CAP_PERFMON (run as root) and a kernel of 5.11 or later with BTF"
    )]
    Load(libbpf_rs::Error),
    /// The walk over the open files failed.
    #[error("cannot walk over the open files of all processes (BPF iterator task_file): {0}")]
    Walk(String),
}

impl Classified for RingSocketsError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Lacking
    }
}

/// What kind of socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingKind {
    /// AF_PACKET without a receive ring.
    Packet,
    /// AF_PACKET with a receive ring.
    PacketRing,
    /// AF_XDP.
    Xdp,
}

/// One socket. Each is listed once, with the process of the lowest id that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingSocket {
    /// What kind.
    pub kind: RingKind,
    /// The inode number, as in /proc/PID/fd (`socket:[N]`).
    pub inode: u64,
    /// The cookie, if anybody has asked for it; otherwise 0.
    pub cookie: u64,
    /// The network namespace, as the inode number of /proc/PID/ns/net.
    pub netns: u32,
    /// The process.
    pub pid: u32,
    /// Its name, at most 15 characters.
    pub comm: String,
    /// The interface it is bound to; 0 for all.
    pub ifindex: u32,
    /// The queue (AF_XDP); otherwise 0.
    pub queue: u32,
    /// Packets received, the lost ones not among them, since the owner last asked (AF_PACKET, 32 bits wide); 0 for AF_XDP.
    pub received: u64,
    /// Packets lost: for AF_PACKET since the owner last asked (PACKET_STATISTICS, 32 bits wide), for AF_XDP those too
    /// large or without a buffer.
    pub lost: u64,
    /// AF_XDP: packets lost because the receive ring was full.
    pub receive_ring_full: u64,
    /// AF_XDP: times that the fill ring was found empty.
    pub fill_ring_empty: u64,
}

/// Lists the sockets, again and again.
#[derive(Debug)]
pub struct RingSockets {
    link: Link,
}

impl RingSockets {
    /// Loads the program. It runs only while [`RingSockets::read`] does.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn open() -> Result<Self, RingSocketsError> {
        quiet_libbpf();
        let mut object = MaybeUninit::uninit();
        let open = RingSocketsSkelBuilder::default().open(&mut object).map_err(RingSocketsError::Load)?;
        let skel = open.load().map_err(RingSocketsError::Load)?;
        let link = skel.progs.list_rings.attach().map_err(RingSocketsError::Load)?;
        Ok(Self { link })
    }

    /// The sockets of all namespaces, by inode number. Takes about a microsecond for each open file of the machine.
    ///
    /// # Errors
    /// When the kernel ends the walk early.
    pub fn read(&self) -> Result<Vec<RingSocket>, RingSocketsError> {
        let mut bytes = Vec::new();
        let mut walk = Iter::new(&self.link).map_err(|e| RingSocketsError::Walk(e.to_string()))?;
        walk.read_to_end(&mut bytes).map_err(|e| RingSocketsError::Walk(e.to_string()))?;
        let mut sockets: Vec<RingSocket> = bytes.as_chunks::<ROW>().0.iter().map(parse).collect();
        sockets.sort_by_key(|socket| (socket.inode, socket.pid));
        sockets.dedup_by_key(|socket| socket.inode);
        Ok(sockets)
    }
}

fn parse(row: &[u8; ROW]) -> RingSocket {
    let long = |at: usize| row[at..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
    let word = |at: usize| row[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
    let comm = &row[offset_of!(Raw, comm)..][..16];
    let end = comm.iter().position(|&b| b == 0).unwrap_or(comm.len());
    RingSocket {
        kind: match (word(offset_of!(Raw, family)), word(offset_of!(Raw, ring_blocks))) {
            (AF_PACKET, 0) => RingKind::Packet,
            (AF_PACKET, _) => RingKind::PacketRing,
            _ => RingKind::Xdp,
        },
        inode: long(offset_of!(Raw, inode)),
        cookie: long(offset_of!(Raw, cookie)),
        netns: word(offset_of!(Raw, netns)),
        pid: word(offset_of!(Raw, pid)),
        comm: String::from_utf8_lossy(&comm[..end]).into_owned(),
        ifindex: word(offset_of!(Raw, ifindex)),
        queue: word(offset_of!(Raw, queue)),
        received: long(offset_of!(Raw, received)),
        lost: long(offset_of!(Raw, lost)),
        receive_ring_full: long(offset_of!(Raw, no_room)),
        fill_ring_empty: long(offset_of!(Raw, no_fill)),
    }
}
