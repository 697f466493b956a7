//! Takes the place of some functions of the C library in a program that `evenkeel link run` starts (LD_PRELOAD), so that its TCP connections to
//! addresses of the cluster go over link.
//!
//! When a connection is made, the program's TCP socket is replaced, under the same number, by an end of a pair of Unix sockets that the broker of this
//! node serves. What an end stands for is in its name, so fork, dup, exec and passing descriptors on need nothing from here.
//!
//! A connection for which calls go on coming is then carried by the program itself ([`link::sockets::direct`]), past both brokers, as long as the
//! program at the other end does the same. Its descriptor stays the end of the pair, and stays true for calls that are not seen here.

#![allow(unsafe_code, reason = "it stands between a program and the C library: each of its functions is called by C")]

mod address;
mod answers;
mod busy_poll;
mod calls;
mod epoll;
mod exit;
mod files;
mod fork;
mod helper;
mod helper_mode;
mod locked;
mod polls;
mod reads;
mod real;
mod reentry;
mod rights;
mod settings;
mod sleep;
mod socket;
mod state;
mod table;
mod takeover;
mod teardown;
mod transfer;
mod writes;

pub use self::{
    answers::*,
    calls::*,
    epoll::epoll_ctl,
    exit::{_Exit, _exit, execv, execve, execvp, execvpe, fexecve},
    files::*,
    polls::*,
    reads::*,
    rights::{capset, seteuid, setresuid, setreuid, setuid},
    writes::*,
};
