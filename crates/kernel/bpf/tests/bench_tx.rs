//! The bench's sender, run packet by packet without sending: what it writes, how it numbers and stamps, and when it ends.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    slice::from_ref,
    thread,
    time::Duration,
};

use bpf::bench_tx::{BenchEntry, BenchPace, BenchProbe, BenchRings, BenchSender, PROBE_FLOW, SIGNATURE_BYTES};
use testbed::privileged;
use wire::{Ethernet, FlowKey, FrameSize, Ip, Kind, Mac, Template};

/// Verdicts of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;
const STEP_TIME: Duration = Duration::from_secs(3600);

fn unpaced() -> BenchPace {
    BenchPace { tag: 0x5a01, steps: vec![(None, STEP_TIME)], count: None, stamp_every: 3, probe: None }
}

/// A sender of both directions to the loopback, to which nothing is sent.
fn load(entries: &[BenchEntry], pace: BenchPace) -> BenchSender {
    let mut sender = BenchSender::load(entries, pace).unwrap();
    (0..2).for_each(|way| sender.set_device(way, "lo").unwrap());
    sender
}

/// A UDP frame of `bytes` with FCS whose payload is zeros.
fn entry(ipv6: bool, direction: u8, flow: u32, bytes: usize) -> BenchEntry {
    let t = Template {
        destination: Mac([2, 0, 0, 0, 0, 2]),
        source: Mac([2, 0, 0, 0, 0, 1]),
        tags: [None; 2],
        kind: Kind::Udp,
    };
    let address = |last: u16| -> IpAddr {
        if ipv6 {
            Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, last).into()
        } else {
            Ipv4Addr::new(198, 18, 0, last as u8).into()
        }
    };
    let key = FlowKey {
        source: address(1 + u16::from(direction)),
        destination: address(2 - u16::from(direction)),
        source_port: 1024 + flow as u16,
        destination_port: 7,
    };
    let whole = t.build(&key, FrameSize::with_fcs(bytes), 0).unwrap();
    let ip_len = if ipv6 { 40 } else { 20 };
    let signature_at = 14 + ip_len + 8;
    BenchEntry {
        frame: whole[..signature_at + SIGNATURE_BYTES].to_vec(),
        frame_len: whole.len() as u16,
        direction,
        signature_at: signature_at as u8,
        checksum_at: signature_at as u8 - 2,
        checksum_times: 1,
        id_at: if ipv6 { 0 } else { 18 },
        flow,
        seq_step: 1,
        ..BenchEntry::default()
    }
}

/// Tag, flow, number and stamp of the signature.
fn signature(frame: &[u8], at: u8) -> (u16, u32, u32, u64) {
    let s = &frame[usize::from(at)..][..SIGNATURE_BYTES];
    (
        u16::from_ne_bytes(s[..2].try_into().unwrap()),
        u32::from_ne_bytes(s[2..6].try_into().unwrap()),
        u32::from_ne_bytes(s[6..10].try_into().unwrap()),
        u64::from_ne_bytes(s[10..].try_into().unwrap()),
    )
}

#[test]
fn units_are_numbered_and_stamped_with_right_checksums() {
    let Some(()) = privileged() else { return };
    for ipv6 in [false, true] {
        // Two flows forward, of which the first has two units in a lap, and one backward.
        number_and_stamp(&[
            BenchEntry { seq_step: 2, ..entry(ipv6, 0, 0, 200) },
            entry(ipv6, 1, 0, 84),
            BenchEntry { seq_step: 2, seq_base: 1, ..entry(ipv6, 0, 0, 1518) },
            entry(ipv6, 0, 0x1_0003, 84),
        ]);
    }
}

#[test]
fn frames_that_are_all_alike_are_made_by_a_program_of_their_own() {
    let Some(()) = privileged() else { return };
    let alike = |direction, flow, bytes| BenchEntry { id_at: 0, ..entry(false, direction, flow, bytes) };
    for bytes in [64, 1518] {
        number_and_stamp(&[
            BenchEntry { seq_step: 2, ..alike(0, 0, bytes) },
            alike(1, 0, bytes),
            BenchEntry { seq_step: 2, seq_base: 1, ..alike(0, 0, bytes) },
            alike(0, 0x1_0003, bytes),
        ]);
        // A lap of one unit, this way and that.
        number_and_stamp(&[alike(0, 3, bytes)]);
        number_and_stamp(&[alike(1, 3, bytes)]);
    }
}

/// Two trials of 18 frames of which each is a unit.
fn number_and_stamp(entries: &[BenchEntry]) {
    let mut sender = load(entries, unpaced());
    for trial in 0..2u16 {
        let tag = 0x1234 + trial * 0x100;
        sender.rearm(BenchPace { tag: tag | 1, ..unpaced() }).unwrap();
        let (mut ids, mut sent) = (Vec::new(), [0; 2]);
        for i in 0..18u32 {
            let e = &entries[i as usize % entries.len()];
            let (verdict, frame) = sender.try_once().unwrap();
            assert_eq!((verdict, frame.len()), (XDP_REDIRECT, usize::from(e.frame_len)));
            let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
            assert!(ip.is_checksum_right() && ip.is_payload_checksum_right() == Some(true), "{i}: {frame:x?}");
            let (got, flow, seq, stamp) = signature(&frame, e.signature_at);
            assert_eq!((got, flow), (tag | u16::from(e.direction), e.flow));
            assert_eq!(seq, i / entries.len() as u32 * e.seq_step + e.seq_base);
            assert_eq!(stamp != 0, i % 3 == 0, "unit {i}");
            assert!(frame[usize::from(e.signature_at) + SIGNATURE_BYTES..].iter().all(|&b| b == 0));
            if e.id_at != 0 {
                ids.push(u16::from_ne_bytes([frame[18], frame[19]]));
            }
            sent[usize::from(e.direction)] += 1;
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "each unit has an identification of its own");
        let counts = sender.counts();
        assert_eq!((counts.units, counts.frames, counts.probes), (sent, sent, 0));
    }
}

#[test]
fn fragments_share_number_stamp_and_identification() {
    let Some(()) = privileged() else { return };
    let first = BenchEntry { more: true, checksum_times: 3, ..entry(false, 0, 7, 200) };
    let later = |len: u16, more| BenchEntry {
        frame: first.frame[..34 + SIGNATURE_BYTES].to_vec(),
        frame_len: len,
        signature_at: 34,
        checksum_at: 0,
        more,
        ..first.clone()
    };
    let entries = [first.clone(), later(196, true), later(60, false)];
    let sender = load(&entries, BenchPace { stamp_every: 2, ..unpaced() });
    for unit in 0..10u32 {
        let frames: Vec<Vec<u8>> = (0..3).map(|_| sender.try_once().unwrap().1).collect();
        let signatures: Vec<_> = frames.iter().zip(&entries).map(|(f, e)| signature(f, e.signature_at)).collect();
        assert!(signatures.iter().all(|s| *s == signatures[0]), "{signatures:?}");
        assert_eq!((signatures[0].2, signatures[0].3 != 0), (unit, unit % 2 == 0));
        assert!(frames.iter().all(|f| f[18..20] == frames[0][18..20]));
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [196, 196, 60]);
        // The checksum over the signatures of all three: what one of them lacks, the others add.
        let mut as_one = frames[0].clone();
        let ones = |bytes: &[u8]| bytes.chunks(2).map(|c| u64::from(u16::from_ne_bytes([c[0], c[1]]))).sum::<u64>();
        let mut sum = ones(&frames[0][42..60]) * 2 + ones(&as_one[34..]);
        // The pseudo header: addresses, protocol, length.
        sum += ones(&as_one.split_off(26)[..8]) + u64::from(17u16.to_be()) + ones(&frames[0][38..40]);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff);
    }
    assert_eq!((sender.counts().units, sender.counts().frames), ([10, 0], [30, 0]));
}

#[test]
fn count_and_stop_end_the_sending_and_rearming_begins_anew() {
    let Some(()) = privileged() else { return };
    let entries = [entry(false, 0, 0, 64), entry(false, 1, 0, 64)];
    let mut sender = load(&entries, BenchPace { count: Some(20), ..unpaced() });
    let verdicts: Vec<u32> = (0..25).map(|_| sender.try_once().unwrap().0).collect();
    assert!(verdicts[..20].iter().all(|&v| v == XDP_REDIRECT) && verdicts[20..].iter().all(|&v| v == XDP_DROP));
    assert_eq!((sender.counts().units, sender.counts().done), ([10, 10], true));
    sender.rearm(unpaced()).unwrap();
    assert_eq!(sender.counts(), Default::default());
    sender.stop();
    assert_eq!((sender.try_once().unwrap().0, sender.counts().done), (XDP_DROP, true));
}

/// Whatever the speed of the machine: the first step sends nothing, the last one as fast as it goes, for no more than one look can let go.
#[test]
fn steps_follow_each_other() {
    let Some(()) = privileged() else { return };
    let first = Duration::from_millis(50);
    let pace = BenchPace { steps: vec![(Some(0.0), first), (None, STEP_TIME)], ..unpaced() };
    let sender = load(&[entry(false, 0, 0, 64)], pace);
    assert_eq!(sender.try_once().unwrap().0, XDP_DROP);
    let before = sender.counts();
    assert_eq!((before.units, before.fillers, before.switched_ns), ([0, 0], 1, before.started_ns));
    thread::sleep(first);
    assert_eq!(sender.try_once().unwrap().0, XDP_REDIRECT);
    let after = sender.counts();
    assert!(after.switched_ns - after.started_ns >= 50_000_000);
    assert_eq!(after.units, [1, 0]);
}

/// A unit per second, the first after half of one. Each look may make good at most 0.134 s: so there is one in the first eleven looks that are at
/// least 0.1 s apart, however slow the machine is, if program and handle agree on the unit of the rate.
#[test]
fn the_achieved_rate_follows_the_knob() {
    let Some(()) = privileged() else { return };
    let pace = BenchPace { steps: vec![(Some(1.0), STEP_TIME)], ..unpaced() };
    let sender = load(&[entry(false, 0, 0, 64)], pace);
    assert_eq!(sender.try_once().unwrap().0, XDP_DROP);
    let mut sent = 0;
    for _ in 0..11 {
        thread::sleep(Duration::from_millis(100));
        sent += u32::from(sender.try_once().unwrap().0 == XDP_REDIRECT);
    }
    assert_eq!(sent, 1);
}

#[test]
fn probes_go_when_their_time_has_come() {
    let Some(()) = privileged() else { return };
    let probe = BenchProbe { entry: entry(false, 1, 5, 64), every: Duration::from_millis(20), after: Duration::ZERO };
    let idle = BenchPace { steps: vec![], probe: Some(probe), ..unpaced() };
    let mut sender = load(&[entry(false, 0, 0, 1518)], idle.clone());
    for number in 0..3 {
        let (verdict, frame) = sender.try_once().unwrap();
        assert_eq!((verdict, frame.len()), (XDP_REDIRECT, 60));
        let (tag, flow, seq, stamp) = signature(&frame, 42);
        assert_eq!((tag, flow, seq), (0x5a01, PROBE_FLOW, number));
        assert!(stamp > 0);
        let ip = Ip::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
        assert!(ip.is_checksum_right() && ip.is_payload_checksum_right() == Some(true));
        thread::sleep(Duration::from_millis(25));
    }
    assert_eq!((sender.counts().probes, sender.counts().units), (3, [0, 0]));
    // Beside a load, which goes on.
    sender.rearm(BenchPace { steps: vec![(None, STEP_TIME)], ..idle }).unwrap();
    let lens: Vec<usize> = (0..4).map(|_| sender.try_once().unwrap().1.len()).collect();
    assert_eq!(lens, [60, 1514, 1514, 1514]);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let Some(()) = privileged() else { return };
    let good = entry(false, 0, 0, 64);
    let refused = |entries: &[BenchEntry], pace| BenchSender::load(entries, pace).unwrap_err().to_string();
    assert_eq!(refused(&[], unpaced()), "a lap of no frames cannot be sent");
    assert_eq!(refused(&[BenchEntry { more: true, ..good.clone() }], unpaced()), "the lap ends within a unit");
    let cut = BenchEntry { signature_at: 43, ..good.clone() };
    assert!(refused(&[good.clone(), cut], unpaced()).starts_with("frame 1 of the lap has no room for the signature"));
    let long = BenchEntry { frame_len: 4000, ..good.clone() };
    assert!(refused(&[long], unpaced()).contains("3072"));
    let steps = BenchPace { steps: vec![(None, STEP_TIME); 5], ..unpaced() };
    assert!(refused(from_ref(&good), steps).contains("takes 4"));
    let fast = BenchPace { steps: vec![(Some(6e7), STEP_TIME)], ..unpaced() };
    assert!(refused(from_ref(&good), fast).contains("50000000"));
    let nothing = BenchPace { steps: vec![], ..unpaced() };
    assert!(refused(from_ref(&good), nothing).contains("nothing to do"));
    let mut sender = BenchSender::load(&[good], unpaced()).unwrap();
    assert!(sender.run().unwrap_err().to_string().contains("no device"));
    assert!(sender.set_device(0, "ek-none").unwrap_err().to_string().contains("`ek-none`"));
}

/// Backlog that may be due at once, in nanoseconds of the wanted rate, read from the program's own clock: all of the time since the last look that it did
/// not give up. So the speed of the machine does not matter.
fn most_due_ns(rings: Option<BenchRings>, pps: f64) -> u64 {
    let pace = BenchPace { steps: vec![(Some(pps), STEP_TIME)], ..unpaced() };
    let mut sender = BenchSender::load_behind(rings, &[entry(false, 0, 0, 64)], pace).unwrap();
    (0..2).for_each(|way| sender.set_device(way, "lo").unwrap());
    assert_eq!(sender.try_once().unwrap().0, XDP_DROP);
    // Far more than may be due.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(sender.try_once().unwrap().0, XDP_REDIRECT);
    let counts = sender.counts();
    counts.elapsed_ns - counts.given_up_ns
}

#[test]
fn a_sender_that_was_held_up_makes_good_little_and_gives_up_the_rest() {
    let Some(()) = privileged() else { return };
    let behind = |frames| Some(BenchRings { cpus: [0, 0], frames });
    for (rings, pps, units) in [
        // 64 units; 50 microseconds where that is more.
        (None, 1000.0, 64),
        (None, 1e7, 500),
        // With rings 1 ms, but no more than a quarter of the ring.
        (behind(4096), 1000.0, 64),
        (behind(4096), 2e5, 200),
        (behind(4096), 1e7, 1024),
        (behind(1024), 1e7, 256),
    ] {
        let unit_ns = (1e9 / pps) as u64;
        let due_ns = most_due_ns(rings, pps);
        assert!(due_ns.abs_diff(units * unit_ns) <= unit_ns, "{rings:?}, {pps}: {due_ns} ns, not {units} units");
    }
}
