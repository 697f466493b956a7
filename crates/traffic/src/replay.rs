//! Frames from a capture file (pcap or pcapng), read by libpcap.

use std::path::{Path, PathBuf};

use pcap::{Capture, Linktype, Precision};
use wire::{Ethernet, Ip, ethernet::ether_type};

use crate::{TrafficError, interface::Interface, safety::Allowance};

/// The most bytes of frames that are held in memory.
pub const FILE_MAX: u64 = 2 << 30;

/// When the frames of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Timing {
    /// At the file's own times, so many times as fast: 1 is the original.
    Speed(f64),
    /// At the rate of the plan, without regard to the file's times.
    Rate,
}

/// What libpcap says, and what to do about it where that is known.
fn unreadable(error: pcap::Error) -> String {
    let text = match error {
        pcap::Error::PcapError(text) => text,
        other => other.to_string(),
    };
    let hint = match text.as_str() {
        "unknown file format" => " (it is neither pcap nor pcapng; if it is compressed, unpack it first)",
        t if t.contains("different from the type of the first interface") => {
            " (interfaces of several link types lie in one file: capture the Ethernet ones by themselves)"
        }
        _ => "",
    };
    text + hint
}

/// The frames of a file in its order, bytes unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The file.
    pub path: PathBuf,
    /// Each frame and when it is due, in nanoseconds from the first.
    pub frames: Vec<(u64, Vec<u8>)>,
    /// When the next round begins: a mean gap behind the last frame, in nanoseconds from the first.
    pub span_ns: u64,
    /// Whether all frames bear the same time, so that the file says nothing about their rate.
    pub timeless: bool,
    /// Frames that the capture had cut short, and that are sent so.
    pub cut_short: u64,
}

impl Recording {
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
        let mut capture = Capture::from_file_with_precision(path, Precision::Nano).map_err(|e| file(unreadable(e)))?;
        let link = capture.get_datalink();
        if link != Linktype::ETHERNET {
            let name = link.get_name().unwrap_or_else(|_| link.0.to_string());
            return Err(file(format!("its packets are of link type {name}, and only Ethernet (EN10MB) can be sent")));
        }
        let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut first_ns, mut due, mut cut_short) = (None, 0u64, 0);
        loop {
            let good = frames.len() as u64;
            match capture.next_packet() {
                Ok(packet) => {
                    // With Precision::Nano, tv_usec holds nanoseconds.
                    let ns = i128::from(packet.header.ts.tv_sec) * 1_000_000_000 + i128::from(packet.header.ts.tv_usec);
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
                    cut_short += u64::from(packet.header.len > packet.header.caplen);
                    frames.push((due, packet.data.to_vec()));
                }
                Err(pcap::Error::NoMorePackets) => break,
                Err(e) => {
                    return Err(TrafficError::Damaged { path: path.to_owned(), good, reason: unreadable(e) });
                }
            }
        }
        if frames.is_empty() {
            return Err(file("it holds no packets".into()));
        }
        let gap = if frames.len() > 1 { due / (frames.len() as u64 - 1) } else { 0 };
        Ok(Self { path: path.to_owned(), frames, span_ns: due + gap.max(1), timeless: due == 0, cut_short })
    }

    /// Whether every frame may be sent on `interface`.
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
