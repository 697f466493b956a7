//! A profile as the user reads it.

mod fields;

use std::collections::BTreeMap;

use fields::fields;
use model::{
    profile::{
        Class, ClassDifference, ClassShare, Comparison, CoreProfile, Excluded, LockCaller, Named, PacketBase, Profile,
    },
    run::Machine,
    schema::Document,
};
use report::{Look, ProfileView, comparison_text, profile_text};
use serde_json::json;

fn named(name: &str, samples: u64) -> Named {
    Named { name: name.into(), samples }
}

/// Nobody measured this.
fn profile(cpus: u32) -> Profile {
    let parts = [
        (Class::Locks, 31.0, "native_queued_spin_lock_slowpath"),
        (Class::Receive, 18.25, "__netif_receive_skb_core.constprop.0"),
        (Class::Memory, 9.5, "kmem_cache_free"),
        (Class::User, 3.0, "evenkeel"),
        (Class::Unclassified, 1.25, "frobnicate"),
        (Class::Idle, 36.0, "pv_native_safe_halt"),
        (Class::Steal, 1.0, ""),
    ];
    let class = |(class, percent, top): (Class, f64, &str)| ClassShare {
        class,
        samples: (percent * 20.0) as u64,
        percent,
        error: 2.1,
        ns_per_packet: class.is_busy().then_some(percent * 8.0),
        top: if top.is_empty() { vec![] } else { vec![named(top, (percent * 15.0) as u64), named("other", 7)] },
    };
    let core = |cpu| CoreProfile {
        cpu,
        samples: 1000,
        percent: parts.map(|(c, p, _)| (c, if c == Class::Idle { p - f64::from(cpu % 7) } else { p })).into(),
        stat_idle_percent: 35.5,
        stat_steal_percent: 1.0,
    };
    let machine = Machine { hostname: "made-up".into(), kernel: "6.1.0-18-amd64".into(), ..Machine::default() };
    Profile {
        seconds: 5.02,
        samples: 2000,
        lost: 3,
        attributed_to_caller: 24,
        packets: Some(PacketBase { what: "received by eth0 and eth1".into(), packets: 1_255_000, pps: 250_000.0 }),
        classes: parts.map(class).into(),
        locks: vec![
            LockCaller { caller: "packet_rcv".into(), class: Class::Taps, samples: 580, waiting: 540 },
            LockCaller { caller: "__dev_queue_xmit".into(), class: Class::Transmit, samples: 40, waiting: 0 },
        ],
        functions: vec![named("native_queued_spin_lock_slowpath", 540), named("kmem_cache_free", 60)],
        unclassified_functions: vec![named("frobnicate", 24)],
        excluded: Some(Excluded { what: "the traffic generator".into(), percent: 12.0 }),
        cores: (0..cpus).map(core).collect(),
        notes: vec!["eth2 went meanwhile".into()],
        ..Profile::new("2026-01-01T00:00:00Z".into(), machine, 199)
    }
}

fn comparison() -> Comparison {
    let difference = |class: Class, a, b, differs| ClassDifference {
        class,
        a_percent: a,
        b_percent: b,
        percent_error: 2.5,
        percent_differs: differs,
        a_ns: class.is_busy().then_some(a * 8.0),
        b_ns: class.is_busy().then_some(b * 4.0),
        ns_error: class.is_busy().then_some(9.0),
        ns_differs: class.is_busy().then_some(differs),
    };
    Comparison {
        a: "standard.json".into(),
        b: "tuned.json".into(),
        a_packets: profile(1).packets,
        b_packets: profile(1).packets,
        classes: vec![
            difference(Class::Memory, 25.0, 0.9, true),
            difference(Class::Ip, 20.0, 21.0, false),
            difference(Class::Idle, 30.0, 60.0, true),
        ],
        notes: vec!["the kernel differs: 6.1 and 6.18".into()],
    }
}

const EVERYTHING: ProfileView = ProfileView { per_core: false, verbose: true, functions: 2 };

#[test]
fn a_profile_as_text() {
    insta::assert_snapshot!("profile_80", profile_text(&profile(2), EVERYTHING, Look { width: 80, lines: true }));
    insta::assert_snapshot!("profile_many_80", profile_text(&profile(64), ProfileView::default(), Look::plain(80)));
}

#[test]
fn two_profiles_as_text() {
    insta::assert_snapshot!("profile_compare_80", comparison_text(&comparison(), Look { width: 80, lines: true }));
    let mut without = comparison();
    without.b_packets = None;
    assert!(!comparison_text(&without, Look::plain(80)).contains("ns/PACKET"));
}

#[test]
fn the_table_fits_the_page() {
    for width in [60, 80, 120, 200] {
        let text = profile_text(&profile(64), EVERYTHING, Look::plain(width));
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
        for line in comparison_text(&comparison(), Look::plain(width.max(80))).lines() {
            assert!(line.chars().count() <= usize::from(width.max(80)), "{width}: {line}");
        }
    }
    let all = profile_text(&profile(64), ProfileView { per_core: true, ..ProfileView::default() }, Look::plain(600));
    assert!(all.contains("CPU 63"));
}

#[test]
fn no_unclassified_time_is_reported_too() {
    let mut all_named = profile(1);
    all_named.classes.retain(|c| c.class != Class::Unclassified);
    let text = profile_text(&all_named, ProfileView::default(), Look::plain(80));
    assert!(text.lines().any(|l| l.starts_with("unclassified") && l.contains(" 0.0")), "{text}");
}

#[test]
fn the_schema_is_stable() {
    let document = Document::new("profile", model::profile::SCHEMA, profile(1));
    insta::assert_snapshot!("schema_profile_1", fields(&json!(document)));
    let text = serde_json::to_string(&document).unwrap();
    assert_eq!(serde_json::from_str::<Document<Profile>>(&text).unwrap(), document);
    let percent: BTreeMap<Class, f64> = serde_json::from_str(r#"{"ip": 1.0, "user": 2.0}"#).unwrap();
    assert_eq!(percent[&Class::User], 2.0);
}
