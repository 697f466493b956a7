//! Several programs on one interface, each in its place: filled, emptied and left while frames come.

mod shield_bed;

use std::{
    any::Any,
    env,
    io::{BufRead, BufReader},
    net::UdpSocket,
    process::{Child, Command, Stdio},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bpf::{
    Tap, TapPlace, TapReader, TapSettings, TapStamp, XdpDrop, XdpError, XdpMode, XdpPass,
    chain::{self, Place},
    filter::{Between, Shield, ShieldConfig, ShieldLink, ShieldShared},
    link::attached,
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle,
    query::{ProgInfoIter, ProgInfoQueryOptions},
};
use model::verdict::{Verdict, Why, XdpAction};
use rules::tables::{Field, RuleAction};
use shield_bed::Tables;
use testbed::{run, wait};

/// Datagrams to the first port are dropped, to the second one passed by a rule, to all others by default.
const DROPPED: u16 = 7777;
const PASSED: u16 = 7778;
const OTHER: u16 = 7779;
/// The other process's part in a test.
const PART: &str = "EK_CHAIN_TEST_PART";

/// Runs in a network namespace that has the pair ekA (198.18.0.1) and ekB, behind which is a neighbour that nobody answers for, and no IPv6.
fn in_namespace(test: fn()) {
    testbed::in_namespace(move || {
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        run("ip link add ekA type veth peer name ekB");
        run("ip addr add 198.18.0.1/24 dev ekA");
        run("ip link set ekA up");
        run("ip link set ekB up");
        run("ip neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev ekA");
        test();
    });
}

/// How often places are filled and emptied; EK_CHAIN_TURNS says otherwise.
fn turns(usual: u64) -> u64 {
    env::var("EK_CHAIN_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(usual)
}

/// A shield in its place on ekB.
struct Filter {
    link: ShieldLink,
    shared: ShieldShared,
}

impl Filter {
    fn new() -> Self {
        let (mut link, shared) = (ShieldLink::take("ekB", XdpMode::Native).unwrap(), ShieldShared::create().unwrap());
        link.put(&program(&link, &shared)).unwrap();
        let names = link.rule_names().unwrap();
        names.set(0, "nothing-here");
        names.set(1, "welcome");
        Self { link, shared }
    }

    /// Packets that were dropped and passed by rule, and passed by default.
    fn counted(&self) -> [u64; 3] {
        let counts = self.shared.counts();
        [counts.rules[0].packets, counts.rules[1].packets, counts.totals.by_default]
    }
}

fn program(link: &ShieldLink, shared: &ShieldShared) -> Shield {
    let mut tables = Tables::new(2);
    tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[DROPPED.into()]).set(|r| r.counter = 0);
    tables.rule(1, RuleAction::Pass).when(Field::DestinationPort, &[PASSED.into()]).set(|r| r.counter = 1);
    let config = ShieldConfig { seats: vec![link.maps()], ..ShieldConfig::default() };
    Shield::load(&tables.build(), &config, shared).unwrap()
}

fn tap(place: TapPlace) -> Result<(Tap, Vec<TapReader>), XdpError> {
    let settings = TapSettings {
        place,
        snaplen: 128,
        // A turn may take long beside other tests.
        ring_bytes: 16 << 20,
        consume: false,
        stamp: TapStamp::PerFrame,
        numa_node: None,
    };
    let mut tap = Tap::load("ekB", XdpMode::Native, settings, None)?;
    tap.attach()?;
    let readers = tap.take_readers();
    Ok((tap, readers))
}

/// The sender's number in each frame that the tap has seen, with its verdict.
fn read(readers: &mut [TapReader]) -> Vec<(u64, Option<Verdict>)> {
    let mut seen = Vec::new();
    for reader in readers {
        loop {
            let found = reader.read(usize::MAX, |frame| {
                assert_eq!(frame.lost_before, 0);
                let number = frame.data[42..50].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                seen.push((number, frame.verdict));
            });
            if found == 0 {
                break;
            }
        }
    }
    seen
}

fn send(port: u16, numbers: std::ops::Range<u64>) {
    let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
    for number in numbers {
        let mut payload = [0; 18];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&payload, ("198.18.0.2", port)).unwrap();
    }
}

/// Sends numbered datagrams to that port, in one go after the other, while `work` is done; gives how many.
fn beside_traffic(port: u16, work: impl FnOnce()) -> u64 {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let mut cpu = nix::sched::CpuSet::new();
            cpu.set(0).unwrap();
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpu).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let from = sent.load(Ordering::Relaxed);
                send(port, from..from + 50);
                sent.store(from + 50, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        /// The sender ends also when the work fails.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        work();
    });
    sent.into_inner()
}

#[test]
fn captures_before_and_behind_say_what_became_of_each_frame() {
    in_namespace(|| {
        let filter = Filter::new();
        let (_before, mut before) = tap(TapPlace::Before).unwrap();
        let (behind_tap, mut behind) = tap(TapPlace::Behind).unwrap();
        for turn in 0..20 {
            send(DROPPED, 3 * turn..3 * turn + 1);
            send(PASSED, 3 * turn + 1..3 * turn + 2);
            send(OTHER, 3 * turn + 2..3 * turn + 3);
        }
        wait("all are counted", || filter.counted() == [20, 20, 20]);
        let by_number = |mut seen: Vec<(u64, Option<Verdict>)>| {
            seen.sort_by_key(|(number, _)| *number);
            seen
        };
        // The verdict on the last frame of a CPU is known at the second look.
        let mut seen = Vec::new();
        wait("all are read", || {
            seen.extend(read(&mut before));
            seen.len() == 60
        });
        let names = filter.link.rule_names().unwrap();
        let told = |verdict: Option<Verdict>| {
            let verdict = verdict.expect("a verdict");
            (verdict.action(), verdict.why(), verdict.counter().and_then(|counter| names.get(counter)))
        };
        for (number, verdict) in by_number(seen) {
            let expected = match number % 3 {
                0 => (XdpAction::Drop, Why::Rule, Some("nothing-here".to_owned())),
                1 => (XdpAction::Pass, Why::Rule, Some("welcome".to_owned())),
                _ => (XdpAction::Pass, Why::Default, None),
            };
            assert_eq!(told(verdict), expected, "frame {number}");
        }
        let passed = by_number(read(&mut behind));
        let numbers: Vec<u64> = passed.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..60).filter(|number| number % 3 != 0).collect::<Vec<_>>());
        assert!(passed.iter().all(|(_, verdict)| told(*verdict).0 == XdpAction::Pass));
        let users = chain::users(attached("ekB").unwrap().unwrap().id);
        let places: Vec<Place> = users.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [Place::Before, Place::Filter, Place::Behind, Place::Crossing]);
        assert_eq!(chain::judge_name(attached("ekB").unwrap().unwrap().id), "ek_shield");
        // Two in one place: refused by name.
        match tap(TapPlace::Behind) {
            Err(XdpError::Taken { place, .. }) => assert!(place.contains("capture"), "{place}"),
            other => panic!("{other:?}"),
        }
        drop(behind_tap);
        tap(TapPlace::Behind).expect("it is free again");
    });
}

/// Begins in threads of this namespace, all at the same moment.
fn at_once<T: Send>(starts: &[&(dyn Fn() -> T + Sync)]) -> Vec<T> {
    let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let (namespace, together) = (&namespace, &Barrier::new(starts.len()));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for &start in starts {
            threads.push(scope.spawn(move || {
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                together.wait();
                start()
            }));
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn those_who_come_at_the_same_moment_share_the_interface() {
    in_namespace(|| {
        let joins = |place| {
            move || chain::together(XdpError::is_raced, || tap(place)).map(|tap| Box::new(tap) as Box<dyn Any + Send>)
        };
        let filter = || {
            let start = || {
                let (mut link, shared) = (ShieldLink::take("ekB", XdpMode::Native)?, ShieldShared::create().unwrap());
                link.put(&program(&link, &shared))?;
                Ok::<_, XdpError>(Box::new((link, shared)) as Box<dyn Any + Send>)
            };
            chain::together(XdpError::is_raced, start)
        };
        let (before, behind) = (joins(TapPlace::Before), joins(TapPlace::Behind));
        for round in 0..turns(10) {
            let held = at_once(&[&filter, &before, &behind]);
            for it in &held {
                assert!(it.is_ok(), "round {round}: {:?}", it.as_ref().err());
            }
            let users = chain::users(attached("ekB").unwrap().unwrap().id);
            let places: Vec<Place> = users.iter().map(|(place, _)| *place).collect();
            assert_eq!(places, [Place::Before, Place::Filter, Place::Behind, Place::Crossing], "round {round}");
            drop(held);
            wait("the chain is gone", || attached("ekB").unwrap().is_none());
        }
    });
}

#[test]
fn of_two_who_want_the_same_place_one_gets_it_and_the_other_is_told() {
    in_namespace(|| {
        let start = || chain::together(XdpError::is_raced, || tap(TapPlace::Before));
        for round in 0..turns(10) {
            // Beside a chain that runs already, and without one.
            let filter = (round % 2 == 0).then(Filter::new);
            let (mut held, refused): (Vec<_>, Vec<_>) = at_once(&[&start, &start]).into_iter().partition(Result::is_ok);
            assert_eq!((held.len(), refused.len()), (1, 1), "round {round}");
            match refused.into_iter().next().unwrap() {
                Err(XdpError::Taken { place, .. }) => assert!(place.contains("capture"), "{place}"),
                other => panic!("round {round}: {:?}", other.err()),
            }
            let (tap, mut readers) = held.remove(0).unwrap();
            send(PASSED, 0..5);
            let mut seen = Vec::new();
            wait("the one that has it sees the frames", || {
                seen.extend(read(&mut readers));
                seen.len() == 5
            });
            if filter.is_some() {
                assert!(seen.iter().all(|(_, verdict)| verdict.is_some_and(|verdict| verdict.counter() == Some(1))));
            }
            drop((tap, filter));
            wait("the chain is gone", || attached("ekB").unwrap().is_none());
        }
    });
}

#[test]
fn places_are_filled_and_emptied_and_no_frame_is_lost_or_seen_twice() {
    in_namespace(|| {
        let mut filter = Filter::new();
        let end = XdpDrop::attach("ekB", XdpMode::Native).unwrap();
        let mut seen = 0;
        let sent = beside_traffic(PASSED, || {
            for turn in 0..turns(50) {
                let place = if turn % 2 == 0 { TapPlace::Before } else { TapPlace::Behind };
                let (tap, mut readers) = tap(place).unwrap();
                thread::sleep(Duration::from_millis(2));
                drop(tap);
                let mut numbers: Vec<u64> = read(&mut readers).into_iter().map(|(number, _)| number).collect();
                numbers.sort_unstable();
                assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "turn {turn}: {numbers:?}");
                seen += numbers.len();
                filter.link.put(&program(&filter.link, &filter.shared)).unwrap();
            }
        });
        wait("the last frames have come", || filter.counted()[1] >= sent);
        assert_eq!(filter.counted(), [0, sent, 0]);
        assert_eq!(end.counts().unwrap().frames, sent);
        assert!(seen > 200, "the captures have seen {seen}");
    });
}

#[test]
fn frames_go_on_from_a_place_only_while_somebody_is_behind_it() {
    in_namespace(|| {
        // The number of maps' entries that are filled with what goes on, those that are kept left out.
        let going_on = || {
            let entry = attached("ekB").unwrap().unwrap().id;
            let json = |args: &[&str]| {
                let said = Command::new("bpftool").arg("-j").args(args).output().unwrap();
                serde_json::from_slice::<serde_json::Value>(&said.stdout).unwrap()
            };
            let program = json(&["prog", "show", "id", &entry.to_string()]);
            let maps = program["map_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
            let rests =
                maps.map(|id| MapHandle::from_map_id(id).unwrap()).find(|map| map.name() == "ek_rests").unwrap();
            let filled = |place: &Place| {
                rests.lookup(&(*place as u32).to_ne_bytes(), MapFlags::ANY).unwrap_or_default().is_some()
            };
            Place::ALL.into_iter().filter(filled).collect::<Vec<_>>()
        };
        let (before, _readers) = tap(TapPlace::Before).unwrap();
        assert_eq!(going_on(), []);
        let filter = Filter::new();
        assert_eq!(going_on(), [Place::Before]);
        let (behind, _readers) = tap(TapPlace::Behind).unwrap();
        assert_eq!(going_on(), [Place::Before, Place::Filter, Place::Crossing]);
        drop(filter);
        assert_eq!(going_on(), [Place::Before, Place::Filter, Place::Crossing]);
        drop(behind);
        assert_eq!(going_on(), []);
        let end = XdpDrop::attach("ekB", XdpMode::Native).unwrap();
        assert_eq!(going_on(), [Place::Before, Place::Filter, Place::Behind, Place::Route, Place::Link]);
        drop(before);
        drop(end);
    });
}

#[test]
fn a_filter_comes_and_goes_between_two_captures() {
    in_namespace(|| {
        let (_before, mut before) = tap(TapPlace::Before).unwrap();
        let (_behind, mut behind) = tap(TapPlace::Behind).unwrap();
        let end = XdpDrop::attach("ekB", XdpMode::Native).unwrap();
        let (mut came, mut went) = (Vec::new(), Vec::new());
        let sent = beside_traffic(PASSED, || {
            for _ in 0..turns(10) {
                let filter = Filter::new();
                thread::sleep(Duration::from_millis(1));
                drop(filter);
                came.extend(read(&mut before));
                went.extend(read(&mut behind));
            }
        });
        wait("the last frames have come", || {
            came.extend(read(&mut before));
            went.extend(read(&mut behind));
            came.len() as u64 >= sent && went.len() as u64 >= sent
        });
        for seen in [&came, &went] {
            let mut numbers: Vec<u64> = seen.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
            let judged = seen.iter().filter_map(|(_, verdict)| *verdict);
            assert!(judged.clone().count() > 100 && judged.clone().count() < seen.len());
            assert!(
                judged.map(|verdict| (verdict.action(), verdict.counter())).all(|it| it == (XdpAction::Pass, Some(1)))
            );
        }
        assert_eq!(end.counts().unwrap().frames, sent);
    });
}

#[test]
fn a_capture_behind_sees_what_crosses_between_two_interfaces() {
    in_namespace(|| {
        run("ip link add ekC type veth peer name ekD");
        run("ip link set ekC up");
        run("ip link set ekD up");
        let mut links = ["ekB", "ekD"].map(|name| ShieldLink::take(name, XdpMode::Native).unwrap());
        let shared = ShieldShared::create().unwrap();
        let index = |name| bpf::link::interface_index(name).unwrap();
        let mut tables = Tables::new(1);
        tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[DROPPED.into()]).set(|r| r.counter = 0);
        let config = ShieldConfig {
            seats: links.iter().map(ShieldLink::maps).collect(),
            between: Some(Between { first: index("ekB"), second: index("ekD") }),
            ..ShieldConfig::default()
        };
        let shield = Shield::load(&tables.build(), &config, &shared).unwrap();
        let [first, second] = &mut links;
        ShieldLink::put_both(first, second, &shield).unwrap();
        // What crosses arrives at the other end of the second interface, which takes it while it runs a program.
        let arrived = XdpDrop::attach("ekC", XdpMode::Native).unwrap();
        send(OTHER, 0..5);
        let (behind_tap, mut behind) = tap(TapPlace::Behind).unwrap();
        send(DROPPED, 5..10);
        send(OTHER, 10..15);
        wait("they have crossed", || arrived.counts().unwrap().frames == 10);
        drop(behind_tap);
        send(OTHER, 15..20);
        wait("they have crossed", || arrived.counts().unwrap().frames == 15);
        let seen = read(&mut behind);
        assert_eq!(seen.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (10..15).collect::<Vec<_>>());
        let told = |verdict: Verdict| (verdict.action(), verdict.why());
        assert!(seen.iter().all(|(_, verdict)| verdict.map(told) == Some((XdpAction::Redirect, Why::Default))));
    });
}

/// Does `look`, and keeps its CPU busy afterwards, so that what the kernel does later on that CPU waits, until `begin` is done on another CPU.
fn on_a_busy_core<T>(look: impl Fn() + Send, begin: impl FnOnce() -> T) -> T {
    let pin = |core: usize| {
        let mut cpu = nix::sched::CpuSet::new();
        cpu.set(core).unwrap();
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpu).unwrap();
    };
    let (looked, done) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let namespace = &std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let result = thread::scope(|scope| {
        scope.spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            pin(1);
            run(&format!("chrt --fifo --pid 10 {}", nix::unistd::gettid()));
            look();
            looked.store(true, Ordering::Relaxed);
            let began = Instant::now();
            // The kernel takes 50 ms of each second from it.
            while began.elapsed() < Duration::from_millis(800) && !done.load(Ordering::Relaxed) {}
        });
        pin(0);
        while !looked.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        let result = begin();
        done.store(true, Ordering::Relaxed);
        result
    });
    // What waited on that CPU is done by the time that something else was done behind it.
    thread::sleep(Duration::from_millis(300));
    result
}

/// All maps of the resident program are opened and closed again, as `bpftool map show` does.
fn open_all_maps(entry: u32) {
    let query = ProgInfoQueryOptions::default().include_map_ids(true);
    let program = ProgInfoIter::with_query_opts(query).find(|program| program.id == entry).unwrap();
    program.map_ids.into_iter().for_each(|id| drop(MapHandle::from_map_id(id)));
}

/// The map of that place, held.
fn place_map(name: &str) -> MapHandle {
    let entry = attached("ekB").unwrap().unwrap().id;
    let query = ProgInfoQueryOptions::default().include_map_ids(true);
    let program = ProgInfoIter::with_query_opts(query).find(|program| program.id == entry).unwrap();
    let maps = program.map_ids.into_iter().map(|id| MapHandle::from_map_id(id).unwrap());
    maps.into_iter().find(|map| map.name() == name).unwrap()
}

#[test]
fn who_looks_who_sits_there_takes_nobody_out_of_a_place() {
    in_namespace(|| {
        let (_before, _readers) = tap(TapPlace::Before).unwrap();
        let entry = attached("ekB").unwrap().unwrap().id;
        for turn in 0..turns(5) {
            thread::sleep(Duration::from_millis(300));
            let end = on_a_busy_core(|| drop(chain::users(entry)), || XdpDrop::attach("ekB", XdpMode::Native).unwrap());
            send(OTHER, 0..10);
            wait("the receiver gets them", || end.counts().unwrap().frames == 10);
            assert_eq!(end.link().put_back(), None, "turn {turn}");
            drop(end);
            thread::sleep(Duration::from_millis(300));
            let filter = on_a_busy_core(|| drop(chain::users(entry)), Filter::new);
            send(DROPPED, 0..10);
            wait("the shield drops them", || filter.counted()[0] == 10);
            assert_eq!(filter.link.put_back(), None, "turn {turn}");
        }
    });
}

#[test]
fn what_others_emptied_is_put_back_counted_and_told() {
    in_namespace(|| {
        let filter = Filter::new();
        let (tap, _readers) = tap(TapPlace::Behind).unwrap();
        let end = XdpDrop::attach("ekB", XdpMode::Native).unwrap();
        let entry = attached("ekB").unwrap().unwrap().id;
        let is_shown = |place| chain::users(entry).iter().any(|(shown, _)| *shown == place);
        let put_back = [
            ("ek_filter", Place::Filter, &(|| filter.link.put_back()) as &dyn Fn() -> Option<String>),
            ("ek_behind", Place::Behind, &|| tap.seat().unwrap().put_back()),
            ("ek_crossing", Place::Crossing, &|| tap.seat().unwrap().put_back()),
            ("ek_end", Place::End, &|| end.link().put_back()),
        ];
        for (name, place, put_back) in put_back {
            assert_eq!(put_back(), None, "{name}: it is there");
            place_map(name).delete(&0u32.to_ne_bytes()).unwrap();
            assert!(!is_shown(place), "{name}: a place whose program is gone is not shown as filled");
            let told = put_back().expect(name);
            assert!(told.contains("ekB") && told.contains("put back"), "{told}");
            assert!(is_shown(place), "{name}");
            assert_eq!(put_back(), None, "{name}: once");
        }
        assert_eq!((filter.link.times_put_back(), end.link().times_put_back()), (1, 1));
        assert_eq!(tap.seat().unwrap().times_put_back(), 2);
        send(DROPPED, 0..5);
        send(OTHER, 0..5);
        wait("they are judged and end", || filter.counted()[0] == 5 && end.counts().unwrap().frames == 5);
        // Nobody else gets a place that is empty against its owner's will.
        place_map("ek_end").delete(&0u32.to_ne_bytes()).unwrap();
        let second = thread::scope(|scope| {
            let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
            let second = scope.spawn(move || {
                nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                matches!(XdpDrop::attach("ekB", XdpMode::Native), Err(XdpError::Taken { .. }))
            });
            thread::sleep(Duration::from_millis(200));
            assert!(end.link().put_back().is_some());
            second.join().unwrap()
        });
        assert!(second, "it is refused");
        // Another program in the place is no reason to throw it out, but one to say so.
        let foreign = XdpPass::attach("ekA", XdpMode::Native).unwrap();
        let foreign = libbpf_rs::Program::fd_from_id(foreign.link().program_id()).unwrap();
        let foreign = std::os::fd::AsRawFd::as_raw_fd(&foreign).to_ne_bytes();
        place_map("ek_filter").update(&0u32.to_ne_bytes(), &foreign, MapFlags::ANY).unwrap();
        let why = filter.link.why_ended().expect("it does not judge any more");
        assert!(why.contains("xdp_pass") && !filter.link.is_alive(), "{why}");
    });
}

/// What others do while a program starts takes it out of its place, if they are unlucky: the owner puts it back.
#[test]
fn a_place_that_others_opened_and_closed_while_its_owner_came_is_filled_again() {
    in_namespace(|| {
        let (_before, _readers) = tap(TapPlace::Before).unwrap();
        let entry = attached("ekB").unwrap().unwrap().id;
        let mut emptied = 0;
        for _ in 0..turns(3) {
            thread::sleep(Duration::from_millis(300));
            let end = on_a_busy_core(|| open_all_maps(entry), || XdpDrop::attach("ekB", XdpMode::Native).unwrap());
            emptied += u64::from(end.link().put_back().is_some());
            send(OTHER, 0..10);
            wait("the receiver gets them", || end.counts().unwrap().frames == 10);
            assert_eq!(end.link().put_back(), None);
        }
        eprintln!("{emptied} receivers were emptied out and put back");
    });
}

#[test]
fn who_comes_while_the_owner_leaves_gets_the_place() {
    in_namespace(|| {
        let _filter = Filter::new();
        for turn in 0..turns(5) {
            let first = std::sync::Mutex::new(Some(tap(TapPlace::Before).unwrap()));
            let leave = || {
                thread::sleep(Duration::from_millis(100));
                first.lock().unwrap().take();
                None
            };
            let got = at_once::<Option<XdpError>>(&[&|| tap(TapPlace::Before).err(), &leave]);
            assert!(got[0].is_none(), "turn {turn}: {:?}", got[0]);
        }
    });
}

#[test]
fn a_lock_that_another_user_holds_keeps_nobody_from_the_chain() {
    in_namespace(|| {
        const NAMESPACE: &str = "/proc/thread-self/ns/net";
        let mut holder = Command::new("setpriv");
        holder.args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock", "--no-fork", "/proc/self/ns/net"]);
        let mut holder = holder.args(["sleep", "60"]).spawn().unwrap();
        let is_held = || {
            let file = std::fs::File::open(NAMESPACE).unwrap();
            nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).is_err()
        };
        wait("the lock is held", is_held);
        let filter = Filter::new();
        let (tap, _readers) = tap(TapPlace::Behind).unwrap();
        assert!(is_held(), "they came while it was held");
        drop((tap, filter));
        assert!(is_held(), "they left while it was held");
        holder.kill().unwrap();
        holder.wait().unwrap();
    });
}

/// This test binary again, as another process of this namespace.
fn other(part: &str) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--include-ignored", "--nocapture"])
        .env(PART, part)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("in its place")), "{part}");
    child
}

#[test]
fn a_place_whose_owner_was_killed_is_empty_and_the_others_go_on() {
    in_namespace(|| {
        for part in ["before", "behind", "end"] {
            // The one that is killed has made the chain.
            let mut child = other(part);
            let filter = Filter::new();
            let (_tap, mut readers) = tap(if part == "before" { TapPlace::Behind } else { TapPlace::Before }).unwrap();
            let sent = beside_traffic(PASSED, || {
                thread::sleep(Duration::from_millis(100));
                child.kill().unwrap();
                child.wait().unwrap();
                let place = match part {
                    "before" => Place::Before,
                    "behind" => Place::Behind,
                    _ => Place::End,
                };
                let entry = attached("ekB").unwrap().unwrap().id;
                wait("the place is empty", || chain::users(entry).iter().all(|(other, _)| *other != place));
                other(part).kill().expect("the place is free again");
            });
            wait("the last frames have come", || filter.counted()[1] >= sent);
            assert_eq!(filter.counted(), [0, sent, 0], "{part}");
            assert_eq!(read(&mut readers).len() as u64, sent, "{part}");
        }
        wait("the chain goes with its last user", || attached("ekB").unwrap().is_none());
    });
}

#[test]
#[ignore = "the second process of the test above"]
fn the_other_process() {
    let part = env::var(PART).unwrap_or_default();
    let _held: Box<dyn std::any::Any> = match part.as_str() {
        "before" => Box::new(tap(TapPlace::Before).unwrap()),
        "behind" => Box::new(tap(TapPlace::Behind).unwrap()),
        // A receiver joins a chain, and makes none.
        "end" => {
            let first = attached("ekB").unwrap().is_none().then(|| tap(TapPlace::Before).unwrap());
            let end = XdpDrop::attach("ekB", XdpMode::Native).unwrap();
            drop(first);
            Box::new(end)
        }
        _ => return,
    };
    println!("in its place");
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn who_is_in_the_way_is_named() {
    in_namespace(|| {
        let foreign = XdpPass::attach("ekB", XdpMode::Native).unwrap();
        match tap(TapPlace::Before) {
            Err(XdpError::Occupied { attached, .. }) => assert_eq!(attached.name, "xdp_pass"),
            other => panic!("{other:?}"),
        }
        assert_eq!(attached("ekB").unwrap().unwrap().id, foreign.link().program_id(), "it is left alone");
        drop(foreign);
        let filter = Filter::new();
        match ShieldLink::take("ekB", XdpMode::Generic) {
            Err(XdpError::OtherMode { runs, asked, users, .. }) => {
                assert_eq!((runs, asked), (XdpMode::Native, XdpMode::Generic));
                assert!(users.contains("a shield"), "{users}");
            }
            other => panic!("{other:?}"),
        }
        assert!(filter.link.why_ended().is_none());
        // Another tool takes the resident program off; the interface is still there.
        let entry = attached("ekB").unwrap().unwrap().id;
        let links = Command::new("bpftool").args(["-j", "link", "show"]).output().unwrap();
        let links: serde_json::Value = serde_json::from_slice(&links.stdout).unwrap();
        let link = links.as_array().unwrap().iter().find(|link| link["prog_id"] == entry).expect("the chain's link");
        run(&format!("bpftool link detach id {}", link["id"]));
        assert!(!filter.link.is_alive());
        let why = filter.link.why_ended().unwrap();
        assert!(why.contains("another tool") && !why.contains("it runs"), "{why}");
        let foreign = XdpPass::attach("ekB", XdpMode::Native).unwrap();
        let why = filter.link.why_ended().unwrap();
        assert!(why.contains("`xdp_pass`"), "{why}");
        drop(filter);
        assert!(attached("ekB").unwrap().is_some_and(|it| it.id == foreign.link().program_id()));
        run("ip link del ekA");
        let gone = ShieldLink::take("ekB", XdpMode::Native);
        assert!(matches!(gone, Err(XdpError::NoInterface { .. })), "{gone:?}");
    });
}
