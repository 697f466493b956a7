//! Frames from a capture file (pcap or pcapng), read by libpcap.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sys::libpcap::{self, Pcap};
use wire::{Ethernet, Ip, Unread, ethernet::ether_type};

use crate::{TrafficError, interface::Interface, safety::Allowance};

/// The most bytes of frames that are held in memory.
pub const FILE_MAX: u64 = 2 << 30;

/// LINKTYPE_ETHERNET.
const ETHERNET: i32 = 1;

/// The longest frame that libpcap reads from a file (MAXIMUM_SNAPLEN of pcap-int.h).
const FRAME_MAX: u64 = 256 << 10;

/// The times at which the frames of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Timing {
    /// At the file's own times, so many times as fast: 1 is the original.
    Speed(f64),
    /// The plan's rate, without regard to the file's times.
    Rate,
}

/// The frames of a file in its order, bytes unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    pub path: PathBuf,
    /// Each frame and when it is due, in nanoseconds from the first.
    pub frames: Vec<(u64, Vec<u8>)>,
    /// The beginning of the next round: a mean gap behind the last frame, in nanoseconds from the first.
    pub span_ns: u64,
    /// All frames bear the same time, so that the file says nothing about their rate.
    pub timeless: bool,
    /// Frames that the capture had cut short, and that are sent so.
    pub cut_short: u64,
}

impl Recording {
    /// The longest time without a frame, in nanoseconds, and the number of the frame after it, from 1; none of a file with one frame.
    pub fn longest_gap(&self) -> Option<(u64, u64)> {
        let gaps = self.frames.windows(2).zip(2..).map(|(pair, number)| (pair[1].0.saturating_sub(pair[0].0), number));
        gaps.max_by_key(|(gap, _)| *gap)
    }

    /// Reads all of `path`.
    ///
    /// # Errors
    /// [`TrafficError::File`] for a file that is no capture of Ethernet or has no frames, [`TrafficError::Damaged`] for one that breaks off.
    pub fn read(path: &Path) -> Result<Self, TrafficError> {
        let file = |reason: String| TrafficError::File { path: path.to_owned(), reason };
        let meta = std::fs::metadata(path).map_err(|e| file(e.to_string()))?;
        if meta.len() > FILE_MAX {
            return Err(file(format!(
                "it has {} bytes, and {FILE_MAX} is the most that is held in memory",
                meta.len()
            )));
        }
        Self::of(path, path)
    }

    /// Reads a file that is the standard input, and that errors call `path`: for a process that has no right to open it.
    pub fn read_standard_input(path: &Path) -> Result<Self, TrafficError> {
        // The standard input's name to libpcap.
        Self::of(Path::new("-"), path)
    }

    fn of(source: &Path, path: &Path) -> Result<Self, TrafficError> {
        let file = |reason: String| TrafficError::File { path: path.to_owned(), reason };
        let mut capture = Pcap::of_file(source).map_err(|e| file(Unread::of(&e.to_string(), path).reason))?;
        if capture.link_type() != ETHERNET {
            let name = libpcap::link_name(capture.link_type());
            return Err(file(format!(
                "its packets are of link type {name}, and only Ethernet (EN10MB) can be sent: `tcprewrite --dlt=enet --enet-smac=MAC \
                 --enet-dmac=MAC -i FILE -o NEW` (package tcpreplay) makes a file with Ethernet headers"
            )));
        }
        let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut first_ns, mut due, mut cut_short, mut total) = (None, 0u64, 0, 0);
        loop {
            let good = frames.len() as u64;
            match capture.next_packet() {
                Ok(Some(packet)) => {
                    let ns = i128::from(packet.seconds) * 1_000_000_000 + i128::from(packet.nanoseconds);
                    let start = *first_ns.get_or_insert(ns);
                    // Time that runs backwards in the file is no reason to send earlier than what came before.
                    due = due.max(u64::try_from(ns - start).unwrap_or(0));
                    if packet.data.len() < wire::ethernet::HEADER_LEN {
                        return Err(TrafficError::Damaged {
                            path: path.to_owned(),
                            good,
                            reason: format!("a frame of {} bytes is no Ethernet frame", packet.data.len()),
                        });
                    }
                    total += packet.data.len() as u64;
                    if total > FILE_MAX {
                        return Err(file(format!(
                            "its frames have more than the {FILE_MAX} bytes that are held in memory"
                        )));
                    }
                    cut_short += u64::from(u64::from(packet.wire_len) > packet.data.len() as u64);
                    frames.push((due, packet.data.to_vec()));
                }
                Ok(None) => break,
                Err(e) => {
                    let Unread { reason, limit } = Unread::of(&e.to_string(), path);
                    return Err(if limit {
                        file(format!("libpcap does not read it beyond packet {good}: {reason}"))
                    } else {
                        TrafficError::Damaged { path: path.to_owned(), good, reason }
                    });
                }
            }
        }
        if frames.is_empty() {
            return Err(file("it holds no packets".into()));
        }
        let gap = if frames.len() > 1 { due / (frames.len() as u64 - 1) } else { 0 };
        Ok(Self { path: path.to_owned(), frames, span_ns: due + gap.max(1), timeless: due == 0, cut_short })
    }

    /// Writes the frames, or the error, for [`Recording::receive`]: numbers in this machine's order of bytes, then the frames.
    pub fn send(read: &Result<Self, TrafficError>, mut out: impl Write) -> io::Result<()> {
        let mut put = |numbers: &[u64], bytes: &[u8]| {
            numbers.iter().try_for_each(|number| out.write_all(&number.to_ne_bytes()))?;
            out.write_all(bytes)
        };
        match read {
            Ok(it) => {
                let count = it.frames.len() as u64;
                put(&[WHOLE, count, it.span_ns, u64::from(it.timeless), it.cut_short], &[])?;
                it.frames.iter().try_for_each(|(due, bytes)| put(&[*due, bytes.len() as u64], bytes))?;
            }
            Err(TrafficError::Damaged { good, reason, .. }) => {
                put(&[DAMAGED, *good, reason.len() as u64], reason.as_bytes())?;
            }
            Err(TrafficError::File { reason, .. }) => put(&[REFUSED, 0, reason.len() as u64], reason.as_bytes())?,
            Err(other) => {
                let reason = other.to_string();
                put(&[REFUSED, 0, reason.len() as u64], reason.as_bytes())?;
            }
        }
        out.flush()
    }

    /// Takes over what [`Recording::send`] wrote about the file `path`, and believes none of it: the process that wrote it has read a
    /// stranger's file.
    ///
    /// # Errors
    /// As [`Recording::read`], or that it is no answer.
    pub fn receive(path: &Path, from: impl Read) -> Result<Self, TrafficError> {
        let path = path.to_owned();
        match received(from) {
            Ok(Received::Whole(it)) => Ok(Self { path, ..it }),
            Ok(Received::Damaged { good, reason }) => Err(TrafficError::Damaged { path, good, reason }),
            Ok(Received::Refused(reason)) => Err(TrafficError::File { path, reason }),
            Err(e) => {
                let reason = format!("the process that read it gave no answer: {e}");
                Err(TrafficError::File { path, reason })
            }
        }
    }

    /// True if every frame may be sent on `interface`.
    ///
    /// # Errors
    /// The first frame that may not, by its number.
    pub fn check(&self, interface: &Interface, allowance: &Allowance) -> Result<(), TrafficError> {
        for (i, (_, bytes)) in self.frames.iter().enumerate() {
            let packet = i as u64 + 1;
            let ethernet = Ethernet::parse(bytes)?;
            let ip = matches!(ethernet.ether_type(), ether_type::IPV4 | ether_type::IPV6)
                .then(|| Ip::parse(ethernet.payload()).ok())
                .flatten();
            match ip {
                Some(ip) => allowance.check_address(interface, ip.destination(), || {
                    format!(" (packet {packet} of {})", self.path.display())
                })?,
                None if interface.in_lab || allowance.non_ip => {}
                None => {
                    let ether_type = ethernet.ether_type();
                    return Err(TrafficError::NotIp { path: self.path.clone(), packet, ether_type });
                }
            }
        }
        Ok(())
    }

    /// The mean size of a frame in bytes with FCS.
    pub fn mean_with_fcs(&self) -> f64 {
        let bytes: usize = self.frames.iter().map(|(_, b)| b.len()).sum();
        bytes as f64 / self.frames.len() as f64 + wire::ethernet::FCS_LEN as f64
    }

    /// The longest frame in bytes without FCS.
    pub fn longest(&self) -> usize {
        self.frames.iter().map(|(_, b)| b.len()).max().unwrap_or(0)
    }
}

/// First numbers of an answer of [`Recording::send`].
const WHOLE: u64 = 0;
const DAMAGED: u64 = 1;
const REFUSED: u64 = 2;
/// No reason is longer.
const REASON_MAX: u64 = 4096;

enum Received {
    Whole(Recording),
    Damaged { good: u64, reason: String },
    Refused(String),
}

fn number(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn received(mut from: impl Read) -> io::Result<Received> {
    let bad = |what: &str| Err(io::Error::other(what.to_owned()));
    let (kind, count) = (number(&mut from)?, number(&mut from)?);
    if kind != WHOLE {
        let len = number(&mut from)?.min(REASON_MAX);
        let mut reason = vec![0; len as usize];
        from.read_exact(&mut reason)?;
        let reason = String::from_utf8_lossy(&reason).into_owned();
        return Ok(if kind == DAMAGED { Received::Damaged { good: count, reason } } else { Received::Refused(reason) });
    }
    let (span_ns, timeless, cut_short) = (number(&mut from)?, number(&mut from)? != 0, number(&mut from)?);
    let (mut frames, mut total, mut last) = (Vec::new(), 0_u64, 0);
    for _ in 0..count {
        let (due, len) = (number(&mut from)?, number(&mut from)?);
        total = total.saturating_add(len);
        if len < wire::ethernet::HEADER_LEN as u64 || len > FRAME_MAX || total > FILE_MAX {
            return bad("a frame of no possible length");
        }
        if due < last {
            return bad("times that run backwards");
        }
        last = due;
        let mut bytes = vec![0; len as usize];
        from.read_exact(&mut bytes)?;
        frames.push((due, bytes));
    }
    if frames.is_empty() || span_ns <= last {
        return bad("no frames, or an end before the last");
    }
    Ok(Received::Whole(Recording { path: PathBuf::new(), frames, span_ns, timeless, cut_short }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Recording {
        let frames = vec![(0, vec![1; 60]), (5, vec![2; 1514])];
        Recording { path: "x.pcap".into(), frames, span_ns: 10, timeless: false, cut_short: 1 }
    }

    #[test]
    fn a_recording_passes_between_processes_unchanged_and_so_do_refusals() {
        let pass = |read: Result<Recording, TrafficError>| {
            let mut bytes = Vec::new();
            Recording::send(&read, &mut bytes).unwrap();
            (read, Recording::receive(Path::new("x.pcap"), &bytes[..]))
        };
        let (sent, received) = pass(Ok(sample()));
        assert_eq!(sent.unwrap(), received.unwrap());
        let path = PathBuf::from("x.pcap");
        for error in [
            TrafficError::File { path: path.clone(), reason: "it holds no packets".into() },
            TrafficError::Damaged { path, good: 7, reason: "cut".into() },
        ] {
            let (sent, received) = pass(Err(error));
            assert_eq!(sent.unwrap_err().to_string(), received.unwrap_err().to_string());
        }
    }

    #[test]
    fn packets_without_ethernet_headers_are_refused_by_the_name_of_their_link_type() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcap");
        let read = |link: u32| {
            let mut bytes = Vec::new();
            // Version 2.4, a snap length of 262144; then one packet of 60 bytes at second 1.
            for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x4_0000, link, 1, 0, 60, 60] {
                bytes.extend(u32::to_le_bytes(word));
            }
            bytes.extend([0x45; 60]);
            std::fs::write(&path, bytes).unwrap();
            Recording::read(&path)
        };
        for (link, name) in [
            (0, "NULL"),
            (9, "PPP"),
            (101, "RAW"),
            (108, "LOOP"),
            (113, "LINUX_SLL"),
            (228, "IPV4"),
            (276, "LINUX_SLL2"),
        ] {
            let error = read(link).expect_err(name).to_string();
            assert!(error.contains(&format!("link type {name},")) && error.contains("--dlt=enet"), "{error}");
        }
        assert_eq!(read(1).unwrap().frames.len(), 1);
    }

    #[test]
    fn what_is_no_recording_is_refused_and_takes_no_memory() {
        let mut bytes = Vec::new();
        Recording::send(&Ok(sample()), &mut bytes).unwrap();
        let refused = |bytes: &[u8]| Recording::receive(Path::new("x"), bytes).is_err();
        for cut in 0..bytes.len() {
            assert!(refused(&bytes[..cut]), "cut at {cut}");
        }
        let with = |at: usize, value: u64| {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            bytes
        };
        // Kind, count, end of the round, time and length of the first frame.
        for (at, value) in [(0, 9), (8, u64::MAX), (8, 0), (16, 5), (48, u64::MAX), (48, 3), (48, 1 << 30), (40, 9)] {
            assert!(refused(&with(at, value)), "{value} at {at}");
        }
    }
}
