//! A routing daemon in command: BIRD learns routes by BGP from another BIRD, which sends them elsewhere again and again under traffic. No frame
//! goes where neither the route before nor the one after led.

mod beside;
#[path = "daemon/bird.rs"]
mod bird;
mod settings;
mod totals;
#[path = "daemon/traffic.rs"]
mod traffic;

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use beside::{Control, beside};
use bird::{Bird, announces, learns, routes};
use model::route::RouteMode;
use nix::time::{ClockId, clock_gettime};
use route::{RouteSettings, Router};
use settings::settings;
use testbed::{Bed, End, wait};
use totals::totals;
use traffic::{PREFIX_LEN, ROUTES_MAX, Traffic, hop, network, route_of};

/// Environment variable for another number of routes.
const ROUTES_VARIABLE: &str = "EK_DAEMON_ROUTES";
const ROUTE_COUNT: u32 = 2_000;
/// In four flaps each route has led to each neighbour, and to none.
const FLAP_COUNT: u32 = 4;
/// Time without changes, under traffic.
const STEADY_TIME: Duration = Duration::from_millis(500);
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 2);

/// A sender, a peer and three neighbours around a router.
struct Around {
    bed: Bed,
    ports: Vec<End>,
    neighbours: [End; 3],
}

fn neighbour(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 10 + n as u8, 2)
}

fn around(tag: &str) -> Option<Around> {
    let bed = Bed::new(tag, &["s", "p", "r", "n0", "n1", "n2"])?;
    let r = bed.space("r");
    let link = |role: &str, net: u8| {
        let [far, port] = bed.join([role, "r"], 1);
        far.address(&format!("198.18.{net}.2/24"));
        port.address(&format!("198.18.{net}.1/24"));
        // The other end takes redirected frames, and nobody leaves checksums to a device that is not there.
        far.feature("rx-gro", true);
        far.feature("tx-checksum-ip-generic", false);
        (far, port)
    };
    let mut ports = vec![link("s", 1).1, link("p", 2).1];
    let neighbours = [("n0", 10), ("n1", 11), ("n2", 12)].map(|(role, net)| {
        let (far, port) = link(role, net);
        ports.push(port);
        far
    });
    bed.space("s").output("ip route add default via 198.18.1.1");
    r.set("net.ipv4.ip_forward", "1");
    for n in 0..neighbours.len() {
        r.output(&format!("ping -c 1 -W 5 {}", neighbour(n)));
    }
    Some(Around { bed, ports, neighbours })
}

impl Around {
    fn settings(&self) -> RouteSettings {
        let ports: Vec<&str> = self.ports.iter().map(End::interface).collect();
        RouteSettings { slots: None, ..settings(&ports) }
    }
}

/// The file of the routes as they are in a phase.
fn write(file: &Path, count: u32, phase: u32) {
    let all = (0..count).filter_map(|route| Some((network(route), PREFIX_LEN, neighbour(hop(route, phase)?))));
    fs::write(file, routes(all)).unwrap();
}

/// True if BIRD's routes in the kernel are exactly those of a phase.
fn has(around: &Around, count: u32, phase: u32) -> bool {
    let mut seen = vec![None; count as usize];
    // 12: RTPROT_BIRD (linux/rtnetlink.h)
    let table = around.bed.space("r").output("ip -4 route show proto 12");
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let address = words[0].split('/').next().and_then(|address| address.parse().ok());
        let route = address.and_then(route_of).unwrap_or_else(|| panic!("{line}"));
        let way = words.iter().position(|word| *word == "via").map(|at| words[at + 1]).unwrap_or_default();
        seen[route as usize] = (0..3).find(|n| neighbour(*n).to_string() == way);
    }
    (0..count).zip(seen).all(|(route, seen)| seen == hop(route, phase))
}

/// CPU time of the router's thread.
fn worked(control: &Control<'_>) -> Duration {
    control.ask(|_| Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap()))
}

/// Waits until the fast path forwards, if changes came faster than they were read.
fn wait_for_routed(control: &Control<'_>) {
    wait("the fast path forwards", || control.ask(Router::mode) == RouteMode::Routed);
}

#[test]
fn no_frame_goes_where_neither_the_old_nor_the_new_route_led() {
    let Some(around) = around("rtdmn") else { return };
    let count: u32 = std::env::var(ROUTES_VARIABLE).map_or(ROUTE_COUNT, |text| text.parse().expect(ROUTES_VARIABLE));
    assert!(count <= ROUTES_MAX, "{ROUTES_VARIABLE}: {ROUTES_MAX} at the most");
    let file = around.bed.path("routes");
    write(&file, count, 0);
    let router = around.bed.space("r");
    beside(&router, around.settings(), None, RouteMode::Routed, |control| {
        let peer = Bird::start(&around.bed, "p", &announces(PEER, ROUTER, &file));
        let own = Bird::start(&around.bed, "r", &learns(ROUTER, PEER));
        own.wait("the session stands", Bird::is_established);
        own.wait("the routes are there", |_| has(&around, count, 0));
        let untraced = control.ask(|router| router.untraced().to_vec());
        println!("{count} routes; not followed by their functions: {untraced:?}");

        let traffic = Traffic::new(count, FLAP_COUNT + 1);
        let (s, [n0, n1, n2]) = (around.bed.space("s"), &around.neighbours);
        let mut forwarded = Vec::new();
        traffic.run(&s, [n0, n1, n2], || {
            for phase in 0..=FLAP_COUNT {
                if phase > 0 {
                    let (before, worked_before) = (control.ask(totals).forwarded, worked(control));
                    traffic.begin(2 * phase - 1);
                    let begun = Instant::now();
                    write(&file, count, phase);
                    peer.configure();
                    own.wait("the routes are others", |_| has(&around, count, phase));
                    let (took, cpu) = (begun.elapsed(), worked(control) - worked_before);
                    println!("flap {phase}: {} ms; the router worked {} ms in it", took.as_millis(), cpu.as_millis());
                    forwarded.push(control.ask(totals).forwarded - before);
                    // Where the kernel's functions cannot be followed, it has heard of all once its loop has turned: between two answers it has.
                    wait_for_routed(control);
                    control.ask(|_| ());
                }
                let before = control.ask(totals).forwarded;
                traffic.begin(2 * phase);
                thread::sleep(STEADY_TIME);
                traffic.begin(2 * phase + 1);
                wait("all that had a route has come by it", || {
                    let [_, due, due_came, ..] = traffic.epoch(2 * phase).figures();
                    due == due_came
                });
                forwarded.push(control.ask(totals).forwarded - before);
            }
        });
        println!(
            "epoch: sent, with a way all the time, come of those, at the old neighbour, at the new one; fast path"
        );
        for (epoch, forwarded) in (0..).zip(&forwarded) {
            let figures = traffic.epoch(epoch).figures();
            println!("{epoch}: {figures:?}; {forwarded}");
            let [sent, due, _, at_old, at_new] = figures;
            if epoch % 2 == 0 {
                assert!(due > 0 && due < sent && at_old == 0 && at_new == due, "epoch {epoch}: {figures:?}");
                assert!(*forwarded > due / 2, "epoch {epoch}: {forwarded} by the fast path of {due}");
            } else {
                assert!(at_old > 0 && at_new > 0 && *forwarded > 0, "epoch {epoch}: {figures:?}, {forwarded}");
            }
        }
        println!("{:?}", control.events());
        println!(
            "{}",
            fs::read_to_string("/proc/self/status").unwrap().lines().find(|l| l.starts_with("VmHWM")).unwrap()
        );
        let (numbers, wrong) = traffic.came();
        assert!(wrong.is_empty(), "{} frames, such as {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
        assert!(numbers.windows(2).all(|two| two[0] != two[1]), "a frame came twice");
        assert!(s.counter("IcmpInDestUnreachs") > 0, "the kernel answers for routes that were withdrawn");
        assert!(own.is_established() && own.sessions() == 1, "{} sessions", own.sessions());
    });
}

#[test]
fn a_change_that_comes_while_earlier_ones_are_read_is_not_missed() {
    let Some(around) = around("rtdms") else { return };
    let (s, router, [n0, n1, n2]) = (around.bed.space("s"), around.bed.space("r"), &around.neighbours);
    let batch = |name: &str, what: &str| {
        // Fewer than are read at once.
        let lines = (0..4000u16).map(|n| format!("route {what} unreachable 172.16.{}.{}/32\n", n >> 8, n & 255));
        around.bed.file(name, lines.collect::<String>())
    };
    let others = [batch("add", "add"), batch("del", "del")];
    let to = |phase: u32| match hop(0, phase) {
        Some(n) => format!("ip route replace {}/{PREFIX_LEN} via {}", network(0), neighbour(n)),
        None => format!("ip route del {}/{PREFIX_LEN}", network(0)),
    };
    beside(&router, around.settings(), None, RouteMode::Routed, |control| {
        let traffic = Traffic::new(1, 17);
        router.output(&to(0));
        traffic.run(&s, [n0, n1, n2], || {
            for phase in 1..=16 {
                traffic.begin(2 * phase - 1);
                let stands_still = control.hold();
                router.output(&format!("ip -batch {}", others[(phase as usize + 1) % 2]));
                drop(stands_still);
                router.output(&to(phase));
                wait_for_routed(control);
                control.ask(|_| ());
                traffic.begin(2 * phase);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let (numbers, wrong) = traffic.came();
        assert!(numbers.len() > 1000 && wrong.is_empty(), "{} frames, such as {:?}", wrong.len(), wrong.first());
    });
}
