//! Other CPUs than the receiving one forward: each flow on one of them and in order, whatever the mode is and however the CPUs change.

mod settings;
mod totals;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use bpf::{XdpDrop, XdpMode, XdpPass};
use model::{
    CpuSet,
    route::{RouteCpu, RouteLost, RouteMode},
};
use route::{RouteError, RouteSettings, Router};
use settings::settings;
use testbed::{Ends, HostsBed, Space, wait, wait_for};
use totals::totals;

const A: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
const B: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 2);
/// Flows of a host to the other one.
const FLOW_COUNT: u16 = 48;
/// Frames that are under way at a time: fewer than any queue holds.
const WINDOW_FRAMES: u64 = 96;

fn list(text: &str) -> CpuSet {
    CpuSet::parse_list(text).unwrap()
}

fn on(cpus: &str, world: &HostsBed) -> RouteSettings {
    RouteSettings { cpus: list(cpus), ..settings(&world.ports()) }
}

fn sockets(space: &Space, address: Ipv4Addr, first: u16) -> Vec<UdpSocket> {
    space.run(|| {
        let bind = |port| {
            let socket = UdpSocket::bind(SocketAddrV4::new(address, port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        };
        (first..first + FLOW_COUNT).map(bind).collect()
    })
}

/// Both hosts' sockets: flow n goes from port 4000 + n to port 5000 + n, and back.
fn hosts(world: &HostsBed) -> [Vec<UdpSocket>; 2] {
    [sockets(world.a.space(), A, 4000), sockets(world.b.space(), B, 5000)]
}

/// Sends numbered datagrams of all flows until `stop`, never more than a window ahead of what was received; how many came, or what came instead
/// of the next one of its flow. With `moves`, they may be overtaken; with or without, none is lost.
fn numbered(
    from: &[UdpSocket],
    to: &[UdpSocket],
    end: (Ipv4Addr, u16),
    moves: bool,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let (sent, received, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = BTreeMap::<u16, Vec<u64>>::new();
            let mut round = 0u64;
            loop {
                // The sender ends with a whole round: what is done was sent before.
                let done = done.load(Ordering::Acquire);
                if sent.load(Ordering::Acquire) <= round * u64::from(FLOW_COUNT) {
                    if done {
                        break;
                    }
                    thread::yield_now();
                    continue;
                }
                for (flow, socket) in (0..).zip(to) {
                    let mut number = [0; 8];
                    socket.recv(&mut number).map_err(|e| format!("flow {flow}, round {round}: {e}"))?;
                    let number = u64::from_be_bytes(number);
                    if moves {
                        seen.entry(flow).or_default().push(number);
                    } else if number != round {
                        return Err(format!("flow {flow}: {number} came instead of {round}"));
                    }
                    received.fetch_add(1, Ordering::Release);
                }
                round += 1;
            }
            for (flow, mut numbers) in seen {
                numbers.sort_unstable();
                if numbers.iter().zip(0..).any(|(number, expected)| *number != expected) {
                    return Err(format!("flow {flow}: a datagram came twice or never"));
                }
            }
            Ok(round * u64::from(FLOW_COUNT))
        });
        let mut round = 0u64;
        'all: while !stop.load(Ordering::Relaxed) {
            for (flow, socket) in (0..).zip(from) {
                while sent.load(Ordering::Relaxed) >= received.load(Ordering::Acquire) + WINDOW_FRAMES {
                    if reader.is_finished() {
                        break 'all;
                    }
                    thread::yield_now();
                }
                socket.send_to(&round.to_be_bytes(), (end.0, end.1 + flow)).unwrap();
                sent.fetch_add(1, Ordering::Release);
            }
            round += 1;
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap()
    })
}

/// Traffic both ways while `then` runs; how many datagrams came.
fn under_traffic(hosts: &[Vec<UdpSocket>; 2], moves: bool, then: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    let [a, b] = hosts;
    thread::scope(|scope| {
        let there = scope.spawn(|| numbered(a, b, (B, 5000), moves, &stop));
        let back = scope.spawn(|| numbered(b, a, (A, 4000), moves, &stop));
        let ends = Ends(&stop);
        then();
        drop(ends);
        there.join().unwrap().unwrap() + back.join().unwrap().unwrap()
    })
}

fn lost(router: &Router) -> RouteLost {
    router.status().unwrap().ports.iter().fold(RouteLost::default(), |sum, port| {
        let lost = port.lost.expect("this kernel tells");
        RouteLost {
            queue_full: sum.queue_full + lost.queue_full,
            no_memory: sum.no_memory + lost.no_memory,
            not_sent: sum.not_sent + lost.not_sent,
        }
    })
}

/// Frames that each CPU took, of all ports.
fn taken(router: &Router) -> BTreeMap<u32, u64> {
    let mut by_cpu = BTreeMap::new();
    for RouteCpu { cpu, dequeued, .. } in router.status().unwrap().ports.iter().flat_map(|port| port.cpus.clone()) {
        *by_cpu.entry(cpu).or_default() += dequeued;
    }
    by_cpu
}

/// The CPU that took what `send` sent, of which it took `frames`.
fn taker(router: &Router, frames: u64, mut send: impl FnMut()) -> u32 {
    let before = taken(router);
    (0..frames).for_each(|_| send());
    let more = |(cpu, now): (u32, u64)| (cpu, now - before.get(&cpu).copied().unwrap_or(0));
    let now = || taken(router).into_iter().map(more).filter(|(_, frames)| *frames > 0).collect::<Vec<_>>();
    wait("the frames are taken", || now().iter().map(|(_, frames)| *frames).sum::<u64>() >= frames);
    let now = now();
    assert_eq!(now.len(), 1, "a flow met several CPUs: {now:?}");
    assert_eq!(now[0].1, frames);
    now[0].0
}

#[test]
fn a_flow_is_on_one_cpu_in_both_directions_and_in_order_in_every_mode() {
    let Some(world) = HostsBed::with_ipv6("rcord") else { return };
    let hosts = hosts(&world);
    world.ra.run(|| {
        let mut router = Router::start(on("0-1", &world)).unwrap();
        for mode in [RouteMode::Standard, RouteMode::Routed, RouteMode::Shadow] {
            router.set_mode(mode).unwrap();
            let before = totals(&router);
            let came = under_traffic(&hosts, false, || thread::sleep(Duration::from_millis(400)));
            let now = totals(&router);
            assert!(
                came > 0 && now.enqueued - before.enqueued >= came && now.enqueued == now.dequeued,
                "{mode:?}: {now:?}"
            );
            match mode {
                RouteMode::Routed => assert!(now.forwarded - before.forwarded > came / 2, "{now:?}"),
                _ => assert_eq!(now.forwarded, before.forwarded, "{mode:?}: {now:?}"),
            }
        }
        thread::sleep(Duration::from_millis(400));
        let result = router.compare().unwrap();
        assert!(result.wrong() == 0 && result.same > 100, "{result:?}");
        router.set_mode(RouteMode::Routed).unwrap();
        let [a, b] = &hosts;
        let cpus = (0..FLOW_COUNT).map(|flow| {
            let of = usize::from(flow);
            let there = taker(&router, 5, || {
                a[of].send_to(&[1], (B, 5000 + flow)).unwrap();
            });
            let back = taker(&router, 5, || {
                b[of].send_to(&[1], (A, 4000 + flow)).unwrap();
            });
            assert_eq!(there, back, "both directions of flow {flow}");
            there
        });
        let cpus: Vec<u32> = cpus.collect();
        assert!([0, 1].iter().all(|cpu| cpus.contains(cpu)), "48 flows, and all on one CPU: {cpus:?}");
        assert_eq!(lost(&router), RouteLost::default());
    });
}

#[test]
fn no_frame_is_lost_while_cpus_and_modes_change() {
    let Some(world) = HostsBed::with_ipv6("rcchg") else { return };
    let hosts = hosts(&world);
    world.ra.run(|| {
        let mut router = Router::start(on("", &world)).unwrap();
        router.set_mode(RouteMode::Routed).unwrap();
        let modes = [RouteMode::Routed, RouteMode::Standard, RouteMode::Shadow];
        let came = under_traffic(&hosts, true, || {
            for (round, mode) in (0..24).zip(modes.iter().cycle()) {
                let cpus = ["0", "0-1", "1", ""][round % 4];
                router.set_cpus(&list(cpus)).unwrap();
                router.set_mode(*mode).unwrap();
                assert_eq!(router.cpus().to_string(), cpus);
                router.poll_within(Duration::from_millis(30)).unwrap();
            }
        });
        let totals = totals(&router);
        assert!(came > 1000 && totals.enqueued > 1000 && totals.enqueued == totals.dequeued, "{came} {totals:?}");
        assert_eq!(lost(&router), RouteLost::default());
        assert_eq!(router.status().unwrap().cpus, None);
    });
}

#[test]
fn what_a_full_queue_loses_is_counted() {
    let Some(world) = HostsBed::with_ipv6("rcful") else { return };
    let hosts = hosts(&world);
    world.ra.run(|| {
        let small = RouteSettings { queue: 8, ..on("0", &world) };
        let mut router = Router::start(small).unwrap();
        router.set_mode(RouteMode::Routed).unwrap();
        let [a, _] = &hosts;
        wait("a frame is lost", || {
            for _ in 0..2000 {
                // What the sender has no room for is not under way.
                let _ = a[0].send_to(&[0; 64], (B, 5000));
            }
            lost(&router).queue_full > 0
        });
        let balance = wait_for("all that was handed on is taken or lost", || {
            let (totals, lost) = (totals(&router), lost(&router));
            (totals.enqueued == totals.dequeued + lost.queue_full).then_some((totals, lost))
        });
        assert!(balance.0.dequeued > 0 && balance.1.no_memory == 0, "{balance:?}");
        let ports = router.status().unwrap().ports;
        assert!(ports[0].lost.unwrap().queue_full > 0, "it is counted at the port that received them");
        assert_eq!(ports[1].lost, Some(RouteLost::default()));
    });
}

#[test]
fn a_cpu_that_is_not_there_is_refused_and_nothing_is_left() {
    let Some(world) = HostsBed::with_ipv6("rcnot") else { return };
    world.ra.run(|| {
        let refused = Router::start(on("0,4000", &world));
        assert!(matches!(refused, Err(RouteError::NoSuchCpu { cpu: 4000, .. })), "{refused:?}");
        // Nobody sits on the port: another program may come.
        drop(XdpPass::attach(world.ra.interface(), XdpMode::Native).unwrap());
        let mut router = Router::start(on("1", &world)).unwrap();
        let refused = router.set_cpus(&list("0,4000"));
        assert!(matches!(refused, Err(RouteError::NoSuchCpu { cpu: 4000, .. })), "{refused:?}");
        assert_eq!(router.cpus(), &list("1"));
    });
}

#[test]
fn who_sits_behind_sees_what_stays_and_not_what_was_handed_on() {
    let Some(world) = HostsBed::with_ipv6("rcbeh") else { return };
    let hosts = hosts(&world);
    world.ra.run(|| {
        let router = Router::start(on("1", &world)).unwrap();
        let [a, b] = &hosts;
        let crosses = || {
            a[0].send_to(&[7], (B, 5000)).unwrap();
            b[0].recv(&mut [0; 8]).unwrap()
        };
        crosses();
        let behind = XdpDrop::attach(world.ra.interface(), XdpMode::Native).unwrap();
        let before = totals(&router).dequeued;
        crosses();
        wait("it was handed on", || totals(&router).dequeued > before);
        assert_eq!(behind.counts().unwrap().frames, 0, "what crosses is the kernel's, on another CPU");
        a[0].send_to(&[7], (Ipv4Addr::new(198, 18, 1, 1), 9)).unwrap();
        wait("what is for this machine meets it", || behind.counts().unwrap().frames > 0);
    });
}
