//! Mode stateful: two routers with the same rules of nftables, which translate, one of them with the fast path. What the hosts receive is equal
//! byte by byte: EK_ORACLE_FRAMES says how many frames are sent (8,000), EK_ORACLE_SEED which. Then: what conntrack forgets, what loses its mark
//! and what ends is not forwarded any more.

#[path = "nat/flows.rs"]
mod flows;
#[path = "oracle/frames.rs"]
#[allow(dead_code, reason = "the other oracle sends what is aimed at the look-up")]
mod frames;

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    net::Ipv4Addr,
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bpf::XdpMode;
use flows::{ACK, FIN, Flow, PUSH, RST, SYN, Shape, in_two, write};
use frames::{Dice, compared};
use host::netlink::conntrack::Connections;
use model::{
    CpuSet,
    route::{CtMark, RouteMode, RouteTotals},
};
use pcap_file::pcap::PcapReader;
use route::{RouteSettings, Router};
use testbed::{Bed, End, Tcpdump};

const MACS: [[u8; 6]; 4] = [[2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1], [2, 0, 0, 0, 2, 2]];
/// Its own addresses, and the one that it translates sources to.
const ROUTERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 18, 2, 1), Ipv4Addr::new(198, 18, 2, 77)];
/// Of the way to `b`.
const MTU: usize = 1400;

/// Sources are translated by the router's own address, or to another port of another one; destinations are those of services behind it.
const RULES: &str = "
table inet nat {
  chain pre {
    type nat hook prerouting priority dstnat;
    meta l4proto { tcp, udp } ip daddr 198.18.1.1 th dport 8080 dnat ip to 198.18.2.2:80
    meta l4proto { tcp, udp } ip daddr 198.18.1.1 th dport 8081 dnat ip to 198.18.2.2:81
    meta l4proto { tcp, udp } ip6 daddr 2001:2:0:1::1 th dport 8080 dnat ip6 to [2001:2:0:2::2]:80
    meta l4proto { tcp, udp } ip6 daddr 2001:2:0:1::1 th dport 8081 dnat ip6 to [2001:2:0:2::2]:81
  }
  chain post {
    type nat hook postrouting priority srcnat;
    oifname OUT meta l4proto { tcp, udp } th sport 20000-29999 masquerade
    oifname OUT meta l4proto tcp th sport 30001 snat ip to 198.18.2.77:5555
    oifname OUT meta l4proto udp th sport 30001 snat ip to 198.18.2.77:5555
    oifname OUT meta l4proto { tcp, udp } th sport 30002 snat ip6 to [2001:2:0:2::77]:5556
  }
}
table inet filter {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname IN ct state new accept
  }
}
table inet helpers {
  ct helper ftp { type \"ftp\" protocol tcp; }
  chain pre {
    type filter hook prerouting priority filter;
    tcp dport 7021 ct helper set \"ftp\"
  }
}
table inet marks {
  chain forward {
    type filter hook forward priority filter + 10; policy accept;
    meta l4proto { tcp, udp } th sport 7999 accept
    meta l4proto { tcp, udp } th dport 7999 accept
    ct state established ct mark set ct mark | 0x10000000
  }
}
";

/// `a` - `r` - `b`, the hosts without addresses of their own: what reaches them stays there.
struct World {
    bed: Bed,
    a: End,
    ports: [End; 2],
    b: End,
}

fn world(tag: &str) -> Option<World> {
    let bed = Bed::new(tag, &["a", "r", "b"])?;
    let ([a, ra], [rb, b]) = (bed.join(["a", "r"], 1), bed.join(["r", "b"], 1));
    for (end, mac) in [&a, &ra, &rb, &b].into_iter().zip(MACS) {
        end.link_set("down");
        end.link_set(&format!("address {}", mac.map(|byte| format!("{byte:02x}")).join(":")));
        end.link_set("up");
        end.feature("rx-gro", [&a, &b].iter().any(|host| host.interface() == end.interface()));
    }
    rb.link_set(&format!("mtu {MTU}"));
    let r = bed.space("r");
    for (sysctl, value) in [
        ("net.ipv4.icmp_ratelimit", "0"),
        ("net.ipv4.icmp_msgs_per_sec", "1000000"),
        ("net.ipv4.icmp_msgs_burst", "1000000"),
        ("net.ipv6.icmp.ratelimit", "0"),
    ] {
        r.set(sysctl, value);
    }
    for (n, end) in [&ra, &rb].into_iter().enumerate() {
        let (n, name, far) = (n + 1, end.interface(), MACS[n * 3]);
        let far = far.map(|byte| format!("{byte:02x}")).join(":");
        r.set(&format!("net.ipv6.conf.{name}.accept_dad"), "0");
        r.set(&format!("net.ipv6.conf.{name}.disable_ipv6"), "0");
        end.address(&format!("198.18.{n}.1/24"));
        r.output(&format!("ip addr add 2001:2:0:{n}::1/64 dev {name} nodad"));
        for host in [format!("198.18.{n}.2"), format!("2001:2:0:{n}::2")] {
            r.output(&format!("ip neigh add {host} lladdr {far} dev {name}"));
        }
    }
    r.set("net.ipv4.ip_forward", "1");
    r.set("net.ipv6.conf.all.forwarding", "1");
    r.nft(&RULES.replace("IN", ra.interface()).replace("OUT", rb.interface()));
    r.set("net.netfilter.nf_conntrack_tcp_be_liberal", "1");
    Some(World { bed, a, ports: [ra, rb], b })
}

/// Untranslated, source, source and port, destination and port, both; one that no rule marks, and one that a helper follows.
fn flows() -> Vec<Flow> {
    let mut all = Vec::new();
    for tcp in [true, false] {
        let mut add = |out: [&str; 2], back: [&str; 2]| all.push(Flow::new(tcp, out, back));
        add(["198.18.1.2:10001", "198.18.2.2:7001"], ["198.18.2.2:7001", "198.18.1.2:10001"]);
        add(["198.18.1.2:20001", "198.18.2.2:7002"], ["198.18.2.2:7002", "198.18.2.1:20001"]);
        add(["198.18.1.2:30001", "198.18.2.2:7003"], ["198.18.2.2:7003", "198.18.2.77:5555"]);
        add(["198.18.1.2:10002", "198.18.1.1:8080"], ["198.18.2.2:80", "198.18.1.2:10002"]);
        add(["198.18.1.2:20002", "198.18.1.1:8081"], ["198.18.2.2:81", "198.18.2.1:20002"]);
        add(["198.18.1.2:20003", "198.18.2.2:7999"], ["198.18.2.2:7999", "198.18.2.1:20003"]);
        add(["198.18.1.2:10021", "198.18.2.2:7021"], ["198.18.2.2:7021", "198.18.1.2:10021"]);
        let (a, b) = ("[2001:2:0:1::2]", "[2001:2:0:2::2]");
        let mut add6 = |from: &str, to: &str, server: &str, seen: &str| {
            add([&format!("{a}{from}"), to], [&format!("{b}{server}"), seen]);
        };
        add6(":10001", "[2001:2:0:2::2]:7001", ":7001", "[2001:2:0:1::2]:10001");
        add6(":20001", "[2001:2:0:2::2]:7002", ":7002", "[2001:2:0:2::1]:20001");
        add6(":30002", "[2001:2:0:2::2]:7003", ":7003", "[2001:2:0:2::77]:5556");
        add6(":10002", "[2001:2:0:1::1]:8080", ":80", "[2001:2:0:1::2]:10002");
        add6(":20002", "[2001:2:0:1::1]:8081", ":81", "[2001:2:0:2::1]:20002");
    }
    all
}

/// The same and so many others, of clients' ports that the router leaves as they are: more than are remembered, where they are many.
fn many_flows(others: u16) -> Vec<Flow> {
    let mut all = flows();
    for n in 0..others {
        let (tcp, plain, masqueraded) = (n % 2 == 0, 11_000 + n / 8, 21_000 + n / 8);
        let (a, b) = ("[2001:2:0:1::2]", "[2001:2:0:2::2]");
        let [out, back] = match n / 2 % 4 {
            0 => [
                [format!("198.18.1.2:{plain}"), "198.18.2.2:7001".to_owned()],
                ["198.18.2.2:7001".to_owned(), format!("198.18.1.2:{plain}")],
            ],
            1 => [
                [format!("198.18.1.2:{masqueraded}"), "198.18.1.1:8081".to_owned()],
                ["198.18.2.2:81".to_owned(), format!("198.18.2.1:{masqueraded}")],
            ],
            2 => [
                [format!("{a}:{masqueraded}"), format!("{b}:7002")],
                [format!("{b}:7002"), format!("[2001:2:0:2::1]:{masqueraded}")],
            ],
            _ => [
                [format!("{a}:{plain}"), "[2001:2:0:1::1]:8080".to_owned()],
                [format!("{b}:80"), format!("{a}:{plain}")],
            ],
        };
        all.push(Flow::new(tcp, out.each_ref().map(String::as_str), back.each_ref().map(String::as_str)));
    }
    all
}

/// A number that the environment may set.
fn number(name: &str, else_this: u64) -> u64 {
    env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(else_this)
}

/// A frame of the client goes to the router's first port, one of the server to its second.
fn macs(side: usize) -> [[u8; 6]; 2] {
    if side == 0 { [MACS[1], MACS[0]] } else { [MACS[2], MACS[3]] }
}

fn send(world: &World, side: usize, name: &str, frames: &[Vec<u8>]) {
    let (end, path) = ([&world.a, &world.b][side], world.bed.path(&format!("{name}.pcap")));
    write(&path, frames);
    let mut replay = Command::new("tcpreplay");
    replay.args(["-q", "-i", end.interface(), "--pps=20000"]).arg(&path);
    let done = end.space().run(|| replay.output().unwrap());
    assert!(done.status.success(), "{}", testbed::said(&done));
}

/// Has every connection be an established one: handshakes, and UDP in both directions for more than two seconds.
fn establish(world: &World, flows: &mut [Flow]) {
    let mut step = |name: &str, side: usize, tcp: Option<u8>, udp: bool| {
        let of = flows.iter_mut().filter(|flow| if flow.tcp { tcp.is_some() } else { udp });
        let packet = |flow: &mut Flow| {
            flow.packet(side, tcp.unwrap_or(0), if flow.tcp { b"" } else { b"x" }, &Shape::plain(macs(side)))
        };
        let all: Vec<Vec<u8>> = of.map(packet).collect();
        send(world, side, name, &all);
    };
    step("syn", 0, Some(SYN), true);
    step("synack", 1, Some(SYN | ACK), true);
    step("ack", 0, Some(ACK), true);
    thread::sleep(Duration::from_millis(2300));
    step("again", 0, None, true);
    step("back", 1, None, true);
}

/// Packets of both sides, near all limits.
fn traffic(flows: &mut [Flow], count: u64) -> [Vec<Vec<u8>>; 2] {
    let mut dice = Dice::new(number("EK_ORACLE_SEED", 7));
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..count {
        let (side, at) = (dice.below(2) as usize, dice.below(flows.len() as u64) as usize);
        let flow = &mut flows[at];
        let shape = Shape::random(macs(side), &mut dice);
        let header = if flow.out[0].is_ipv4() { 20 } else { 40 } + if flow.tcp { 20 } else { 8 };
        let len = match dice.below(4) {
            // What is larger than the link takes never comes from `b`.
            0 if side == 1 => MTU - header - 70 + dice.below(36) as usize,
            0 => MTU - header - 20 + dice.below(41) as usize,
            1 => dice.below(600) as usize,
            _ => dice.below(40) as usize,
        };
        let mut payload: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
        if dice.one_in(20) {
            flow.sum_up_to_zero(side, &mut payload);
        }
        let frame = flow.packet(side, dice.of(&[ACK, ACK | PUSH]), &payload, &shape);
        if dice.one_in(25) {
            // The receiver complains of it: the message holds what he received, which is the inverse of what he sends.
            let [from, to] = if side == 0 { flow.back } else { flow.out };
            let mut seen = Flow { out: [to, from], ..*flow };
            let about = seen.packet(0, ACK, b"12345678", &Shape::plain(macs(0)));
            all[1 - side].push(Shape::plain(macs(1 - side)).error(from.ip(), to.ip(), &about));
        }
        if dice.one_in(25) && !shape.options {
            all[side].extend(in_two(&frame));
        } else {
            all[side].push(frame);
        }
        if dice.one_in(50) {
            // Nobody tracks what it carries.
            let [from, to] = ["198.18.1.2", "198.18.2.2"].map(|text| text.parse().unwrap());
            all[0].push(Shape::random(macs(0), &mut dice).frame(from, to, dice.of(&[47, 50, 99]), b"something"));
        }
    }
    // Of no connection at all.
    for n in 0..20u16 {
        let to = format!("198.18.2.2:{}", 9000 + n);
        let mut flow = Flow::new(n % 2 == 0, ["198.18.1.2:10009", &to], [&to, "198.18.1.2:10009"]);
        for side in [1, 0] {
            all[side].push(flow.packet(side, ACK, b"stray", &Shape::plain(macs(side))));
        }
    }
    for flow in flows.iter_mut().filter(|flow| flow.tcp) {
        all[0].push(flow.packet(
            0,
            if flow.out[0].port() < 20000 { RST } else { FIN | ACK },
            b"",
            &Shape::plain(macs(0)),
        ));
    }
    all
}

/// What `a` and `b` received of it, by frame.
fn exchange(world: &World) -> [BTreeMap<Vec<u8>, i64>; 2] {
    let count = number("EK_ORACLE_FRAMES", 8000);
    // At the most as many as the ports of a client's leave room for.
    let mut flows = many_flows((count / 200).min(20_000) as u16);
    let ends = [&world.a, &world.b];
    let tap = |n: usize| {
        let end = ends[n];
        Tcpdump::start(end.space(), end.interface(), &world.bed.path(&format!("tap{n}.pcap")), &["-Q", "in"])
    };
    let taps = [tap(0), tap(1)];
    establish(world, &mut flows);
    let [out, back] = traffic(&mut flows, count);
    send(world, 1, "server", &back);
    send(world, 0, "client", &out);
    taps.map(|tap| {
        let mut file = PcapReader::new(File::open(tap.stop()).unwrap()).unwrap();
        let mut seen = BTreeMap::new();
        while let Some(packet) = file.next_packet() {
            if let Some(frame) = compared(&packet.unwrap().data, &ROUTERS) {
                *seen.entry(frame).or_default() += 1;
            }
        }
        seen
    })
}

fn settings(world: &World) -> RouteSettings {
    RouteSettings {
        ports: world.ports.iter().map(|port| port.interface().to_owned()).collect(),
        xdp: XdpMode::Native,
        slots: Some(1024),
        mode: RouteMode::Stateful,
        returns: false,
        trial: Duration::ZERO,
        cpus: CpuSet::new(),
        queue: 2048,
        mark: CtMark::default(),
    }
}

/// What is asked of a router in its thread.
type Question = Box<dyn FnOnce(&mut Router) + Send>;

/// Ends the router also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` while a router runs in mode stateful.
fn beside<T>(world: &World, work: impl FnOnce(&mpsc::Sender<Question>) -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (started, is_started) = mpsc::channel();
        let (ask, asked) = mpsc::channel::<Question>();
        let stop = &stop;
        scope.spawn(move || {
            world.ports[0].space().run(move || {
                let mut router = Router::start(settings(world)).unwrap();
                assert_eq!(router.obstacles(), []);
                router.set_mode(RouteMode::Stateful).unwrap();
                started.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(router.turn(Duration::from_millis(5)).unwrap(), []);
                    asked.try_iter().for_each(|question| question(&mut router));
                }
            });
        });
        let _ends = Ends(stop);
        is_started.recv().map(|()| work(&ask)).unwrap()
    })
}

/// All ports together.
fn totals(ask: &mpsc::Sender<Question>) -> RouteTotals {
    let (answer, answered) = mpsc::channel();
    let question = move |router: &mut Router| {
        let mut sum = RouteTotals::default();
        router.counts().unwrap().iter().for_each(|(_, counts)| sum += *counts);
        answer.send(sum).unwrap();
    };
    ask.send(Box::new(question)).unwrap();
    answered.recv().unwrap()
}

#[test]
fn hosts_receive_what_a_kernel_alone_would_have_translated_and_sent() {
    let (Some(alone), Some(fast)) = (world("rtnk"), world("rtne")) else { return };
    let expected = exchange(&alone);
    let (got, counts) = beside(&fast, |ask| (exchange(&fast), totals(ask)));
    let mut differences = 0;
    for (who, (expected, got)) in ["a", "b"].iter().zip(expected.iter().zip(&got)) {
        println!("{who}: {} frames of the kernel", expected.values().sum::<i64>());
        let mut both = got.clone();
        expected.iter().for_each(|(frame, times)| *both.entry(frame.clone()).or_default() -= times);
        for (frame, times) in both.iter().filter(|(_, times)| **times != 0) {
            differences += 1;
            if differences <= 20 {
                let hex: String = frame.iter().take(80).map(|byte| format!("{byte:02x}")).collect();
                println!("{who} got {times:+} of {} bytes {hex}", frame.len());
            }
        }
    }
    println!("{counts:#?}");
    assert_eq!(differences, 0, "hosts received something else");
    let all = counts.forwarded + counts.up();
    assert!(counts.forwarded * 100 > all * 50, "{} of {all} were forwarded by the fast path", counts.forwarded);
    assert!(counts.translated * 100 > all * 30, "{} of {all} were translated by the fast path", counts.translated);
    let reasons =
        "handshake no_connection unmarked not_settled icmp_error options hop_limit too_big fragment untracked special";
    let reasons: Vec<&str> = reasons.split(' ').collect();
    for counter in RouteTotals::COUNTERS.iter().filter(|counter| reasons.contains(&counter.name)) {
        assert!((counter.get)(&counts) > 0, "nothing was {}", counter.name);
    }
}

macro_rules! minus {
    ($(#[$meta:meta])* pub struct RouteTotals { $($field:ident: $unit:ident $metric:literal $help:literal $({ $($more:tt)* })?;)+ }) => {
        /// What was counted since `before`.
        fn minus(now: &RouteTotals, before: &RouteTotals) -> RouteTotals {
            RouteTotals { $($field: now.$field - before.$field,)+ }
        }
    };
}
model::route_totals!(minus);

/// One connection over IPv4, established; and what is asked of conntrack.
struct One<'a> {
    world: &'a World,
    ask: &'a mpsc::Sender<Question>,
    flow: Flow,
}

impl<'a> One<'a> {
    /// To port 7001, untranslated, or 7002, masqueraded.
    fn new(world: &'a World, ask: &'a mpsc::Sender<Question>, tcp: bool, port: u16) -> Self {
        let wanted = |flow: &Flow| flow.tcp == tcp && flow.out[1].port() == port && flow.out[0].is_ipv4();
        let mut flows: Vec<Flow> = flows().into_iter().filter(wanted).collect();
        establish(world, &mut flows);
        Self { world, ask, flow: flows[0] }
    }

    /// Sends a packet from a side: what the counters rose by, and whether the other side's end received a frame.
    fn sends(&mut self, side: usize, flags: u8) -> (RouteTotals, bool) {
        let frame = self.flow.packet(side, flags, b"some bytes", &Shape::plain(macs(side)));
        let far = [&self.world.b, &self.world.a][side];
        let before = totals(self.ask);
        let tap =
            Tcpdump::start(far.space(), far.interface(), &self.world.bed.path("one.tap"), &["-Q", "in", "tcp or udp"]);
        send(self.world, side, "one", &[frame]);
        let sum = |of: &RouteTotals| of.forwarded + of.up();
        testbed::wait("the frame is counted", || sum(&totals(self.ask)) > sum(&before));
        let mut file = PcapReader::new(File::open(tap.stop()).unwrap()).unwrap();
        (minus(&totals(self.ask), &before), file.next_packet().is_some())
    }

    /// What the counters rise by while `work` is done and the router's own loop, which forgets all each second, stands still: packets meet
    /// what is remembered.
    fn remembered(&self, work: impl FnOnce(&Self)) -> RouteTotals {
        let before = totals(self.ask);
        let (go_on, waits) = mpsc::channel::<()>();
        self.ask
            .send(Box::new(move |_| {
                let _ = waits.recv();
            }))
            .unwrap();
        work(self);
        go_on.send(()).unwrap();
        minus(&totals(self.ask), &before)
    }

    /// Sends packets of the client's, and waits until the router has them.
    fn sends_some(&self, times: usize) {
        let mut flow = self.flow;
        let frame = flow.packet(0, 0, b"some bytes", &Shape::plain(macs(0)));
        let received = || {
            let port = &self.world.ports[0];
            let of = |name: &str| format!("cat /sys/class/net/{}/statistics/{name}", port.interface());
            port.space().output(&of("rx_packets")).trim().parse::<u64>().unwrap()
        };
        let before = received();
        send(self.world, 0, "some", &vec![frame; times]);
        testbed::wait("the frames are received", || received() >= before + times as u64);
    }

    /// What `conntrack` says of it, or does.
    fn conntrack(&self, arguments: &str) -> String {
        self.world.bed.space("r").output(&format!("conntrack {arguments}"))
    }

    /// Another mark, or another time to live in seconds.
    fn change(&self, mark: Option<u32>, seconds: Option<u32>) {
        let change = || Connections::open().and_then(|mut all| all.change(self.flow.out, mark, seconds));
        self.world.bed.space("r").run(change).unwrap();
    }

    /// Seconds until it is forgotten.
    fn left(&self) -> u64 {
        let all = self.conntrack("-L -p udp --orig-port-dst 7001");
        all.split_whitespace().nth(2).and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{all}"))
    }
}

#[test]
fn what_conntrack_forgets_or_unmarks_is_not_forwarded_any_more() {
    let Some(world) = world("rtndel") else { return };
    beside(&world, |ask| {
        let mut other = One::new(&world, ask, false, 7001);
        let mut one = One::new(&world, ask, false, 7002);
        // From now on a packet without a connection is lost.
        world.bed.space("r").nft("insert rule inet filter forward ct state new drop");
        let (up, arrived) = one.sends(0, 0);
        assert_eq!((up.forwarded, up.translated, arrived), (1, 1, true));
        assert_eq!(other.sends(1, 0).0.forwarded, 1);
        other.change(Some(0), None);
        let (up, arrived) = other.sends(1, 0);
        // The kernel forwards it, and its rule marks the connection again.
        assert_eq!((up.forwarded, up.unmarked, arrived), (0, 1, true));
        assert_eq!(other.sends(1, 0).0.forwarded, 1);
        one.conntrack("-D -p udp --orig-port-dst 7002");
        let (up, arrived) = one.sends(0, 0);
        assert_eq!((up.forwarded, up.no_connection, arrived), (0, 1, false));
        let rules = world.bed.space("r");
        rules.output("nft flush chain inet filter forward");
        rules.nft("add rule inet filter forward accept");
        let mut one = One::new(&world, ask, false, 7002);
        assert_eq!(one.sends(0, 0).0.forwarded, 1);
        one.conntrack("-F");
        rules.nft("insert rule inet filter forward ct state new drop");
        let (up, arrived) = one.sends(0, 0);
        assert_eq!((up.forwarded, up.no_connection, arrived), (0, 1, false));
    });
}

#[test]
fn with_the_last_chain_of_nat_the_fast_path_translates_no_more() {
    let Some(world) = world("rtnlast") else { return };
    beside(&world, |ask| {
        let mut plain = One::new(&world, ask, false, 7001);
        let mut one = One::new(&world, ask, false, 7002);
        assert_eq!(one.sends(0, 0).0.translated, 1);
        world.bed.space("r").output("nft delete table inet nat");
        testbed::wait("it is heard of", || one.sends(0, 0).0.special == 1);
        assert_eq!(plain.sends(0, 0).0.forwarded, 1);
    });
}

#[test]
fn a_masqueraded_connection_whose_way_out_is_another_one_is_the_kernels() {
    let Some(world) = world("rtnmov") else { return };
    let r = world.bed.space("r");
    // The other way is the one that it comes by.
    for of in ["all", world.ports[0].interface()] {
        r.set(&format!("net.ipv4.conf.{of}.send_redirects"), "0");
    }
    beside(&world, |ask| {
        let mut plain = One::new(&world, ask, false, 7001);
        let mut one = One::new(&world, ask, false, 7002);
        assert_eq!(one.sends(0, 0).0.translated, 1);
        r.output("ip route add 198.18.2.2/32 via 198.18.1.2");
        // What is not translated goes the other way at once.
        let (up, arrived) = plain.sends(0, 0);
        assert_eq!((up.forwarded, up.up(), arrived), (1, 0, false));
        // The kernel ends the connection: its address is one of the old way.
        let (up, arrived) = one.sends(0, 0);
        assert_eq!((up.forwarded, up.moved, arrived), (0, 1, false));
        assert!(!one.conntrack("-L -p udp").contains("dport=7002"));
        assert_eq!(one.sends(0, 0).0.no_connection, 1);
    });
}

#[test]
fn what_is_remembered_of_a_connection_does_not_outlive_it() {
    let Some(world) = world("rtnrem") else { return };
    beside(&world, |ask| {
        for port in [7001, 7002] {
            let one = One::new(&world, ask, false, port);
            world.bed.space("r").nft("insert rule inet filter forward ct state new drop");
            let up = one.remembered(|one| {
                one.sends_some(3);
                one.change(Some(0), None);
                one.sends_some(2);
            });
            // The rule marks it again with the first of those that go up.
            assert_eq!((up.forwarded, up.unmarked), (4, 1), "port {port}: {up:?}");
            let up = one.remembered(|one| {
                one.sends_some(3);
                one.conntrack(&format!("-D -p udp --orig-port-dst {port}"));
                one.sends_some(2);
            });
            assert_eq!((up.forwarded, up.no_connection), (3, 2), "port {port}: {up:?}");
            let rules = world.bed.space("r");
            rules.output("nft flush chain inet filter forward");
            rules.nft("add rule inet filter forward accept");
        }
    });
}

#[test]
fn connections_in_use_are_kept_and_those_that_end_are_the_kernels() {
    let Some(world) = world("rtnkeep") else { return };
    beside(&world, |ask| {
        let mut udp = One::new(&world, ask, false, 7001);
        // More than an eighth of 120 s is over.
        udp.change(None, Some(20));
        assert!(udp.left() <= 20);
        assert_eq!(udp.sends(0, 0).0.forwarded, 1);
        assert!(udp.left() > 110, "{}", udp.left());
        udp.change(None, Some(100));
        assert_eq!(udp.sends(1, 0).0.forwarded, 1);
        assert!(udp.left() > 110, "{}", udp.left());
        udp.change(None, Some(118));
        assert_eq!(udp.sends(0, 0).0.forwarded, 1);
        assert!(udp.left() <= 118, "hardly anything was over");

        let mut tcp = One::new(&world, ask, true, 7002);
        let state = |tcp: &One<'_>| tcp.conntrack("-L -p tcp --orig-port-dst 7002");
        assert!(state(&tcp).contains("ESTABLISHED"));
        // Far beyond every window that conntrack saw.
        for _ in 0..3 {
            tcp.flow.seq = tcp.flow.seq.map(|seq| seq.wrapping_add(50_000_000));
            assert_eq!(tcp.sends(0, ACK | PUSH).0.forwarded, 1);
            assert_eq!(tcp.sends(1, ACK | PUSH).0.forwarded, 1);
        }
        // A packet that waits for an answer is granted five minutes, an answer alone five days.
        let seconds = |tcp: &One<'_>| state(tcp).split_whitespace().nth(2).and_then(|s| s.parse::<u64>().ok()).unwrap();
        assert!(seconds(&tcp) <= 300, "{}", state(&tcp));
        let answer = tcp.flow.packet(0, ACK, b"", &Shape::plain(macs(0)));
        send(&world, 0, "answer", &[answer]);
        testbed::wait("the answer is counted", || seconds(&tcp) > 400_000);
        let (up, arrived) = tcp.sends(0, FIN | ACK);
        assert_eq!((up.handshake, arrived), (1, true));
        assert!(state(&tcp).contains("FIN_WAIT"), "{}", state(&tcp));
        assert_eq!(tcp.sends(1, ACK).0.not_settled, 1);
        let (up, arrived) = tcp.sends(1, RST);
        assert_eq!((up.handshake, arrived), (1, true));
    });
}

#[test]
fn tcp_goes_up_while_conntrack_is_strict_about_windows() {
    let Some(world) = world("rtnwin") else { return };
    world.bed.space("r").set("net.netfilter.nf_conntrack_tcp_be_liberal", "0");
    beside(&world, |ask| {
        let mut tcp = One::new(&world, ask, true, 7002);
        let (up, arrived) = tcp.sends(0, ACK | PUSH);
        assert_eq!((up.window, up.forwarded, arrived), (1, 0, true));
        world.bed.space("r").set("net.netfilter.nf_conntrack_tcp_be_liberal", "1");
        testbed::wait("the setting is followed", || tcp.sends(0, ACK | PUSH).0.forwarded == 1);
    });
}
