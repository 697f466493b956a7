//! Saved runs with the keys from before the first release (docs/schemas.md) are read as those with the keys of today.

use std::fmt::Debug;

use model::{
    bench::{Aftermath, Discarded, Pacing, PublishedRate, Verdict, guest},
    flood::Clients,
    link_bench::IncastRound,
    profile::Profile,
    route_compare::Skipped,
    run::{CoreRole, Machine},
    schema::Document,
    sweep::Gain,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// `now` in JSON, with keys renamed back by `renamed` (now, before), is read as `now`.
fn reads<T: Serialize + DeserializeOwned + PartialEq + Debug>(now: &T, renamed: &[(&str, &str)]) {
    let Value::Object(document) = serde_json::to_value(now).unwrap() else { panic!("{now:?}") };
    let before = |key: String| renamed.iter().find(|(now, _)| *now == key).map_or(key, |(_, before)| (*before).into());
    let old: Map<String, Value> = document.into_iter().map(|(key, value)| (before(key), value)).collect();
    assert!(renamed.iter().all(|(_, before)| old.contains_key(*before)), "{old:?}");
    assert_eq!(&serde_json::from_value::<T>(old.into()).unwrap(), now);
}

#[test]
fn parts_of_saved_runs() {
    let pacing = Pacing { error: Some(0.1), stalled: 0.2, max_lag_ns: 3, skipped_ns: 4, idle_share: 0.5 };
    let lag = [("max_lag_ns", "latest_ns"), ("skipped_ns", "given_up_ns")];
    reads(&pacing, &[&lag[..], &[("stalled", "held_up"), ("idle_share", "spare")]].concat());
    reads(&Aftermath { undrained: true, ..Aftermath::default() }, &[("undrained", "never_empty")]);
    let discarded = Discarded { invalid: 1, unanswered: 2, inconsistent: 3, ..Discarded::default() };
    reads(&discarded, &[("invalid", "void"), ("unanswered", "silent"), ("inconsistent", "unsteady")]);
    let clients =
        Clients { attempted: 4, completed: 3, syn_retransmits: 2, segment_retransmits: 1, ..Clients::default() };
    let again = [("syn_retransmits", "syns_again"), ("segment_retransmits", "segments_again")];
    reads(&clients, &[&again[..], &[("attempted", "tried"), ("completed", "finished")]].concat());
    let same = Verdict::SameLoss { loss_ratio: 0.5, min_pps: 1.0, max_pps: 2.0 };
    reads(&same, &[("min_pps", "least_pps"), ("max_pps", "most_pps")]);
    reads(&Gain { ratio: 2.0, lowest: 1.5, highest: 2.5, significant: true }, &[("significant", "told")]);
    reads(&CoreRole { cpus: [1].into_iter().collect(), role: "sends".into() }, &[("role", "does")]);
    reads(&Skipped { what: "a".into(), reason: "b".into() }, &[("reason", "why")]);
    let incast = IncastRound { alone_bits_per_second: 1.0, bits_per_second: 2.0, min_share: 0.5 };
    reads(&incast, &[("min_share", "least_share")]);
    let verb = guest::Verb { command: "top".into(), outcome: guest::VerbOutcome::Works, message: "m".into() };
    reads(&verb, &[("outcome", "fares"), ("message", "said")]);
    let rate = PublishedRate {
        mode: "router".into(),
        frame_bytes: 64,
        platform: "VirtIO".into(),
        pps: 1.0,
        per_direction: true,
        citation: "c".into(),
    };
    reads(&rate, &[("platform", "on")]);
}

#[test]
fn a_whole_document() {
    let machine = Machine {
        hostname: "h".into(),
        kernel: "k".into(),
        cpu_model: "c".into(),
        cpus: 1,
        memory_bytes: 1,
        virtualised: None,
    };
    let profile = Profile::new("2026-01-02T03:04:05Z".into(), machine, 99);
    let renamed = [("timestamp", "when"), ("attributed_to_caller", "by_caller"), ("unclassified_functions", "unnamed")];
    reads(&Document::new("profile", 1, profile), &renamed);
}
