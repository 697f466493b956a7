//! Frames that are sent over a wire, and captures of them.

use std::{
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use capture::{
    filter::{self, Place},
    open::{self, AnySource, Tuning},
    output::{Output, Rotation, Target},
    pcapng::Section,
    plan::{Backend, Plan},
    run::{Limits, Notice, Report, Seen, Sink},
};
use etherparse::PacketBuilder;
use port::{PacketOptions, WHOLE_FRAME};
use sys::packet::Instruction;
use testbed::{Wire, read_pcap, wait};

/// A packet as it is compared: length on the wire, bytes.
pub(crate) type Packet = (u32, Vec<u8>);

/// Notices of a capture so far.
pub(crate) type Notices = Mutex<Vec<Notice>>;

/// Packets of mixed sizes, IPv4 and IPv6, TCP and UDP, some with VLAN tags.
pub(crate) fn mixture(count: usize) -> Vec<Vec<u8>> {
    let sizes = [6usize, 6, 20, 200, 700, 1400];
    (0..count)
        .map(|i| {
            let mut payload = (i as u32).to_be_bytes().to_vec();
            payload.resize(sizes[i % sizes.len()].max(4), i as u8);
            let [_, _, high, low] = (i as u32).to_be_bytes();
            let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let source6 = [0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low];
            let step = match i % 10 {
                0 => ethernet.single_vlan(etherparse::VlanId::try_new(100).unwrap()).ipv4(
                    [198, 18, high, low],
                    [198, 19, 0, 1],
                    64,
                ),
                1..=6 => ethernet.ipv4([198, 18, high, low], [198, 19, 0, 1], 64),
                _ => ethernet.ipv6(source6, [0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 64),
            };
            let port = 1024 + (i % 60_000) as u16;
            let mut bytes = Vec::new();
            match i % 2 {
                0 => step.udp(port, 53).write(&mut bytes, &payload).unwrap(),
                _ => step.tcp(port, 80, i as u32, 1000).write(&mut bytes, &payload).unwrap(),
            }
            bytes.resize(bytes.len().max(60), 0);
            bytes
        })
        .collect()
}

/// The packets of a pcapng file, by tshark's own reader: written back as pcap by editcap.
pub(crate) fn read_pcapng(path: &Path) -> Vec<Packet> {
    let pcap = path.with_extension("as.pcap");
    let output = Command::new("editcap").args(["-F", "nsecpcap"]).arg(path).arg(&pcap).output().expect("editcap");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    read_pcap(&pcap)
}

pub(crate) fn options(interface: &str, filter: Vec<Instruction>) -> PacketOptions {
    PacketOptions {
        interface: interface.to_owned(),
        filter,
        snaplen: WHOLE_FRAME,
        promiscuous: true,
        ignore_outgoing: false,
    }
}

/// Opens `members` readers, unpinned.
pub(crate) fn sources(
    interface: &str,
    backend: Backend,
    members: usize,
    tuning: &Tuning,
    filter: &str,
) -> Vec<(AnySource, Option<u32>)> {
    let plan = Plan { backend, readers: vec![None; members], node: None };
    let place = if backend.is_xdp() { Place::Xdp } else { Place::Socket };
    let filter = filter::compile(interface, filter, WHOLE_FRAME, place).unwrap();
    let opened = open::open(&plan, &options(interface, filter.program), tuning).unwrap();
    opened.into_iter().map(|s| (s, None)).collect()
}

fn section(wire: &Wire) -> Section {
    Section {
        hardware: "test".into(),
        os: "Linux".into(),
        application: "evenkeel".into(),
        interfaces: vec![capture::pcapng::Captured { name: wire.receiver.interface().to_owned(), link_type: 1 }],
        filter: String::new(),
        snaplen: WHOLE_FRAME,
    }
}

pub(crate) fn limits() -> Limits {
    Limits { packets: None, duration: None, snaplen: WHOLE_FRAME, held_back: Duration::from_millis(200) }
}

/// Captures into `file` while `meanwhile` runs in another thread, then stops; the report, and what was noticed.
pub(crate) fn capture(
    wire: &Wire,
    make: impl FnOnce() -> Vec<(AnySource, Option<u32>)> + Send,
    file: &Path,
    limits: Limits,
    meanwhile: impl FnOnce(&Notices) + Send,
) -> (Report, Vec<Notice>) {
    let (stop, opened, notices) = (AtomicBool::new(false), AtomicBool::new(false), Notices::default());
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            wire.receiver.run(|| {
                let sources = make();
                let target = Target::File(file.to_owned(), Rotation::default());
                let output = Output::open(target, section(wire)).unwrap();
                opened.store(true, Ordering::SeqCst);
                let sink = Sink::Pcapng { output: Box::new(output), interfaces: Vec::new() };
                capture::run::run(sources, sink, limits, &stop, |seen| {
                    if let Seen::Notice(notice) = seen {
                        notices.lock().unwrap().push(notice);
                    }
                })
            })
        });
        wait("the capture has begun", || opened.load(Ordering::SeqCst) || run.is_finished());
        meanwhile(&notices);
        stop.store(true, Ordering::SeqCst);
        run.join().unwrap()
    });
    (report, notices.into_inner().unwrap())
}
