//! Every system call that Rust has no safe wrapper for, each with its proof, and what guards the process itself.
//!
//! * Frames: [`packet`], [`packet_tx`] and [`packet_batch`] (AF_PACKET sockets and rings), [`xsk`] (AF_XDP), [`tun`].
//! * The kernel: [`ethtool`], [`link`], [`perf`], [`bpf_program`], [`map_mmap`] (memory shared with BPF maps), [`affinity`], [`interrupt`].
//! * The process: [`privilege`] (rights checked, and given up for good), [`owner`] (who can change a file), [`program`] (where root's programs are
//!   looked for).

#![allow(unsafe_code, reason = "the room of system calls")]

pub mod affinity;
pub mod bpf_program;
pub mod ethtool;
pub mod interrupt;
pub mod link;
pub mod map_mmap;
pub mod netlink;
mod numa;
pub mod owner;
pub mod packet;
pub mod packet_batch;
pub mod packet_tx;
pub mod perf;
pub mod privilege;
pub mod program;
pub mod tun;
pub mod xsk;
