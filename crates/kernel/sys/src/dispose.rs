//! Releasing sockets that hold descriptors of other programs, without waiting for any of them.
//!
//! A descriptor in flight, which a program sent over a Unix socket and nobody received, is released by the thread that closes that socket: there a TCP
//! socket with SO_LINGER waits for its peer, for hours if it likes. A thread that exits waits for none (`inet_release` looks at PF_EXITING). So a thread with a table of
//! descriptors of its own (unshare(2), CLONE_FILES) receives what is to go and exits; before that it starts the next one.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

use nix::{
    cmsg_space,
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::socket::{
        AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
    },
    unistd::close,
};

use crate::{fds::received, privilege::drop_all_but};

/// Time in which more is collected, so that threads are few.
const COLLECT_PERIOD: Duration = Duration::from_millis(5);
/// Time between two tries where the thread has too many to take.
const RETRY_PERIOD: Duration = Duration::from_millis(1);
/// Descriptors that one thread takes away.
const BATCH_MAX: usize = 256;

/// Sockets are sent to the thread by it.
#[derive(Debug)]
pub struct Disposer {
    to: OwnedFd,
    /// Held until a descriptor that was sent is closed here: the last one to close it is to be the thread.
    sends: Arc<Mutex<()>>,
}

impl Disposer {
    /// Starts the thread, which has no capabilities. It closes its copies of all open descriptors: to be called before one is open whose close may wait.
    pub fn start() -> io::Result<Self> {
        let (to, from) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(io::Error::from)?;
        let sends = Arc::<Mutex<()>>::default();
        let (sender, receiver) = channel();
        let (number, of_thread) = (from.as_raw_fd(), Arc::clone(&sends));
        thread::Builder::new().name("ek-dispose".into()).spawn(move || {
            let own = drop_all_but(&[])
                .map_err(io::Error::other)
                .and_then(|()| Ok(unshare(CloneFlags::CLONE_FILES)?))
                .and_then(|()| close_all_but(number));
            let is_ready = own.is_ok();
            if sender.send(own).is_ok() && is_ready {
                run(number, &of_thread);
            }
        })?;
        receiver.recv().map_err(|_| io::Error::other("its thread ended"))??;
        Ok(Self { to, sends })
    }

    /// Releases a socket that this process has made or accepted, with all descriptors in flight to it. What a program has sent and was received may be no
    /// socket: its close is a call to its file system, here too.
    pub fn dispose(&self, socket: OwnedFd) {
        let number = [socket.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&number)];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        loop {
            let sends = self.sends.lock().unwrap_or_else(PoisonError::into_inner);
            match sendmsg::<()>(self.to.as_raw_fd(), &[IoSlice::new(b".")], &rights, flags, None) {
                Ok(_) => return drop(socket),
                // The thread takes the lock before it exits: it is not to be waited for with the lock held.
                Err(Errno::EAGAIN) => drop(sends),
                Err(_) => break,
            }
            thread::sleep(RETRY_PERIOD);
        }
        // By a thread that may wait.
        let _ = thread::Builder::new().name("ek-dispose".into()).spawn(move || drop(socket));
    }
}

/// A socket that is disposed of when it is dropped.
#[derive(Debug)]
pub struct Disposed {
    socket: Option<OwnedFd>,
    disposer: Arc<Disposer>,
}

impl Disposed {
    /// The socket, a listening one for instance.
    pub fn new(socket: OwnedFd, disposer: &Arc<Disposer>) -> Self {
        Self { socket: Some(socket), disposer: Arc::clone(disposer) }
    }

    /// The socket, for a thread whose wait holds up nobody else.
    pub fn into_inner(mut self) -> OwnedFd {
        self.socket.take().expect("it is there until it is dropped")
    }
}

impl AsFd for Disposed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for Disposed {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.disposer.dispose(socket);
        }
    }
}

/// Closes all descriptors of the calling thread's table but one.
fn close_all_but(number: RawFd) -> io::Result<()> {
    let number = number.cast_unsigned();
    for (first, last) in [(0, number.wrapping_sub(1)), (number + 1, u32::MAX)] {
        // SAFETY: the table is this thread's own (unshare), and the thread uses none of them.
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes what is sent, starts the next thread and returns, which ends this one and releases what it took.
fn run(from: RawFd, sends: &Arc<Mutex<()>>) {
    let mut taken: Vec<OwnedFd> = Vec::new();
    loop {
        match take(from, MsgFlags::empty()) {
            Ok(Taken::Fd(fd)) => taken.push(fd),
            Ok(Taken::None) | Err(Errno::EINTR) => continue,
            Ok(Taken::End) | Err(_) => return leave(taken),
        }
        thread::sleep(COLLECT_PERIOD);
        while taken.len() < BATCH_MAX
            && let Ok(Taken::Fd(fd)) = take(from, MsgFlags::MSG_DONTWAIT)
        {
            taken.push(fd);
        }
        // Whoever sent them has closed its own.
        drop(sends.lock().unwrap_or_else(PoisonError::into_inner));
        let (ready, is_ready) = channel();
        let (numbers, sends) = (taken.iter().map(AsRawFd::as_raw_fd).collect(), Arc::clone(sends));
        let next =
            thread::Builder::new().name("ek-dispose".into()).spawn(move || follow(from, numbers, &ready, &sends));
        // Without a next one this one goes on, and tries again with what comes.
        if next.is_ok() && is_ready.recv().is_ok() {
            return leave(taken);
        }
    }
}

/// Leaves descriptors to the end of the thread.
fn leave(taken: Vec<OwnedFd>) {
    mem::forget(taken);
}

/// The next thread: it keeps nothing of what the one before has taken.
fn follow(from: RawFd, numbers: Vec<RawFd>, ready: &Sender<()>, sends: &Arc<Mutex<()>>) {
    if unshare(CloneFlags::CLONE_FILES).is_err() {
        return;
    }
    for number in numbers {
        let _ = close(number);
    }
    if ready.send(()).is_ok() {
        run(from, sends);
    }
}

/// The content of a message.
enum Taken {
    Fd(OwnedFd),
    /// A message without a descriptor: this table had no room for it.
    None,
    /// Nobody can send any more.
    End,
}

fn take(from: RawFd, flags: MsgFlags) -> Result<Taken, Errno> {
    let (mut byte, mut space) = ([0], cmsg_space!(RawFd));
    let mut places = [IoSliceMut::new(&mut byte)];
    let message = recvmsg::<()>(from, &mut places, Some(&mut space), flags | MsgFlags::MSG_CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(Taken::End);
    }
    let Ok(messages) = message.cmsgs() else { return Ok(Taken::None) };
    let rights = messages.filter_map(|message| match message {
        ControlMessageOwned::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(received(rights).pop().map_or(Taken::None, Taken::Fd))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        os::unix::net::UnixDatagram,
        time::Instant,
    };

    use nix::{
        libc::linger,
        sys::socket::{setsockopt, sockopt::Linger},
    };

    use super::*;

    #[test]
    fn sockets_that_linger_in_one_that_nobody_reads_are_released_at_once() {
        let disposer = Disposer::start().unwrap();
        // Two rounds: the thread and the one that it starts.
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut other, _) = listener.accept().unwrap();
            full.set_nonblocking(true).unwrap();
            while full.write(&[0; 1 << 16]).is_ok() {}
            setsockopt(&full, Linger, &linger { l_onoff: 1, l_linger: 3600 }).unwrap();
            let (sends, holds) = UnixDatagram::pair().unwrap();
            let number = [full.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&number)];
            sendmsg::<()>(sends.as_raw_fd(), &[IoSlice::new(b".")], &rights, MsgFlags::empty(), None).unwrap();
            drop((full, sends));
            let begun = Instant::now();
            disposer.dispose(holds.into());
            assert!(begun.elapsed() < Duration::from_secs(60), "it waited");
            // Released: what it had not sent yet comes, and then its end.
            other.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            io::copy(&mut other, &mut io::sink()).unwrap();
        }
    }

    #[test]
    fn more_than_the_thread_can_take_at_once_are_all_released() {
        let disposer = Disposer::start().unwrap();
        let ends: Vec<UnixDatagram> = thread::scope(|scope| {
            let sends = || {
                let pairs = (0..1000).map(|_| UnixDatagram::pair().unwrap());
                pairs.map(|(kept, goes)| (kept, disposer.dispose(goes.into())).0).collect::<Vec<_>>()
            };
            let both = [scope.spawn(sends), scope.spawn(sends)];
            both.into_iter().flat_map(|one| one.join().unwrap()).collect()
        });
        let begun = Instant::now();
        for end in ends {
            while end.send(b"x").is_ok() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the other end is there");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
