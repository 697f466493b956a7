//! Two routers with the same configuration and the same addresses, one of them with the fast path: what every neighbour receives is equal byte
//! by byte. EK_ORACLE_FRAMES says how many frames are sent (20,000), EK_ORACLE_SEED which.

#[path = "oracle/filter.rs"]
mod filter;
#[path = "oracle/frames.rs"]
mod frames;

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bpf::XdpMode;
use frames::{Aim, Dice, answers_refused, compared, frame};
use model::{
    CpuSet,
    route::{CtMark, RouteMode, RouteRulesStatus, RouteTotals},
    shield::RuleStatus,
};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use route::{RouteSettings, Router, rules::RouteRules};
use rules::requester::Requester;
use testbed::{Bed, End, Tcpdump};

const MACS: [&str; 8] = [
    "02:00:00:00:01:02",
    "02:00:00:00:01:01",
    "02:00:00:00:02:01",
    "02:00:00:00:02:02",
    "02:00:00:00:03:01",
    "02:00:00:00:03:02",
    "02:00:00:00:04:01",
    "02:00:00:00:04:02",
];
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

/// `a` sends, `r` is the router, `b`, `c` and `d` receive, the latter behind an interface that is no port. The four have no address: what
/// reaches them stays there.
struct World {
    bed: Bed,
    a: End,
    ports: [End; 3],
    b: End,
    c: End,
    d: End,
}

fn world(tag: &str, sysctls: &[(&str, &str)]) -> Option<World> {
    let bed = Bed::new(tag, &["a", "r", "b", "c", "d"])?;
    let ([a, ra], [rb, b], [rc, c]) = (bed.join(["a", "r"], 1), bed.join(["r", "b"], 1), bed.join(["r", "c"], 1));
    let [rd, d] = bed.join(["r", "d"], 1);
    for (end, mac) in [&a, &ra, &rb, &b, &rc, &c, &rd, &d].into_iter().zip(MACS) {
        end.link_set("down");
        end.link_set(&format!("address {mac}"));
        end.link_set("up");
        end.feature("rx-gro", [&a, &b, &c].iter().any(|host| host.interface() == end.interface()));
    }
    rb.link_set(&format!("mtu {MTU}"));
    let r = bed.space("r");
    r.set("net.ipv4.icmp_ratelimit", "0");
    r.set("net.ipv4.icmp_msgs_per_sec", "1000000");
    r.set("net.ipv4.icmp_msgs_burst", "1000000");
    r.set("net.ipv6.icmp.ratelimit", "0");
    // What the router waits for in vain, of packets for itself, it would tell after half a minute: in one of the two before the end, or in none.
    r.set("net.ipv4.ipfrag_time", "3600");
    r.set("net.ipv6.ip6frag_time", "3600");
    // And what it learnt of a path, of a message to itself about a packet from its own address, it would forget each half minute: at another frame.
    r.set("net.ipv6.route.gc_interval", "3600");
    for (n, end) in [&ra, &rb, &rc, &rd].into_iter().enumerate() {
        let (n, name) = (n + 1, end.interface());
        r.set(&format!("net.ipv6.conf.{name}.accept_dad"), "0");
        r.set(&format!("net.ipv6.conf.{name}.disable_ipv6"), "0");
        end.address(&format!("198.18.{n}.1/24"));
        r.output(&format!("ip addr add 2001:2:0:{n}::1/64 dev {name} nodad"));
        let far = [MACS[0], MACS[3], MACS[5], MACS[7]][n - 1];
        for host in [format!("198.18.{n}.2"), format!("198.18.{n}.99"), format!("2001:2:0:{n}::2")] {
            r.output(&format!("ip neigh add {host} lladdr {far} dev {name}"));
        }
    }
    // Answers to them would wait for a neighbour that does not exist, and keep others from being sent.
    for host in ["fe80::77", "fe80::1"] {
        r.output(&format!("ip neigh add {host} lladdr {} dev {}", MACS[0], ra.interface()));
    }
    r.set("net.ipv4.ip_forward", "1");
    r.set("net.ipv6.conf.all.forwarding", "1");
    for routes in [
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
    ] {
        r.output(&format!("ip {}", routes.replace("WRAPPED", rc.interface()).replace("LIMIT", &LIMIT.to_string())));
    }
    for (sysctl, value) in sysctls {
        r.set(&sysctl.replace("ENTRY", ra.interface()), value);
    }
    Some(World { bed, a, ports: [ra, rb, rc], b, c, d })
}

/// The frames, in a file.
fn write(path: &Path, count: u64, wanted: fn(&[u8]) -> bool) {
    let seed = env::var("EK_ORACLE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mac = |text: &str| -> [u8; 6] {
        let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        bytes.try_into().unwrap()
    };
    let aim = Aim { router: mac(MACS[1]), sender: mac(MACS[0]), mtus: [1500, MTU, 1450, LIMIT] };
    let mut dice = Dice::new(seed);
    let mut file = PcapWriter::with_header(File::create(path).unwrap(), PcapHeader::default()).unwrap();
    for n in 0..count {
        let bytes = frame(&mut dice, &aim);
        if !wanted(&bytes) {
            continue;
        }
        let packet = PcapPacket::new(Duration::from_micros(n), bytes.len() as u32, &bytes);
        file.write_packet(&packet).unwrap();
    }
}

/// How often each frame was received.
fn read(path: &Path) -> BTreeMap<Vec<u8>, i64> {
    let mut file = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut seen = BTreeMap::new();
    while let Some(packet) = file.next_packet() {
        if let Some(frame) = compared(&packet.unwrap().data, &ROUTERS) {
            *seen.entry(frame).or_default() += 1;
        }
    }
    seen
}

/// How often each of `a`, `b`, `c` and `d` received each frame.
type Seen = [BTreeMap<Vec<u8>, i64>; 4];

/// What they received of the frames.
fn received(world: &World, frames: &Path, pps: u64) -> Seen {
    let ends = [&world.a, &world.b, &world.c, &world.d];
    let taps: Vec<Tcpdump> = ends
        .iter()
        .enumerate()
        .map(|(n, end)| {
            Tcpdump::start(end.space(), end.interface(), &world.bed.path(&format!("{n}.pcap")), &["-Q", "in"])
        })
        .collect();
    let mut replay = Command::new("tcpreplay");
    replay.args(["-q", "-i", world.a.interface(), &format!("--pps={pps}")]).arg(frames);
    let done = world.a.space().run(|| replay.output().unwrap());
    assert!(done.status.success(), "{}", testbed::said(&done));
    let files: Vec<PathBuf> = taps.into_iter().map(Tcpdump::stop).collect();
    [0, 1, 2, 3].map(|n| read(&files[n]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(120).map(|byte| format!("{byte:02x}")).collect()
}

/// The same frames through both; what the fast path counted.
fn both(tag: &str, sysctls: &[(&str, &str)], check: impl Fn(&Router) + Sync) -> Option<RouteTotals> {
    both_with(tag, "", sysctls, false, check).map(|(counts, _)| counts)
}

/// The same where these CPUs forward what the ports receive.
fn on_cpus(tag: &str, cpus: &str, sysctls: &[(&str, &str)], check: impl Fn(&Router) + Sync) -> Option<RouteTotals> {
    both_with(tag, cpus, sysctls, false, check).map(|(counts, _)| counts)
}

/// What each of the two routers counted: frames, and rules.
type Counted = (RouteTotals, Option<RouteRulesStatus>);

/// Likewise, with the rules of [`filter`] on both where they are `ruled`; what each counted.
fn both_with(
    tag: &str,
    cpus: &str,
    sysctls: &[(&str, &str)],
    ruled: bool,
    check: impl Fn(&Router) + Sync,
) -> Option<Counted> {
    let mut starved = true;
    // A kernel has room for some hundred messages of its own under way, and what finds none is lost: where the neighbour, on this machine too, was
    // kept from taking them. The kernel says so, and then nothing is known.
    for round in 0..3 {
        if !starved {
            break;
        }
        let (alone, fast) = (world(&format!("{tag}k{round}"), sysctls)?, world(&format!("{tag}e{round}"), sysctls)?);
        let (expected, got, counts) = once([&alone, &fast], cpus, ruled, &check);
        println!("{counts:#?}");
        if differences(&expected, &got) == 0 {
            return Some(counts);
        }
        for what in ["ip -6 route", "ip neigh", "nstat -as"] {
            println!("{}", fast.ports[0].space().output(what));
        }
        let unsent = [alone, fast].map(|world| unsent(&world));
        println!("messages that the kernels had no room for: {unsent:?}");
        starved = unsent[0] != unsent[1];
    }
    panic!("neighbours received something else");
}

/// Messages of ICMP that the router's kernel could not send.
fn unsent(world: &World) -> u64 {
    let counters = world.ports[0].space().output("nstat -asz IcmpOutErrors Icmp6OutErrors");
    let of = |line: &str| line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    counters.lines().filter(|line| line.starts_with("Icmp")).filter_map(of).sum()
}

/// The same frames through both; what neighbours received of each, and what the latter counted.
fn once(
    [alone, fast]: [&World; 2],
    cpus: &str,
    ruled: bool,
    check: &(impl Fn(&Router) + Sync),
) -> (Seen, Seen, Counted) {
    let count = env::var("EK_ORACLE_FRAMES").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let frames = alone.bed.path("frames.pcap");
    write(&frames, count, if ruled { filter::is_whole } else { |_| true });
    if ruled {
        alone.ports[0].space().nft(filter::NFT);
    }
    let file = ruled.then(|| fast.bed.file("rules.toml", filter::RULES));
    let expected = received(alone, &frames, 20_000);
    let stop = AtomicBool::new(false);
    let ports = fast.ports.iter().map(|port| port.interface().to_owned()).collect();
    let (got, counts) = thread::scope(|scope| {
        let (started, is_started) = std::sync::mpsc::channel();
        let stop = &stop;
        let router = scope.spawn(move || {
            fast.ports[0].space().run(|| {
                let settings = RouteSettings {
                    ports,
                    xdp: XdpMode::Native,
                    slots: Some(1024),
                    mode: RouteMode::Routed,
                    returns: false,
                    trial: Duration::ZERO,
                    mark: CtMark::default(),
                    cpus: CpuSet::parse_list(cpus).unwrap(),
                    // All frames find room: the neighbours send as fast as they can.
                    queue: bpf::ROUTE_QUEUE_MAX,
                };
                let rules = file.map(|file| RouteRules::read(Path::new(&file), &Requester::default()).unwrap().0);
                let mut router = Router::start_with(settings, rules).unwrap().0;
                router.set_mode(RouteMode::Routed).unwrap();
                check(&router);
                started.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let happened = router.poll_within(Duration::from_millis(100)).unwrap();
                    assert_eq!(happened, []);
                }
                (router.counts().unwrap()[0].1, router.status().unwrap().rules)
            })
        });
        is_started.recv().unwrap();
        let got = received(fast, &frames, 20_000);
        stop.store(true, Ordering::Relaxed);
        (got, router.join().unwrap())
    });
    (expected, got, counts)
}

/// Frames that the neighbours received otherwise of the one than of the other.
fn differences(expected: &Seen, got: &Seen) -> usize {
    // A source that was sent a redirect gets them only after a second, and the frames take about that long: neighbours differ in them, the sum does not.
    let mut answers = [0, 0];
    let mut differences = 0;
    for (who, (expected, got)) in ["a", "b", "c", "d"].iter().zip(expected.iter().zip(got)) {
        println!("{who}: {} frames of the kernel", expected.values().sum::<i64>());
        let mut both = got.clone();
        expected.iter().for_each(|(frame, times)| *both.entry(frame.clone()).or_default() -= times);
        let refused = |frames: &BTreeMap<Vec<u8>, i64>| -> i64 {
            frames.iter().filter(|(frame, _)| answers_refused(frame)).map(|(_, times)| times).sum()
        };
        for (sum, seen) in answers.iter_mut().zip([expected, got]) {
            *sum += refused(seen);
        }
        for (frame, times) in both.iter().filter(|(frame, times)| **times != 0 && !answers_refused(frame)) {
            differences += 1;
            if differences <= 20 {
                let alone = expected.get(frame).unwrap_or(&0);
                println!("{who} got {times:+} than the {alone} of {} bytes {}", frame.len(), hex(frame));
            }
        }
    }
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

const ALWAYS: [&str; 15] = [
    "other_mac",
    "not_ip",
    "unknown_vlan",
    "bad_header",
    "bad_checksum",
    "options",
    "hop_limit",
    "martian",
    "local",
    "refused",
    "too_big",
    "encapsulated",
    "no_neighbour",
    "not_a_port",
    "hairpin",
];

#[test]
fn every_neighbour_receives_what_the_kernel_alone_would_have_sent() {
    let counts = both("rto", &[], |router| {
        assert_eq!(router.obstacles(), []);
        assert!(router.key().source && !router.key().ports);
    });
    if let Some(counts) = counts {
        covered(&counts, &[&ALWAYS[..], &["icmp_error"]].concat());
    }
}

#[test]
fn so_it_is_where_other_cpus_forward() {
    let policy = [("net.ipv4.fib_multipath_hash_policy", "1"), ("net.ipv6.fib_multipath_hash_policy", "1")];
    let counts = on_cpus("rtc", "0-1", &policy, |router| assert_eq!(router.cpus().to_string(), "0-1"));
    if let Some(counts) = counts {
        covered(&counts, &[&ALWAYS[..], &["fragment"]].concat());
        assert!(counts.enqueued > counts.forwarded, "{counts:?}");
        assert_eq!(counts.enqueued, counts.dequeued);
    }
}

#[test]
fn so_it_is_where_ports_choose_among_the_hops() {
    let policy = [("net.ipv4.fib_multipath_hash_policy", "1"), ("net.ipv6.fib_multipath_hash_policy", "1")];
    let counts = both("rtp", &policy, |router| assert!(router.key().ports));
    if let Some(counts) = counts {
        covered(&counts, &[&ALWAYS[..], &["fragment"]].concat());
    }
}

#[test]
fn so_it_is_where_the_way_back_is_looked_at() {
    for (tag, filter) in [("rts", "1"), ("rtl", "2")] {
        let counts = both(tag, &[("net.ipv4.conf.ENTRY.rp_filter", filter)], |router| assert!(router.key().source));
        if let Some(counts) = counts {
            covered(&counts, &[&ALWAYS[..], &["reverse_path"]].concat());
        }
    }
}

#[test]
fn so_it_is_where_rules_stand_before_both() {
    let Some((counts, rules)) = both_with("rtr", "", &[], true, |router| assert!(router.rules().is_some())) else {
        return;
    };
    // What the rules call malformed was not sent.
    let reasons: Vec<&str> = ALWAYS.into_iter().filter(|reason| *reason != "bad_header").collect();
    covered(&counts, &reasons);
    let rules = rules.expect("rules");
    let idle = |rule: &&RuleStatus| rule.packets == 0 && !rule.management;
    assert_eq!(rules.rules.iter().filter(idle).collect::<Vec<_>>(), Vec::<&RuleStatus>::new());
    let dropped: u64 = rules.rules.iter().filter(|rule| rule.action == "drop" && !rule.shadow).map(|r| r.packets).sum();
    assert_eq!((rules.totals.dropped, rules.totals.malformed), (dropped, 0));
}
