//! accept and accept4.

use std::{
    fs, io,
    net::{SocketAddr, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{getsockopt, sockopt},
        time::TimeVal,
    },
};
use sys::{fds, pidfd, socket_kind::SocketKind};

use super::{
    Sockets, address,
    caller::{Caller, Done, Place, Stop, copy_timeouts, is_nonblocking, set_nonblocking},
    signals::{self, Interruption},
};

/// Time between two checks for a signal by a waiting accept.
pub(super) const SIGNAL_CHECK_PERIOD: Duration = Duration::from_millis(50);

/// Error that makes the kernel restart the call or return EINTR, as after a signal.
const ERESTARTSYS: i32 = 512;

/// Of all accepts that wait, one at a time looks whether a connection is there and takes it: a listener that blocks would hold up the second.
#[derive(Debug, Default)]
pub(super) struct Taking(Mutex<()>);

impl Taking {
    /// The next connection; none: there is none yet.
    fn next(&self, listener: &OwnedFd, blocks: bool) -> io::Result<Option<OwnedFd>> {
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Also "ready" is a listener that was shut down.
        if blocks && poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? == 0 {
            return Ok(None);
        }
        match fds::accept(listener) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }
}

/// accept(fd, address, length) and accept4(fd, address, length, flags)
pub(super) fn accept(caller: &Caller<'_>, sockets: &dyn Sockets, taking: &Taking, flags: i32) -> Result<Done, Stop> {
    let listener = caller.descriptor()?;
    let kind = SocketKind::of(&listener).map_err(|_| Stop::Leave)?;
    let known = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    if !kind.is_tcp() || !getsockopt(&listener, sockopt::AcceptConn)? || flags & !known != 0 {
        return Err(Stop::Leave);
    }
    // All that can fail is looked at before a connection is taken.
    let place = caller.pointer(1).map(|_| caller.place(1, 2)).transpose()?;
    if is_full(caller) {
        return Err(Errno::EMFILE.into());
    }
    let blocks = !is_nonblocking(listener.as_fd())?;
    let waiting = Waiting::new(caller, &listener)?;
    let (fd, peer) = loop {
        match taking.next(&listener, blocks)? {
            Some(connection) => match become_of(caller, connection, sockets)? {
                Some(taken) => break taken,
                None => continue,
            },
            None if blocks => waiting.step()?,
            None => return Err(Errno::EAGAIN.into()),
        }
    };
    set_nonblocking(fd.as_fd(), flags & libc::SOCK_NONBLOCK != 0)?;
    if let Some(place) = place {
        write_peer(caller, place, peer, kind.domain == libc::AF_INET6)?;
    }
    Ok(Done::Descriptor { fd, close_on_exec: flags & libc::SOCK_CLOEXEC != 0 })
}

/// The descriptor that replaces an accepted connection; none: the connection is closed.
fn become_of(
    caller: &Caller<'_>,
    connection: OwnedFd,
    sockets: &dyn Sockets,
) -> Result<Option<(OwnedFd, SocketAddr)>, Stop> {
    match caller.as_its_user(|| sockets.accepted(connection.as_fd())).unwrap_or(Ok(None)) {
        Ok(Some((end, peer))) => {
            copy_timeouts(&connection, &end)?;
            Ok(Some((end, peer)))
        }
        Ok(None) => {
            let stream = TcpStream::from(connection);
            // Reset already.
            let Ok(peer) = stream.peer_addr() else { return Ok(None) };
            Ok(Some((stream.into(), peer)))
        }
        Err(_) => Ok(None),
    }
}

fn write_peer(caller: &Caller<'_>, place: Place, peer: SocketAddr, v6: bool) -> Result<(), Errno> {
    caller.fill(place, &address::encode(address::in_family(peer, v6)))
}

/// True if the program has all the descriptors that it may have. A kernel before 6.2 does not tell, and then the connection is lost instead.
fn is_full(caller: &Caller<'_>) -> bool {
    let Ok(limit) = pidfd::descriptor_limit(caller.thread()) else { return false };
    let folder = format!("/proc/{}/fd", caller.thread());
    // The size is how many there are, and those from before the limit was lowered may be beyond it.
    let may_be = fs::metadata(&folder).is_ok_and(|folder| folder.size() >= limit);
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u64>().ok();
    may_be
        && fs::read_dir(&folder).is_ok_and(|all| all.filter_map(number).filter(|n| *n < limit).count() as u64 >= limit)
}

/// An accept that waits for a connection.
struct Waiting<'a> {
    caller: &'a Caller<'a>,
    listener: &'a OwnedFd,
    until: Option<Instant>,
    seen: std::cell::Cell<bool>,
}

impl<'a> Waiting<'a> {
    fn new(caller: &'a Caller<'a>, listener: &'a OwnedFd) -> Result<Self, Errno> {
        let timeout = getsockopt(listener, sockopt::ReceiveTimeout)?;
        let limited = timeout != TimeVal::new(0, 0);
        // The kernel takes seconds whose microseconds are no i64.
        let time = Duration::from_secs(timeout.tv_sec().unsigned_abs())
            + Duration::from_micros(timeout.tv_usec().unsigned_abs());
        let until = limited.then(|| Instant::now() + time);
        Ok(Self { caller, listener, until, seen: std::cell::Cell::new(false) })
    }

    /// Waits for a connection for a while; fails when the program no longer waits for one.
    fn step(&self) -> Result<(), Stop> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Errno::EAGAIN.into());
        }
        // Rounded up: a wait of no time would spin until the time is over.
        let tick = left.map_or(SIGNAL_CHECK_PERIOD, |left| left.min(SIGNAL_CHECK_PERIOD)) + Duration::from_micros(999);
        let mut fds = [
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            // The listener is not to outlive the process: its port would be taken.
            PollFd::new(self.caller.process().as_fd(), PollFlags::POLLIN),
        ];
        let timeout = PollTimeout::try_from(tick).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(0) => {}
            Ok(_) if fds[1].any() == Some(true) => return Err(Stop::Leave),
            Ok(_) | Err(Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        if !self.caller.waits() {
            return Err(Stop::Leave);
        }
        match signals::interruption(self.caller.thread()) {
            Interruption::Certain if self.until.is_none() => Err(Stop::Fails(ERESTARTSYS)),
            // With a time-out the kernel, too, does not begin again.
            Interruption::Certain => Err(Errno::EINTR.into()),
            // ERESTARTSYS without a signal would be seen by the program. Who else may take it had the time to.
            Interruption::Possible if self.seen.replace(true) => Err(Errno::EINTR.into()),
            Interruption::Possible => Ok(()),
            Interruption::None => {
                self.seen.set(false);
                Ok(())
            }
        }
    }
}
