//! Stateless rules before the fast path: which packets they end, in each mode, and how they are changed.

mod settings;

use std::{path::Path, time::Duration};

use model::{
    CpuSet,
    route::{RouteMode, RouteRulesStatus},
    shield::RuleStatus,
};
use route::{RouteError, RouteSettings, Router, rules::RouteRules};
use rules::requester::Requester;
use settings::settings;
use testbed::{Ip, RouterBed, ethernet, nft, run, wait, write_pcap};

const A: [u8; 6] = [2, 0, 0, 0, 1, 2];
const R: [u8; 6] = [2, 0, 0, 0, 1, 1];
const POLL_TIMEOUT: Duration = Duration::from_millis(10);

/// `a` - `r` - `b`, where `r` forwards.
fn world(tag: &str) -> Option<RouterBed> {
    let mut bed = RouterBed::new(tag, &["a", "b"])?;
    bed.join("a", 1, [R, A], true);
    bed.join("b", 2, [[2, 0, 0, 0, 2, 1], [2, 0, 0, 0, 2, 2]], true);
    bed.forward(&[""; 0]);
    Some(bed)
}

/// Writes the rules; their path.
fn write(world: &RouterBed, text: &str) -> String {
    world.bed.file("rules.toml", text)
}

/// A router with these rules, in mode routed.
fn routed(world: &RouterBed, text: &str) -> Router {
    let mut router = start_on(world, "", text);
    router.set_mode(RouteMode::Routed).unwrap();
    router
}

/// A router with these rules where these CPUs forward.
fn start_on(world: &RouterBed, cpus: &str, text: &str) -> Router {
    let (rules, _) = RouteRules::read(Path::new(&write(world, text)), &Requester::default()).unwrap();
    let settings = RouteSettings { cpus: CpuSet::parse_list(cpus).unwrap(), ..settings(&world.ports()) };
    let (router, warnings) = Router::start_with(settings, Some(rules)).unwrap();
    // What nobody in the router's namespace can tell.
    assert!(warnings.iter().all(|warning| warning.contains("must keep VLAN tags in the frames")), "{warnings:?}");
    router
}

/// Which of the frames, by the number that they end with, come to `b` when `a` sends them.
fn crossed(world: &RouterBed, frames: &[Vec<u8>]) -> Vec<u16> {
    let path = world.bed.path("sent.pcap");
    write_pcap(&path, frames);
    let came = world.received_while(|| world.far[0].replay(&path, 1000)).remove(1);
    let number = |frame: Vec<u8>| match frame[..] {
        [.., 0xe0, 0x0e, high, low] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    };
    let mut got: Vec<u16> = came.into_iter().filter_map(number).collect();
    got.sort_unstable();
    got
}

/// Rules that drop datagrams to a port.
fn drops(port: u16) -> String {
    format!("[[rule]]\nname = \"port\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = {port}\n")
}

/// Datagrams to ports 53 and 54, with these numbers.
fn two() -> [Vec<u8>; 2] {
    [53, 54].map(|to| Sent { ports: [1, to], ..UDP }.frame(to))
}

/// Turns the router's loop until `is_so`.
fn turn_until(what: &str, router: &mut Router, mut is_so: impl FnMut(&mut Router) -> bool) {
    wait(what, || {
        router.poll_within(POLL_TIMEOUT).unwrap();
        is_so(router)
    });
}

/// Puts an obstacle in the way: the kernel forwards.
fn obstruct(router: &mut Router) {
    nft("table ip t { chain f { type filter hook forward priority 0; counter; }; }");
    turn_until("the kernel forwards", router, |router| router.mode() == RouteMode::Standard);
}

/// A packet to be made.
#[derive(Clone)]
struct Sent {
    tag: Option<u16>,
    v6: bool,
    from: u8,
    protocol: u8,
    ports: [u16; 2],
    /// Offset in units of eight bytes, and whether more follow.
    fragment: Option<(u16, bool)>,
    /// The IP header says that it is so much longer than it is.
    longer: u16,
}

const UDP: Sent = Sent { tag: None, v6: false, from: 2, protocol: 17, ports: [1000, 2000], fragment: None, longer: 0 };

impl Sent {
    /// A frame whose last bytes are a mark and `number`.
    fn frame(&self, number: u16) -> Vec<u8> {
        let mut body = [self.ports[0].to_be_bytes(), self.ports[1].to_be_bytes()].concat();
        match self.protocol {
            6 => body.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0]),
            _ => body.extend([0, 32, 0, 0]),
        }
        body.resize(28, 0);
        body.extend([0xe0, 0x0e]);
        body.extend(number.to_be_bytes());
        // Bytes that the header counts and that are not there.
        let body = [body, vec![0; self.longer.into()]].concat();
        let host = |net, host| [0x20, 1, 0, 2, 0, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, host];
        let v6 = |next| Ip::new(host(1, self.from), host(2, 2), next);
        let mut packet = match self.fragment {
            Some((at, more)) if self.v6 => {
                let [high, low] = (at << 3 | u16::from(more)).to_be_bytes();
                v6(44).packet(&[self.protocol, 0, high, low, 0, 0, 0, 9], &body)
            }
            None if self.v6 => v6(self.protocol).packet(&[], &body),
            fragment => {
                let fragment = fragment.map_or(0x4000, |(at, more)| at | u16::from(more) << 13);
                let ip = Ip::new([198, 18, 1, self.from], [198, 18, 2, 2], self.protocol);
                Ip { id: number, fragment, ..ip }.packet(&[], &body)
            }
        };
        packet.truncate(packet.len() - usize::from(self.longer));
        ethernet([R, A], self.tag.map(|tag| (0x8100, tag)).as_slice(), &packet)
    }
}

const RULES: &str = r#"
rule = [
    { name = "exception", action = "pass", source = ["198.18.1.66", "2001:2:0:1::42"], protocol = "tcp", destination-port = 443 },
    { name = "addresses", action = "drop", source = ["198.18.1.66", "2001:2:0:1::42"] },
    { name = "prefix", action = "drop", source = ["198.18.1.128/25", "2001:2:0:1::80/121"] },
    { name = "port", action = "drop", protocol = "udp", destination-port = [53, "9000-9010"] },
    { name = "telnet", action = "drop", protocol = "tcp", destination-port = 23 },
    { name = "gre", action = "drop", protocol = 47 },
    { name = "later", action = "drop", fragment = "later" },
    { name = "vlan", action = "drop", vlan = 7 },
]
"#;

/// Each with whether it crosses, for both versions of IP.
fn packets() -> Vec<(Sent, bool)> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        let udp = Sent { v6, ..UDP };
        let tcp = Sent { protocol: 6, ..udp.clone() };
        all.extend([
            (udp.clone(), true),
            (Sent { from: 66, ..udp.clone() }, false),
            (Sent { from: 66, ports: [1, 443], ..udp.clone() }, false),
            (Sent { from: 66, ports: [1, 443], ..tcp.clone() }, true),
            (Sent { from: 127, ..udp.clone() }, true),
            (Sent { from: 128, ..udp.clone() }, false),
            (Sent { from: 255, ..tcp.clone() }, false),
            (Sent { ports: [9, 53], ..udp.clone() }, false),
            (Sent { ports: [53, 9], ..udp.clone() }, true),
            (Sent { ports: [9, 53], ..tcp.clone() }, true),
            (Sent { ports: [9, 9010], ..udp.clone() }, false),
            (Sent { ports: [9, 9011], ..udp.clone() }, true),
            (Sent { ports: [9, 23], ..tcp.clone() }, false),
            (Sent { protocol: 47, ..udp.clone() }, false),
            // The kernel takes a priority tag off. Rules look behind tags.
            (Sent { tag: Some(0xe000), ..udp.clone() }, true),
            (Sent { tag: Some(0xe000), ports: [9, 53], ..udp.clone() }, false),
            // There is no VLAN 7 or 8 here: the rule's counter tells who ended it.
            (Sent { tag: Some(7), ..udp.clone() }, false),
            (Sent { tag: Some(8), ..udp.clone() }, false),
            (Sent { fragment: Some((0, true)), ..udp.clone() }, true),
            (Sent { fragment: Some((0, true)), ports: [9, 53], ..udp.clone() }, false),
            (Sent { fragment: Some((100, false)), ..udp.clone() }, false),
            // Malformed.
            (Sent { longer: 200, ..udp }, false),
        ]);
    }
    all
}

fn counted(status: &RouteRulesStatus, name: &str) -> u64 {
    status.rules.iter().find(|rule| rule.name == name).unwrap().packets
}

#[test]
fn rules_end_packets_of_both_versions_in_every_mode() {
    end_packets("rrmod", "");
}

#[test]
fn rules_end_packets_where_they_are_received_if_other_cpus_forward() {
    end_packets("rrcpu", "0-1");
}

fn end_packets(tag: &str, cpus: &str) {
    let Some(world) = world(tag) else { return };
    let packets = packets();
    let frames: Vec<_> = packets.iter().enumerate().map(|(n, (sent, _))| sent.frame(n as u16)).collect();
    let expected: Vec<u16> = (0..).zip(&packets).filter(|(_, (_, crosses))| *crosses).map(|(n, _)| n).collect();
    world.router.run(|| {
        let mut router = start_on(&world, cpus, RULES);
        for (round, mode) in [RouteMode::Standard, RouteMode::Shadow, RouteMode::Routed].into_iter().enumerate() {
            router.set_mode(mode).unwrap();
            assert_eq!(crossed(&world, &frames), expected, "{mode:?}");
            let status = router.status().unwrap().rules.unwrap();
            let times = round as u64 + 1;
            for (rule, packets) in [
                ("exception", 2),
                ("addresses", 4),
                ("prefix", 4),
                ("port", 8),
                ("telnet", 2),
                ("gre", 2),
                ("later", 2),
                ("vlan", 2),
            ] {
                assert_eq!(counted(&status, rule), times * packets, "{rule} in {mode:?}: {status:?}");
            }
            assert_eq!((status.totals.malformed, status.totals.dropped), (times * 2, times * 26), "{mode:?}");
            if mode == RouteMode::Shadow {
                let differs =
                    |router: &mut Router| (router.compare().unwrap().wrong(), router.compare().unwrap().not_sent);
                wait("the shadow has compared", || router.compare().unwrap().same >= 12);
                assert_eq!(differs(&mut router), (0, 0), "what rules ended is no difference");
            }
        }
        let totals = router.counts().unwrap()[0].1;
        assert!(totals.forwarded >= 12, "{totals:?}");
        // What is dropped is not handed on; what is in VLAN 8 is, for which there is no rule and no device.
        let handed = if cpus.is_empty() { 0 } else { 3 * (expected.len() as u64 + 2) };
        assert_eq!((totals.enqueued, totals.dequeued), (handed, handed), "{totals:?}");
        // Something in the way puts the mode back; the rules stay.
        router.set_mode(RouteMode::Routed).unwrap();
        obstruct(&mut router);
        assert_eq!(crossed(&world, &frames), expected);
        drop(router);
        let open = crossed(&world, &frames);
        assert!(open.len() > expected.len(), "the rules go with the router: {open:?}");
    });
}

#[test]
fn a_file_is_read_again_and_one_that_is_refused_changes_nothing() {
    let Some(world) = world("rrrel") else { return };
    let frames = two();
    world.router.run(|| {
        let mut router = routed(&world, &drops(53));
        assert_eq!(crossed(&world, &frames), [54]);
        let path = write(&world, &drops(54));
        let done = router.reload(&Requester::default()).unwrap();
        assert_eq!((done.rules, done.warnings), (1, Vec::new()));
        assert_eq!(crossed(&world, &frames), [53]);
        let status = router.status().unwrap().rules.unwrap();
        assert_eq!((counted(&status, "port"), status.reloads, status.reload_error), (2, 1, None), "counters go on");

        let challenge = "[[rule]]\nname = \"syn\"\naction = \"challenge\"\nprotocol = \"tcp\"\n";
        for (text, line) in [
            ("default = \"dorp\"\n".to_owned(), 1),
            ("\nprotect = [\"198.18.0.0/15\"]\n".to_owned(), 2),
            (format!("{}[detection]\n", drops(53)), 6),
            (format!("{}{challenge}", drops(53)), 8),
        ] {
            write(&world, &text);
            let refused = router.reload(&Requester::default()).unwrap_err();
            let place = format!("{path}:{line}:");
            assert!(matches!(refused, RouteError::Rules(_)) && refused.to_string().starts_with(&place), "{refused}");
            let status = router.status().unwrap().rules.unwrap();
            assert!(status.reload_error.is_some_and(|why| why.starts_with(&place)));
            assert_eq!(crossed(&world, &frames), [53], "the old rules stay");
        }
        write(&world, "");
        router.reload(&Requester::default()).unwrap();
        assert_eq!(crossed(&world, &frames), [53, 54]);
        assert_eq!(router.status().unwrap().rules.unwrap().reload_error, None);
    });
}

#[test]
fn rules_are_made_beside_the_loop_and_hold_when_it_takes_them() {
    let Some(world) = world("rrbes") else { return };
    let frames = two();
    world.router.run(|| {
        let mut router = routed(&world, &drops(53));
        write(&world, &drops(54));
        router.begin_reload(&Requester::default()).unwrap();
        // Made or not: they hold once the loop has taken them.
        assert!(router.is_loading_rules() && router.take_reloaded().is_none());
        assert_eq!(crossed(&world, &frames), [54]);
        let reloaded = testbed::wait_for("the rules are made", || {
            router.poll_within(POLL_TIMEOUT).unwrap();
            router.take_reloaded()
        });
        assert_eq!((reloaded.unwrap().rules, router.is_loading_rules()), (1, false));
        assert_eq!(crossed(&world, &frames), [53]);

        // An obstacle that comes while rules are made turns the fast path off, and the rules come to hold all the same.
        write(&world, &drops(53));
        router.begin_reload(&Requester::default()).unwrap();
        obstruct(&mut router);
        turn_until("the rules are made", &mut router, |router| !router.is_loading_rules());
        assert_eq!((router.take_reloaded().unwrap().unwrap().rules, router.take_reloaded().is_none()), (1, true));
        assert_eq!(crossed(&world, &frames), [54]);
        // One that is asked for at once waits for the one before.
        router.begin_reload(&Requester::default()).unwrap();
        router.reload(&Requester::default()).unwrap();
        assert_eq!(router.status().unwrap().rules.unwrap().reloads, 4);
    });
}

#[test]
fn rules_are_read_again_while_cpus_change_and_counters_go_on() {
    let Some(world) = world("rrcre") else { return };
    let frames = two();
    world.router.run(|| {
        let mut router = routed(&world, &drops(53));
        let mut counted_so_far = 0;
        for (cpus, dropped) in [("0", 53), ("0-1", 54), ("", 53), ("1", 54)] {
            router.set_cpus(&CpuSet::parse_list(cpus).unwrap()).unwrap();
            write(&world, &drops(dropped));
            router.reload(&Requester::default()).unwrap();
            let before = router.counts().unwrap()[0].1;
            assert_eq!(crossed(&world, &frames), [107 - dropped], "{cpus}");
            counted_so_far += 1;
            let status = router.status().unwrap();
            assert_eq!(counted(&status.rules.unwrap(), "port"), counted_so_far, "{cpus}");
            let handed = status.ports[0].totals.enqueued - before.enqueued;
            assert_eq!(handed, u64::from(!cpus.is_empty()), "{cpus}");
        }
    });
}

#[test]
fn a_default_of_drop_leaves_neighbours_and_the_allow_list() {
    let Some(world) = world("rrdef") else { return };
    let rules = "default = \"drop\"\n[management]\nfrom = [\"198.18.1.0/24\"]\nports = [22]\n\
                 [[rule]]\nname = \"dns\"\naction = \"pass\"\nprotocol = \"udp\"\ndestination-port = 53\n\
                 [[rule]]\nname = \"some\"\naction = \"limit\"\nrate = 1\nburst = 3\nprotocol = \"udp\"\ndestination-port = 53\n";
    // The limit is asked first.
    let rules = {
        let (head, limit) = rules.split_at(rules.rfind("[[rule]]").unwrap());
        let (head, pass) = head.split_at(head.find("[[rule]]").unwrap());
        format!("{head}{limit}{pass}")
    };
    world.router.run(|| {
        let mut router = routed(&world, &rules);
        let dns = |n| Sent { ports: [1, 53], ..UDP }.frame(n);
        let frames: Vec<_> = (0..5).map(dns).chain([UDP.frame(9)]).collect();
        assert_eq!(crossed(&world, &frames), [0, 1, 2], "three at once, and nothing else");
        let status = router.status().unwrap().rules.unwrap();
        let limited = |rule: &&RuleStatus| rule.limited == 2;
        assert_eq!(status.rules.iter().filter(limited).count(), 1, "{status:?}");
        assert!(status.rules.iter().any(|rule| rule.name == "management:from" && rule.management));
        assert_eq!((status.default.as_str(), status.totals.limited), ("drop", 2));
        // Another address of the router: the allow-list follows.
        run(&format!("ip addr add 198.18.9.1/24 dev {}", world.near[1].interface()));
        let mut events = Vec::new();
        wait("the allow-list follows", || {
            events.extend(router.poll_within(POLL_TIMEOUT).unwrap());
            events.iter().any(|event| matches!(event, model::route::RouteEvent::Rules { .. }))
        });
    });
}
