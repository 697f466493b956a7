//! Packets of a capture file (pcap or pcapng), read and filtered by libpcap.

use std::path::{Path, PathBuf};

use port::Frame;
use sys::{
    libpcap::{Pcap, PcapError},
    packet::{Instruction, classic},
};
use wire::Unread;

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

/// A capture file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error("the filter `{filter}` is not valid: {reason} (the syntax is pcap-filter(7)'s)")]
    Filter { filter: String, reason: String },
    #[error("{path} is damaged after packet {good}: {reason}")]
    Damaged { path: PathBuf, good: u64, reason: String },
    #[error("libpcap does not read {path} beyond packet {good}: {reason}")]
    Limit { path: PathBuf, good: u64, reason: String },
    #[error("cannot read {path}: {source}")]
    Missing { path: PathBuf, source: PcapError },
}

model::classified!(FileError: Usage, Lacking: Missing);

pub struct CaptureFile {
    path: PathBuf,
    capture: Pcap,
    filter: Option<Vec<Instruction>>,
    read: u64,
    odd_times: u64,
}

/// Seconds since the epoch: pcap has 32 bits without a sign, until 2106, which libpcap hands on with one.
fn seconds(time: i64) -> u64 {
    match u64::try_from(time) {
        Ok(seconds) => seconds,
        Err(_) => u64::from(time as i32 as u32),
    }
}

impl CaptureFile {
    /// Opens a file, `-` for standard input, with a filter in tcpdump's syntax.
    ///
    /// # Errors
    /// [`FileError::Open`] for what is no capture file, [`FileError::Filter`] for what is no filter.
    pub fn open(path: &Path, filter: &str) -> Result<Self, FileError> {
        let capture = Pcap::of_file(path).map_err(|error| match error {
            PcapError::Libpcap(reason) => {
                FileError::Open { path: path.to_owned(), reason: Unread::of(&reason, path).reason }
            }
            source @ PcapError::Missing(_) => FileError::Missing { path: path.to_owned(), source },
        })?;
        let program = match filter.trim() {
            "" => None,
            filter => {
                let wrong = |e: PcapError| FileError::Filter { filter: filter.to_owned(), reason: e.to_string() };
                Some(capture.compile(filter).map_err(wrong)?)
            }
        };
        Ok(Self { path: path.to_owned(), capture, filter: program, read: 0, odd_times: 0 })
    }

    /// The link type of its packets (LINKTYPE_…).
    pub fn link_type(&self) -> u16 {
        match self.capture.link_type() {
            12 => 101,
            other => u16::try_from(other).unwrap_or(u16::MAX),
        }
    }

    /// Packets read so far, those that the filter left out included.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Packets read so far whose fraction of a second is no part of one. It is added to the seconds.
    pub fn odd_times(&self) -> u64 {
        self.odd_times
    }

    /// Hands the next packet that passes the filter to `each`; false at the end of the file.
    ///
    /// # Errors
    /// [`FileError::Damaged`] where the file breaks off.
    pub fn next(&mut self, each: impl FnOnce(Frame<'_>)) -> Result<bool, FileError> {
        loop {
            match self.capture.next_packet() {
                Ok(Some(packet)) => {
                    self.read += 1;
                    let fraction_ns = packet.nanoseconds;
                    self.odd_times += u64::from(!(0..SECOND_NS).contains(&fraction_ns));
                    if self
                        .filter
                        .as_ref()
                        .is_some_and(|program| !classic::accepts(program, packet.data, packet.wire_len))
                    {
                        continue;
                    }
                    let whole_ns = seconds(packet.seconds).saturating_mul(SECOND_NS.unsigned_abs());
                    each(Frame {
                        timestamp_ns: whole_ns.saturating_add(u64::try_from(fraction_ns).unwrap_or(0)),
                        wire_len: packet.wire_len,
                        data: packet.data,
                        vlan: None,
                        direction: None,
                        unfinished: false,
                        judged: None,
                        lost_before: 0,
                    });
                    return Ok(true);
                }
                Ok(None) => return Ok(false),
                Err(e) => {
                    let Unread { reason, limit } = Unread::of(&e.to_string(), &self.path);
                    let (path, good) = (self.path.clone(), self.read);
                    return Err(if limit {
                        FileError::Limit { path, good, reason }
                    } else {
                        FileError::Damaged { path, good, reason }
                    });
                }
            }
        }
    }
}
