//! Files from node to node: a stream of a line that names the file, its bytes, and a line that comes back.

mod room;

use std::{
    collections::HashMap,
    io::{self, Read},
    path::{Component, Path},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use host::file::{AtomicFile, PRIVATE};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use transport::{Handle, Reason, State};

use self::room::Room;
use crate::{Address, BrokerCarrier, Claim, Engine, LinkError, broker::one_sentence, news::Lines};

/// Port on which files arrive.
pub const PORT: u16 = 1;
/// Busy-poll time before a sleep.
const BUSY_POLL_TIME: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Connections that wait to be accepted.
const ACCEPT_BACKLOG: usize = 16;
/// Bytes of the line that names a file.
const LINE_MAX: usize = 8192;
/// Bytes read of a file at once.
const READ_BYTES_MAX: usize = 1 << 18;
/// Time for a sender to name its file.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without progress after which a file, or an unread result, is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Age from which a file needs a minimum average rate, as it occupies room, and that rate.
const RATE_GRACE_TIME: Duration = Duration::from_secs(30);
const BYTES_PER_S_MIN: u64 = 64 << 10;
/// Time for a sender to read why its file was refused.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Files being received, of all nodes and of one; refused senders that have not read why.
const FILES_MAX: usize = 256;
const FILES_OF_NODE_MAX: usize = 64;
const REFUSED_MAX: usize = 64;
/// Time for which an ended connection is still answered.
const LINGER_TIMEOUT: Duration = Duration::from_secs(3);

/// The sender's description of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Path below the folder of the receiver.
    path: String,
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Reply {
    Written { sha256: String },
    Failed { why: String },
}

/// A file that arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    pub bytes: u64,
    /// The SHA-256 that both ends made of it.
    pub sha256: String,
    /// Nanoseconds from the offer of the connection to the word that the file is on disk.
    pub ns: u64,
}

/// Sends a file to `path` below the folder of a node that receives files; `sent` hears how many bytes have left so far.
///
/// # Errors
/// The file cannot be read or changes meanwhile; the node takes no files, or refuses this one; it goes away.
pub fn send(
    to: Address,
    mut file: impl Read,
    bytes: u64,
    path: &str,
    mut sent: impl FnMut(u64),
) -> Result<Copied, LinkError> {
    let (_claim, mut engine) = Claim::take()?;
    let began = Instant::now();
    let stream = engine.connect(to, PORT, true)?;
    while engine.state(stream) == Some(State::Opening) {
        engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?;
    }
    if engine.state(stream) == Some(State::Failed(Reason::Refused)) {
        let why = format!("{to} accepts no files; there: `evenkeel link serve INTERFACE --receive FOLDER`");
        return Err(LinkError::NotTaken { why });
    }
    let mut head = serde_json::to_vec(&Head { path: path.to_owned(), bytes }).map_err(|e| failed(e.into()))?;
    head.push(b'\n');
    let mut hash = Sha256::new();
    let mut reply = Vec::new();
    let mut out = Out { engine: &mut engine, stream, reply: &mut reply };
    let mut goes_on = out.send(&head)?;
    let mut piece = vec![0; READ_BYTES_MAX];
    let mut left = bytes;
    while left > 0 && goes_on {
        let most = piece.len().min(usize::try_from(left).unwrap_or(READ_BYTES_MAX));
        let read = file.read(&mut piece[..most]).map_err(failed)?;
        if read == 0 {
            return Err(LinkError::Shrank { left });
        }
        hash.update(&piece[..read]);
        goes_on = out.send(&piece[..read])?;
        left -= read as u64;
        sent(bytes - left);
    }
    if bytes == 0 && file.read(&mut piece[..1]).map_err(failed)? > 0 {
        return Err(LinkError::Unsized);
    }
    let reply = loop {
        if let Some(end) = reply.iter().position(|&b| b == b'\n') {
            break serde_json::from_slice::<Reply>(&reply[..end]).map_err(|e| failed(e.into()))?;
        }
        engine.read(stream, |bytes| reply.extend_from_slice(bytes))?;
        engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?;
    };
    let ns = began.elapsed().as_nanos() as u64;
    linger(&mut engine, stream)?;
    let ours = hex(&hash.finalize());
    match reply {
        Reply::Failed { why } => Err(LinkError::NotTaken { why: one_sentence(&why) }),
        Reply::Written { sha256 } if sha256 != ours => Err(LinkError::Differs { ours, theirs: sha256 }),
        Reply::Written { sha256 } => Ok(Copied { bytes, sha256, ns }),
    }
}

/// The way out, which hears whether the other end has had enough.
struct Out<'a> {
    engine: &'a mut Engine<BrokerCarrier>,
    stream: Handle,
    reply: &'a mut Vec<u8>,
}

impl Out<'_> {
    /// Sends all of it; false: the receiver has said something before it had all, which is why it failed.
    fn send(&mut self, mut bytes: &[u8]) -> Result<bool, LinkError> {
        while !bytes.is_empty() {
            let written = self.engine.write(self.stream, bytes)?;
            bytes = &bytes[written..];
            match written {
                0 => self.engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?,
                _ => self.engine.poll()?,
            };
            let reply = &mut *self.reply;
            self.engine.read(self.stream, |bytes| reply.extend_from_slice(bytes))?;
            if !self.reply.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Closes, and turns until the other end has closed too.
fn linger(engine: &mut Engine<BrokerCarrier>, stream: Handle) -> Result<(), LinkError> {
    let began = Instant::now();
    while engine.close(stream).is_err() || engine.state(stream) == Some(State::Open) {
        if began.elapsed() > LINGER_TIMEOUT {
            break;
        }
        engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?;
    }
    Ok(())
}

fn failed(source: io::Error) -> LinkError {
    LinkError::System { operation: "read the file", source }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Receives files below a folder.
#[derive(Debug)]
pub struct Receives {
    room: Room,
    _claim: Claim,
    engine: Engine<BrokerCarrier>,
    files: HashMap<Handle, File>,
    /// Beyond those that come at once.
    refused: HashMap<Handle, File>,
    log: Log,
}

/// Tells of files: what others cause is bounded, so that those that fail do not hide those that arrive.
#[derive(Debug, Default)]
struct Log {
    arrived: Lines,
    failed: Lines,
}

/// Result of a file.
enum Arrival {
    /// Its SHA-256.
    Whole(String),
    Refused(String),
    Cut(String),
}

#[derive(Debug)]
enum File {
    /// Its line is not whole yet; since when it is waited for.
    Named(Vec<u8>, Instant),
    Comes {
        to: AtomicFile,
        hash: Box<Sha256>,
        left: u64,
        came: u64,
        began: Instant,
        /// When something came last.
        heard: Instant,
    },
    Answered {
        answer: Vec<u8>,
        written: usize,
        until: Instant,
    },
}

impl Receives {
    /// Files come to below `folder` from now on, and leave `free` bytes of its file system; none: a tenth. The broker of this namespace has to serve.
    ///
    /// # Errors
    /// There is no such folder; no broker serves; somebody else receives.
    pub fn start(folder: &Path, free: Option<u64>) -> Result<Self, LinkError> {
        let folder = match folder.canonicalize() {
            Ok(found) if found.is_dir() => found,
            Ok(_) => return Err(LinkError::NoFolder { path: folder.to_owned(), source: Errno::ENOTDIR.into() }),
            Err(source) => return Err(LinkError::NoFolder { path: folder.to_owned(), source }),
        };
        let (claim, mut engine) = Claim::take()?;
        claim.listen(PORT)?;
        engine.listen(PORT, true, ACCEPT_BACKLOG)?;
        Ok(Self {
            room: Room::new(folder, free),
            _claim: claim,
            engine,
            files: HashMap::new(),
            refused: HashMap::new(),
            log: Log::default(),
        })
    }

    /// Receives until `stop` is set; tells of each file.
    pub fn run(&mut self, stop: &AtomicBool, mut told: impl FnMut(String)) -> Result<(), LinkError> {
        while !stop.load(Ordering::Relaxed) {
            self.engine.wait(if self.files.is_empty() { Duration::ZERO } else { BUSY_POLL_TIME }, SLEEP_MAX)?;
            while let Some(new) = self.engine.accept(PORT) {
                self.accept(new, &mut told)?;
            }
            let (engine, room, log) = (&mut self.engine, &mut self.room, &mut self.log);
            room.promised.clear();
            let left = |(&stream, file): (&Handle, &File)| Some((engine.peer_of(stream), file.left()?));
            room.promised.extend(self.files.iter().filter_map(left));
            let mut tell = |arrival| log.tell(Instant::now(), arrival, &mut told);
            let mut goes_on = |&stream: &Handle, file: &mut File| {
                turn(engine, stream, file, room, &mut tell).unwrap_or_else(|error| {
                    tell(Arrival::Cut(error.to_string()));
                    false
                })
            };
            self.files.retain(&mut goes_on);
            self.refused.retain(&mut goes_on);
        }
        Ok(())
    }

    /// A file more, or the word why not.
    fn accept(&mut self, new: Handle, told: &mut impl FnMut(String)) -> Result<(), LinkError> {
        let from = self.engine.peer_of(new);
        let of_node = self.files.keys().filter(|&&other| self.engine.peer_of(other) == from).count();
        let mut file = File::Named(Vec::new(), Instant::now());
        let too_many = match () {
            () if of_node >= FILES_OF_NODE_MAX => format!("{of_node} files of your node are arriving already"),
            () if self.files.len() >= FILES_MAX => format!("{FILES_MAX} files of all nodes are arriving already"),
            () => {
                self.files.insert(new, file);
                return Ok(());
            }
        };
        if self.refused.len() >= REFUSED_MAX {
            return self.engine.abort(new);
        }
        let why = format!("{too_many}, the most at once: copy it again later");
        file.answer(Err(why), &mut |arrival| self.log.tell(Instant::now(), arrival, told));
        self.refused.insert(new, file);
        Ok(())
    }
}

impl Log {
    fn tell(&mut self, now: Instant, arrival: Arrival, told: &mut impl FnMut(String)) {
        let (lines, line) = match arrival {
            Arrival::Whole(sha256) => (&mut self.arrived, format!("a file arrived; its SHA-256 is {sha256}")),
            Arrival::Refused(why) => (&mut self.failed, format!("a file was refused: {why}")),
            Arrival::Cut(why) => (&mut self.failed, format!("a file did not arrive: {why}")),
        };
        lines.tell(now, line, told);
    }
}

/// Takes what came of one file; false: it is done.
fn turn(
    engine: &mut Engine<BrokerCarrier>,
    stream: Handle,
    file: &mut File,
    room: &mut Room,
    told: &mut impl FnMut(Arrival),
) -> Result<bool, LinkError> {
    if engine.state(stream).is_none() {
        return Ok(false);
    }
    let from = engine.peer_of(stream);
    engine.read(stream, |bytes| file.take(bytes, from, room, told))?;
    file.is_complete(told);
    file.judge(told);
    let is_over = match file {
        File::Named(_, since) => since.elapsed() >= HEAD_TIMEOUT,
        File::Comes { .. } => false,
        File::Answered { until, .. } => Instant::now() >= *until,
    };
    if is_over {
        engine.abort(stream)?;
        return Ok(false);
    }
    if let File::Answered { answer, written, .. } = file {
        *written += match *written < answer.len() {
            true => engine.write(stream, &answer[*written..])?,
            false => 0,
        };
        // What follows of a refused file is read and dropped until its sender closes.
        if *written == answer.len() && engine.is_at_end(stream) && engine.close(stream).is_ok() {
            return Ok(false);
        }
    } else if engine.is_at_end(stream) {
        told(Arrival::Cut("its sender ended early".to_owned()));
        let _ = engine.close(stream);
        return Ok(false);
    }
    Ok(true)
}

impl File {
    /// Bytes that are to come; none: it is not being received.
    const fn left(&self) -> Option<u64> {
        match self {
            Self::Comes { left, .. } => Some(*left),
            _ => None,
        }
    }

    fn take(&mut self, mut bytes: &[u8], from: Option<Address>, room: &mut Room, told: &mut impl FnMut(Arrival)) {
        if let Self::Named(line, _) = self {
            let end = bytes.iter().position(|&b| b == b'\n');
            line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else {
                if line.len() > LINE_MAX {
                    self.answer(Err("the line that names the file is too long".to_owned()), told);
                }
                return;
            };
            bytes = &bytes[end + 1..];
            match open(line, from, room) {
                Ok((to, left)) => {
                    let now = Instant::now();
                    *self = Self::Comes { to, hash: Box::default(), left, came: 0, began: now, heard: now };
                }
                Err(why) => self.answer(Err(why), told),
            }
        }
        if let Self::Comes { to, hash, left, came, heard, .. } = self {
            if !bytes.is_empty() {
                *heard = Instant::now();
            }
            let bytes = &bytes[..bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
            hash.update(bytes);
            *left -= bytes.len() as u64;
            *came += bytes.len() as u64;
            if let Err(error) = to.put(bytes) {
                self.answer(Err(error.to_string()), told);
            }
        }
    }

    /// Gives the file its name once it is whole.
    fn is_complete(&mut self, told: &mut impl FnMut(Arrival)) {
        if !matches!(self, Self::Comes { left: 0, .. }) {
            return;
        }
        if let Self::Comes { to, hash, .. } = std::mem::replace(self, Self::Named(Vec::new(), Instant::now())) {
            let done = to.write(&[]).map(|()| hex(&hash.finalize())).map_err(|e| e.to_string());
            self.answer(done, told);
        }
    }

    /// Gives it up if it comes too slowly, and tells its sender.
    fn judge(&mut self, told: &mut impl FnMut(Arrival)) {
        let Self::Comes { came, began, heard, .. } = self else { return };
        if let Some(why) = too_slow(*came, began.elapsed(), heard.elapsed()) {
            told(Arrival::Cut(why.clone()));
            self.say(&Reply::Failed { why }, REFUSAL_TIMEOUT);
        }
    }

    fn answer(&mut self, done: Result<String, String>, told: &mut impl FnMut(Arrival)) {
        let reply = match done {
            Ok(sha256) => {
                told(Arrival::Whole(sha256.clone()));
                Reply::Written { sha256 }
            }
            Err(why) => {
                // The path in it is the sender's.
                let why = one_sentence(&why);
                told(Arrival::Refused(why.clone()));
                Reply::Failed { why }
            }
        };
        self.say(&reply, STALL_TIMEOUT);
    }

    /// The part of the file that has arrived is removed.
    fn say(&mut self, reply: &Reply, within: Duration) {
        let mut answer = serde_json::to_vec(reply).unwrap_or_default();
        answer.push(b'\n');
        *self = Self::Answered { answer, written: 0, until: Instant::now() + within };
    }
}

/// Why a file is given up of which so many bytes came since it began, and nothing for a while; none: it goes on.
fn too_slow(came: u64, life: Duration, silence: Duration) -> Option<String> {
    if silence >= STALL_TIMEOUT {
        return Some(format!("no data for {} s", STALL_TIMEOUT.as_secs()));
    }
    let is_slow = u128::from(came) * 1000 < u128::from(BYTES_PER_S_MIN) * life.as_millis();
    (life >= RATE_GRACE_TIME && is_slow)
        .then(|| format!("{came} bytes came within {} s, fewer than {} KiB/s", life.as_secs(), BYTES_PER_S_MIN >> 10))
}

/// The file that a line names, below the folder and nowhere else, if there is room for it.
fn open(line: &[u8], from: Option<Address>, room: &mut Room) -> Result<(AtomicFile, u64), String> {
    let head: Head = serde_json::from_slice(line).map_err(|_| "the line that names the file is damaged".to_owned())?;
    let path = Path::new(&head.path);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_below || path.file_name().is_none() {
        return Err(format!("{} leads out of the folder for files, or names none", head.path));
    }
    if head.path.chars().any(is_unseen) {
        return Err(format!("{:?} has a control or format character: give it another name", head.path));
    }
    room.let_in(from, head.bytes)?;
    let whole = AtomicFile::below(room.folder(), path, PRIVATE).map_err(|e| e.to_string())?;
    Ok((whole, head.bytes))
}

/// A terminal or a script would act on it: controls, ends of lines and paragraphs, format characters. Joiners, which several scripts need, are none.
fn is_unseen(c: char) -> bool {
    // Behind another character, so that accents count as shown.
    let is_escaped = || format!("x{c}").escape_debug().count() > 2;
    c.is_control() || (!c.is_ascii() && !matches!(c, '\u{200c}' | '\u{200d}') && is_escaped())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_path_is_one_short_line_and_many_are_a_few() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = File::Named(Vec::new(), Instant::now());
        let path = format!("../RED\nevenkeel: all fine\u{1b}[2J{}", "x".repeat(4000));
        let mut line = serde_json::to_vec(&Head { path, bytes: 1 }).unwrap();
        line.push(b'\n');
        let mut reasons = Vec::new();
        file.take(&line, None, &mut Room::new(folder.path().to_owned(), Some(1)), &mut |arrival| match arrival {
            Arrival::Refused(why) => reasons.push(why),
            _ => panic!("it is refused"),
        });
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].starts_with("../RED?evenkeel: all fine?[2Jxxx") && reasons[0].len() == 200, "{reasons:?}");
    }

    #[test]
    fn a_name_with_a_character_that_is_not_shown_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path().to_owned(), Some(1));
        let mut open = |path: &str| {
            let head = Head { path: path.to_owned(), bytes: 1 };
            open(&serde_json::to_vec(&head).unwrap(), None, &mut room).map(drop)
        };
        for path in ["\u{1b}]0;T\u{7}z", "nl\nname", "a\u{9b}b", "\u{202e}gnp.exe", "x\u{200b}", "a\u{e0041}"] {
            let why = open(path).unwrap_err();
            assert!(why.contains("a control or format character"), "{path:?}: {why}");
        }
        for path in [".bashrc", "-rf", "Gru\u{308}ße 日本", "it's \"a\\b\""] {
            assert_eq!(open(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_file_has_a_least_rate_over_its_whole_life() {
        const LEAST: u64 = 64 << 10;
        let s = Duration::from_secs;
        for (came, life, silence, goes_on) in [
            (0, s(29), s(29), true),
            (0, s(30), s(30), false),
            (30 * LEAST, s(30), s(0), true),
            (30 * LEAST - 1, s(30), s(0), false),
            (30 * LEAST, s(31), s(1), false),
            // A byte every 4 s, and much at first.
            (900, s(3600), s(3), false),
            (3600 * LEAST, s(3600), s(29), true),
            (u64::MAX, Duration::MAX, s(0), false),
        ] {
            let why = too_slow(came, life, silence);
            assert_eq!(why.is_none(), goes_on, "{came} {life:?} {silence:?}: {why:?}");
        }
    }

    #[test]
    fn a_file_that_is_given_up_leaves_nothing_and_its_sender_hears_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path().to_owned(), Some(1));
        let mut file = File::Named(Vec::new(), Instant::now());
        let (mut reasons, head) = (Vec::new(), b"{\"path\":\"slow\",\"bytes\":100000}\nx");
        let mut told = |arrival| match arrival {
            Arrival::Cut(why) => reasons.push(why),
            _ => panic!("it is given up"),
        };
        file.take(head, None, &mut room, &mut told);
        file.judge(&mut told);
        assert_eq!(file.left(), Some(99_999));
        let File::Comes { began, .. } = &mut file else { panic!("it comes") };
        *began = began.checked_sub(RATE_GRACE_TIME).expect("the machine runs for longer");
        file.judge(&mut told);
        let File::Answered { answer, .. } = &file else { panic!("{file:?} goes on") };
        assert!(
            reasons.len() == 1 && reasons[0].starts_with("1 bytes came within 30 s, fewer than 64 KiB/s"),
            "{reasons:?}"
        );
        assert_eq!(serde_json::from_slice::<Reply>(answer).unwrap(), Reply::Failed { why: reasons.remove(0) });
        assert_eq!((file.left(), std::fs::read_dir(folder.path()).unwrap().count()), (None, 0));
    }

    #[test]
    fn many_files_are_a_few_lines_and_hide_none_of_the_other_kind() {
        let (mut log, mut told, now) = (Log::default(), Vec::new(), Instant::now());
        let mut tell = |now, arrival| log.tell(now, arrival, &mut |line| told.push(line));
        (0..100).for_each(|n| tell(now, Arrival::Refused(format!("{n}"))));
        (0..50).for_each(|n| tell(now, Arrival::Whole(format!("{n}"))));
        tell(now + Duration::from_secs(10), Arrival::Cut("again".to_owned()));
        tell(now + Duration::from_secs(10), Arrival::Whole("again".to_owned()));
        let (few, last) = told.split_at(32);
        assert!(few[..16].iter().all(|line| line.starts_with("a file was refused: ")), "{few:?}");
        assert!(few[16..].iter().all(|line| line.starts_with("a file arrived; its SHA-256 is ")), "{few:?}");
        let sum = |count| format!("{count} more messages like these within 10 s");
        let again = ["a file did not arrive: again", "a file arrived; its SHA-256 is again"].map(str::to_owned);
        assert_eq!(last, [sum(84), again[0].clone(), sum(34), again[1].clone()]);
    }
}
