//! Replaces functions of the C library in a program that `evenkeel link run` starts (LD_PRELOAD), so that its TCP connections to addresses of the
//! cluster go over link.
//!
//! When a connection is made, an end of a pair of Unix sockets, which the broker of this node serves, replaces the program's TCP socket under the same
//! number. The end's name has its addresses, so fork, dup, exec and passing descriptors on need nothing from here.
//!
//! After some calls the program takes the connection over from the broker, if the program at the other end does the same ([`link::sockets`] has the
//! picture of the states, [`link::sockets::takeover`] the engine). The descriptor stays the end of the pair, and stays true for calls that are not
//! intercepted.
//!
//! | files | trade |
//! |---|---|
//! | calls, files, exit, rights, reads, writes, polls, epoll, answers | the C library's functions, by what they do |
//! | transfer, sleep, busy_poll | a read or write of a connection that is taken over, and how it waits |
//! | takeover, teardown, fork | when the process begins and ends to carry connections |
//! | state, locked, reentry | the lock, what it guards, and threads that must not take it |
//! | helper, helper_mode | the thread for work that no call does |
//! | table, settings, socket, address, real | descriptors, environment, queries of sockets, addresses of C, the C library |

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
