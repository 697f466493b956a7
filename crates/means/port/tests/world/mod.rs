//! Two network namespaces with a veth pair between them, and frames to send through it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use port::{Frame, Source, XdpSink, XdpSinkOptions};
use sys::xsk::CopyMode;
use testbed::{Bed, End};

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
    let mut frame = vec![0x02, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0, 0, 0x0a, 0x08, 0x00];
    let ip_len = (len - 14) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
    ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame.extend(ip);
    frame.extend([0x04, 0xd2, 0x11, 0x5c]);
    frame.extend((ip_len - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|n| (n as u32 ^ number) as u8));
    frame
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
