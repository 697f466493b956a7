//! Messages and streams.

use std::ffi::c_void;

use libc::iovec;
use link::{Handle, LinkError, SendError, State};

use crate::{
    border::{bytes, elements, place},
    errno::{Failed, GONE},
    handle::{Link, call},
};

const NONE_YET: Failed = Failed::new(libc::EAGAIN, c"nothing has come yet");
const NO_ROOM: Failed = Failed::new(libc::EAGAIN, c"no room until the other end has taken more");
const NO_PLACE: Failed = Failed::wrong(c"0 places or bytes ask for nothing");
const SHORT: Failed =
    Failed::new(libc::EMSGSIZE, c"the message is longer than the place for it: iov_len says how long it is");

/// Refuses a connection of the other kind.
#[inline]
fn carries(link: &Link, handle: Handle, stream: bool) -> Result<(), Failed> {
    match link.engine.is_stream(handle) {
        Some(is) if is == stream => Ok(()),
        Some(true) => {
            Err(Failed::new(libc::EPROTOTYPE, c"the connection is a stream: ek_link_write and ek_link_read are for it"))
        }
        Some(false) => Err(Failed::new(
            libc::EPROTOTYPE,
            c"the connection has messages: ek_link_send_many and ek_link_receive_many are for it",
        )),
        None => Err(GONE),
    }
}

/// The error of a send that sent nothing: that of the connection, if it failed.
fn unsent(link: &Link, handle: Handle, error: SendError) -> Failed {
    match (error, link.engine.state(handle)) {
        (SendError::Closed, Some(State::Failed(reason))) => LinkError::Ended(reason).into(),
        (error, _) => error.into(),
    }
}

/// # Safety
/// `link` as for [`call`]; `messages` is NULL, or has `count` elements that each tell of bytes that are there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_send_many(
    link: *mut Link,
    connection: u32,
    messages: *const iovec,
    count: usize,
) -> isize {
    let work = |link: &mut Link| {
        let handle = Handle::of(connection);
        carries(link, handle, false)?;
        let mut taken = 0;
        let mut stopped = None;
        for message in elements(messages.cast_mut(), count)? {
            // SAFETY: the caller says that there are `count` elements, of which this is one.
            let iovec { iov_base, iov_len } = unsafe { message.read() };
            // SAFETY: the caller says that these bytes are there; they are used in this call alone.
            let queued = unsafe { bytes(iov_base, iov_len) }
                .and_then(|message| link.engine.queue(handle, message).map_err(|error| unsent(link, handle, error)));
            if let Err(failed) = queued {
                stopped = Some(failed);
                break;
            }
            taken += 1;
        }
        link.engine.flush()?;
        match stopped {
            Some(failed) if taken == 0 => Err(failed),
            None if taken == 0 => Err(NO_PLACE),
            _ => Ok(taken),
        }
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) }
}

/// # Safety
/// `link` as for [`call`]; `places` is NULL, or has `count` elements that each tell of bytes that may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_receive_many(
    link: *mut Link,
    connection: u32,
    places: *mut iovec,
    count: usize,
) -> isize {
    let work = |link: &mut Link| {
        let handle = Handle::of(connection);
        carries(link, handle, false)?;
        let mut received = 0;
        for at in elements(places, count)? {
            // SAFETY: the caller says that there are `count` elements, of which this is one.
            let iovec { iov_base, iov_len } = unsafe { at.read() };
            // SAFETY: the caller says that these bytes may be written; they are used in this call alone.
            let came = unsafe { place(iov_base, iov_len) }.map(|place| link.engine.receive(handle, place));
            let set_len = |len| {
                // SAFETY: as where it was read; the caller says that it may be written.
                unsafe { at.write(iovec { iov_base, iov_len: len }) }
            };
            let stopped = match came {
                Ok(Ok(Some(len))) => {
                    set_len(len);
                    received += 1;
                    continue;
                }
                Ok(Ok(None)) if link.engine.is_at_end(handle) => return Ok(received),
                Ok(Ok(None)) => NONE_YET,
                Ok(Err(LinkError::Short(len))) if received == 0 => {
                    set_len(len);
                    SHORT
                }
                Ok(Err(error)) => error.into(),
                Err(failed) => failed,
            };
            return if received == 0 { Err(stopped) } else { Ok(received) };
        }
        if received == 0 { Err(NO_PLACE) } else { Ok(received) }
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) }
}

/// # Safety
/// `link` as for [`call`]; `from` is NULL, or has `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_write(
    link: *mut Link,
    connection: u32,
    from: *const c_void,
    len: usize,
) -> isize {
    let work = |link: &mut Link| {
        let handle = Handle::of(connection);
        carries(link, handle, true)?;
        // SAFETY: the caller says that these bytes are there; they are used in this call alone.
        let from = unsafe { bytes(from, len) }?;
        if from.is_empty() {
            return Err(NO_PLACE);
        }
        let written = match link.engine.write(handle, from) {
            Err(LinkError::Send(error)) => return Err(unsent(link, handle, error)),
            written => written?,
        };
        link.engine.flush()?;
        if written == 0 { Err(NO_ROOM) } else { Ok(written as isize) }
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) }
}

/// # Safety
/// `link` as for [`call`]; `to` is NULL, or has `len` bytes that may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_read(link: *mut Link, connection: u32, to: *mut c_void, len: usize) -> isize {
    let work = |link: &mut Link| {
        let handle = Handle::of(connection);
        carries(link, handle, true)?;
        // SAFETY: the caller says that these bytes may be written; they are used in this call alone.
        let to = unsafe { place(to, len) }?;
        if to.is_empty() {
            return Err(NO_PLACE);
        }
        match link.engine.read_into(handle, to)? {
            0 if !link.engine.is_at_end(handle) => Err(NONE_YET),
            read => Ok(read as isize),
        }
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) }
}
