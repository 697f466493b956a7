//! The control socket: a line of JSON each way between a long-running process and whoever asks it something.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    connection::{ConnectionLimit, Deadline},
    error::ServeError,
};

/// The listener looks this often whether it is to end.
const ACCEPT_PERIOD: Duration = Duration::from_millis(50);
/// The longest that an answer may take: a million prefixes take seconds to be read.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// A process that has said that it ends may take so long to.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request in bytes: a reload has the sessions with it that it is asked from.
const REQUEST_MAX: u64 = 1 << 14;
/// A client has so long to send its request, and again so long to read the answer. Then its connection is closed.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// A command, and where its answer goes.
pub type Request<C, A> = (C, Sender<A>);

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Listener {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens at `path` for commands, which go to `to`. A socket that is there already is taken for that of a process that was killed: hold
    /// a [`lock`](crate::lock()) while you listen.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start<C, A>(path: &Path, to: Sender<Request<C, A>>) -> Result<Self, ServeError>
    where
        C: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        let failed = |source| ServeError::File { operation: "listen on", path: path.to_owned(), source };
        let _ = fs::remove_file(path);
        let socket = UnixListener::bind(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            let mut connections = ConnectionLimit::default();
            while !stopped.load(Ordering::Relaxed) {
                if !connections.has_room() {
                    continue;
                }
                match socket.accept() {
                    Ok((stream, _)) => {
                        let to = to.clone();
                        // Whoever asks badly is not answered.
                        connections.serve("ek-answer", move || drop(serve(&stream, &to)));
                    }
                    Err(_) => thread::sleep(ACCEPT_PERIOD),
                }
            }
        };
        let thread = thread::Builder::new().name("ek-control".into()).spawn(listen).map_err(failed)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only answers.
            let _ = thread.join();
        }
    }
}

fn serve<C: DeserializeOwned, A: Serialize>(stream: &UnixStream, to: &Sender<Request<C, A>>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut line = String::new();
    BufReader::new(Deadline::new(stream, CLIENT_TIMEOUT).take(REQUEST_MAX)).read_line(&mut line)?;
    let (answer_to, answers) = mpsc::channel();
    let ended = || io::Error::other("the process ends");
    to.send((serde_json::from_str(&line)?, answer_to)).map_err(|_| ended())?;
    let answer = answers.recv_timeout(ANSWER_TIMEOUT).map_err(|_| ended())?;
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
/// It does not answer, or it is another user's.
pub fn ask<C: Serialize, A: DeserializeOwned>(path: &Path, command: &C) -> Result<Option<A>, ServeError> {
    let begun = Instant::now();
    loop {
        match ask_once(path, command) {
            // It ends just now: soon nobody listens any more, or the next one does.
            Err(error) if is_reset(&error) && begun.elapsed() < END_TIMEOUT => thread::sleep(ACCEPT_PERIOD),
            answer => {
                let failed =
                    |source| ServeError::File { operation: "ask the process at", path: path.to_owned(), source };
                return answer.map_err(failed);
            }
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof].contains(&error.kind())
}

fn ask_once<C: Serialize, A: DeserializeOwned>(path: &Path, command: &C) -> io::Result<Option<A>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        // Another user's: whether somebody listens cannot be known.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
        Err(_) => return Ok(None),
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(&json_line(command)?)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    Ok(Some(serde_json::from_str(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_answered_and_what_is_none_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        assert_eq!(ask::<u32, u32>(&path, &7).unwrap(), None, "nobody listens");
        let (to, requests) = mpsc::channel::<Request<u32, u32>>();
        let listener = Listener::start(&path, to).unwrap();
        let answers = thread::spawn(move || requests.iter().for_each(|(command, to)| to.send(2 * command).unwrap()));
        assert_eq!(ask(&path, &7).unwrap(), Some(14));
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"not\": \"a number\"}\n").unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "closed without an answer");
        drop(listener);
        answers.join().unwrap();
        assert_eq!(ask::<u32, u32>(&path, &7).unwrap(), None, "nobody listens any more");
    }
}
