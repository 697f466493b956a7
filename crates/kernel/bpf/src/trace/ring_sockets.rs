//! Receipts and losses of AF_PACKET and AF_XDP sockets of all processes, without setting their counters back
//! (`src/trace/ring_sockets.bpf.c`).

use std::{
    fs::{self, File},
    io::Read,
    mem::{MaybeUninit, offset_of},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use libbpf_rs::{Iter, Link, ProgramMut, skel::OpenSkel};

use crate::{
    program::open,
    skel::ring_sockets::{RingSocketsSkelBuilder, types::ring_socket as Raw},
};

const ROW: usize = size_of::<Raw>();
const _: () = assert!(ROW == 88);
const AF_PACKET: u32 = 17;

/// The sockets could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum RingSocketsError {
    #[error(
        "cannot load the kernel program `ring_sockets`: {0}; what AF_PACKET rings and AF_XDP sockets lose is known only to \
         their owners without it. It takes CAP_BPF and CAP_PERFMON (run as root) and a kernel of 5.11 or later with BTF"
    )]
    Load(libbpf_rs::Error),
    #[error("cannot walk over the open files of all processes (BPF iterator task_file): {0}")]
    Walk(String),
}

model::classified!(RingSocketsError: Lacking);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingKind {
    /// AF_PACKET without a receive ring.
    Packet,
    /// AF_PACKET with a receive ring.
    PacketRing,
    Xdp,
}

/// A socket, listed once, with the process of the lowest id that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingSocket {
    pub kind: RingKind,
    /// The inode number, as in /proc/PID/fd (`socket:[N]`).
    pub inode: u64,
    /// The cookie, if anybody has asked for it; otherwise 0.
    pub cookie: u64,
    /// The network namespace, as the inode number of /proc/PID/ns/net.
    pub netns: u32,
    pub pid: u32,
    /// Its name, at most 15 characters.
    pub comm: String,
    /// The interface it is bound to; 0 for all.
    pub ifindex: u32,
    /// The queue (AF_XDP); otherwise 0.
    pub queue: u32,
    /// Packets received, the lost ones not among them (AF_PACKET); 0 for AF_XDP. Since the owner last asked before
    /// [`RingSockets::open`]; where [`RingSockets::forgets`], since it last asked at all.
    pub received: u64,
    /// Packets lost: for AF_PACKET since the same moment, for AF_XDP those too large or without a buffer.
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
    /// Adds up what owners ask for, as long as it is there.
    summing: Result<Link, String>,
}

impl RingSockets {
    /// Loads the programs. One runs while [`RingSockets::read`] does, the other whenever a process asks for a socket option
    /// (getsockopt(2)): it adds up the losses that the kernel forgets as it tells them.
    ///
    /// # Errors
    /// When the kernel refuses the first. Without the second see [`RingSockets::forgets`].
    pub fn open() -> Result<Self, RingSocketsError> {
        match Self::load(true) {
            // Perhaps for the second alone.
            Err(_) => Self::load(false),
            open => open,
        }
    }

    fn load(adds_up: bool) -> Result<Self, RingSocketsError> {
        let mut object = MaybeUninit::uninit();
        let mut open = open::<RingSocketsSkelBuilder>(&mut object).map_err(RingSocketsError::Load)?;
        open.progs.on_getsockopt.set_autoload(adds_up);
        let skel = open.load().map_err(RingSocketsError::Load)?;
        let link = skel.progs.list_rings.attach().map_err(RingSocketsError::Load)?;
        let refused = "the kernel takes no program for getsockopt (CONFIG_CGROUP_BPF)".to_owned();
        let summing = if adds_up { add_up(&skel.progs.on_getsockopt) } else { Err(refused) };
        Ok(Self { link, summing })
    }

    /// Why losses that the owner of an AF_PACKET socket asks for (PACKET_STATISTICS) are missing in later readings; none when
    /// they are added up.
    pub fn forgets(&self) -> Option<&str> {
        self.summing.as_ref().err().map(String::as_str)
    }

    /// The sockets of all namespaces, by inode number. Takes about a microsecond for each open file of the machine.
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

/// Hangs the program on the root of the control groups, which every socket belongs to.
fn add_up(program: &ProgramMut<'_>) -> Result<Link, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| format!("cannot read /proc/self/mounts: {e}"))?;
    let root = cgroup_root(&mounts)
        .ok_or("no control groups of version 2 are mounted (mount -t cgroup2 none /sys/fs/cgroup/unified)")?;
    if root.join("cgroup.events").exists() {
        return Err(format!("{} is not the root of all control groups (a container)", root.display()));
    }
    let dir = File::open(&root).map_err(|e| format!("cannot open {}: {e}", root.display()))?;
    program.attach_cgroup(dir.as_raw_fd()).map_err(|e| format!("cannot attach to {}: {e}", root.display()))
}

fn cgroup_root(mounts: &str) -> Option<PathBuf> {
    let of_version_2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
    let path = mounts.lines().find(of_version_2)?.split(' ').nth(1)?;
    Some(Path::new(path).to_owned())
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
