//! Every hand-written unsafe call: packet rings, AF_XDP rings, ethtool ioctls, mmap, setns.

#![allow(unsafe_code)]

pub mod affinity;
pub mod bpf_program;
pub mod ethtool;
pub mod interrupt;
pub mod link;
pub mod map_mmap;
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
