//! The socket by which other processes talk to the one that tends a shield: a line of JSON each way.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    asked::{Answer, Command},
    event_loop::Request,
    places::Places,
};
use crate::{
    error::ShieldError,
    serving::{Desk, Within},
};

/// How often the listener looks whether it is to end.
const TICK: Duration = Duration::from_millis(50);
/// A million prefixes take seconds to be read.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a process that has said that it ends may take to.
const ENDING: Duration = Duration::from_secs(5);
/// The longest request: a reload has the sessions with it that it is asked from.
const REQUEST_MAX: u64 = 1 << 14;
/// Who has not asked by then is not answered, and who has not read the answer by then has it no longer.
const MANNERS: Duration = Duration::from_secs(1);

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Listener {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens for commands, which go to `to`.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(places: &Places, to: Sender<Request>) -> Result<Self, ShieldError> {
        let path = places.socket();
        let failed = |source| ShieldError::Place { operation: "listen on", path: path.clone(), source };
        // Of a process that was killed: the lock says that there is no other.
        let _ = fs::remove_file(&path);
        let socket = UnixListener::bind(&path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let listen = move || {
            let mut desk = Desk::default();
            while !told.load(Ordering::Relaxed) {
                if !desk.has_room() {
                    continue;
                }
                match socket.accept() {
                    Ok((stream, _)) => {
                        let to = to.clone();
                        // Whoever asks badly is not answered.
                        desk.serve("ek-answer", move || drop(serve(&stream, &to)));
                    }
                    Err(_) => std::thread::sleep(TICK),
                }
            }
        };
        let thread = std::thread::Builder::new().name("ek-control".into()).spawn(listen).map_err(failed)?;
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

fn serve(stream: &UnixStream, to: &Sender<Request>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut line = String::new();
    BufReader::new(Within::new(stream, MANNERS).take(REQUEST_MAX)).read_line(&mut line)?;
    let command: Command = serde_json::from_str(&line)?;
    let (answer_to, answers) = mpsc::channel();
    let gone = || std::io::Error::other("the shield has ended");
    to.send((command, answer_to)).map_err(|_| gone())?;
    let answer = answers.recv_timeout(PATIENCE).map_err(|_| gone())?;
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    Within::new(stream, MANNERS).write_all(&line)
}

/// Asks the process that tends the shield; none: nobody does.
///
/// # Errors
/// It does not answer.
pub fn ask(places: &Places, command: &Command) -> Result<Option<Answer>, ShieldError> {
    let begun = Instant::now();
    loop {
        match ask_once(places, command) {
            // It ends just now: soon nobody listens any more, or the next one does.
            Err(error) if is_reset(&error) && begun.elapsed() < ENDING => thread::sleep(Duration::from_millis(20)),
            answer => return answer,
        }
    }
}

fn is_reset(error: &ShieldError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error, ShieldError::Place { source, .. } if [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&source.kind()))
}

fn ask_once(places: &Places, command: &Command) -> Result<Option<Answer>, ShieldError> {
    let path = places.socket();
    let failed = |source| ShieldError::Place { operation: "ask the process at", path: path.clone(), source };
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        // Another user's: whether somebody listens cannot be known.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(failed(error)),
        Err(_) => return Ok(None),
    };
    let exchange = || -> std::io::Result<Answer> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&serde_json::to_vec(command)?)?;
        stream.write_all(b"\n")?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    let mut exchange = exchange;
    exchange().map(Some).map_err(failed)
}
