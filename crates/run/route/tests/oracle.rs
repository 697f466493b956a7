//! Two routers with the same configuration and the same addresses, one of them with the fast path: what every neighbour receives is equal byte
//! by byte. EK_ORACLE_FRAMES says how many frames are sent (20,000), EK_ORACLE_SEED which.

#[path = "oracle/filter.rs"]
mod filter;
#[path = "oracle/frames.rs"]
mod frames;

mod beside;
mod settings;

use std::{collections::BTreeMap, env, net::Ipv4Addr, path::Path};

use beside::beside;
use frames::{Aim, frame};
use model::{
    CpuSet,
    route::{RouteMode, RouteRulesStatus, RouteTotals},
    shield::RuleStatus,
};
use route::{RouteSettings, Router, rules::RouteRules};
use rules::requester::Requester;
use settings::settings;
use testbed::{Dice, RouterBed, answers_refused, counted, differences, words, write_pcap};

const ROUTERS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(198, 18, 1, 1),
    Ipv4Addr::new(198, 18, 2, 1),
    Ipv4Addr::new(198, 18, 3, 1),
    Ipv4Addr::new(198, 18, 4, 1),
];
/// The smaller limit, of the way to `b`.
const MTU: usize = 1400;
/// The limit of some routes.
const LIMIT: usize = 1300;

/// The router's address on a link, and its neighbour's.
fn macs(net: u8) -> [[u8; 6]; 2] {
    [[2, 0, 0, 0, net, 1], [2, 0, 0, 0, net, 2]]
}

/// `a` sends, `b`, `c` and `d` receive, the latter behind an interface that is no port.
fn world(tag: &str, sysctls: &[(&str, &str)]) -> Option<RouterBed> {
    let mut bed = RouterBed::new(tag, &["a", "b", "c", "d"])?;
    for (net, neighbour) in (1..).zip(["a", "b", "c", "d"]) {
        bed.join(neighbour, net, macs(net), neighbour != "d");
    }
    let [ra, rc] = [0, 2].map(|at| bed.near[at].interface().to_owned());
    bed.near[1].link_set(&format!("mtu {MTU}"));
    let routes = [
        "route add 198.18.10.0/24 via 198.18.1.2",
        "route add 198.18.20.0/24 via 198.18.2.2",
        "route add 198.18.30.0/24 via 198.18.3.2",
        "route add 198.18.40.0/24 nexthop via 198.18.2.2 nexthop via 198.18.3.2",
        "route add 198.18.41.0/24 via 198.18.2.2",
        "route add 198.18.41.0/24 via 198.18.3.2 table 100",
        "rule add from 198.18.10.0/24 lookup 100",
        "route add 198.18.60.0/24 via inet6 2001:2:0:3::2",
        "route add 198.18.61.0/24 via inet6 2001:2:0:2::2",
        // Limits of their own, without and with `lock`; inside the first a route without one, and within that one with another.
        "route add 198.18.31.0/24 via 198.18.3.2 mtu LIMIT",
        "route add 198.18.31.128/25 via 198.18.3.2",
        "route add 198.18.31.192/26 via 198.18.3.2 mtu 1450",
        "route add 198.18.32.0/24 via 198.18.3.2 mtu lock LIMIT",
        "route add 198.18.33.0/24 via 198.18.3.2 mtu 4000",
        "-6 route add 2001:2:0:31::/64 via 2001:2:0:3::2 mtu LIMIT",
        "-6 route add 2001:2:0:31:8000::/65 via 2001:2:0:3::2",
        "-6 route add 2001:2:0:31:c000::/66 via 2001:2:0:3::2 mtu 1450",
        "-6 route add 2001:2:0:32::/64 via 2001:2:0:3::2 mtu lock LIMIT",
        "route add blackhole 198.18.50.0/24",
        "route add unreachable 198.18.51.0/24",
        "route add prohibit 198.18.52.0/24",
        "route add 198.18.62.0/24 encap seg6 mode encap segs 2001:2:0:3::2 via inet6 2001:2:0:3::2 dev WRAPPED",
        "-6 route add 2001:2:0:62::/64 encap seg6 mode encap segs 2001:2:0:3::2 via 2001:2:0:3::2 dev WRAPPED",
        "-6 route add 2001:2:0:10::/64 via 2001:2:0:1::2",
        "-6 route add 2001:2:0:20::/64 via 2001:2:0:2::2",
        "-6 route add 2001:2:0:30::/64 via 2001:2:0:3::2",
        "-6 route add 2001:2:0:40::/64 nexthop via 2001:2:0:2::2 nexthop via 2001:2:0:3::2",
        "-6 route add blackhole 2001:2:0:50::/64",
        "-6 route add unreachable 2001:2:0:51::/64",
        "-6 route add prohibit 2001:2:0:52::/64",
    ];
    bed.forward(&routes.map(|route| route.replace("WRAPPED", &rc).replace("LIMIT", &LIMIT.to_string())));
    for (sysctl, value) in sysctls {
        bed.router.set(&sysctl.replace("ENTRY", &ra), value);
    }
    Some(bed)
}

/// The frames, in a file.
fn write(path: &Path, count: u64, wanted: fn(&[u8]) -> bool) {
    let seed = env::var("EK_ORACLE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let [router, sender] = macs(1);
    let aim = Aim { router, sender, mtus: [1500, MTU, 1450, LIMIT] };
    let mut dice = Dice::new(seed);
    write_pcap(path, (0..count).map(|_| frame(&mut dice, &aim)).filter(|frame| wanted(frame)));
}

/// Times that each of `a`, `b`, `c` and `d` received each frame.
type Seen = [BTreeMap<Vec<u8>, i64>; 4];

/// Frames that they received.
fn received(world: &RouterBed, frames: &Path) -> Seen {
    let seen = world.received(0, frames).iter().map(|came| counted(came, &ROUTERS)).collect::<Vec<_>>();
    seen.try_into().expect("four neighbours")
}

/// The same frames through both; what the fast path counted.
fn both(tag: &str, sysctls: &[(&str, &str)], check: fn(&Router)) -> Option<RouteTotals> {
    both_with(tag, "", sysctls, false, check).map(|(counts, _)| counts)
}

/// The same where these CPUs forward what the ports receive.
fn on_cpus(tag: &str, cpus: &str, sysctls: &[(&str, &str)], check: fn(&Router)) -> Option<RouteTotals> {
    both_with(tag, cpus, sysctls, false, check).map(|(counts, _)| counts)
}

/// Counters of the two routers: frames, and rules.
type Counted = (RouteTotals, Option<RouteRulesStatus>);

/// Likewise, with the rules of [`filter`] on both where they are `ruled`; what each counted.
fn both_with(tag: &str, cpus: &str, sysctls: &[(&str, &str)], ruled: bool, check: fn(&Router)) -> Option<Counted> {
    let mut starved = true;
    // A round is repeated if a kernel lost messages of its own, of which it queues some hundred, or frames at a full queue to a CPU. Both happen when
    // threads of this machine do not run in time.
    for round in 0..3 {
        if !starved {
            break;
        }
        let (alone, fast) = (world(&format!("{tag}k{round}"), sysctls)?, world(&format!("{tag}e{round}"), sysctls)?);
        let (expected, got, counts) = once([&alone, &fast], cpus, ruled, check);
        println!("{counts:#?}");
        if differ(&expected, &got) == 0 {
            return Some(counts);
        }
        for what in ["ip -6 route", "ip neigh", "nstat -as"] {
            println!("{}", fast.router.output(what));
        }
        let unsent = [alone, fast].map(|world| unsent(&world));
        println!("messages that the kernels had no room for: {unsent:?}");
        let lost = counts.0.enqueued - counts.0.dequeued;
        println!("frames that found a full queue to a CPU: {lost}");
        starved = unsent[0] != unsent[1] || lost != 0;
    }
    panic!("neighbours received something else");
}

/// Messages of ICMP that the router's kernel could not send.
fn unsent(world: &RouterBed) -> u64 {
    world.router.counter("IcmpOutErrors") + world.router.counter("Icmp6OutErrors")
}

/// The same frames through both; what neighbours received of each, and what the latter counted.
fn once([alone, fast]: [&RouterBed; 2], cpus: &str, ruled: bool, check: fn(&Router)) -> (Seen, Seen, Counted) {
    let count = env::var("EK_ORACLE_FRAMES").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let frames = alone.bed.path("frames.pcap");
    write(&frames, count, if ruled { filter::is_whole } else { |_| true });
    if ruled {
        alone.router.nft(filter::NFT);
    }
    let rules = ruled.then(|| {
        let file = fast.bed.file("rules.toml", filter::RULES);
        fast.router.run(|| RouteRules::read(Path::new(&file), &Requester::default()).unwrap().0)
    });
    let expected = received(alone, &frames);
    let settings = RouteSettings {
        slots: Some(1024),
        auto_return: false,
        cpus: CpuSet::parse_list(cpus).unwrap(),
        // All frames find room: the neighbours send as fast as they can.
        queue: bpf::ROUTE_QUEUE_MAX,
        ..settings(&fast.ports()[..3])
    };
    let (got, counts) = beside(&fast.router, settings, rules, RouteMode::Routed, |control| {
        control.ask(check);
        let got = received(fast, &frames);
        assert_eq!(control.events(), []);
        (got, control.ask(|router| (router.counts().unwrap()[0].1, router.status().unwrap().rules)))
    });
    (expected, got, counts)
}

/// Frames that the neighbours received otherwise of the one than of the other.
fn differ(expected: &Seen, got: &Seen) -> usize {
    // A source that was sent a redirect gets them only after a second, and the frames take about that long: neighbours differ in them, the sum does not.
    let answers = [expected, got].map(|seen| {
        let all = seen.iter().flatten().filter(|(frame, _)| answers_refused(frame));
        all.map(|(_, times)| times).sum::<i64>()
    });
    let one = |(who, (expected, got))| differences(who, expected, got, answers_refused);
    let differences: usize = ["a", "b", "c", "d"].into_iter().zip(expected.iter().zip(got)).map(one).sum();
    println!("answers to what a route refuses: {answers:?}");
    differences + usize::from(answers.contains(&0) && answers != [0, 0])
}

/// Holds that the fast path forwarded a good part, and that each of these reasons for going up was met.
fn covered(counts: &RouteTotals, reasons: &[&str]) {
    let all = counts.forwarded + counts.up();
    assert!(counts.forwarded * 100 > all * 20, "{} of {all} were forwarded by the fast path", counts.forwarded);
    for counter in RouteTotals::COUNTERS.iter().filter(|counter| reasons.contains(&counter.name)) {
        assert!((counter.get)(counts) > 0, "nothing was {}", counter.name);
    }
}

const ALWAYS: &str = "other_mac not_ip unknown_vlan bad_header bad_checksum options hop_limit martian local refused \
    too_big encapsulated no_neighbour not_a_port hairpin";

#[test]
fn every_neighbour_receives_what_the_kernel_alone_would_have_sent() {
    let counts = both("rto", &[], |router| {
        assert_eq!(router.obstacles(), []);
        assert!(router.key().source && !router.key().ports);
    });
    if let Some(counts) = counts {
        covered(&counts, &[words(ALWAYS), vec!["icmp_error"]].concat());
    }
}

#[test]
fn so_it_is_where_other_cpus_forward() {
    let policy = [("net.ipv4.fib_multipath_hash_policy", "1"), ("net.ipv6.fib_multipath_hash_policy", "1")];
    let counts = on_cpus("rtc", "0-1", &policy, |router| assert_eq!(router.cpus().to_string(), "0-1"));
    if let Some(counts) = counts {
        covered(&counts, &[words(ALWAYS), vec!["fragment"]].concat());
        assert!(counts.enqueued > counts.forwarded, "{counts:?}");
        assert_eq!(counts.enqueued, counts.dequeued);
    }
}

#[test]
fn so_it_is_where_ports_choose_among_the_hops() {
    let policy = [("net.ipv4.fib_multipath_hash_policy", "1"), ("net.ipv6.fib_multipath_hash_policy", "1")];
    let counts = both("rtp", &policy, |router| assert!(router.key().ports));
    if let Some(counts) = counts {
        covered(&counts, &[words(ALWAYS), vec!["fragment"]].concat());
    }
}

#[test]
fn so_it_is_where_the_way_back_is_looked_at() {
    for (tag, filter) in [("rts", "1"), ("rtl", "2")] {
        let counts = both(tag, &[("net.ipv4.conf.ENTRY.rp_filter", filter)], |router| assert!(router.key().source));
        if let Some(counts) = counts {
            covered(&counts, &[words(ALWAYS), vec!["reverse_path"]].concat());
        }
    }
}

#[test]
fn so_it_is_where_rules_stand_before_both() {
    let Some((counts, rules)) = both_with("rtr", "", &[], true, |router| assert!(router.rules().is_some())) else {
        return;
    };
    // What the rules call malformed was not sent.
    let reasons: Vec<&str> = words(ALWAYS).into_iter().filter(|reason| *reason != "bad_header").collect();
    covered(&counts, &reasons);
    let rules = rules.expect("rules");
    let idle = |rule: &&RuleStatus| rule.packets == 0 && !rule.management;
    assert_eq!(rules.rules.iter().filter(idle).collect::<Vec<_>>(), Vec::<&RuleStatus>::new());
    let dropped: u64 = rules.rules.iter().filter(|rule| rule.action == "drop" && !rule.shadow).map(|r| r.packets).sum();
    assert_eq!((rules.totals.dropped, rules.totals.malformed), (dropped, 0));
}
