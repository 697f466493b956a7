//! Takes the place of some functions of the C library in a program that `evenkeel link run` starts (LD_PRELOAD), so that its TCP connections to
//! addresses of the cluster go over link.
//!
//! It decides once, when a connection is made: then the program's TCP socket is replaced, under the same number, by an end of a pair of Unix
//! sockets that the broker of this node serves. It keeps nothing about connections in its own memory. What an end stands for is in its name, so
//! fork, dup, exec and passing descriptors on need nothing from it.

#![allow(unsafe_code, reason = "it stands between a program and the C library: each of its functions is called by C")]

mod address;
mod answers;
mod calls;
mod epoll;
mod reads;
mod real;

pub use self::{answers::*, calls::*, epoll::epoll_ctl, reads::*};
