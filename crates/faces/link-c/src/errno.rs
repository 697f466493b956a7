//! Errors as C has them: a number of errno.h, and a sentence.

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
};

use link::{LinkError, Reason, SendError};

/// The reason why a call did nothing.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) errno: i32,
    pub(crate) why: Cow<'static, CStr>,
}

impl Failed {
    /// Nothing is allocated: it is what a program that waits gets again and again.
    pub(crate) const fn new(errno: i32, why: &'static CStr) -> Self {
        Self { errno, why: Cow::Borrowed(why) }
    }

    pub(crate) fn because(errno: i32, why: String) -> Self {
        let mut why = why.into_bytes();
        // A name of a node may have any bytes.
        why.retain(|&byte| byte != 0);
        let why = CString::new(why).map_or(Cow::Borrowed(c"the reason cannot be shown"), Cow::Owned);
        Self { errno, why }
    }

    /// A pointer, a length or a number that the caller should not have given.
    pub(crate) const fn wrong(why: &'static CStr) -> Self {
        Self::new(libc::EINVAL, why)
    }
}

/// The failure of a call with a handle of no connection.
pub(crate) const GONE: Failed = Failed::new(
    libc::ENOTCONN,
    c"there is no connection of this number: it ended 2 s ago or more, or there never was one",
);

impl From<LinkError> for Failed {
    fn from(error: LinkError) -> Self {
        Self::because(number(&error), error.to_string())
    }
}

impl From<SendError> for Failed {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Full => Self::new(libc::EAGAIN, c"no room until the other end has taken more"),
            SendError::TooLong => Self::new(libc::EMSGSIZE, c"the message is longer than the room of the connection"),
            SendError::Closed => Self::new(libc::EPIPE, c"this end of the connection is closed"),
        }
    }
}

fn number(error: &LinkError) -> i32 {
    let of = |source: &std::io::Error| source.raw_os_error().unwrap_or(libc::EIO);
    match error {
        LinkError::NoBroker => libc::ENOENT,
        LinkError::NoNode { .. } | LinkError::ThisNode { .. } => libc::EHOSTUNREACH,
        LinkError::SameName { .. } => libc::ENOTUNIQ,
        LinkError::Listens(_) => libc::EADDRINUSE,
        LinkError::Full => libc::EADDRNOTAVAIL,
        LinkError::Short(_) => libc::EMSGSIZE,
        LinkError::Ended(reason) => of_reason(*reason),
        LinkError::Send(SendError::Full) => libc::EAGAIN,
        LinkError::Send(SendError::TooLong) => libc::EMSGSIZE,
        LinkError::Send(SendError::Closed) => libc::EPIPE,
        LinkError::System { source, .. } | LinkError::Refused { source, .. } => of(source),
        LinkError::Receive(error) => error.os_error().map_or(libc::EIO, of),
        LinkError::Transmit(error) => error.os_error().map_or(libc::EIO, of),
        _ => libc::EIO,
    }
}

/// The reason why a connection ended, as a number.
pub(crate) fn of_reason(reason: Reason) -> i32 {
    match reason {
        Reason::Refused => libc::ECONNREFUSED,
        Reason::Unknown | Reason::Aborted => libc::ECONNRESET,
        Reason::Mismatch => libc::EPROTOTYPE,
        Reason::TimedOut => libc::ETIMEDOUT,
        Reason::Forbidden => libc::EACCES,
        Reason::Version => libc::EPROTONOSUPPORT,
    }
}
