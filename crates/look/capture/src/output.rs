//! Destination of captured packets: files with rotation, or a pipe.
//!
//! Readers hand over chunks of whole blocks; the output decides where one file ends and the next begins.

mod names;

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::fd::BorrowedFd,
    path::PathBuf,
    time::SystemTime,
};

use host::file::{self, FileError, Folder, PRIVATE};

use crate::pcapng::{self, EPB, Section, Totals};
use names::Names;
pub use names::{Naming, NoPattern};

#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Name(#[from] NoPattern),
    #[error("cannot create {path}: {source}", path = path.display())]
    Create { path: PathBuf, source: io::Error },
    /// End of a rotation with a number of files: the last one is full and whole.
    #[error("the last file is full")]
    Enough,
    #[error("cannot write to {path}: {source}; {kept} packets are in it, whole", path = path.display())]
    Write { path: PathBuf, kept: u64, source: io::Error },
    #[error("cannot remove {path}: {source}", path = path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("the reader of the output has gone")]
    Closed(#[source] io::Error),
}

model::classified!(OutputError: Lacking, Usage: Name; within: File);

/// Limits of a file, after which the next is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotation {
    /// Bytes in a file, head and tail included.
    pub bytes: Option<u64>,
    /// Seconds from the first packet in a file to the last.
    pub seconds: Option<u64>,
    pub packets: Option<u64>,
    /// Files to keep: the oldest is removed, or written over. With tcpdump's rotation by time alone: files to make. None: all.
    pub files: Option<u32>,
    pub naming: Naming,
}

impl Rotation {
    /// True if there is more than one file.
    pub fn is_on(&self) -> bool {
        self.bytes.is_some() || self.seconds.is_some() || self.packets.is_some()
    }

    /// The number of the file after which no other is begun.
    fn last(&self) -> Option<u32> {
        self.files.filter(|_| self.naming == Naming::Tcpdump && self.bytes.is_none())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Stdout,
    /// A file, or a family of them, named after it.
    File(PathBuf, Rotation),
}

/// Packets in a series, and their times in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    packets: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Span {
    fn at(ns: u64) -> Self {
        Self { packets: 1, first_ns: ns, last_ns: ns }
    }

    fn add(&mut self, later: Self) {
        if self.packets == 0 {
            self.first_ns = later.first_ns;
        }
        self.last_ns = self.last_ns.max(later.last_ns);
        self.packets += later.packets;
    }
}

/// Encoded packets: whole blocks, and what the output wants to know of them without looking at each.
#[derive(Debug, Default)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    span: Span,
}

impl Chunk {
    /// An empty one with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Notes a packet that was put in, by its time in nanoseconds since the epoch.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        self.span.add(Span::at(ns));
    }

    /// Empties it, and keeps its room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.span = Span::default();
    }
}

#[derive(Debug)]
pub struct Output {
    target: Target,
    folder: Option<(Folder, Names)>,
    section: Section,
    file: File,
    path: PathBuf,
    number: u32,
    written: u64,
    span: Span,
    /// Time of its beginning, in seconds since the epoch.
    begun_s: u64,
    /// Packets lost that earlier files have told of.
    reported: u64,
    lost: u64,
    failed: bool,
}

const TAIL_BYTES: u64 = 100;

const SECOND_NS: u64 = 1_000_000_000;

impl Output {
    /// Creates the first file, or takes standard output, and writes the head.
    pub fn open(target: Target, section: Section) -> Result<Self, OutputError> {
        // The folder is held: later files lie in the same one, whatever its path leads to by then.
        let mut folder = match &target {
            Target::File(base, rotation) if rotation.is_on() => {
                let (folder, name) = Folder::of(base)?;
                Some((folder, Names::new(name, *rotation)))
            }
            _ => None,
        };
        let begun_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let name = folder.as_mut().map(|(_, names)| names.next(begun_s, false)).transpose()?;
        let (file, path) = create(&target, folder.as_ref().map(|(folder, _)| folder).zip(name.as_deref()))?;
        let mut output = Self {
            target,
            folder,
            section,
            file,
            path,
            number: 1,
            written: 0,
            span: Span::default(),
            begun_s,
            reported: 0,
            lost: 0,
            failed: false,
        };
        output.head()?;
        Ok(output)
    }

    /// Appends whole blocks. `dropped` is the number of packets lost so far, for the tail of a file that ends here.
    pub fn write(&mut self, chunk: &Chunk, dropped: u64) -> Result<(), OutputError> {
        if self.failed {
            // What it holds is whole, and stays so: the reader that saw the failure tells of it.
            return Ok(());
        }
        self.lost = self.lost.max(dropped);
        let rotation = match &self.target {
            Target::File(_, rotation) if rotation.is_on() => *rotation,
            _ => return self.append(chunk),
        };
        let chunk = &chunk.bytes[..];
        let mut from = 0;
        let mut at = 0;
        for (kind, block, ns) in pcapng::blocks(chunk) {
            if kind == EPB {
                let pending = (at - from) as u64;
                let by_time = self.is_old(&rotation, ns);
                if by_time || self.is_full(&rotation, pending, block.len() as u64) {
                    self.put(&chunk[from..at])?;
                    self.rotate(&rotation, ns, by_time)?;
                    from = at;
                }
                self.span.add(Span::at(ns));
            }
            at += block.len();
        }
        self.put(&chunk[from..at])
    }

    /// A packet of that time belongs to the next file. tcpdump counts whole seconds since the file was begun.
    fn is_old(&self, rotation: &Rotation, ns: u64) -> bool {
        let Some(seconds) = rotation.seconds else { return false };
        match rotation.naming {
            Naming::Numbered => self.span.packets > 0 && ns.saturating_sub(self.span.first_ns) / SECOND_NS >= seconds,
            Naming::Tcpdump => (ns / SECOND_NS).saturating_sub(self.begun_s) >= seconds,
        }
    }

    /// A packet of that size belongs to the next file. tcpdump's files end with the packet that makes them too large.
    fn is_full(&self, rotation: &Rotation, pending: u64, next: u64) -> bool {
        let next = if rotation.naming == Naming::Numbered { next + TAIL_BYTES } else { 0 };
        self.span.packets > 0
            && (rotation.bytes.is_some_and(|max| self.written + pending + next > max)
                || rotation.packets.is_some_and(|max| self.span.packets >= max))
    }

    /// Appends blocks without looking at each: all readers wait for the output, and their chunks say enough.
    fn append(&mut self, chunk: &Chunk) -> Result<(), OutputError> {
        self.span.add(chunk.span);
        self.put(&chunk.bytes)
    }

    /// Writes bytes; what a full disk cut off is taken back to the last whole block.
    fn put(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.write(&bytes[done..]) {
                Ok(0) => return Err(self.fail(bytes, done, io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fail(bytes, done, e)),
            }
        }
        self.written += done as u64;
        Ok(())
    }

    #[cold]
    fn fail(&mut self, bytes: &[u8], done: usize, source: io::Error) -> OutputError {
        self.failed = true;
        if source.kind() == io::ErrorKind::BrokenPipe {
            return OutputError::Closed(source);
        }
        let packets = |(kind, _, _): &(u32, &[u8], u64)| *kind == EPB;
        let all = pcapng::blocks(bytes).filter(packets).count() as u64;
        // Of what was written only the last block can be cut off, and the walk stops there.
        let kept = pcapng::blocks(&bytes[..done]).filter(packets).count() as u64;
        let whole: usize = pcapng::blocks(&bytes[..done]).map(|(_, block, _)| block.len()).sum();
        // A pipe cannot be cut, and a file that cannot be cut ends in a part of a block: readers say so and go on.
        let _ = self.file.set_len(self.written + whole as u64);
        OutputError::Write { path: self.path.clone(), kept: (self.span.packets + kept).saturating_sub(all), source }
    }

    fn head(&mut self) -> Result<(), OutputError> {
        let mut bytes = Vec::new();
        pcapng::head(&mut bytes, &self.section);
        self.put(&bytes)
    }

    fn tail(&mut self) -> Result<(), OutputError> {
        let dropped = self.lost - self.reported;
        self.reported = self.lost;
        // The counters of a file are those of its one interface: of several, none can be told by itself.
        if self.section.interfaces.len() != 1 {
            return Ok(());
        }
        let totals = Totals {
            start_ns: self.span.first_ns,
            end_ns: self.span.last_ns,
            received: self.span.packets + dropped,
            dropped,
            delivered: self.span.packets,
        };
        let mut bytes = Vec::new();
        pcapng::tail(&mut bytes, &totals);
        self.put(&bytes)
    }

    fn rotate(&mut self, rotation: &Rotation, ns: u64, by_time: bool) -> Result<(), OutputError> {
        let rotated = self.next_file(rotation, ns, by_time);
        self.failed |= rotated.is_err();
        rotated
    }

    /// Begins a file with a packet of that time.
    fn next_file(&mut self, rotation: &Rotation, ns: u64, by_time: bool) -> Result<(), OutputError> {
        self.tail()?;
        if rotation.last().is_some_and(|last| self.number >= last) {
            return Err(OutputError::Enough);
        }
        let Some((folder, names)) = &mut self.folder else { return Ok(()) };
        if by_time {
            self.begun_s = ns / SECOND_NS;
        }
        let name = names.next(self.begun_s, by_time)?;
        (self.file, self.path) = create(&self.target, Some((folder, &name)))?;
        self.number += 1;
        (self.written, self.span) = (0, Span::default());
        self.head()?;
        if let Some((folder, names)) = &self.folder
            && let Some(old) = names.oldest()
        {
            let path = self.path.with_file_name(&old);
            folder.remove(old.as_os_str()).map_err(|source| OutputError::Remove { path, source })?;
        }
        Ok(())
    }

    /// Writes the tail with the final count of losses. An output that failed is left as it is.
    pub fn finish(&mut self, dropped: u64) -> Result<(), OutputError> {
        if self.failed {
            return Ok(());
        }
        self.lost = self.lost.max(dropped);
        self.tail()
    }

    /// The folder in which later files will be made; none without rotation.
    pub fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.folder.as_ref().map(|(folder, _)| folder.as_fd())
    }

    /// Number of files that were begun.
    pub fn files(&self) -> u32 {
        self.number
    }
}

/// Makes a file; with the folder and the name in it where there are several.
fn create(target: &Target, of_several: Option<(&Folder, &OsStr)>) -> Result<(File, PathBuf), OutputError> {
    match (target, of_several) {
        (Target::Stdout, _) => {
            let path = PathBuf::from("standard output");
            let open = if io::IsTerminal::is_terminal(&io::stdout()) { Err(terminal()) } else { stdout() };
            open.map(|file| (file, path.clone())).map_err(|source| OutputError::Create { path, source })
        }
        // Captures hold what others sent to each other: they are for the user alone.
        (Target::File(base, _), Some((folder, name))) => Ok((folder.create(name, PRIVATE)?, base.with_file_name(name))),
        (Target::File(base, _), None) => Ok((file::create(base, PRIVATE)?, base.clone())),
    }
}

fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

fn terminal() -> io::Error {
    io::Error::other("it is a terminal, which cannot show pcapng: pipe it, or name a file")
}

#[cfg(test)]
mod tests {
    use port::Frame;

    use std::path::Path;

    use super::*;
    use crate::pcapng::Captured;

    fn numbered(base: &Path, number: u32) -> PathBuf {
        base.with_file_name(names::numbered(base.file_name().unwrap(), number))
    }

    fn section() -> Section {
        Section {
            hardware: String::new(),
            os: String::new(),
            application: "test".into(),
            interfaces: vec![Captured { name: "eth0".into(), link_type: 1 }],
            filter: String::new(),
            snaplen: 0,
        }
    }

    fn chunk(from: u64, count: u64) -> Chunk {
        let mut out = Chunk::default();
        for i in from..from + count {
            let frame = Frame {
                timestamp_ns: i * 1_000_000_000,
                wire_len: 60,
                data: &[0; 60],
                vlan: None,
                direction: None,
                unfinished: false,
                judged: None,
                lost_before: 0,
            };
            pcapng::packet(&mut out.bytes, &frame, 0, 1 << 18);
            out.note(frame.timestamp_ns);
        }
        out
    }

    fn packets_in(path: &Path) -> usize {
        let bytes = std::fs::read(path).unwrap();
        let walked: usize = pcapng::blocks(&bytes).map(|(_, block, _)| block.len()).sum();
        assert_eq!(walked, bytes.len(), "{} ends in a whole block", path.display());
        pcapng::blocks(&bytes).filter(|(kind, _, _)| *kind == EPB).count()
    }

    fn rotate(rotation: Rotation) -> (tempfile::TempDir, u32) {
        let dir = tempfile::tempdir().unwrap();
        let mut output = Output::open(Target::File(dir.path().join("a.pcapng"), rotation), section()).unwrap();
        for i in 0..10 {
            output.write(&chunk(i * 10, 10), 0).unwrap();
        }
        output.finish(3).unwrap();
        let files = output.files();
        (dir, files)
    }

    #[test]
    fn rotation_by_count_is_exact() {
        let (dir, files) = rotate(Rotation { packets: Some(7), ..Rotation::default() });
        assert_eq!(files, 15);
        for n in 1..15 {
            assert_eq!(packets_in(&numbered(&dir.path().join("a.pcapng"), n)), 7);
        }
        assert_eq!(packets_in(&numbered(&dir.path().join("a.pcapng"), 15)), 2);
    }

    #[test]
    fn the_statistics_of_a_file_are_those_of_its_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pcapng");
        let mut output = Output::open(Target::File(path.clone(), Rotation::default()), section()).unwrap();
        output.write(&chunk(3, 4), 0).unwrap();
        output.write(&chunk(2, 1), 2).unwrap();
        output.finish(2).unwrap();
        let totals = Totals { start_ns: 3_000_000_000, end_ns: 6_000_000_000, received: 7, dropped: 2, delivered: 5 };
        let mut tail = Vec::new();
        pcapng::tail(&mut tail, &totals);
        assert!(std::fs::read(&path).unwrap().ends_with(&tail));
    }

    #[test]
    fn an_output_that_failed_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("a.pcapng");
        let rotation = Rotation { packets: Some(4), ..Rotation::default() };
        let mut output = Output::open(Target::File(base.clone(), rotation), section()).unwrap();
        // Where the second file should be, there is a folder.
        std::fs::create_dir(numbered(&base, 2)).unwrap();
        assert!(matches!(output.write(&chunk(0, 10), 0), Err(OutputError::File(_))));
        let first = numbered(&base, 1);
        let whole = std::fs::read(&first).unwrap();
        output.write(&chunk(10, 10), 5).unwrap();
        output.finish(5).unwrap();
        assert_eq!(std::fs::read(&first).unwrap(), whole);
        assert_eq!((packets_in(&first), output.files()), (4, 1));
        assert_eq!(pcapng::blocks(&whole).filter(|(kind, _, _)| *kind == 5).count(), 1, "one block of statistics");
    }

    #[test]
    fn rotation_by_time_follows_the_packets() {
        let (dir, files) = rotate(Rotation { seconds: Some(25), ..Rotation::default() });
        assert_eq!(files, 4);
        assert_eq!(packets_in(&numbered(&dir.path().join("a.pcapng"), 4)), 25);
    }

    #[test]
    fn rotation_by_size_stays_within_it_and_keeps_the_newest() {
        let (dir, files) = rotate(Rotation { bytes: Some(1000), files: Some(3), ..Rotation::default() });
        assert!(files > 3);
        let mut kept: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        kept.sort();
        let newest: Vec<_> = (files - 2..=files).map(|n| numbered(&dir.path().join("a.pcapng"), n)).collect();
        assert_eq!(kept, newest);
        for path in kept {
            assert!(path.metadata().unwrap().len() <= 1000);
            packets_in(&path);
        }
    }
}
