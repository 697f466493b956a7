//! Boxes that forward, both ways at once: what goes in at either end comes out at the other.

use std::{
    collections::BTreeMap,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use bpf::{LivePace, LivePacket, LiveSender};
use lab::{
    BoxKind, BoxSpec, TestBox,
    boxes::{Family, Napi, Place, PortCounters, RuleForm, Ruleset, Sink, Target},
};
use testbed::{Tcpdump, text, wait_reporting};

use super::{COUNT, frames, lab};

/// The first frame of those to `target`, and how long its headers are.
fn frame(target: &Target) -> (Vec<u8>, usize) {
    let (mut frames, template) = frames(target);
    (frames.swap_remove(0), template.headers_len(target.sources.address.is_ipv6()))
}

fn send(from: &Place, (frame, headers): &(Vec<u8>, usize), count: u64, pps: f64) {
    let nap = Some(Duration::from_millis(1));
    let pace = LivePace { pps: Some(pps), count: Some(count), duration: Duration::from_secs(10), nap };
    let cycle = [LivePacket { headers: &frame[..*headers], frame_len: frame.len() }];
    let run = || LiveSender::load(&from.end.name, frame.clone(), &cycle, None, pace)?.run();
    from.namespace.run(run).unwrap().unwrap();
}

fn counters(place: &Place) -> PortCounters {
    place.namespace.run(|| PortCounters::read(&place.end.name)).unwrap().unwrap()
}

/// Frames that entered the box at `from` and came out at `to` since the counts before.
fn through(from: &Place, to: &Place, before: &[PortCounters; 2]) -> (u64, u64) {
    let (f, t) = (counters(from), counters(to));
    (f.tx_packets - before[0].tx_packets, t.rx_packets - before[1].rx_packets)
}

fn kinds() -> Vec<BoxKind> {
    let rules = |form, stateful| BoxKind::Firewall(Ruleset { rules: 25, stateful, form });
    vec![
        BoxKind::Wire,
        BoxKind::Router,
        rules(RuleForm::Linear, false),
        rules(RuleForm::PerSide, false),
        rules(RuleForm::PerSide, true),
        rules(RuleForm::Set, true),
        BoxKind::Bridge,
        BoxKind::XdpFib,
    ]
}

#[test]
fn what_goes_in_at_either_end_comes_out_at_the_other() {
    let Some(lab) = lab("bothways") else { return };
    for kind in kinds() {
        for (family, napi) in
            [(Family::V4, Napi::Inline), (Family::V4, Napi::Threads(vec![0])), (Family::V6, Napi::Inline)]
        {
            let made = TestBox::build(&lab, &BoxSpec { family, napi, ..BoxSpec::new(kind.clone()) }).unwrap();
            let (a, b) = (made.sender(), made.receiver().unwrap());
            let (forth, back) = (made.target(), made.back().unwrap());
            assert!(made.inside().is_none() || forth.mac != back.mac, "{kind:?}: both ways lead to one MAC address");
            let (forward, backward) = (frame(&forth), frame(&back));
            let before = [counters(a), counters(b)];
            let swapped = [before[1], before[0]];
            thread::scope(|s| {
                s.spawn(|| send(a, &forward, COUNT, 20_000.0));
                s.spawn(|| send(b, &backward, COUNT, 20_000.0));
            });
            // IPv6 interfaces say a few words of their own when they come up.
            let slack = if family == Family::V6 { 10 } else { 0 };
            let all_through = || {
                let ((sent, got), (sent_back, got_back)) = (through(a, b, &before), through(b, a, &swapped));
                let whole = got.abs_diff(sent) <= slack && got_back.abs_diff(sent_back) <= slack;
                whole && sent.min(sent_back) > COUNT / 2
            };
            wait_reporting("all come out", all_through, || {
                format!("{kind:?} {family:?}: {:?}, {:?}", through(a, b, &before), through(b, a, &swapped))
            });
            if kind == BoxKind::XdpFib {
                let (sent, sent_back) = (through(a, b, &before).0, through(b, a, &swapped).0);
                let counts = made.fib_counts().unwrap().unwrap();
                let counted = counts.forwarded + counts.passed();
                assert!(counted.abs_diff(sent + sent_back) <= slack && counts.passed() <= slack, "{counts:?}");
            }
        }
    }
}

/// Output of a verbose `tcpdump` at the other end for `count` frames.
fn seen(from: &Place, to: &Place, frame: &(Vec<u8>, usize), count: usize) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let more = ["-c", &count.to_string(), "udp port 9"];
    let tcpdump = Tcpdump::start(&to.namespace, &to.end.name, file.path(), &more);
    send(from, frame, count as u64, 1_000.0);
    let shown = Command::new("tcpdump").args(["-lnnev", "-r"]).arg(tcpdump.finish()).output().unwrap();
    text(&shown.stdout)
}

#[test]
fn forwarding_in_xdp_takes_a_hop_and_leaves_a_right_checksum() {
    let Some(lab) = lab("xdpfib") else { return };
    for family in [Family::V4, Family::V6] {
        let made = TestBox::build(&lab, &BoxSpec { family, ..BoxSpec::new(BoxKind::XdpFib) }).unwrap();
        let modes: Vec<_> = made.fib_modes();
        assert_eq!(modes, [bpf::XdpMode::Native; 2]);
        let (a, b) = (made.sender(), made.receiver().unwrap());
        let exit = made.inside().unwrap().exit.as_ref().unwrap().mac;
        let entry = made.inside().unwrap().entry.mac;
        for (from, to, target, source) in [(a, b, made.target(), exit), (b, a, made.back().unwrap(), entry)] {
            let text = seen(from, to, &frame(&target), 3);
            let hops = if family == Family::V4 { "ttl 63" } else { "hlim 63" };
            assert_eq!(text.matches(hops).count(), 3, "{family:?}: {text}");
            assert_eq!(text.matches(&format!("{source} > {}", lab::boxes::NOBODY)).count(), 3, "{text}");
            assert!(!text.contains("bad cksum") && !text.contains("bad udp"), "{text}");
        }
    }
}

/// Each reason for which a packet goes to the stack is counted as such, and the stack does what it would do without us.
#[test]
fn what_xdp_cannot_forward_goes_to_the_stack() {
    let Some(lab) = lab("xdppass") else { return };
    let spec = BoxSpec { sink: Sink::Host, ..BoxSpec::new(BoxKind::XdpFib) };
    let made = TestBox::build(&lab, &spec).unwrap();
    let (a, b) = (made.sender(), made.receiver().unwrap());
    let (v4, headers) = frame(&made.target());
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = v4.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let before = counters(b).rx_packets;
    let cases: BTreeMap<&str, Vec<u8>> = BTreeMap::from([
        ("expired", with(22, &[1])),
        ("no route", with(30, &[203, 0, 113, 1])),
        ("no neighbour", with(30, &[198, 19, 0, 77])),
        ("options", with(14, &[0x46])),
        ("not IP", with(12, &[0x88, 0xb5])),
        ("multicast", with(0, &[0x01, 0, 0x5e, 0, 0, 1])),
    ]);
    for bytes in cases.values() {
        send(a, &(bytes.clone(), headers), 10, 1_000.0);
    }
    let counts = made.fib_counts().unwrap().unwrap();
    let all = (counts.expired, counts.no_route, counts.no_neighbour, counts.not_ip, counts.forwarded);
    assert_eq!(all, (10, 10, 10, 30, 0), "{counts:?}");
    assert_eq!(counters(b).rx_packets - before, 0);
    // The two hosts talk through it, by the fast way: a datagram, and its answer.
    let bind =
        |place: &Place, address| place.namespace.run(|| std::net::UdpSocket::bind((address, 0))).unwrap().unwrap();
    let (near, far) = (bind(a, Family::V4.sender()), bind(b, Family::V4.receiver()));
    let mut buffer = [0; 32];
    for (from, to) in [(&near, &far), (&far, &near)] {
        to.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        from.send_to(b"keel", to.local_addr().unwrap()).unwrap();
        let (length, source) = to.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], source), (&b"keel"[..], from.local_addr().unwrap()));
    }
    assert_eq!(made.fib_counts().unwrap().unwrap().forwarded, 2);
}

#[test]
fn a_box_that_was_stopped_forwards_nothing_until_it_is_started() {
    let Some(lab) = lab("restart") else { return };
    for kind in kinds().into_iter().filter(|k| *k != BoxKind::Wire) {
        let made = TestBox::build(&lab, &BoxSpec::new(kind.clone())).unwrap();
        let (a, b) = (made.sender(), made.receiver().unwrap());
        let frame = frame(&made.target());
        let came = |wanted: u64| {
            let before = counters(b).rx_packets;
            send(a, &frame, 100, 10_000.0);
            let started = Instant::now();
            while counters(b).rx_packets - before < wanted && started.elapsed() < Duration::from_secs(3) {
                thread::sleep(Duration::from_millis(5));
            }
            counters(b).rx_packets - before
        };
        assert_eq!(came(100), 100, "{kind:?}");
        made.stop_forwarding().unwrap();
        assert_eq!(came(0), 0, "{kind:?} is stopped");
        made.start_forwarding().unwrap();
        assert_eq!(came(100), 100, "{kind:?} is started");
    }
}
