//! Two network namespaces with a veth pair between them, and frames to send through it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use port::{Frame, Source, XdpSink, XdpSinkOptions};
use sys::xsk::CopyMode;
use testbed::{Bed, End, Ip, ethernet};

pub(crate) const RECEIVER: &str = "ekrx";
pub(crate) const SENDER: &str = "ektx";
pub(crate) const ADDRESS: &str = "198.18.0.2";

/// The two namespaces; they go when it is dropped.
pub(crate) struct World {
    pub(crate) from: End,
    pub(crate) to: End,
    _bed: Bed,
}

impl World {
    /// None, and a word why, without the privilege.
    pub(crate) fn new(queues: u32) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let bed = Bed::new(&format!("port{}", NEXT.fetch_add(1, Ordering::Relaxed)), &["a", "b"])?;
        let [from, to] = bed.join_named(["a", "b"], [SENDER, RECEIVER], queues);
        to.link_set("address 02:00:00:00:00:0b");
        to.address(&format!("{ADDRESS}/24"));
        Some(Self { from, to, _bed: bed })
    }

    pub(crate) fn delete_link(&self) {
        self.from.output(&format!("ip link delete {SENDER}"));
    }

    pub(crate) fn receiver<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.to.run(f)
    }

    pub(crate) fn sink(&self, queue: u32) -> XdpSink {
        let interface = SENDER.to_owned();
        let options = XdpSinkOptions { interface, queue, frames: 256, frame_bytes: 4096, copy: CopyMode::Copy };
        self.from.run(|| XdpSink::open(&options)).expect("a sink")
    }

    /// The XDP program on the receiving end as ip shows it.
    pub(crate) fn shows_xdp(&self) -> bool {
        self.to.output(&format!("ip link show {RECEIVER}")).contains("prog/xdp")
    }
}

/// A UDP datagram to the receiving end's port 4444, `len` bytes with its Ethernet header, marked with `number`.
pub(crate) fn datagram(number: u32, len: usize) -> Vec<u8> {
    let mut udp = [1234, 4444, len as u16 - 34, 0].map(u16::to_be_bytes).concat();
    udp.extend(number.to_be_bytes());
    udp.extend((34 + udp.len()..len).map(|n| (n as u32 ^ number) as u8));
    let ip = Ip { id: 0, fragment: 0x4000, ..Ip::new([198, 18, 0, 1], [198, 18, 0, 2], 17) };
    ethernet([[2, 0, 0, 0, 0, 0x0b], [2, 0, 0, 0, 0, 0x0a]], &[], &ip.packet(&[], &udp))
}

/// Sends `frames` and waits until the kernel has done with them.
pub(crate) fn send(sink: &mut XdpSink, frames: &[Vec<u8>]) {
    let mut next = 0;
    while next < frames.len() {
        let most = (frames.len() - next) as u32;
        sink.submit(most.min(32), |room| {
            let frame = &frames[next];
            room[..frame.len()].copy_from_slice(frame);
            next += 1;
            frame.len()
        });
        sink.kick().expect("send");
    }
    assert_eq!(sink.flush(Duration::from_secs(5)).expect("flush"), 0, "frames are still out");
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) wire_len: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) timestamp_ns: u64,
    pub(crate) lost_before: u32,
}

impl From<Frame<'_>> for Kept {
    fn from(frame: Frame<'_>) -> Self {
        let Frame { timestamp_ns, wire_len, data, lost_before, .. } = frame;
        Self { wire_len, data: data.to_vec(), timestamp_ns, lost_before }
    }
}

/// Reads until `wanted` frames came or nothing comes any more.
pub(crate) fn read(source: &mut impl Source, wanted: usize) -> Vec<Kept> {
    let mut kept = Vec::new();
    let mut last = Instant::now();
    while kept.len() < wanted && last.elapsed() < Duration::from_secs(2) {
        if source.receive(Duration::from_millis(20), |frame| kept.push(frame.into())).expect("receive") > 0 {
            last = Instant::now();
        }
    }
    kept
}
