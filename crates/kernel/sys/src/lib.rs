//! Every system call that Rust has no safe wrapper for, each with its proof, and what guards the process itself.
//!
//! * Frames: [`packet`], [`packet_tx`] and [`packet_batch`] (AF_PACKET sockets and rings), [`datagram`] (UDP), [`xsk`] (AF_XDP), [`tun`].
//! * The kernel: [`ethtool`], [`interface`], [`link`], [`perf`], [`bpf_program`], [`map_mmap`] (memory shared with BPF maps), [`bpf_ring`] (the reader of a BPF ring
//!   buffer), [`affinity`], [`busy_poll`], [`interrupt`], [`kvm`] (what an exit
//!   costs).
//! * Other programs: [`seccomp_notify`] (their system calls, answered), [`pidfd`] and [`socket_kind`] (their
//!   descriptors), [`epoll_move`] (what they watch).
//! * The process: [`privilege`] (rights checked, and given up for good), [`owner`] (who can change a file), [`program`] (where root's programs are
//!   looked for).
//!
//! A packet socket, read in batches:
//!
//! ```no_run
//! use std::time::Duration;
//! use sys::packet::{Batch, PacketSocket, Readiness};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let socket = PacketSocket::open()?;
//! socket.bind(2)?;
//! let mut batch = Batch::new(64, 128);
//! while socket.wait(Duration::from_secs(1))? == Readiness::Ready {
//!     let n = batch.receive(&socket)?;
//!     println!("{} packets", batch.packets(n).count());
//! }
//! # Ok(())
//! # }
//! ```

#![allow(unsafe_code, reason = "the room of system calls")]

pub mod affinity;
pub mod bpf_program;
pub mod bpf_ring;
pub mod busy_poll;
pub mod datagram;
pub mod dispose;
pub mod epoll_move;
pub mod ethtool;
pub mod fds;
pub mod interface;
pub mod interrupt;
pub mod kvm;
pub mod libpcap;
pub mod link;
pub mod lock_file;
pub mod map_mmap;
pub mod netlink;
mod numa;
pub mod owner;
pub mod packet;
pub mod packet_batch;
pub mod packet_tx;
pub mod perf;
pub mod pidfd;
pub mod privilege;
pub mod program;
pub mod seccomp_notify;
pub mod socket_kind;
pub mod tun;
pub mod worker;
pub mod xsk;

/// The folder of root's files that are gone after a restart of the machine.
pub const RUN_FOLDER: &str = "/run/evenkeel";
