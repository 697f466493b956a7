//! Frames in files of pcap, and how they are sent.

use std::{
    fs::File,
    io::{BufReader, BufWriter},
    path::Path,
    time::Duration,
};

use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

use crate::End;

/// Writes frames, a microsecond apart.
#[track_caller]
pub fn write_pcap(path: &Path, frames: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    let mut file = PcapWriter::new(BufWriter::new(File::create(path).expect("a file"))).expect("a header");
    for (n, frame) in (0..).zip(frames) {
        let frame = frame.as_ref();
        let packet = PcapPacket::new(Duration::from_micros(n), frame.len() as u32, frame);
        file.write_packet(&packet).expect("a packet");
    }
}

/// The packets of a file: length on the wire, bytes.
#[track_caller]
pub fn read_pcap(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let mut file = PcapReader::new(BufReader::new(File::open(path).expect("a file"))).expect("a header");
    let mut packets = Vec::new();
    while let Some(packet) = file.next_packet() {
        let packet = packet.expect("a whole packet");
        packets.push((packet.orig_len, packet.data.into_owned()));
    }
    packets
}

impl End {
    /// Sends the frames of a file from here.
    #[track_caller]
    pub fn replay(&self, file: &Path, pps: u32) {
        self.output(&format!("tcpreplay -q -i {} --pps={pps} {}", self.interface(), file.display()));
    }
}
