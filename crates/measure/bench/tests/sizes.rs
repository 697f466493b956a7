//! The bench's frames as tshark, and sockets of the kernel behind a router, see them: sizes, fragments, checksums.

use std::{
    net::UdpSocket,
    path::{Path, PathBuf},
    time::Duration,
};

use bench::frames::{Replay, Traffic, fragmented, imix, lay_out, rfc2544};
use bpf::bench_tx::{BenchEntry, BenchPace, BenchSender};
use lab::{
    BoxKind, BoxSpec, Lab, Namespace, TestBox,
    boxes::{Family, Sink},
};
use model::bench::FrameSpec;
use testbed::{Tcpdump, privileged, tshark, words, write_pcap};
use wire::{FlowKey, FrameSize, Kind, Mac, Template};

struct Bed {
    made: TestBox,
    folder: tempfile::TempDir,
    _lab: Lab,
}

impl Bed {
    fn new(tag: &str, kind: BoxKind, family: Family, sink: Sink) -> Self {
        let lab = Lab::new(tag).unwrap();
        let made = TestBox::build(&lab, &BoxSpec { family, sink, ..BoxSpec::new(kind) }).unwrap();
        Self { made, folder: tempfile::tempdir().unwrap(), _lab: lab }
    }

    /// The sender of each direction.
    fn ends(&self) -> [(&Namespace, &str); 2] {
        let (near, far) = (self.made.sender(), self.made.receiver().unwrap());
        [(&near.namespace, &near.end.name), (&far.namespace, &far.end.name)]
    }

    fn traffic(&self, flows: u32, both_ways: bool) -> Traffic {
        Traffic { targets: [self.made.target(), self.made.back().unwrap()], flows, both_ways, mtu: 1500 }
    }

    /// Sends `units` units of `entries`, over both directions together.
    fn send(&self, entries: &[BenchEntry], units: u64, pps: f64) {
        let steps = vec![(Some(pps), Duration::from_secs(30))];
        let pace = BenchPace { tag: 0x4242, steps, count: Some(units), stamp_every: 1, probe: None };
        let mut sender = BenchSender::load(entries, pace).unwrap();
        for (way, (namespace, interface)) in self.ends().into_iter().enumerate() {
            namespace.run(|| sender.set_device(way, interface)).unwrap().unwrap();
        }
        sender.run().unwrap();
        assert_eq!(sender.counts().units.iter().sum::<u64>(), units);
    }

    /// Does `send` while tcpdump looks at both ends; gives what arrived at the far one and at the near one.
    fn captured(&self, frames: [u64; 2], send: impl FnOnce()) -> [PathBuf; 2] {
        let [near, far] = self.ends();
        let looks = [(far, frames[0], "forward.pcap"), (near, frames[1], "backward.pcap")];
        let dumps = looks.map(|((ns, interface), count, name)| {
            let more = ["-c", &count.to_string(), "-Q", "in", "udp or tcp or ip proto 17 or ip6 proto 44"];
            Tcpdump::start(ns, interface, &self.folder.path().join(name), &more)
        });
        send();
        dumps.map(Tcpdump::finish)
    }
}

/// The frames of a unit as tshark should see them: for each its length without FCS, and with the last one the length that UDP states.
fn expected(spec: &FrameSpec, family: Family, turn: usize) -> Vec<(usize, Option<u32>)> {
    let (headers, room) = match family {
        Family::V4 => (34, 1480),
        Family::V6 => (62, 1448),
    };
    match spec {
        FrameSpec::Datagram { payload, .. } => {
            let total = *payload as usize + 8;
            let whole = std::iter::repeat_n((headers + room, None), total / room);
            whole.chain([(headers + total % room, Some(payload + 8))]).collect()
        }
        FrameSpec::Mix { bytes, .. } => expected(&FrameSpec::Size { bytes: bytes[turn % bytes.len()] }, family, 0),
        FrameSpec::Size { bytes } => {
            let ip = if family == Family::V4 { 34 } else { 54 };
            vec![(*bytes as usize - 4, Some(bytes - 4 - ip))]
        }
        FrameSpec::Replay { .. } => unreachable!("no replay here"),
    }
}

#[test]
fn the_sizes_on_the_wire_are_those_requested() {
    let Some(()) = privileged() else { return };
    for family in [Family::V4, Family::V6] {
        let bed = Bed::new("sizes", BoxKind::Wire, family, Sink::Discard);
        let specs: Vec<FrameSpec> =
            rfc2544(family).into_iter().chain(fragmented(family)).chain([imix(family)]).collect();
        let traffic = bed.traffic(1, true);
        let rounds = |spec: &FrameSpec| if matches!(spec, FrameSpec::Mix { .. }) { 12 } else { 2 };
        let wanted: Vec<(usize, Option<u32>)> =
            specs.iter().flat_map(|s| (0..rounds(s)).flat_map(move |turn| expected(s, family, turn))).collect();
        let files = bed.captured([wanted.len() as u64; 2], || {
            for spec in &specs {
                bed.send(&lay_out(spec, &traffic).unwrap(), 2 * rounds(spec) as u64, 1000.0);
            }
        });
        for (way, file) in files.iter().enumerate() {
            let rows = tshark(
                file,
                &["frame.len", "udp.length", "udp.checksum.status", "ip.checksum.status", "udp.dstport"],
                'f',
            );
            assert_eq!(rows.len(), wanted.len());
            for (i, (row, (len, udp_len))) in rows.iter().zip(&wanted).enumerate() {
                // 1 is "good".
                let right = udp_len
                    .map_or([String::new(), String::new(), String::new()], |n| [n.to_string(), "1".into(), "7".into()]);
                let seen = [&row[1], &row[2], &row[4]].map(Clone::clone);
                assert_eq!((row[0].parse(), seen), (Ok(*len), right), "{family:?}, way {way}, frame {i}");
                assert_eq!(row[3], if family == Family::V4 { "1" } else { "" });
            }
        }
    }
}

#[test]
fn the_kernel_behind_a_router_puts_the_datagrams_together() {
    let Some(()) = privileged() else { return };
    for family in [Family::V4, Family::V6] {
        let bed = Bed::new("whole", BoxKind::Router, family, Sink::Host);
        let far = bed.made.receiver().unwrap();
        let listen = || UdpSocket::bind((family.receiver(), 7));
        let socket = far.namespace.run(listen).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let traffic = bed.traffic(1, false);
        let mut data = vec![0; 70_000];
        for spec in rfc2544(family).into_iter().chain(fragmented(family)) {
            bed.send(&lay_out(&spec, &traffic).unwrap(), 1, 100.0);
            let (len, from) = socket.recv_from(&mut data).unwrap_or_else(|e| panic!("{family:?} {spec}: {e}"));
            let ip_header = if family == Family::V4 { 20 } else { 40 };
            assert_eq!(len as f64, spec.payload_bytes(ip_header), "{spec}");
            assert_eq!(from.port(), 0xc020);
            assert_eq!(data[..2], 0x4242u16.to_ne_bytes(), "the signature leads");
        }
    }
}

/// A call and a download at once, as a capture of both directions has them: voice marked EF, large segments and their acknowledgements.
fn voice_and_data(path: &Path) {
    let key = |source: &str, destination: &str, source_port, destination_port| FlowKey {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port,
        destination_port,
    };
    let (caller, called) = (key("10.1.1.5", "10.2.2.6", 16_384, 16_390), key("10.2.2.6", "10.1.1.5", 16_390, 16_384));
    let (client, server) = (key("10.1.1.7", "192.0.2.1", 40_000, 443), key("192.0.2.1", "10.1.1.7", 443, 40_000));
    let of = |kind, key: &FlowKey, bytes, sequence| {
        let t =
            Template { destination: Mac([2, 9, 9, 9, 9, 9]), source: Mac([2, 8, 8, 8, 8, 8]), tags: [None; 2], kind };
        let mut frame = t.build(key, FrameSize::with_fcs(bytes), sequence).unwrap();
        if kind == Kind::Udp {
            frame[15] = 0xb8;
        }
        frame
    };
    let frames = (0..10u32).flat_map(|i| {
        [
            of(Kind::Udp, &caller, 218, 0),
            of(Kind::TcpData, &client, 64, i),
            of(Kind::Udp, &called, 218, 0),
            of(Kind::TcpData, &server, 1518, 1460 * i),
        ]
    });
    write_pcap(path, frames);
}

#[test]
fn a_capture_file_is_replayed_in_the_tests_addresses() {
    let Some(()) = privileged() else { return };
    let bed = Bed::new("replay", BoxKind::Router, Family::V4, Sink::Discard);
    let path = bed.folder.path().join("mixed.pcap");
    voice_and_data(&path);
    let traffic = bed.traffic(1, true);
    let replay = Replay::read(&path, &traffic).unwrap();
    assert_eq!((replay.entries.len(), replay.flows, replay.grown, replay.cut), (40, [2, 2], 10, 0));
    let entries = lay_out(&replay.spec(), &traffic).unwrap();
    // Two rounds of the file.
    let files = bed.captured([40, 40], || bed.send(&entries, 80, 2000.0));
    let fields =
        words("frame.len ip.dsfield udp.srcport tcp.srcport udp.checksum.status tcp.checksum.status ip.src ip.dst");
    let forward = tshark(&files[0], &fields, 'f');
    let backward = tshark(&files[1], &fields, 'f');
    for round in 0..20 {
        let [voice, ack] = [&forward[2 * round], &forward[2 * round + 1]];
        assert_eq!(voice[..6], ["214", "0xb8", "16384", "", "1", ""].map(str::to_owned));
        // 54 bytes of headers and the signature.
        assert_eq!(ack[..6], ["72", "0x00", "", "40000", "", "1"].map(str::to_owned));
        let [voice_back, data] = [&backward[2 * round], &backward[2 * round + 1]];
        assert_eq!(voice_back[..6], ["214", "0xb8", "16390", "", "1", ""].map(str::to_owned));
        assert_eq!(data[..6], ["1514", "0x00", "", "443", "", "1"].map(str::to_owned));
        assert_eq!((&voice[6], &voice[7]), (&voice_back[7], &voice_back[6]), "answers come from where questions went");
        assert!(voice[6].starts_with("198.18.") && voice[7].starts_with("198.19.") && voice[6] != ack[6]);
    }
}
