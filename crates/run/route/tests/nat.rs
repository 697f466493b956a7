//! Mode stateful: two routers with the same rules of nftables, which translate, one of them with the fast path. What the hosts receive is equal
//! byte by byte: EK_ORACLE_FRAMES says how many frames are sent (8,000), EK_ORACLE_SEED which. Then: what conntrack forgets, what loses its mark
//! and what ends is not forwarded any more.

mod beside;
#[path = "nat/flows.rs"]
mod flows;
#[path = "nat/hosts.rs"]
mod hosts;
mod settings;
mod totals;

use std::{thread, time::Duration};

use beside::Control;
use flows::{ACK, FIN, Flow, PUSH, RST, Shape};
use host::netlink::conntrack::Connections;
use hosts::{establish, exchange, flows, macs, send, traffic, world};
use model::route::{RouteMode, RouteTotals};
use route::RouteSettings;
use settings::settings;
use testbed::{End, RouterBed, Tcpdump, differences, read_pcap};
use totals::totals;

/// Does `work` while a router runs in mode stateful.
fn beside<T>(bed: &RouterBed, work: impl FnOnce(&Control<'_>) -> T) -> T {
    beside_in(bed, RouteMode::Stateful, Duration::ZERO, work)
}

/// Does `work` while a router runs in a mode, after that long in shadow.
fn beside_in<T>(bed: &RouterBed, mode: RouteMode, trial: Duration, work: impl FnOnce(&Control<'_>) -> T) -> T {
    let settings = RouteSettings { slots: Some(1024), auto_return: false, trial, ..settings(&bed.ports()) };
    beside::beside(&bed.router, settings, None, mode, |control| {
        let done = work(control);
        assert_eq!(control.events(), []);
        done
    })
}

#[test]
fn hosts_receive_what_a_kernel_alone_would_have_translated_and_sent() {
    let (Some(alone), Some(fast)) = (world("rtnk"), world("rtne")) else { return };
    let expected = exchange(&alone);
    let (got, counts) = beside(&fast, |ask| (exchange(&fast), ask.ask(totals)));
    let one = |(who, (expected, got))| differences(who, expected, got, |_| false);
    let differences: usize = ["a", "b"].into_iter().zip(expected.iter().zip(&got)).map(one).sum();
    println!("{counts:#?}");
    assert_eq!(differences, 0, "hosts received something else");
    let all = counts.forwarded + counts.up();
    assert!(counts.forwarded * 100 > all * 50, "{} of {all} were forwarded by the fast path", counts.forwarded);
    assert!(counts.translated * 100 > all * 30, "{} of {all} were translated by the fast path", counts.translated);
    let reasons = "handshake no_connection unmarked not_established icmp_error options hop_limit too_big fragment untracked ct_extension";
    let reasons: Vec<&str> = reasons.split(' ').collect();
    for counter in RouteTotals::COUNTERS.iter().filter(|counter| reasons.contains(&counter.name)) {
        assert!((counter.get)(&counts) > 0, "nothing was {}", counter.name);
    }
}

#[test]
fn the_shadow_of_each_mode_counts_each_frame_once() {
    for (tag, mode) in [("rtnsh", RouteMode::Routed), ("rtnss", RouteMode::Stateful)] {
        let Some(world) = world(tag) else { return };
        let received = || {
            let of = |port: &End| {
                let file = format!("/sys/class/net/{}/statistics/rx_packets", port.interface());
                port.space().read(&file).trim().parse::<u64>().unwrap()
            };
            world.near.iter().map(of).sum::<u64>()
        };
        // The trial, in shadow, outlasts the test. Mode routed needs a router without rules.
        if mode == RouteMode::Routed {
            world.router.output("nft flush ruleset");
        }
        beside_in(&world, mode, Duration::from_secs(3600), |ask| {
            let counted = || {
                let counts = ask.ask(totals);
                assert_eq!(counts.forwarded, 0, "the kernel forwards");
                counts.shadowed + counts.up()
            };
            // Frames before the mode began are in no count.
            testbed::wait("a quiet start", || {
                let before = (received(), counted());
                thread::sleep(Duration::from_millis(100));
                before == (received(), counted())
            });
            let before = (received(), ask.ask(totals));
            let mut flows = flows();
            establish(&world, &mut flows);
            for (side, frames) in traffic(&mut flows, 2000).iter().enumerate() {
                send(&world, side, "shadow", frames);
            }
            let sum = |of: &RouteTotals| of.shadowed + of.up();
            let rise = || (received() - before.0, sum(&ask.ask(totals)) - sum(&before.1));
            let report = || format!("{:?} of {mode:?}, {:#?}", rise(), ask.ask(totals));
            testbed::wait_reporting(
                "each frame that was received is counted",
                || rise().0 > 2000 && rise().0 == rise().1,
                report,
            );
            let counts = minus(&ask.ask(totals), &before.1);
            assert!(counts.shadowed > 200 && counts.up() > 200, "{counts:#?}");
        });
    }
}

macro_rules! minus {
    ($(#[$meta:meta])* pub struct RouteTotals { $($field:ident: $unit:ident $metric:literal $help:literal $({ $($more:tt)* })?;)+ }) => {
        /// Counters since `before`.
        fn minus(now: &RouteTotals, before: &RouteTotals) -> RouteTotals {
            RouteTotals { $($field: now.$field - before.$field,)+ }
        }
    };
}
model::route_totals!(minus);

/// An established connection over IPv4, and its conntrack entry.
struct One<'a> {
    world: &'a RouterBed,
    ask: &'a Control<'a>,
    flow: Flow,
}

impl<'a> One<'a> {
    /// To port 7001, untranslated, or 7002, masqueraded.
    fn new(world: &'a RouterBed, ask: &'a Control<'a>, tcp: bool, port: u16) -> Self {
        let wanted = |flow: &Flow| flow.tcp == tcp && flow.out[1].port() == port && flow.out[0].is_ipv4();
        let mut flows: Vec<Flow> = flows().into_iter().filter(wanted).collect();
        establish(world, &mut flows);
        Self { world, ask, flow: flows[0] }
    }

    /// Sends a packet from a side: what the counters rose by, and whether the other side's end received a frame.
    fn sends(&mut self, side: usize, flags: u8) -> (RouteTotals, bool) {
        let frame = self.flow.packet(side, flags, b"some bytes", &Shape::plain(macs(side)));
        let far = &self.world.far[1 - side];
        let before = self.ask.ask(totals);
        let tap =
            Tcpdump::start(far.space(), far.interface(), &self.world.bed.path("one.tap"), &["-Q", "in", "tcp or udp"]);
        send(self.world, side, "one", &[frame]);
        let sum = |of: &RouteTotals| of.forwarded + of.up();
        testbed::wait("the frame is counted", || sum(&self.ask.ask(totals)) > sum(&before));
        (minus(&self.ask.ask(totals), &before), !read_pcap(&tap.stop()).is_empty())
    }

    /// Counters of `work`, while the router's own loop, which empties the cache each second, stands still: packets meet
    /// what is remembered.
    fn remembered(&self, work: impl FnOnce(&Self)) -> RouteTotals {
        let before = self.ask.ask(totals);
        let stands_still = self.ask.hold();
        work(self);
        drop(stands_still);
        minus(&self.ask.ask(totals), &before)
    }

    /// Sends packets of the client's, and waits until the router has them.
    fn sends_some(&self, times: usize) {
        let mut flow = self.flow;
        let frame = flow.packet(0, 0, b"some bytes", &Shape::plain(macs(0)));
        let received = || {
            let port = &self.world.near[0];
            let of = |name: &str| format!("cat /sys/class/net/{}/statistics/{name}", port.interface());
            port.space().output(&of("rx_packets")).trim().parse::<u64>().unwrap()
        };
        let before = received();
        send(self.world, 0, "some", &vec![frame; times]);
        testbed::wait("the frames are received", || received() >= before + times as u64);
    }

    /// Output of a `conntrack` command on it.
    fn conntrack(&self, arguments: &str) -> String {
        self.world.router.output(&format!("conntrack {arguments}"))
    }

    /// Another mark, or another time to live in seconds.
    fn change(&self, mark: Option<u32>, seconds: Option<u32>) {
        let change = || Connections::open().and_then(|mut all| all.change(self.flow.out, mark, seconds));
        self.world.router.run(change).unwrap();
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
        world.router.nft("insert rule inet filter forward ct state new drop");
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
        let rules = &world.router;
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
        world.router.output("nft delete table inet nat");
        testbed::wait("it is heard of", || one.sends(0, 0).0.ct_extension == 1);
        assert_eq!(plain.sends(0, 0).0.forwarded, 1);
    });
}

#[test]
fn a_masqueraded_connection_whose_way_out_is_another_one_is_the_kernels() {
    let Some(world) = world("rtnmov") else { return };
    let r = &world.router;
    // The other way is the one that it comes by.
    for of in ["all", world.near[0].interface()] {
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
        assert_eq!((up.forwarded, up.oif_changed, arrived), (0, 1, false));
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
            world.router.nft("insert rule inet filter forward ct state new drop");
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
            let rules = &world.router;
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
        assert_eq!(tcp.sends(1, ACK).0.not_established, 1);
        let (up, arrived) = tcp.sends(1, RST);
        assert_eq!((up.handshake, arrived), (1, true));
    });
}

#[test]
fn tcp_goes_up_while_conntrack_is_strict_about_windows() {
    let Some(world) = world("rtnwin") else { return };
    world.router.set("net.netfilter.nf_conntrack_tcp_be_liberal", "0");
    beside(&world, |ask| {
        let mut tcp = One::new(&world, ask, true, 7002);
        let (up, arrived) = tcp.sends(0, ACK | PUSH);
        assert_eq!((up.window, up.forwarded, arrived), (1, 0, true));
        world.router.set("net.netfilter.nf_conntrack_tcp_be_liberal", "1");
        testbed::wait("the setting is followed", || tcp.sends(0, ACK | PUSH).0.forwarded == 1);
    });
}
