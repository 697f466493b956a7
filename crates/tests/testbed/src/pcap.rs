//! Frames in files of pcap, and how they are sent.

use std::{
    fs::{self, File},
    io::BufReader,
    path::Path,
    time::Duration,
};

use pcap_file::pcap::PcapReader;

use crate::{Bed, End};

/// A capture file of this link type: the time of each packet, its bytes, and its length on the wire.
pub fn pcap(link_type: u32, packets: impl IntoIterator<Item = (Duration, impl AsRef<[u8]>, u32)>) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, link_type].map(u32::to_le_bytes).concat();
    for (time, bytes, wire) in packets {
        let bytes = bytes.as_ref();
        let header = [time.as_secs() as u32, time.subsec_micros(), bytes.len() as u32, wire];
        file.extend(header.map(u32::to_le_bytes).concat());
        file.extend(bytes);
    }
    file
}

/// A file of whole frames, a microsecond apart.
fn of_frames(frames: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    pcap(
        1,
        (0..)
            .zip(frames)
            .map(|(n, frame)| (Duration::from_micros(n), frame.as_ref().to_vec(), frame.as_ref().len() as u32)),
    )
}

/// Writes frames, a microsecond apart.
#[track_caller]
pub fn write_pcap(path: &Path, frames: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    fs::write(path, of_frames(frames)).expect("a file");
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

impl Bed {
    /// Writes frames to a file; its path as text.
    pub fn pcap(&self, name: &str, frames: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
        self.file(name, of_frames(frames))
    }
}

impl End {
    /// Sends the frames of a file from here.
    #[track_caller]
    pub fn replay(&self, file: &Path, pps: u32) {
        self.output(&format!("tcpreplay -q -i {} --pps={pps} {}", self.interface(), file.display()));
    }
}
