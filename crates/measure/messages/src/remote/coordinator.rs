//! The coordinator's side of a worker.

use std::{
    fmt::Debug,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use host::ssh;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Facts;
use crate::MessagesError;

/// Time to connect by ssh.
const SSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for a reply: work of the worker without orders ends after 10 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(25);
/// Time to wait for the exit of a worker that has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);
/// Exit codes of a shell that finds no such program, and that cannot run it.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;
/// Bytes kept of the standard error of ssh and the worker.
const STDERR_BYTES_MAX: u64 = 1 << 16;
const REPLY_BYTES_MAX: u64 = 16 << 20;

/// A machine, and the command that starts a process there.
#[derive(Debug)]
pub struct Reach {
    node: String,
    is_here: bool,
    command: Command,
}

impl Reach {
    /// By ssh, with options as behind its `-o`: `program` there, with these words.
    pub fn by_ssh(node: &str, options: &[String], program: &str, words: &[&str]) -> Result<Self, MessagesError> {
        if !ssh::is_name(node) {
            return Err(MessagesError::Name(node.to_owned()));
        }
        let words = [&[program], words].concat();
        let words: Vec<String> = words.iter().map(|word| ssh::quoted(word)).collect();
        let script = ssh::script(&format!("exec {}", words.join(" ")));
        Ok(Self { node: node.to_owned(), is_here: false, command: ssh::command(node, options, SSH_TIMEOUT, &script) })
    }

    /// This machine itself, without ssh.
    pub fn here(program: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words);
        Self { node: "this machine".to_owned(), is_here: true, command }
    }
}

/// A line of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply<A> {
    /// The first line: the machine of the worker.
    Facts(Box<Facts>),
    Answer(A),
    /// An order that failed, and why.
    Failed(String),
}

/// A worker process on another machine. It ends when this is dropped.
pub(crate) struct Worker<A> {
    node: String,
    is_here: bool,
    child: Child,
    /// None once it is to end.
    input: Option<ChildStdin>,
    answers: Receiver<Reply<A>>,
    stderr: Option<JoinHandle<String>>,
}

impl<A: DeserializeOwned + Debug + Send + 'static> Worker<A> {
    /// The machine, as it was named.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn start(reach: Reach) -> Result<Self, MessagesError> {
        let Reach { node, is_here, mut command } = reach;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for this process, which ends it.
        let mut child = command.process_group(0).spawn().map_err(MessagesError::Ssh)?;
        let (to, answers) = channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                // What else a login shell prints is no answer.
                let mut output = BufReader::new(output);
                let lines = std::iter::from_fn(|| line_of(&mut output));
                for answer in lines.filter_map(|line| ssh::json(&line).ok()) {
                    if to.send(answer).is_err() {
                        return;
                    }
                }
            });
        }
        let stderr = child.stderr.take().map(|errors| {
            thread::spawn(move || {
                let mut stderr = String::new();
                // What is not text is not shown.
                let _ = errors.take(STDERR_BYTES_MAX).read_to_string(&mut stderr);
                stderr
            })
        });
        Ok(Self { node, is_here, input: child.stdin.take(), child, answers, stderr })
    }

    pub(crate) fn order(&mut self, order: &impl Serialize) -> Result<(), MessagesError> {
        let line = serde_json::to_string(order).map_err(|e| MessagesError::Words(e.to_string()))?;
        let given = self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        match given {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    pub(crate) fn answer(&mut self) -> Result<A, MessagesError> {
        match self.reply()? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Facts(facts) => Err(MessagesError::Words(format!("{facts:?} for an answer"))),
            Reply::Failed(message) => Err(MessagesError::Far { node: self.node.clone(), message }),
        }
    }

    fn reply(&mut self) -> Result<Reply<A>, MessagesError> {
        match self.answers.recv_timeout(REPLY_TIMEOUT) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
            Err(RecvTimeoutError::Timeout) => Err(MessagesError::Gone {
                node: self.node.clone(),
                message: format!("no answer within {} s", REPLY_TIMEOUT.as_secs()),
            }),
        }
    }

    /// The facts of the other machine, checked: the same version of evenkeel, the same MTU.
    pub(crate) fn facts(&mut self, ours: &Facts) -> Result<Facts, MessagesError> {
        let theirs = match self.reply()? {
            Reply::Facts(theirs) => *theirs,
            other => return Err(MessagesError::Words(format!("{other:?} for facts"))),
        };
        let node = || self.node.clone();
        if theirs.mac == ours.mac && !self.is_here {
            return Err(MessagesError::ThisMachine(node()));
        }
        if theirs.version != ours.version {
            return Err(MessagesError::Version { node: node(), ours: ours.version.clone(), theirs: theirs.version });
        }
        if theirs.mtu != ours.mtu {
            let interface = ours.interface.clone();
            return Err(MessagesError::Mtus { interface, node: node(), ours: ours.mtu, theirs: theirs.mtu });
        }
        Ok(theirs)
    }

    /// The error of a worker that has ended, with the last line of its standard error.
    fn gone(&mut self) -> MessagesError {
        self.input = None;
        // It may be about to end by itself, and then says how.
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < EXIT_TIMEOUT {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let status = self.child.wait();
        let stderr = self.stderr.take().and_then(|stderr| stderr.join().ok()).unwrap_or_default();
        let code = status.as_ref().ok().and_then(std::process::ExitStatus::code);
        let how = match (stderr.trim(), code, status) {
            (_, Some(NOT_FOUND | NOT_RUN), _) => {
                format!("{}; install evenkeel there, or name it with --program", ssh::last_words(&stderr))
            }
            ("", _, Ok(status)) => format!("its process ended ({status})"),
            _ => ssh::last_words(&stderr),
        };
        MessagesError::Gone { node: self.node.clone(), message: how }
    }
}

impl<A> Drop for Worker<A> {
    fn drop(&mut self) {
        // The end of its input ends the other process; ssh ends with that.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line; none: there is none, or it is too long.
fn line_of(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    from.take(REPLY_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    (line.last() == Some(&b'\n') || !line.is_empty() && (line.len() as u64) < REPLY_BYTES_MAX).then_some(line)
}
