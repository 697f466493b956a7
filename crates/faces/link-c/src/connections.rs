//! Listening, connecting, and where a connection is.

use std::ffi::{c_char, c_int};

use link::{Handle, SendError, State};

use crate::{
    border::{give, has_place, text},
    errno::{Failed, GONE, of_reason},
    handle::{Link, call},
    open::{ADDRESS_BYTES, text_of_c},
};

/// EK_LINK_MESSAGES and EK_LINK_STREAM.
const MESSAGES: c_int = 0;
const STREAM: c_int = 1;
/// EK_LINK_OPENING, EK_LINK_OPEN and EK_LINK_TIME_WAIT.
const OPENING: isize = 1;
const OPEN: isize = 2;
const TIME_WAIT: isize = 3;
/// Connections that wait to be accepted at a port.
const ACCEPT_BACKLOG: usize = 128;

fn is_stream(kind: c_int) -> Result<bool, Failed> {
    match kind {
        MESSAGES => Ok(false),
        STREAM => Ok(true),
        _ => Err(Failed::wrong(c"the kind of a connection is EK_LINK_MESSAGES or EK_LINK_STREAM")),
    }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_listen(link: *mut Link, port: u16, kind: c_int) -> c_int {
    let work = |link: &mut Link| {
        let stream = is_stream(kind)?;
        link.claim.listen(port)?;
        if let Err(error) = link.engine.listen(port, stream, ACCEPT_BACKLOG) {
            link.claim.stop_listening(port)?;
            return Err(error.into());
        }
        link.listens.push(port);
        Ok(0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

const LISTENS_NOT: Failed = Failed::wrong(c"nobody listens on this port: ek_link_listen comes first");

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_stop_listening(link: *mut Link, port: u16) -> c_int {
    let work = |link: &mut Link| {
        let at = link.listens.iter().position(|&other| other == port).ok_or(LISTENS_NOT)?;
        link.listens.swap_remove(at);
        link.engine.stop_listening(port);
        link.engine.flush()?;
        link.claim.stop_listening(port)?;
        Ok(0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// `link` as for [`call`]; `connection` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_accept(link: *mut Link, port: u16, connection: *mut u32) -> c_int {
    const NOBODY: Failed = Failed::new(libc::EAGAIN, c"nobody has connected to this port");
    let work = |link: &mut Link| {
        has_place(connection)?;
        let accepted = match link.engine.accept(port) {
            Some(accepted) => accepted,
            None if link.listens.contains(&port) => return Err(NOBODY),
            None => return Err(LISTENS_NOT),
        };
        // SAFETY: the caller says that it may be written.
        unsafe { give(connection, accepted.number()) }.map(|()| 0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// `link` as for [`call`]; `node` is NULL, or ends with a 0; `connection` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_connect(
    link: *mut Link,
    node: *const c_char,
    port: u16,
    kind: c_int,
    connection: *mut u32,
) -> c_int {
    let work = |link: &mut Link| {
        has_place(connection)?;
        let stream = is_stream(kind)?;
        // SAFETY: the caller says that it ends with a 0; it is used in this call alone.
        let node = unsafe { text(node) }?;
        let to = link.claim.find(node)?;
        let offered = link.engine.connect(to, port, stream)?;
        // SAFETY: the caller says that it may be written.
        unsafe { give(connection, offered.number()) }.map(|()| 0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_state(link: *mut Link, connection: u32) -> c_int {
    let work = |link: &mut Link| match link.engine.state(Handle::of(connection)) {
        Some(State::Opening) => Ok(OPENING),
        Some(State::Open) => Ok(OPEN),
        Some(State::TimeWait) => Ok(TIME_WAIT),
        Some(State::Failed(reason)) => {
            Err(Failed::because(of_reason(reason), format!("the connection ended: {reason}")))
        }
        None => Err(GONE),
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// `link` as for [`call`]; `address` is NULL, or has room for [`ADDRESS_BYTES`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_peer(link: *mut Link, connection: u32, address: *mut c_char) -> c_int {
    let address: *mut [u8; ADDRESS_BYTES] = address.cast();
    let work = |link: &mut Link| {
        has_place(address)?;
        let peer = link.engine.peer_of(Handle::of(connection)).ok_or(GONE)?;
        // SAFETY: the caller says that there is room for so many bytes.
        unsafe { give(address, text_of_c(&peer.to_string())) }.map(|()| 0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_close_connection(link: *mut Link, connection: u32) -> c_int {
    let work = |link: &mut Link| {
        let handle = Handle::of(connection);
        link.engine.state(handle).ok_or(GONE)?;
        let closed = link.engine.close(handle);
        link.engine.flush()?;
        closed.map(|()| 0).map_err(|error| match error {
            SendError::Full => {
                Failed::new(libc::EAGAIN, c"no room for the word that nothing follows: poll, and close it again")
            }
            other => other.into(),
        })
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_abort(link: *mut Link, connection: u32) -> c_int {
    let work = |link: &mut Link| {
        let handle = Handle::of(connection);
        link.engine.state(handle).ok_or(GONE)?;
        link.engine.abort(handle)?;
        Ok(0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}
