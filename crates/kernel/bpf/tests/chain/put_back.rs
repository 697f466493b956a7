//! Places that others emptied.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpf::{
    TapPlace, XdpDrop, XdpError, XdpMode, XdpPass,
    chain::{self, Place},
    filter::ShieldLink,
    link::attached,
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle,
    query::{ProgInfoIter, ProgInfoQueryOptions},
};
use testbed::{filter::in_pair, run, wait};

use crate::{DROPPED, Filter, OTHER, send, tap, turns};

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
    in_pair(|| {
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
fn a_place_that_others_keep_from_being_emptied_is_waited_for_and_refused_by_that_reason() {
    in_pair(|| {
        let _filter = Filter::new();
        let (before, _readers) = tap(TapPlace::Before).unwrap();
        // The kernel empties the map only once this is closed.
        let held = place_map("ek_before");
        drop(before);
        match tap(TapPlace::Before) {
            Err(XdpError::Leaving { place, waited_s: 30, .. }) => assert!(place.contains("capture"), "{place}"),
            other => panic!("{:?}", other.err()),
        }
        drop(held);
        tap(TapPlace::Before).expect("it is free again");
    });
}

#[test]
fn what_others_emptied_is_put_back_counted_and_reported() {
    in_pair(|| {
        let filter = Filter::new();
        let (tap, _readers) = tap(TapPlace::Behind).unwrap();
        let end = XdpDrop::attach("ekB", XdpMode::Native).unwrap();
        let entry = attached("ekB").unwrap().unwrap().id;
        let is_shown = |place| chain::users(entry).iter().any(|(shown, _)| *shown == place);
        let put_back = [
            ("ek_filter", Place::Filter, &(|| filter.link.put_back()) as &dyn Fn() -> Option<String>),
            ("ek_behind", Place::Behind, &|| tap.slot().unwrap().put_back()),
            ("ek_crossing", Place::Crossing, &|| tap.slot().unwrap().put_back()),
            ("ek_end", Place::End, &|| end.link().put_back()),
        ];
        for (name, place, put_back) in put_back {
            assert_eq!(put_back(), None, "{name}: it is there");
            place_map(name).delete(&0u32.to_ne_bytes()).unwrap();
            assert!(!is_shown(place), "{name}: a place whose program is gone is not shown as filled");
            let message = put_back().expect(name);
            assert!(message.contains("ekB") && message.contains("put back"), "{message}");
            assert!(is_shown(place), "{name}");
            assert_eq!(put_back(), None, "{name}: once");
        }
        assert_eq!((filter.link.times_put_back(), end.link().times_put_back()), (1, 1));
        assert_eq!(tap.slot().unwrap().times_put_back(), 2);
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

#[test]
fn an_owner_that_lives_has_its_place_again_after_another_process_ended_it() {
    in_pair(|| {
        let mut filter = Filter::new();
        let entry = attached("ekB").unwrap().unwrap().id;
        let folder = std::path::PathBuf::from(format!("/sys/fs/bpf/ek-ended-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        filter.link.pin(&folder.join("link")).unwrap();
        ShieldLink::open(&folder.join("link")).unwrap().end();
        std::fs::remove_dir_all(&folder).unwrap();
        let is_shown = || chain::users(entry).iter().any(|(shown, _)| *shown == Place::Filter);
        assert!(!is_shown(), "it was ended");
        let message = filter.link.put_back();
        assert!(message.is_some(), "{:?}", filter.link.why_ended());
        assert!(is_shown(), "{message:?}");
        send(DROPPED, 0..5);
        wait("it drops them", || filter.counted()[0] == 5);
        assert!(matches!(ShieldLink::take("ekB", XdpMode::Native), Err(XdpError::Taken { .. })));
    });
}

/// Another process that opens the maps while a program starts can have the place emptied: the owner puts the program back.
#[test]
fn a_place_that_others_opened_and_closed_while_its_owner_came_is_filled_again() {
    in_pair(|| {
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
