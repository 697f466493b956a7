//! Answers to system calls of another program: a seccomp filter that asks, and the listener that answers.
//!
//! seccomp_unotify(2) is the manual. [`start()`] starts a program behind a [`Filter`]; each system call that the filter names waits until the [`Listener`]
//! has answered it. All others go past. Children and threads of the program have the filter, too, and it cannot be taken off.
//!
//! The filter is no sandbox: a thread of the program can change what a pointer of a call points to after the listener has read it.

mod filter;
mod listener;
mod start;

pub use self::{
    filter::{Call, Filter, FilterError, Rule, SocketOption},
    listener::{Answer, Listener, Notification},
    start::{StartError, start},
};
