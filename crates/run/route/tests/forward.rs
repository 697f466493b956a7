//! Real packets through a router in a namespace: what is forwarded, what goes up, and how it looks when it leaves.

mod settings;
mod totals;

use std::{net::UdpSocket, time::Duration};

use model::route::{RouteMode, RouteTotals};
use route::Router;
use settings::settings;
use testbed::{HostsBed, run, wait};
use totals::totals;

#[test]
fn a_shadow_judges_no_frames_of_an_earlier_one() {
    let Some(world) = HostsBed::with_ipv6("rtagain") else { return };
    let HostsBed { bed: _bed, a, ra, .. } = &world;
    ra.space().run(|| {
        let mut router = Router::start(settings(&world.ports())).unwrap();
        let mut command = a.space().command("ping");
        command.args(["-c", "1", "-W", "1", "198.18.2.2"]);
        wait("the far end answers", || command.output().unwrap().status.success());
        router.set_mode(RouteMode::Shadow).unwrap();
        // Those of the last moments are not judged: the kernel may have them still.
        wait("a frame that is not judged yet", || {
            a.space().output("ping -c 2 -i 0.01 -W 1 198.18.2.2");
            totals(&router).sampled > router.compare().unwrap().same
        });
        router.set_mode(RouteMode::Standard).unwrap();
        router.set_mode(RouteMode::Shadow).unwrap();
        std::thread::sleep(Duration::from_millis(400));
        let result = router.compare().unwrap();
        assert_eq!((result.same, result.wrong(), result.not_sent), (0, 0, 0), "{result:?}");
    });
}

#[test]
fn a_next_hop_of_ipv6_takes_ipv4_packets_and_is_kept_alive() {
    let Some(world) = HostsBed::with_ipv6("rtvia") else { return };
    let HostsBed { a, ra, rb, b, .. } = &world;
    let links = b.space().output(&format!("ip -6 -o addr show dev {} scope link", b.interface()));
    let far = links.split_whitespace().find_map(|word| word.strip_suffix("/64")).expect("a link-local address");
    let mac = b.space().read(&format!("/sys/class/net/{}/address", b.interface())).trim().to_owned();
    b.space().output("ip addr add 198.18.9.9/32 dev lo");
    ra.space().output(&format!("ip route add 198.18.9.0/24 via inet6 {far} dev {}", rb.interface()));
    // In the router's namespace. Known, and a while ago: nobody but who sends to it has the kernel ask.
    let stale = |who: &str| {
        run(&format!("ip -6 neigh replace {who} lladdr {mac} nud stale dev {}", rb.interface()));
    };
    let state = |who: &str| {
        let line = run(&format!("ip -6 neigh show {who} dev {}", rb.interface()));
        line.split_whitespace().last().unwrap_or_default().to_owned()
    };
    let (server, client) = (
        b.space().run(|| UdpSocket::bind("198.18.9.9:4000").unwrap()),
        a.space().run(|| UdpSocket::bind("198.18.1.2:0").unwrap()),
    );
    server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let crosses = |number: u32| {
        client.send_to(&number.to_be_bytes(), "198.18.9.9:4000").unwrap();
        let mut buffer = [0; 8];
        let (read, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..read], from), (&number.to_be_bytes()[..], client.local_addr().unwrap()));
    };
    ra.space().run(|| {
        let mut router = Router::start(settings(&world.ports())).unwrap();
        assert_eq!(router.obstacles(), []);
        // The sender finds the router, while the kernel forwards: the first packets go up.
        crosses(0);
        router.set_mode(RouteMode::Routed).unwrap();
        [far, "fe80::77"].iter().for_each(|who| stale(who));
        let before = totals(&router).forwarded;
        for number in 1..=10 {
            crosses(number);
        }
        assert_eq!(totals(&router).forwarded - before, 10);
        assert_eq!(state(far), "STALE", "the kernel saw none of them");
        wait("the neighbour is asked for", || {
            router.poll_within(Duration::from_millis(50)).unwrap();
            state(far) != "STALE"
        });
        let state_then = state(far);
        assert!(["DELAY", "PROBE", "REACHABLE"].contains(&state_then.as_str()), "{state_then}");
        crosses(11);
        assert_eq!(state("fe80::77"), "STALE", "nothing was sent to it");
    });
}

#[test]
fn what_is_remembered_ends_with_the_route() {
    let Some(world) = HostsBed::with_ipv6("rtgen") else { return };
    let HostsBed { a, ra, .. } = &world;
    // Nobody has the addresses: what is counted is what becomes of the packets in the router.
    let far = ["198.18.9.9:4000", "[2001:2:0:9::9]:4000"];
    let clients = a.space().run(|| ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).unwrap()));
    ra.space().run(|| {
        let routes = |verb: &str, v4: &str, v6: &str| {
            run(&format!("ip route {verb} {v4}"));
            run(&format!("ip -6 route {verb} {v6}"));
        };
        let mut router = Router::start(settings(&world.ports())).unwrap();
        router.set_mode(RouteMode::Routed).unwrap();
        routes("add", "198.18.9.0/24 via 198.18.2.2", "2001:2:0:9::/64 via 2001:2:0:2::2");
        for (to, client) in far.iter().zip(&clients) {
            wait("the fast path forwards to it", || {
                let before = totals(&router).forwarded;
                client.send_to(b"x", to).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                totals(&router).forwarded > before
            });
        }
        // What becomes of two packets to each, once the router's loop has taken the kernel's messages: not every kernel lets its functions be followed.
        let mut sends = || {
            for _ in 0..5 {
                assert_eq!(router.poll_within(Duration::from_millis(20)).unwrap(), []);
            }
            let of = |counts: &RouteTotals| counts.forwarded + counts.refused;
            let before = [totals(&router).forwarded, totals(&router).refused];
            for (to, client) in far.iter().zip(&clients) {
                for _ in 0..2 {
                    client.send_to(b"x", to).unwrap();
                }
            }
            wait("they are counted", || of(&totals(&router)) >= before.iter().sum::<u64>() + 4);
            let now = [totals(&router).forwarded, totals(&router).refused];
            [now[0] > before[0], now[1] > before[1]]
        };
        assert_eq!(sends(), [true, false]);
        routes("add", "blackhole 198.18.9.9/32", "blackhole 2001:2:0:9::9/128");
        assert_eq!(sends(), [false, true]);
        routes("del", "blackhole 198.18.9.9/32", "blackhole 2001:2:0:9::9/128");
        assert_eq!(sends(), [true, false]);
    });
}

#[test]
fn a_trial_in_which_no_frame_came_is_reported_until_one_was_compared() {
    let Some(world) = HostsBed::with_ipv6("rttry") else { return };
    let HostsBed { bed: _bed, a, ra, rb, .. } = &world;
    // Nobody sends by itself.
    for end in [a, ra, rb] {
        end.space().set(&format!("net.ipv6.conf.{}.disable_ipv6", end.interface()), "1");
    }
    ra.space().run(|| {
        let trial = Duration::from_millis(1200);
        let mut router = Router::start(route::RouteSettings { trial, ..settings(&world.ports()) }).unwrap();
        let mut tried = |ping: bool| {
            router.set_mode(RouteMode::Routed).unwrap();
            assert!(!router.status().unwrap().unverified, "the trial has begun");
            if ping {
                a.space().output("ping -c 3 -i 0.01 -W 1 198.18.2.2");
            }
            wait("the trial ends", || {
                router.poll_within(Duration::from_millis(20)).unwrap();
                router.mode() == RouteMode::Routed
            });
            router.status().unwrap().unverified
        };
        assert!(tried(false), "no frame came");
        a.space().output("ping -c 1 -W 1 198.18.2.2");
        assert!(!tried(true), "frames were compared");
    });
}
