//! Cost of a delivered message. Measurements, printed and not asserted: `cargo test --release -p bpf --test link_pace -- --ignored --nocapture`.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpf::{LinkBurst, LinkPort, LinkSettings, XdpMode};
use libbpf_rs::{MapHandle, RingBufferBuilder, query::MapInfoIter};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use sys::{
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
    tun::Tap,
};
use testbed::{
    Bed, End,
    messages::{ETHERTYPE, PORT, data, frame, payload},
    privileged,
};

fn stay_on(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Nanoseconds for each record of the newest ring of this machine, read by libbpf.
fn by_libbpf(port: &LinkPort, sent: &[u8], times: u32) -> f64 {
    let ring = MapInfoIter::default().filter(|map| map.name == "link_ring").map(|map| map.id).max();
    let map = MapHandle::from_map_id(ring.unwrap()).unwrap();
    let (mut bytes, mut count) = (0usize, 0);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, |record| {
            (bytes, count) = (bytes + usize::from(record[16]), count + 1);
            0
        })
        .unwrap();
    let reader = builder.build().unwrap();
    port.try_frame(sent, sent.len(), times).unwrap();
    let begin = Instant::now();
    reader.consume().unwrap();
    let passed = begin.elapsed().as_nanos() as f64;
    drop(reader);
    assert_eq!((count, bytes), (times, 0x10 * times as usize));
    passed / f64::from(count)
}

/// The program alone, by BPF_PROG_TEST_RUN: a frame that is delivered, and one to nobody, with the checksum looked at and without.
#[test]
#[ignore = "a measurement"]
fn nanoseconds_for_each_frame() {
    const TIMES: u32 = 10_000;
    let Some(()) = privileged() else { return };
    stay_on(0);
    for ports in [1u16, 64, 1024] {
        let tap = Tap::create("eklink%d").unwrap();
        let mut port = LinkPort::attach(tap.name(), XdpMode::Native, LinkSettings::default()).unwrap();
        let begin = Instant::now();
        let _ring = port.endpoint(1000..=999 + ports, 1 << 20).unwrap();
        let made = begin.elapsed();
        port.remove(1000..=999 + ports);
        println!("an endpoint of {ports} ports: made in {made:?}, removed in {:?}", begin.elapsed() - made);
    }
    for checked in [true, false] {
        for len in [64, 1400] {
            let tap = Tap::create("eklink%d").unwrap();
            let mut port =
                LinkPort::attach(tap.name(), XdpMode::Native, LinkSettings { checked, ..LinkSettings::default() })
                    .unwrap();
            let mac = sys::link::mac(tap.name()).unwrap().unwrap();
            let mut ring = port.endpoint(PORT..=PORT, TIMES as usize * 2048).unwrap();
            let sent = frame(mac, &[], &data(&payload(len)));
            let mut foreign = sent.clone();
            foreign[12..14].copy_from_slice(&[8, 6]);
            let (mut delivered, mut read, mut passed) = (vec![], vec![], vec![]);
            for _ in 0..31 {
                let (_, _, time) = port.try_frame(&sent, sent.len(), TIMES).unwrap();
                delivered.push(time.as_nanos() as f64);
                let (mut bytes, begin) = (0usize, Instant::now());
                let count = ring.consume(|_, _, frame| bytes += usize::from(frame[0]));
                read.push(begin.elapsed().as_nanos() as f64 / count as f64);
                assert_eq!((count, bytes), (TIMES as usize, 0x10 * TIMES as usize));
                passed.push(port.try_frame(&foreign, sent.len(), TIMES).unwrap().2.as_nanos() as f64);
            }
            // The same records by libbpf's reader, whose ring this is from here on.
            let by_libbpf = median((0..31).map(|_| by_libbpf(&port, &sent, TIMES)).collect());
            println!(
                "{len} bytes, checked {checked}: delivered {} ns, read {:.1} ns (by libbpf {by_libbpf:.1}), another EtherType {} ns (median of 31 x {TIMES})",
                median(delivered),
                median(read),
                median(passed)
            );
        }
    }
}

/// The node at the far end: sends back whatever comes, while `stop` is not set.
fn echo(mut next: impl FnMut(&mut dyn FnMut(&[u8])), mut sender: PacketBatch, to: &End, stop: &AtomicBool) {
    let answer = frame(to.link.mac.0, &[], &data(&payload(64)));
    while !stop.load(Ordering::Relaxed) {
        next(&mut |_| {
            assert!(sender.push(&answer));
            sender.flush().unwrap();
        });
    }
}

/// There and back, 64 bytes between two namespaces, both ends spinning on a core of their own: rings, and packet sockets in the same run.
#[test]
#[ignore = "a measurement"]
fn microseconds_there_and_back() {
    const TIMES: usize = 50_000;
    let Some((_bed, ends)) = Bed::pair("lpc") else { return };
    let [a, b] = &ends;
    let mut ports = ends
        .each_ref()
        .map(|end| end.run(|| LinkPort::attach(end.interface(), XdpMode::Native, LinkSettings::default()).unwrap()));
    for round in 0..3 {
        for by_ring in [true, false] {
            // Without endpoints frames go up to the sockets.
            let rings = ports.each_mut().map(|port| by_ring.then(|| port.endpoint(PORT..=PORT, 1 << 20).unwrap()));
            let sockets = ends.each_ref().map(|end| end.run(|| PacketSocket::open_for(ETHERTYPE).unwrap()));
            let reader = |ring: Option<bpf::LinkRing>, socket: PacketSocket| {
                let (mut ring, mut batch) = (ring, Batch::new(8, 256));
                move |each: &mut dyn FnMut(&[u8])| match &mut ring {
                    Some(ring) => {
                        ring.consume(|_, _, frame| each(frame));
                    }
                    None => {
                        let n = batch.receive(&socket).unwrap();
                        batch.packets(n).for_each(|packet| each(packet.data));
                    }
                }
            };
            let [ring_a, ring_b] = rings;
            let [socket_a, socket_b] = sockets;
            let stop = AtomicBool::new(false);
            let mut times = Vec::with_capacity(TIMES);
            let open = |end: &End| end.run(|| PacketBatch::open(end.link.index, 256, 1 << 20).unwrap());
            let (mut sender, back) = (open(a), open(b));
            let (mut answers, questions) = (reader(ring_a, socket_a), reader(ring_b, socket_b));
            thread::scope(|scope| {
                scope.spawn(|| {
                    stay_on(1);
                    echo(questions, back, a, &stop);
                });
                stay_on(0);
                let ask = frame(b.link.mac.0, &[], &data(&payload(64)));
                for turn in 0..TIMES + 1000 {
                    let begin = Instant::now();
                    assert!(sender.push(&ask));
                    sender.flush().unwrap();
                    let mut came = false;
                    while !came && begin.elapsed() < Duration::from_secs(1) {
                        answers(&mut |_| came = true);
                    }
                    assert!(came, "an answer");
                    if turn >= 1000 {
                        times.push(begin.elapsed().as_nanos() as f64 / 1000.0);
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[(times.len() as f64 * share) as usize];
            let what = if by_ring { "ring" } else { "AF_PACKET" };
            println!(
                "round {round}, {what}: median {:.2} us, P99 {:.2}, P99.9 {:.2} ({TIMES} times)",
                at(0.5),
                at(0.99),
                at(0.999)
            );
            ports.iter_mut().for_each(|port| port.remove(PORT..=PORT));
        }
    }
}

/// Cost of a frame to its sender in bursts of several lengths: live frames beside sendmmsg(2), into a ring of the far end that another CPU reads.
#[test]
#[ignore = "a measurement"]
fn nanoseconds_of_a_burst() {
    const ROUNDS: usize = 2000;
    let Some((_bed, ends)) = Bed::pair("lpb") else { return };
    let [a, b] = &ends;
    let mut port = b.run(|| LinkPort::attach(b.interface(), XdpMode::Native, LinkSettings::default()).unwrap());
    let mut ring = port.endpoint(PORT..=PORT, 8 << 20).unwrap();
    let stop = AtomicBool::new(false);
    let mut burst = a.run(|| LinkBurst::load(a.interface(), 1514).unwrap());
    a.run(|| burst.hold().unwrap());
    let mut batch = a.run(|| PacketBatch::open(a.link.index, 1514, 8 << 20).unwrap());
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            stay_on(1);
            let mut all = 0usize;
            while !stop.load(Ordering::Relaxed) {
                all += ring.consume(|_, _, _| ());
            }
            all
        });
        stay_on(0);
        let sent = frame(b.link.mac.0, &[], &data(&payload(1400)));
        for frames in [1, 4, 16, 64, 256] {
            for way in ["live", "sendmmsg"] {
                let mut times = Vec::new();
                for _ in 0..ROUNDS {
                    let begin = Instant::now();
                    for _ in 0..frames {
                        match way {
                            "live" => assert!(burst.push(&sent)),
                            _ if batch.push(&sent) => {}
                            _ => {
                                batch.flush().unwrap();
                                assert!(batch.push(&sent));
                            }
                        }
                    }
                    match way {
                        "live" => drop(burst.send().unwrap()),
                        _ => drop(batch.flush().unwrap()),
                    }
                    times.push(begin.elapsed().as_nanos() as f64 / f64::from(frames));
                }
                println!("{frames} frames, {way}: {:.0} ns each", median(times));
            }
        }
        thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        println!("{} of {} arrived", reader.join().unwrap(), 341 * 2 * ROUNDS);
    });
}
