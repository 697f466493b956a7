//! The control of the process on the other machine.

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

use super::{ApartError, Facts};

/// A machine answers ssh within this time.
const REACH: Duration = Duration::from_secs(10);
/// The other process answers within this time: what it does by itself ends after 10 s at most.
const ANSWER: Duration = Duration::from_secs(25);
/// One that has closed its output ends within this time.
const ENDS: Duration = Duration::from_millis(300);
/// Exit codes of a shell that finds no such program, and that cannot run it.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;
/// The most bytes of what ssh and the other process say besides their answers.
const SAID_MAX: u64 = 1 << 16;
/// Bytes of the longest answer.
const LINE_MAX: u64 = 16 << 20;

/// A machine, and the command that starts a process there.
#[derive(Debug)]
pub struct Reach {
    node: String,
    is_here: bool,
    command: Command,
}

impl Reach {
    /// By ssh, with options as behind its `-o`: `program` there, with these words.
    ///
    /// # Errors
    /// The name is none.
    pub fn by_ssh(node: &str, options: &[String], program: &str, words: &[&str]) -> Result<Self, ApartError> {
        if !ssh::is_name(node) {
            return Err(ApartError::Name(node.to_owned()));
        }
        let words = [&[program], words].concat();
        let words: Vec<String> = words.iter().map(|word| ssh::quoted(word)).collect();
        let script = ssh::script(&format!("exec {}", words.join(" ")));
        Ok(Self { node: node.to_owned(), is_here: false, command: ssh::command(node, options, REACH, &script) })
    }

    /// This machine itself, without ssh.
    pub fn here(program: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words);
        Self { node: "this machine".to_owned(), is_here: true, command }
    }
}

/// What the process on the other machine says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply<A> {
    /// First: what that machine is.
    Facts(Box<Facts>),
    /// To an order.
    Answer(A),
    /// An order that was not obeyed, and why.
    Failed(String),
}

/// The process on the other machine. It ends when this is dropped.
pub(crate) struct Near<A> {
    node: String,
    is_here: bool,
    child: Child,
    /// None once it is to end.
    input: Option<ChildStdin>,
    answers: Receiver<Reply<A>>,
    said: Option<JoinHandle<String>>,
}

impl<A: DeserializeOwned + Debug + Send + 'static> Near<A> {
    /// The machine, as it was named.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Starts it.
    pub(crate) fn start(reach: Reach) -> Result<Self, ApartError> {
        let Reach { node, is_here, mut command } = reach;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for this process, which ends it.
        let mut child = command.process_group(0).spawn().map_err(ApartError::Ssh)?;
        let (to, answers) = channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                // What else a login shell prints is no answer.
                let mut output = BufReader::new(output);
                let lines = std::iter::from_fn(|| line_of(&mut output));
                for answer in lines.filter_map(|line| serde_json::from_slice(&line).ok()) {
                    if to.send(answer).is_err() {
                        return;
                    }
                }
            });
        }
        let said = child.stderr.take().map(|errors| {
            thread::spawn(move || {
                let mut said = String::new();
                // What is not text is not shown.
                let _ = errors.take(SAID_MAX).read_to_string(&mut said);
                said
            })
        });
        Ok(Self { node, is_here, input: child.stdin.take(), child, answers, said })
    }

    /// Gives an order.
    pub(crate) fn order(&mut self, order: &impl Serialize) -> Result<(), ApartError> {
        let line = serde_json::to_string(order).map_err(|e| ApartError::Words(e.to_string()))?;
        let given = self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        match given {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Result<A, ApartError> {
        match self.reply()? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Facts(facts) => Err(ApartError::Words(format!("{facts:?} for an answer"))),
            Reply::Failed(said) => Err(ApartError::Far { node: self.node.clone(), said }),
        }
    }

    fn reply(&mut self) -> Result<Reply<A>, ApartError> {
        match self.answers.recv_timeout(ANSWER) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
            Err(RecvTimeoutError::Timeout) => Err(ApartError::Gone {
                node: self.node.clone(),
                said: format!("no answer within {} s", ANSWER.as_secs()),
            }),
        }
    }

    /// The facts of the other machine, which it tells first; it has the same version, and its link the same MTU.
    pub(crate) fn facts(&mut self, ours: &Facts) -> Result<Facts, ApartError> {
        let theirs = match self.reply()? {
            Reply::Facts(theirs) => *theirs,
            other => return Err(ApartError::Words(format!("{other:?} for facts"))),
        };
        let node = || self.node.clone();
        if theirs.mac == ours.mac && !self.is_here {
            return Err(ApartError::Same(node()));
        }
        if theirs.version != ours.version {
            return Err(ApartError::Version { node: node(), ours: ours.version.clone(), theirs: theirs.version });
        }
        if theirs.mtu != ours.mtu {
            let interface = ours.interface.clone();
            return Err(ApartError::Mtus { interface, node: node(), ours: ours.mtu, theirs: theirs.mtu });
        }
        Ok(theirs)
    }

    /// Why it is no longer there: its last words.
    fn gone(&mut self) -> ApartError {
        self.input = None;
        // It may be about to end by itself, and then says how.
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < ENDS {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let status = self.child.wait();
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let code = status.as_ref().ok().and_then(std::process::ExitStatus::code);
        let how = match (said.trim(), code, status) {
            (_, Some(NOT_FOUND | NOT_RUN), _) => {
                format!("{}; install evenkeel there, or name it with --program", ssh::last_words(&said))
            }
            ("", _, Ok(status)) => format!("its process ended ({status})"),
            _ => ssh::last_words(&said),
        };
        ApartError::Gone { node: self.node.clone(), said: how }
    }
}

impl<A> Drop for Near<A> {
    fn drop(&mut self) {
        // The end of its input ends the other process; ssh ends with that.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line; none: there is none, or it is longer than an answer.
fn line_of(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    (line.last() == Some(&b'\n') || !line.is_empty() && (line.len() as u64) < LINE_MAX).then_some(line)
}
