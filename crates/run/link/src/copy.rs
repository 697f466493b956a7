//! File transfer between nodes: a stream of a head line, the file's bytes, and a reply line.

mod room;
mod send;

use std::{
    collections::HashMap,
    path::{Component, Path},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use host::file::{AtomicFile, PRIVATE};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use transport::Handle;

use self::room::Room;
pub use self::send::{Copied, send};
use crate::{Address, BrokerCarrier, Claim, Engine, LinkError, broker::sanitized_message, log::LogLimit};

/// Port on which files arrive.
pub const PORT: u16 = 1;
/// Busy-poll time before a sleep.
const BUSY_POLL_TIME: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Connections that wait to be accepted.
const ACCEPT_BACKLOG: usize = 16;
/// Bytes of the line that names a file, and of the reply.
const LINE_MAX: usize = 8192;
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

impl Reply {
    /// Reads the line of the receiver; none: more of it is to come.
    ///
    /// # Errors
    /// It is too long or no reply, or the receiver has ended before its end.
    fn parse(bytes: &[u8], is_at_end: bool) -> Result<Option<Self>, LinkError> {
        let not_taken = |why: &str| Err(LinkError::NotTaken { why: why.to_owned() });
        let end = bytes.iter().take(LINE_MAX).position(|&b| b == b'\n');
        let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match end.map(|end| serde_json::from_slice(&bytes[..end])) {
            Some(Ok(Self::Written { sha256 })) if !is_hash(&sha256) => not_taken("the node's reply is damaged"),
            Some(Ok(reply)) => Ok(Some(reply)),
            Some(Err(_)) => not_taken("the node's reply is damaged"),
            None if bytes.len() >= LINE_MAX => not_taken("the node's reply is too long"),
            None if is_at_end => not_taken("the node ended the connection without a reply"),
            None => Ok(None),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Receives files below a folder.
#[derive(Debug)]
pub struct FileReceiver {
    room: Room,
    _claim: Claim,
    engine: Engine<BrokerCarrier>,
    files: HashMap<Handle, File>,
    /// Transfers beyond the limits, whose senders get an error.
    refused: HashMap<Handle, File>,
    log: Log,
}

/// Rate-limited log of files. Failures do not hide files that arrived.
#[derive(Debug, Default)]
struct Log {
    arrived: LogLimit,
    failures: LogLimit,
}

/// Result of a transfer.
enum Arrival {
    /// The whole file, with its SHA-256.
    Whole(String),
    Refused(String),
    Cut(String),
}

/// State of an incoming transfer.
#[derive(Debug)]
enum File {
    /// The head line is incomplete; time of the accept.
    AwaitsHead(Vec<u8>, Instant),
    Receiving {
        to: AtomicFile,
        hash: Box<Sha256>,
        left: u64,
        received: u64,
        began: Instant,
        last_data: Instant,
    },
    Replying {
        reply: Vec<u8>,
        /// Bytes written.
        written: usize,
        until: Instant,
    },
}

impl FileReceiver {
    /// Starts to receive files below `folder`, leaving `free` bytes of its file system; none: a tenth. The broker of this namespace has to run.
    ///
    /// # Errors
    /// There is no such folder; no broker runs; another program receives files.
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

    /// Receives until `stop` is set. `log` gets a line for each file.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn run(&mut self, stop: &AtomicBool, mut log: impl FnMut(String)) -> Result<(), LinkError> {
        while !stop.load(Ordering::Relaxed) {
            self.engine.wait(if self.files.is_empty() { Duration::ZERO } else { BUSY_POLL_TIME }, SLEEP_MAX)?;
            while let Some(new) = self.engine.accept(PORT) {
                self.accept(new, &mut log)?;
            }
            let (engine, room, arrivals) = (&mut self.engine, &mut self.room, &mut self.log);
            room.promised.clear();
            let left = |(&stream, file): (&Handle, &File)| Some((engine.peer_of(stream), file.left()?));
            room.promised.extend(self.files.iter().filter_map(left));
            let mut report = |arrival| arrivals.add(Instant::now(), arrival, &mut log);
            let mut goes_on = |&stream: &Handle, file: &mut File| {
                poll(engine, stream, file, room, &mut report).unwrap_or_else(|error| {
                    report(Arrival::Cut(error.to_string()));
                    false
                })
            };
            self.files.retain(&mut goes_on);
            self.refused.retain(&mut goes_on);
        }
        Ok(())
    }

    /// Accepts a transfer, or refuses it with a reason.
    fn accept(&mut self, new: Handle, log: &mut impl FnMut(String)) -> Result<(), LinkError> {
        let from = self.engine.peer_of(new);
        let of_node = self.files.keys().filter(|&&other| self.engine.peer_of(other) == from).count();
        let mut file = File::AwaitsHead(Vec::new(), Instant::now());
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
        file.conclude(Err(why), &mut |arrival| self.log.add(Instant::now(), arrival, log));
        self.refused.insert(new, file);
        Ok(())
    }
}

impl Log {
    fn add(&mut self, now: Instant, arrival: Arrival, log: &mut impl FnMut(String)) {
        let (limit, line) = match arrival {
            Arrival::Whole(sha256) => (&mut self.arrived, format!("a file arrived; its SHA-256 is {sha256}")),
            Arrival::Refused(why) => (&mut self.failures, format!("a file was refused: {why}")),
            Arrival::Cut(why) => (&mut self.failures, format!("a file did not arrive: {why}")),
        };
        limit.log(now, line, log);
    }
}

/// Advances a transfer; false: it has ended.
fn poll(
    engine: &mut Engine<BrokerCarrier>,
    stream: Handle,
    file: &mut File,
    room: &mut Room,
    report: &mut impl FnMut(Arrival),
) -> Result<bool, LinkError> {
    if engine.state(stream).is_none() {
        return Ok(false);
    }
    let from = engine.peer_of(stream);
    engine.read(stream, |bytes| file.receive(bytes, from, room, report))?;
    file.finish_if_complete(report);
    file.check_rate(report);
    let is_over = match file {
        File::AwaitsHead(_, since) => since.elapsed() >= HEAD_TIMEOUT,
        File::Receiving { .. } => false,
        File::Replying { until, .. } => Instant::now() >= *until,
    };
    if is_over {
        engine.abort(stream)?;
        return Ok(false);
    }
    if let File::Replying { reply, written, .. } = file {
        *written += match *written < reply.len() {
            true => engine.write(stream, &reply[*written..])?,
            false => 0,
        };
        // The rest of a refused file is read and dropped until its sender closes.
        if *written == reply.len() && engine.is_at_end(stream) && engine.close(stream).is_ok() {
            return Ok(false);
        }
    } else if engine.is_at_end(stream) {
        report(Arrival::Cut("its sender ended early".to_owned()));
        let _ = engine.close(stream);
        return Ok(false);
    }
    Ok(true)
}

impl File {
    /// Bytes to come; none: no file is being received.
    const fn left(&self) -> Option<u64> {
        match self {
            Self::Receiving { left, .. } => Some(*left),
            _ => None,
        }
    }

    fn receive(&mut self, mut bytes: &[u8], from: Option<Address>, room: &mut Room, report: &mut impl FnMut(Arrival)) {
        if let Self::AwaitsHead(line, _) = self {
            let end = bytes.iter().position(|&b| b == b'\n');
            line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else {
                if line.len() > LINE_MAX {
                    self.conclude(Err("the line that names the file is too long".to_owned()), report);
                }
                return;
            };
            bytes = &bytes[end + 1..];
            match open(line, from, room) {
                Ok((to, left)) => {
                    let now = Instant::now();
                    *self = Self::Receiving { to, hash: Box::default(), left, received: 0, began: now, last_data: now };
                }
                Err(why) => self.conclude(Err(why), report),
            }
        }
        if let Self::Receiving { to, hash, left, received, last_data, .. } = self {
            if !bytes.is_empty() {
                *last_data = Instant::now();
            }
            let bytes = &bytes[..bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
            hash.update(bytes);
            *left -= bytes.len() as u64;
            *received += bytes.len() as u64;
            if let Err(error) = to.put(bytes) {
                self.conclude(Err(error.to_string()), report);
            }
        }
    }

    /// Gives a complete file its name.
    fn finish_if_complete(&mut self, report: &mut impl FnMut(Arrival)) {
        if !matches!(self, Self::Receiving { left: 0, .. }) {
            return;
        }
        if let Self::Receiving { to, hash, .. } = std::mem::replace(self, Self::AwaitsHead(Vec::new(), Instant::now()))
        {
            let done = to.write(&[]).map(|()| hex(&hash.finalize())).map_err(|e| e.to_string());
            self.conclude(done, report);
        }
    }

    /// Aborts a file below the minimum rate, and replies so.
    fn check_rate(&mut self, report: &mut impl FnMut(Arrival)) {
        let Self::Receiving { received, began, last_data, .. } = self else { return };
        if let Some(why) = too_slow(*received, began.elapsed(), last_data.elapsed()) {
            report(Arrival::Cut(why.clone()));
            self.reply(&Reply::Failed { why }, REFUSAL_TIMEOUT);
        }
    }

    fn conclude(&mut self, done: Result<String, String>, report: &mut impl FnMut(Arrival)) {
        let reply = match done {
            Ok(sha256) => {
                report(Arrival::Whole(sha256.clone()));
                Reply::Written { sha256 }
            }
            Err(why) => {
                // The message has the sender's path.
                let why = sanitized_message(&why);
                report(Arrival::Refused(why.clone()));
                Reply::Failed { why }
            }
        };
        self.reply(&reply, STALL_TIMEOUT);
    }

    /// Begins to reply. An incomplete file is removed.
    fn reply(&mut self, reply: &Reply, timeout: Duration) {
        let mut reply = serde_json::to_vec(reply).unwrap_or_default();
        reply.push(b'\n');
        *self = Self::Replying { reply, written: 0, until: Instant::now() + timeout };
    }
}

/// The reason to abort a transfer of this age with `received` bytes, `idle` since the last; none: it is fast enough.
fn too_slow(received: u64, age: Duration, idle: Duration) -> Option<String> {
    if idle >= STALL_TIMEOUT {
        return Some(format!("no data for {} s", STALL_TIMEOUT.as_secs()));
    }
    let is_slow = u128::from(received) * 1000 < u128::from(BYTES_PER_S_MIN) * age.as_millis();
    (age >= RATE_GRACE_TIME && is_slow).then(|| {
        format!("{received} bytes came within {} s, fewer than {} KiB/s", age.as_secs(), BYTES_PER_S_MIN >> 10)
    })
}

/// Creates the file that a head line names, below the folder, if there is room.
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
    room.admit(from, head.bytes)?;
    let whole = AtomicFile::below(room.folder(), path, PRIVATE).map_err(|e| e.to_string())?;
    Ok((whole, head.bytes))
}

/// True for characters that a terminal or script acts on: controls, ends of lines and paragraphs, format characters but joiners.
fn is_unseen(c: char) -> bool {
    // Behind another character, so that accents count as shown.
    let is_escaped = || format!("x{c}").escape_debug().count() > 2;
    c.is_control() || (!c.is_ascii() && !matches!(c, '\u{200c}' | '\u{200d}') && is_escaped())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_line_of_a_bounded_length() {
        let parse = |text: &str, is_at_end| Reply::parse(text.as_bytes(), is_at_end);
        let hash = hex(&Sha256::digest(b"text"));
        let written = format!("{{\"Written\":{{\"sha256\":\"{hash}\"}}}}\n");
        assert_eq!(parse(&written, true).unwrap(), Some(Reply::Written { sha256: hash }));
        assert_eq!(parse(&written[..20], false).unwrap(), None);
        for (text, is_at_end, why) in [
            ("", true, "without a reply"),
            (&written[..20], true, "without a reply"),
            (&"x".repeat(LINE_MAX), false, "too long"),
            (&format!("{}\n", "x".repeat(LINE_MAX)), false, "too long"),
            ("{}\n", false, "damaged"),
            ("{\"Written\":{\"sha256\":\"RED\\nevenkeel: all fine\"}}\n", false, "damaged"),
        ] {
            let error = parse(text, is_at_end).unwrap_err().to_string();
            assert!(error.ends_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_refused_path_is_one_short_line_and_many_are_a_few() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = File::AwaitsHead(Vec::new(), Instant::now());
        let path = format!("../RED\nevenkeel: all fine\u{1b}[2J{}", "x".repeat(4000));
        let mut line = serde_json::to_vec(&Head { path, bytes: 1 }).unwrap();
        line.push(b'\n');
        let mut reasons = Vec::new();
        file.receive(&line, None, &mut Room::new(folder.path().to_owned(), Some(1)), &mut |arrival| match arrival {
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
        const RATE_MIN: u64 = 64 << 10;
        let s = Duration::from_secs;
        for (received, age, idle, goes_on) in [
            (0, s(29), s(29), true),
            (0, s(30), s(30), false),
            (30 * RATE_MIN, s(30), s(0), true),
            (30 * RATE_MIN - 1, s(30), s(0), false),
            (30 * RATE_MIN, s(31), s(1), false),
            // A byte every 4 s, and much at first.
            (900, s(3600), s(3), false),
            (3600 * RATE_MIN, s(3600), s(29), true),
            (u64::MAX, Duration::MAX, s(0), false),
        ] {
            let why = too_slow(received, age, idle);
            assert_eq!(why.is_none(), goes_on, "{received} {age:?} {idle:?}: {why:?}");
        }
    }

    #[test]
    fn a_file_that_is_given_up_leaves_nothing_and_its_sender_hears_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path().to_owned(), Some(1));
        let mut file = File::AwaitsHead(Vec::new(), Instant::now());
        let (mut reasons, head) = (Vec::new(), b"{\"path\":\"slow\",\"bytes\":100000}\nx");
        let mut report = |arrival| match arrival {
            Arrival::Cut(why) => reasons.push(why),
            _ => panic!("it is given up"),
        };
        file.receive(head, None, &mut room, &mut report);
        file.check_rate(&mut report);
        assert_eq!(file.left(), Some(99_999));
        let File::Receiving { began, .. } = &mut file else { panic!("it comes") };
        *began = began.checked_sub(RATE_GRACE_TIME).expect("the machine runs for longer");
        file.check_rate(&mut report);
        let File::Replying { reply, .. } = &file else { panic!("{file:?} goes on") };
        assert!(
            reasons.len() == 1 && reasons[0].starts_with("1 bytes came within 30 s, fewer than 64 KiB/s"),
            "{reasons:?}"
        );
        assert_eq!(serde_json::from_slice::<Reply>(reply).unwrap(), Reply::Failed { why: reasons.remove(0) });
        assert_eq!((file.left(), std::fs::read_dir(folder.path()).unwrap().count()), (None, 0));
    }

    #[test]
    fn many_files_are_a_few_lines_and_hide_none_of_the_other_kind() {
        let (mut log, mut lines, now) = (Log::default(), Vec::new(), Instant::now());
        let mut add = |now, arrival| log.add(now, arrival, &mut |line| lines.push(line));
        (0..100).for_each(|n| add(now, Arrival::Refused(format!("{n}"))));
        (0..50).for_each(|n| add(now, Arrival::Whole(format!("{n}"))));
        add(now + Duration::from_secs(10), Arrival::Cut("again".to_owned()));
        add(now + Duration::from_secs(10), Arrival::Whole("again".to_owned()));
        let (few, last) = lines.split_at(32);
        assert!(few[..16].iter().all(|line| line.starts_with("a file was refused: ")), "{few:?}");
        assert!(few[16..].iter().all(|line| line.starts_with("a file arrived; its SHA-256 is ")), "{few:?}");
        let sum = |count| format!("{count} more messages like these within 10 s");
        let again = ["a file did not arrive: again", "a file arrived; its SHA-256 is again"].map(str::to_owned);
        assert_eq!(last, [sum(84), again[0].clone(), sum(34), again[1].clone()]);
    }
}
