//! Owners that are killed, and programs of other tools in the way.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use bpf::{
    TapPlace, XdpDrop, XdpError, XdpMode, XdpPass,
    chain::{self, Place},
    filter::ShieldLink,
    link::attached,
};
use testbed::{filter::in_pair, run, wait};

use crate::{Filter, PART, PASSED, beside_traffic, read, tap};

/// This test binary again, as another process of this namespace.
fn other(part: &str) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "owners::the_other_process", "--include-ignored", "--nocapture"])
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
    in_pair(|| {
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
    in_pair(|| {
        let foreign = XdpPass::attach("ekB", XdpMode::Native).unwrap();
        match tap(TapPlace::Before) {
            Err(XdpError::Occupied { attached, .. }) => assert_eq!(attached.name, "xdp_pass"),
            other => panic!("{other:?}"),
        }
        assert_eq!(attached("ekB").unwrap().unwrap().id, foreign.link().program_id(), "it is left alone");
        drop(foreign);
        let filter = Filter::new();
        match ShieldLink::take("ekB", XdpMode::Generic) {
            Err(XdpError::OtherMode { runs, requested, users, .. }) => {
                assert_eq!((runs, requested), (XdpMode::Native, XdpMode::Generic));
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
        assert!(matches!(gone, Err(XdpError::NoInterface(_))), "{gone:?}");
    });
}
