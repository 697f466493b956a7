//! Frames seen by the programs of a chain, and frames that go on.

use std::{process::Command, thread, time::Duration};

use bpf::{
    TapPlace, XdpDrop, XdpError, XdpMode,
    chain::{self, Place},
    filter::{Between, Shield, ShieldConfig, ShieldLink, ShieldShared},
    link::attached,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use model::verdict::{Verdict, Why, XdpAction};
use rules::tables::{Field, RuleAction};
use testbed::{
    filter::{Tables, in_pair},
    run, wait,
};

use crate::{DROPPED, Filter, OTHER, PASSED, beside_traffic, program, read, send, tap, turns};

#[test]
fn captures_before_and_behind_say_what_became_of_each_frame() {
    in_pair(|| {
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
        let of_verdict = |verdict: Option<Verdict>| {
            let verdict = verdict.expect("a verdict");
            (verdict.action(), verdict.why(), verdict.counter().and_then(|counter| names.get(counter)))
        };
        for (number, verdict) in by_number(seen) {
            let expected = match number % 3 {
                0 => (XdpAction::Drop, Why::Rule, Some("nothing-here".to_owned())),
                1 => (XdpAction::Pass, Why::Rule, Some("welcome".to_owned())),
                _ => (XdpAction::Pass, Why::Default, None),
            };
            assert_eq!(of_verdict(verdict), expected, "frame {number}");
        }
        let passed = by_number(read(&mut behind));
        let numbers: Vec<u64> = passed.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..60).filter(|number| number % 3 != 0).collect::<Vec<_>>());
        assert!(passed.iter().all(|(_, verdict)| of_verdict(*verdict).0 == XdpAction::Pass));
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

#[test]
fn places_are_filled_and_emptied_and_no_frame_is_lost_or_seen_twice() {
    in_pair(|| {
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
    in_pair(|| {
        // The number of maps' entries that are filled with what goes on, those that are kept left out.
        let going_on = || {
            let entry = attached("ekB").unwrap().unwrap().id;
            let json = |args: &[&str]| {
                let listed = Command::new("bpftool").arg("-j").args(args).output().unwrap();
                serde_json::from_slice::<serde_json::Value>(&listed.stdout).unwrap()
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
    in_pair(|| {
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
    in_pair(|| {
        run("ip link add ekC type veth peer name ekD");
        run("ip link set ekC up");
        run("ip link set ekD up");
        let mut links = ["ekB", "ekD"].map(|name| ShieldLink::take(name, XdpMode::Native).unwrap());
        let shared = ShieldShared::create().unwrap();
        let index = |name| sys::interface::index(name).unwrap();
        let mut tables = Tables::new(1);
        tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[DROPPED.into()]).set(|r| r.counter = 0);
        let config = ShieldConfig {
            slots: links.iter().map(|link| link.maps()).collect(),
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
        let of_verdict = |verdict: Verdict| (verdict.action(), verdict.why());
        assert!(seen.iter().all(|(_, verdict)| verdict.map(of_verdict) == Some((XdpAction::Redirect, Why::Default))));
    });
}
