//! Programs whose TCP connections are ends of something else: their system calls are answered by this process, through seccomp user notification.
//!
//! The program is any: static, in Go, with threads and children. Where its call needs another descriptor, it gets one at the same number
//! (SECCOMP_IOCTL_NOTIF_ADDFD), and from then on reads and writes it without us: read, write, poll and close are not in the filter. [`Sockets`] says
//! which connections are taken and what takes their place; [`run`] does the rest.
//!
//! ```no_run
//! # fn example(sockets: &dyn link::supervise::Sockets) -> Result<(), link::LinkError> {
//! let code = link::supervise::run("redis-server".as_ref(), &["--port".into(), "7000".into()], sockets)?;
//! std::process::exit(code);
//! # }
//! ```
//!
//! # What memory is trusted
//! Another thread of the program can change an address between our reading it and the kernel's. So a call that we do, we do with our own copy; a call
//! that we leave to the kernel, the kernel does with whatever the memory holds then, which is what it would have done without us. This is no sandbox:
//! nothing is refused on the strength of memory that the program can change.
//!
//! # Signals
//! A thread whose call has been heard waits in a sleep that only a fatal signal ends (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV): nobody else uses its memory
//! while we write to it, and no answer is lost. A signal with a handler is taken when the call is answered: at once where nothing is waited for; after
//! [`Sockets::connect`] has returned; for an accept that waits, within 50 ms, and the accept begins again or fails with EINTR as the handler
//! was set, with no connection taken.
//!
//! # What a program can see
//! - Calls that are answered here take longer, connections or not; all others take a look at a table of the kernel's (its cache of what a filter allows).
//! - A connect that does not block is done when it returns: with 0, not EINPROGRESS. Until then signals with handlers wait.
//! - A descriptor that was duplicated, or given to another process, before it was connected: only the number that connect was called with is replaced.
//! - What a process watches with its own epoll instances is watched on; io_uring goes past us, and so do MSG_FASTOPEN and 32-bit programs.
//! - Of IPPROTO_TCP only TCP_NODELAY, TCP_MAXSEG and TCP_INFO can be read; what is set at the levels of TCP and IP has no effect.
//! - A program that is killed while it is given a connection takes it along, as one that is killed right behind its accept.
//! - The program and its children gain no privileges by exec: sudo and ping of a user do not work. While this process lives no second one can supervise
//!   them, and when it is killed the calls above fail with ENOSYS.
//! - A connection that broke looks like one that ended, and a send with an address on a connection fails with EISCONN: reads and writes go past us.
//! - A process that may not be traced by us (another user's, or one that forbids it) keeps TCP.

mod accept;
mod address;
mod caller;
mod connect;
mod epolls;
mod options;
mod process;
mod signals;
mod supervisor;

use std::{
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, OwnedFd},
};

pub use self::process::run;
use crate::sockets::Figures;

/// Decides which connections of a program are taken, and makes what takes their place.
///
/// An end is a connected stream socket of AF_UNIX. Its local and peer addresses are kept in its AF_UNIX name, so that they are there in whatever process
/// the end comes to be. Several threads call at once, each with the effective user of the thread of the program.
pub trait Sockets: Send + Sync {
    /// A TCP descriptor is about to connect to `to`: an end that replaces it, or none to let the kernel's TCP go on.
    ///
    /// An IPv6 socket gives an IPv4 address mapped (`::ffff:192.0.2.1`), and expects its names in that form. The program waits meanwhile, however its
    /// descriptor is set.
    ///
    /// # Errors
    /// The error of connect(2), as ECONNREFUSED.
    fn connect(&self, tcp: BorrowedFd<'_>, to: SocketAddr) -> io::Result<Option<OwnedFd>>;

    /// A TCP descriptor has begun to listen, or to listen again.
    fn listens(&self, tcp: BorrowedFd<'_>);

    /// A connection that accept gave: an end that replaces it, and the peer's address; none: it stays.
    ///
    /// # Errors
    /// The connection came to nothing: it is closed, and the program is given the next.
    fn accepted(&self, tcp: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>>;

    /// Local and peer address of an end; none: the descriptor is none.
    fn names(&self, end: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)>;

    /// Figures of an end for TCP_INFO; none: unknown.
    fn figures(&self, _end: BorrowedFd<'_>) -> Option<Figures> {
        None
    }
}
