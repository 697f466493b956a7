//! A wire with interfaces of fixed names, and frames to send through it.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use port::{Frame, Source, XdpSink, XdpSinkOptions};
use sys::xsk::CopyMode;
use testbed::{Bed, Ip, Wire, ethernet};

pub(crate) const RECEIVER: &str = "ekrx";
const SENDER: &str = "ektx";

/// The wire: its receiving end has so many queues. None, and a word why, without the privilege.
pub(crate) fn wire(queues: u32) -> Option<Wire> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let bed = Bed::new(&format!("port{}", NEXT.fetch_add(1, Ordering::Relaxed)), &["a", "b"])?;
    let [sender, receiver] = bed.join_named(["a", "b"], [SENDER, RECEIVER], queues);
    receiver.link_set("address 02:00:00:00:00:0b");
    receiver.address("198.18.0.2/24");
    Some(Wire { sender, receiver, bed })
}

pub(crate) fn sink(wire: &Wire, queue: u32) -> XdpSink {
    let interface = SENDER.to_owned();
    let options = XdpSinkOptions { interface, queue, frames: 256, frame_bytes: 4096, copy: CopyMode::Copy };
    wire.sender.run(|| XdpSink::open(&options)).expect("a sink")
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

/// Reads until `wanted` frames came or nothing comes any more; what is kept of each.
pub(crate) fn read<T>(source: &mut impl Source, wanted: usize, keep: impl Fn(Frame<'_>) -> T) -> Vec<T> {
    let mut kept = Vec::new();
    let mut last = Instant::now();
    while kept.len() < wanted && last.elapsed() < Duration::from_secs(2) {
        if source.receive(Duration::from_millis(20), |frame| kept.push(keep(frame))).expect("receive") > 0 {
            last = Instant::now();
        }
    }
    kept
}
