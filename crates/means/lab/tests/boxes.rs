//! Boxes under test on the real kernel: each forwards or ends a counted burst exactly. Needs root.

#[path = "boxes/both_ways.rs"]
mod both_ways;

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use bpf::{LivePace, LivePacket, LiveSender};
use lab::{
    BoxKind, BoxSpec, Lab, TestBox,
    boxes::{BoxCounters, Family, Napi, Network, RuleForm, Ruleset, Sink, TABLE, Target},
};
use serde_json::Value;
use testbed::{Space, privileged};
use wire::{FlowKey, Kind, Template};

const COUNT: u64 = 2_000;

/// A lab, or none without privilege; in CI that is a failure.
fn lab(tag: &str) -> Option<Lab> {
    privileged().map(|()| Lab::new(tag).unwrap())
}

fn host(network: Network, number: u32) -> IpAddr {
    match network.address {
        _ if [32, 128].contains(&network.prefix_len) => network.address,
        IpAddr::V4(a) => IpAddr::V4((a.to_bits() + number).into()),
        IpAddr::V6(a) => IpAddr::V6((a.to_bits() + u128::from(number)).into()),
    }
}

/// Frames of 100 flows to `target`.
fn frames(target: &Target) -> (Vec<Vec<u8>>, Template) {
    let template = Template { destination: target.mac, source: target.source_mac, tags: [None; 2], kind: Kind::Udp };
    let size = template.min_size(target.sources.address.is_ipv6());
    let frame = |i: u32| {
        let flow = FlowKey {
            source: host(target.sources, 1 + i),
            destination: host(target.destinations, 1 + i),
            source_port: 1024 + i as u16,
            destination_port: 9,
        };
        template.build(&flow, size, 0).unwrap()
    };
    ((0..100).map(frame).collect(), template)
}

/// The end of a burst.
struct Burst {
    sent: u64,
    /// Frames that entered the box: a queue may overflow on a busy machine.
    entered: u64,
    got: u64,
}

/// Sends [`COUNT`] live frames from the sender and waits until `wanted` of those that entered have come out.
fn burst(of: &TestBox, wanted: impl Fn(u64) -> u64) -> Burst {
    let (frames, template) = frames(&of.target());
    let headers = template.headers_len(of.spec().family == Family::V6);
    let cycle: Vec<LivePacket<'_>> =
        frames.iter().map(|f| LivePacket { headers: &f[..headers], frame_len: f.len() }).collect();
    // A sender that naps looks by itself whether it is done.
    let nap = Some(Duration::from_millis(1));
    let pace = LivePace { pps: Some(50_000.0), count: Some(COUNT), duration: Duration::from_secs(10), nap };
    let before = of.counters().unwrap();
    let send = || LiveSender::load(&of.sender().end.name, frames[0].clone(), &cycle, None, pace)?.run();
    of.sender().namespace.run(send).unwrap().unwrap();
    let started = Instant::now();
    loop {
        let after = of.counters().unwrap();
        let difference = |count: fn(&BoxCounters) -> u64| count(&after) - count(&before);
        let (sent, got) = (difference(BoxCounters::offered), difference(BoxCounters::forwarded));
        let entered = sent - difference(BoxCounters::refused);
        if sent >= COUNT && got >= wanted(entered) || started.elapsed() > Duration::from_secs(3) {
            return Burst { sent, entered, got };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Received packets and those dropped for another's MAC address, by `ip -s -s -j link` in a namespace.
fn ip_link(place: &lab::Namespace, interface: &str, key: &str) -> u64 {
    let shown = Space::of(place).output(&format!("ip -s -j link show {interface}"));
    let value: Value = serde_json::from_str(&shown).unwrap();
    value[0]["stats64"]["rx"][key].as_u64().unwrap()
}

fn spec(kind: &BoxKind, family: Family, napi: Napi) -> BoxSpec {
    BoxSpec { family, napi, ..BoxSpec::new(kind.clone()) }
}

const LINEAR: Ruleset = Ruleset { rules: 25, stateful: false, form: RuleForm::Linear };

#[test]
fn what_goes_in_comes_out() {
    let Some(lab) = lab("boxes") else { return };
    let stateful = Ruleset { stateful: true, ..LINEAR };
    let set = Ruleset { form: RuleForm::Set, ..stateful };
    for kind in [
        BoxKind::Wire,
        BoxKind::Router,
        BoxKind::Firewall(LINEAR),
        BoxKind::Firewall(stateful),
        BoxKind::Firewall(set),
        BoxKind::Bridge,
    ] {
        for (family, napi) in
            [(Family::V4, Napi::Inline), (Family::V4, Napi::Threads(vec![0])), (Family::V6, Napi::Inline)]
        {
            let made = TestBox::build(&lab, &spec(&kind, family, napi)).unwrap();
            let receiver = made.receiver().unwrap();
            let counted = ip_link(&receiver.namespace, &receiver.end.name, "packets");
            let Burst { sent, entered, got } = burst(&made, |entered| entered);
            // IPv6 interfaces say a few words of their own when they come up.
            let slack = if family == Family::V6 { 10 } else { 0 };
            assert!((COUNT..=COUNT + slack).contains(&sent), "{kind:?} {family:?}: {sent} sent");
            assert!(got.abs_diff(entered) <= slack, "{kind:?} {family:?}: {got} received of {entered}");
            let counted = ip_link(&receiver.namespace, &receiver.end.name, "packets") - counted;
            assert!(counted.abs_diff(got) <= slack, "{kind:?} {family:?}: ip -s says {counted}");
            if let BoxKind::Firewall(_) = kind {
                let accepted = made.accepted().unwrap().unwrap();
                assert!(accepted.abs_diff(entered) <= slack, "{kind:?} {family:?}: {accepted} of {entered}");
                let inside = &made.inside().unwrap().namespace;
                let tracked = Space::of(inside).read("/proc/sys/net/netfilter/nf_conntrack_count");
                let tracked: u64 = tracked.trim().parse().unwrap();
                let expected = if kind == BoxKind::Firewall(LINEAR) { 0..=0 } else { 100..=110 };
                assert!(expected.contains(&tracked), "{kind:?}: {tracked} connections");
            } else {
                assert_eq!(made.accepted().unwrap(), None);
            }
        }
    }
}

#[test]
fn a_box_that_ends_frames_takes_them_all() {
    let Some(lab) = lab("ends") else { return };
    for (kind, napi) in [
        (BoxKind::XdpDrop, Napi::Inline),
        (BoxKind::XdpDrop, Napi::Threads(vec![0])),
        (BoxKind::Capture, Napi::Inline),
        (BoxKind::Capture, Napi::Threads(vec![0])),
    ] {
        let made = TestBox::build(&lab, &BoxSpec { queues: 2, ..spec(&kind, Family::V4, napi) }).unwrap();
        let inside = made.inside().unwrap();
        let entry = &inside.entry.name;
        let seen = |key| ip_link(&inside.namespace, entry, key);
        let (packets, others) = (seen("packets"), seen("dropped"));
        let Burst { sent, entered, got } = burst(&made, |entered| entered);
        assert_eq!((sent, got), (COUNT, entered), "{kind:?}");
        assert_eq!((seen("packets") - packets, seen("dropped") - others), (entered, sent - entered), "{kind:?}");
        let queues =
            inside.namespace.run(|| std::path::Path::new("/sys/class/net").join(entry).join("queues/rx-1").exists());
        assert!(queues.unwrap(), "{kind:?} has two queues");
    }
}

/// A rule in front of the others that drops every tenth packet: nft's own count, and what is missing behind the box.
#[test]
fn what_a_rule_drops_is_missing_behind_the_box() {
    let Some(lab) = lab("drops") else { return };
    let made = TestBox::build(&lab, &spec(&BoxKind::Firewall(LINEAR), Family::V4, Napi::Inline)).unwrap();
    let rule = format!("insert rule inet {TABLE} forward numgen inc mod 10 0 drop");
    let inside = &made.inside().unwrap().namespace;
    Space::of(inside).nft(&rule);
    // Numbers 0, 10, 20 … of those that entered are dropped.
    let behind = |entered: u64| entered - entered.div_ceil(10);
    let Burst { entered, got, .. } = burst(&made, behind);
    assert_eq!((got, made.accepted().unwrap()), (behind(entered), Some(behind(entered))));
}

#[test]
fn hosts_on_both_sides_of_a_router_talk() {
    let Some(lab) = lab("hosts") else { return };
    for kind in [BoxKind::Router, BoxKind::Bridge, BoxKind::Wire] {
        for family in [Family::V4, Family::V6] {
            let made =
                TestBox::build(&lab, &BoxSpec { sink: Sink::Host, ..spec(&kind, family, Napi::Inline) }).unwrap();
            let receiver = made.receiver().unwrap();
            let there = (family.receiver(), 7);
            let socket = receiver.namespace.run(|| std::net::UdpSocket::bind(there)).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 32];
            let send = || std::net::UdpSocket::bind((family.sender(), 0)).and_then(|s| s.send_to(b"keel", there));
            made.sender().namespace.run(send).unwrap().unwrap();
            let from = socket.recv_from(&mut buffer).unwrap().1;
            assert_eq!((&buffer[..4], from.ip()), (&b"keel"[..], family.sender()), "{kind:?} {family:?}");
            let back = made.back().unwrap();
            assert_eq!((back.source_mac, back.destinations), (receiver.end.mac, Network::host(family.sender())));
        }
    }
}
