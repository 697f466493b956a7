//! The control socket: a line of JSON each way between a long-running process and whoever asks it something.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::mpsc::{self, RecvTimeoutError, SendError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        socket::{
            AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, setsockopt,
            socket,
            sockopt::{PeerCredentials, SendTimeout},
        },
        stat::{Mode, fchmod},
        time::TimeVal,
    },
    unistd::Pid,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    connection::{ConnectionLimit, Deadline},
    error::ServeError,
    home::LOCK,
    supervised,
    wake::Waker,
};

/// The pause before a connection is accepted, or a process is asked, once more.
const ACCEPT_PERIOD: Duration = Duration::from_millis(50);
/// A process that works gives a sign of life this often until it has the answer: a space, which JSON may begin with.
const KEEPALIVE_PERIOD: Duration = Duration::from_millis(400);
/// Time without a sign of life after which a process hangs or is stopped.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that an answer may take: a million prefixes take seconds to be read.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// A process that has said that it ends may take so long to.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request in bytes: a reload has the sessions with it that it is asked from.
const REQUEST_BYTES_MAX: u64 = 1 << 14;
/// A client has so long to send its request, and again so long to read the answer. Then its connection is closed.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// A command, and where its answer goes.
pub(crate) type Request<C, A> = (C, Sender<A>);

/// Requests to the thread of a server, which is woken.
#[derive(Debug)]
pub(crate) struct Requests<R> {
    pub(crate) to: Sender<R>,
    pub(crate) waker: Waker,
}

impl<R> Requests<R> {
    /// # Errors
    /// The service has ended.
    pub(crate) fn send(&self, request: R) -> Result<(), SendError<R>> {
        self.to.send(request).map(|()| self.waker.wake())
    }
}

impl<R> Clone for Requests<R> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone(), waker: self.waker.clone() }
    }
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Closed, it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens at `path` for commands, which go to `to`. A socket that is there already is taken for that of a process that was killed: hold
    /// a [`lock`](crate::lock()) while you listen.
    pub(crate) fn start<C, A>(path: &Path, to: Requests<Request<C, A>>) -> Result<Self, ServeError>
    where
        C: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        let failed = |source| ServeError::File { operation: "listen on", path: path.to_owned(), source };
        let _ = fs::remove_file(path);
        let socket = private_listener(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let listen = move || {
            let mut connections = ConnectionLimit::default();
            loop {
                let mut waits = [socket.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                let failed = poll(&mut waits, PollTimeout::NONE).is_err();
                if waits[1].any() == Some(true) {
                    return;
                }
                if failed || !connections.has_room() {
                    continue;
                }
                match socket.accept() {
                    Ok((stream, _)) => {
                        let to = to.clone();
                        // A malformed command is not answered.
                        connections.serve("ek-answer", move || drop(serve(&stream, &to)));
                    }
                    // Without a descriptor for it the connection stays in the queue.
                    Err(_) => thread::sleep(ACCEPT_PERIOD),
                }
            }
        };
        let thread = thread::Builder::new().name("ek-control".into()).spawn(listen).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only answers.
            let _ = thread.join();
        }
    }
}

/// A socket whose file is this user's alone from the beginning, whatever the umask.
fn private_listener(path: &Path) -> io::Result<UnixListener> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    fchmod(&fd, Mode::from_bits_truncate(0o600))?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&fd, Backlog::new(128)?)?;
    Ok(fd.into())
}

fn serve<C: DeserializeOwned, A: Serialize>(stream: &UnixStream, to: &Requests<Request<C, A>>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut line = String::new();
    BufReader::new(Deadline::new(stream, CLIENT_TIMEOUT).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let (answer_to, answers) = mpsc::channel();
    let ended = || io::Error::other("the process ends");
    to.send((serde_json::from_str(&line)?, answer_to)).map_err(|_| ended())?;
    let received = Instant::now();
    let answer = loop {
        match answers.recv_timeout(KEEPALIVE_PERIOD) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Timeout) if received.elapsed() < ANSWER_TIMEOUT => {
                Deadline::new(stream, CLIENT_TIMEOUT).write_all(b" ")?;
            }
            Err(_) => return Err(ended()),
        }
    };
    Deadline::new(stream, CLIENT_TIMEOUT).write_all(&json_line(&answer)?)
}

fn json_line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// Asks the process that listens at `path`; none: nobody does.
///
/// # Errors
/// [`ServeError::Silent`] if it gives no sign of life for two seconds; it answers something else, or it is another user's.
pub fn ask<C: Serialize, A: DeserializeOwned>(path: &Path, command: &C) -> Result<Option<A>, ServeError> {
    let begun = Instant::now();
    loop {
        match ask_once(path, command) {
            // It ends just now: soon nobody listens any more, or the next one does.
            Err(AskError { source, .. }) if is_reset(&source) && begun.elapsed() < END_TIMEOUT => {
                thread::sleep(ACCEPT_PERIOD);
            }
            Err(AskError { source, pid }) if is_silence(&source) => {
                return Err(ServeError::Silent { path: path.to_owned(), pid });
            }
            Err(AskError { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
                return Err(ServeError::NotRoot { path: path.to_owned() });
            }
            Err(AskError { source, .. }) => {
                return Err(ServeError::File { operation: "ask the process at", path: path.to_owned(), source });
            }
            Ok(answer) => return Ok(answer),
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof].contains(&error.kind())
}

fn is_silence(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

/// Reason why a command was not answered, and the listening process, if it is known.
#[derive(Debug)]
struct AskError {
    source: io::Error,
    pid: Option<u32>,
}

impl From<io::Error> for AskError {
    fn from(source: io::Error) -> Self {
        Self { source, pid: None }
    }
}

fn ask_once<C: Serialize, A: DeserializeOwned>(path: &Path, command: &C) -> Result<Option<A>, AskError> {
    let stream = match connected(path) {
        Ok(stream) => stream,
        // Another user's: whether somebody listens cannot be known. One whose queue is full accepts nobody any more.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error.into()),
        Err(source) if is_silence(&source) => return Err(AskError { source, pid: lock_holder(path) }),
        Err(_) => return Ok(None),
    };
    let pid = listener_of(&stream);
    converse(&stream, command).map(Some).map_err(|source| AskError { source, pid })
}

/// A connection that waits for nothing longer than [`SILENCE_TIMEOUT`], not even for its beginning.
fn connected(path: &Path) -> io::Result<UnixStream> {
    let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&stream, SendTimeout, &TimeVal::new(SILENCE_TIMEOUT.as_secs() as i64, 0))?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(stream);
    stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    Ok(stream)
}

/// The process that made the socket; none: it is in another PID namespace.
fn listener_of(stream: &UnixStream) -> Option<u32> {
    let pid = getsockopt(stream, PeerCredentials).ok()?.pid();
    u32::try_from(pid).ok().filter(|&pid| pid != 0)
}

/// The process that holds the lock beside a socket whose queue is full; none: no process of this PID namespace holds it.
fn lock_holder(socket: &Path) -> Option<u32> {
    sys::lock_file::flock_holder(&socket.with_file_name(LOCK))
}

fn converse<C: Serialize, A: DeserializeOwned>(mut stream: &UnixStream, command: &C) -> io::Result<A> {
    stream.write_all(&json_line(command)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match line.trim().is_empty() {
        true => Err(ErrorKind::UnexpectedEof.into()),
        false => Ok(serde_json::from_str(&line)?),
    }
}

/// Ends a process that [`ask`] found silent, by SIGKILL. It is gone, or about to be, when this comes back: take its [`lock`](crate::lock())
/// to wait for that.
///
/// # Errors
/// This process may not end it, or its number is unknown here; [`ServeError::Supervised`] if systemd would start it again.
pub fn end_silent(silent: ServeError) -> Result<u32, ServeError> {
    let ServeError::Silent { path, pid: Some(pid) } = &silent else { return Err(silent) };
    // While the connection or the lock is held, no other process has this number.
    let stream = connected(path);
    let listener = match &stream {
        Ok(stream) => listener_of(stream),
        Err(error) if is_silence(error) => lock_holder(path),
        Err(_) => None,
    };
    if let Some(unit) = supervised::unit(*pid).filter(|_| listener == Some(*pid)) {
        return Err(ServeError::Supervised { pid: *pid, unit });
    }
    match (listener == Some(*pid), i32::try_from(*pid)) {
        (false, _) => Ok(*pid),
        (true, Ok(number)) => match kill(Pid::from_raw(number), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => Ok(*pid),
            Err(_) => Err(silent),
        },
        (true, Err(_)) => Err(silent),
    }
}

#[cfg(test)]
mod tests;
