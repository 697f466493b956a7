//! Detection of each class of attack from synthetic mixes, and of none in a mix without one.

#[path = "detect/metrics.rs"]
mod metrics;
#[path = "detect/mixes.rs"]
mod mixes;
#[path = "detect/steps.rs"]
mod steps;

use std::{path::Path, time::Duration};

use mixes::{
    Stream, World, few_sources, few_uploads, first_action, fragments, gre, protected, reflection, syn_flood, web, words,
};
use model::shield_event::{AttackClass, Happened, Measure};
use rules::{
    Action, Match, Rule, Rules, Verdict,
    compile::Now,
    detect::{DetectConfig, ShadowConfig, StepConfig},
    file,
    known::Known,
    reference::{Outcome, decide},
};
use shield::detect::{classify::Finding, fit, insert, ladder, mix::Kind};
use testbed::random::Random;

const CALM: Stream = Stream { pps: 20_000, make: web };

fn flood(make: fn(&mut Random) -> rules::packet::Packet) -> Stream {
    Stream { pps: 500_000, make }
}

/// A quiet time in tenths of a second.
fn calm(config: DetectConfig, tenths: u32) -> World {
    let mut world = World::new(config);
    world.run(tenths, &[CALM]);
    world
}

/// Detections of an attack of this kind without packets of unknown connections.
fn finding(class: AttackClass, kind: Kind, remembers: bool) -> Finding {
    Finding { class, kind, fragments: false, sources: vec![], ports: vec![], connects: true, remembers }
}

fn thresholds() -> DetectConfig {
    let mut config = DetectConfig { quiet_s: 3.0, ..DetectConfig::default() };
    config.baseline.learn = false;
    config.baseline.after_s = 1.0;
    config.threshold = [(Measure::Packets, 100_000.0), (Measure::Syn, 10_000.0), (Measure::Udp, 50_000.0)].into();
    config
}

fn attack(class: AttackClass, make: fn(&mut Random) -> rules::packet::Packet, action: &str) {
    let mut world = World::new(thresholds());
    assert_eq!(words(&world.run(100, &[CALM])), [""; 0], "calm before the attack");
    let events = world.run(10, &[CALM, flood(make)]);
    assert_eq!(words(&events), ["began", "mitigating"], "{events:#?}");
    assert_eq!(events[0].class, class, "{events:#?}");
    let (first, after_s) = first_action(&events).expect("a mitigation");
    assert_eq!(first, action);
    assert!(after_s < 0.16, "three looks of 0.05 s: {after_s} s");
    assert!(!world.detector.rules().is_empty());
    let events = world.run(31, &[CALM]);
    assert_eq!(words(&events), ["ended"], "{events:#?}");
    assert!(world.detector.rules().is_empty(), "withdrawn");
}

#[test]
fn a_spoofed_syn_flood_is_answered_with_cookies() {
    attack(AttackClass::SynFlood, syn_flood, "drop TCP SYN to closed ports, challenge TCP SYN");
}

#[test]
fn a_challenge_is_about_the_answers_to_it_too() {
    let mut world = calm(thresholds(), 20);
    world.run(10, &[CALM, flood(syn_flood)]);
    let rules = world.detector.rules();
    let rule = rules.iter().find(|rule| rule.action == Action::Challenge).unwrap();
    // SYN, the ACK that brings the cookie back, and the RST by which a source shows a gateway that it exists.
    for flags in [0x02, 0x10, 0x04] {
        let packet = rules::packet::Packet { tcp_flags: Some(flags), ..mixes::packet(1, 6, Some((1, 80)), 40) };
        assert!(rules::reference::applies(&Rules::default(), &rule.when, &packet), "{flags:#x}");
    }
}

#[test]
fn a_few_heavy_sources_are_limited() {
    attack(AttackClass::FewSources, few_sources, "drop UDP to closed ports, limit UDP to 2000 packets/s per source");
}

#[test]
fn a_reflection_is_dropped_by_its_ports_and_its_fragments() {
    attack(
        AttackClass::Reflection,
        reflection,
        "drop UDP to closed ports, drop UDP from port 123, 53, and what is left of its fragments",
    );
}

#[test]
fn a_flood_of_fragments_is_dropped() {
    attack(AttackClass::Fragments, fragments, "drop fragments");
}

#[test]
fn what_is_none_of_these_is_dropped_from_strangers_and_not_from_others() {
    let mut world = calm(thresholds(), 100);
    let events = world.run(10, &[CALM, flood(gre)]);
    assert_eq!(words(&events), ["began", "mitigating"], "there is nothing in GRE to ask about: {events:#?}");
    assert_eq!(first_action(&events).expect("acts").0, "drop packets from sources never seen before");
    assert!(world.detector.regular().is_empty(), "nobody is remembered in an attack");
}

#[test]
fn strangers_with_connections_are_nobodys_attack() {
    let rules = |kind| {
        let finding = finding(AttackClass::Unknown, kind, true);
        ladder::rules(&StepConfig::DropStrangers {}, 1, &finding, protected())
    };
    assert!([Kind::Syn, Kind::SynAck, Kind::Tcp].into_iter().all(|kind| rules(kind).is_none()));
    let (of_a_mix, _) = rules(Kind::Other).unwrap();
    assert!(!of_a_mix[0].when.protocol.contains(&6) && of_a_mix[0].when.protocol.contains(&47));
}

#[test]
fn a_step_in_vain_is_not_waited_for() {
    let mut world = calm(thresholds(), 100);
    let make =
        |dice: &mut Random| mixes::packet(dice.below(1 << 32) as u32, 17, Some((dice.below(65536) as u16, 4000)), 100);
    let events = world.run(10, &[CALM, flood(make)]);
    assert_eq!(words(&events), ["began", "mitigating", "mitigating"], "the port is open: {events:#?}");
    let Happened::Mitigating { action, .. } = &events[2].what else { panic!("{events:#?}") };
    assert_eq!(action, "drop UDP from sources never seen before");
    assert!(events[2].since_s < 0.45, "{events:#?}");
}

#[test]
fn strangers_are_dropped_only_once_others_are_remembered() {
    let mut config = thresholds();
    config.baseline.after_s = 60.0;
    let mut world = World::new(config);
    // As many looks as must go by without an attack, and one more.
    world.run(10, &[CALM]);
    assert!(world.detector.regular().is_empty());
    world.run(1, &[CALM]);
    assert!(!world.detector.regular().is_empty());
    let events = world.run(10, &[CALM, flood(gre)]);
    assert!(!format!("{events:?}").contains("never seen"), "{events:#?}");
}

#[test]
fn no_attack_is_seen_in_traffic_that_comes_and_goes() {
    let mut world = World::new(DetectConfig::default());
    // A day in ten minutes: it rises from 5,000 to 45,000 packets/s and falls again, with a burst to twice of that in every second.
    for i in 0..600u64 {
        let day = 5_000 + 40_000 * i.min(600 - i) / 300;
        world.run(9, &[Stream { pps: day, make: web }]);
        world.run(1, &[Stream { pps: day * 2, make: web }]);
    }
    assert_eq!(words(&world.events), [""; 0], "{:#?}", world.events);
    // No more than its bursts, a look in ten, was ever above a limit: all else was learned.
    assert!(world.detector.baselines().all(|(_, b)| b.learned() >= Duration::from_secs(540)));
    assert!(world.detector.states().all(|s| s.learning_s == 0.0));
}

#[test]
fn a_ramp_of_any_slope_from_the_first_second_is_found_before_the_machine_is_full() {
    // The machine takes 1,000,000 packets/s, and 60 % of that without haste.
    for full_s in [10, 60, 600, 1200] {
        let mut world = World { samples: 200, takes_pps: Some(600_000.0), ..World::new(DetectConfig::default()) };
        let found_pps = (0..full_s * 10).map(|tenth| 100_000 * tenth / full_s).find(|&pps| {
            let pps = pps + 5_000;
            let flood = Stream { pps: pps - 5_000, make: syn_flood };
            first_action(&world.run(1, &[Stream { pps: 5_000, make: web }, flood])).is_some()
        });
        let found_pps = found_pps.expect("it is found");
        assert!(found_pps < 800_000, "full after {full_s} s: {found_pps}");
        assert!(full_s < 600 || found_pps < 400_000, "learned limits find it sooner: {found_pps}");
    }
}

#[test]
fn what_is_only_more_than_the_machine_takes_costs_its_users_nothing() {
    let mut world = World { takes_pps: Some(50_000.0), ..World::new(DetectConfig::default()) };
    world.run(10, &[CALM]);
    let busy = || [CALM, Stream { pps: 60_000, make: few_uploads }];
    let events = world.run(30, &busy());
    let Happened::Began(picture) = &events[0].what else { panic!("{events:#?}") };
    assert!(picture.exceeded.len() == 1 && picture.exceeded[0].headroom, "{picture:?}");
    let actions: Vec<_> = world.detector.rules().into_iter().map(|rule| rule.action).collect();
    assert!(actions.iter().all(|action| matches!(action, Action::Drop | Action::Challenge)), "no limits: {actions:?}");
    let known = Known { connection: Some(true), listener: Some(true), ..Known::default() };
    let upload = rules::packet::Packet { known, ..few_uploads(&mut Random(1)) };
    for rule in world.detector.rules().iter().filter(|rule| rule.action == Action::Drop) {
        assert!(!rules::reference::applies(&Rules::default(), &rule.when, &upload), "{rule:?}");
    }
    // Twice of what it takes is nobody's where half of that is usual.
    let mut world = World { takes_pps: Some(50_000.0), ..World::new(DetectConfig::default()) };
    world.run(700, &[Stream { pps: 45_000, make: web }]);
    assert_eq!(words(&world.run(100, &[Stream { pps: 70_000, make: web }])), [""; 0]);
}

#[test]
fn an_attack_against_a_learned_limit_is_seen() {
    let mut world = World::new(DetectConfig::default());
    world.run(700, &[CALM]);
    let events = world.run(5, &[CALM, Stream { pps: 60_000, make: syn_flood }]);
    assert_eq!(words(&events), ["began", "mitigating"], "{events:#?}");
    let Happened::Began(picture) = &events[0].what else { panic!("{events:#?}") };
    assert_eq!(picture.exceeded[0].measure, Measure::Syn);
    assert!(picture.exceeded[0].learned);
    assert_eq!(events[0].class, AttackClass::SynFlood);
}

#[test]
fn one_look_above_a_limit_is_no_attack() {
    let mut world = calm(thresholds(), 20);
    for _ in 0..20 {
        world.run(1, &[CALM, flood(syn_flood)]);
        world.run(5, &[CALM]);
    }
    assert_eq!(words(&world.events), [""; 0]);
}

#[test]
fn an_attack_that_pauses_goes_on_being_one() {
    let mut world = calm(thresholds(), 20);
    for _ in 0..5 {
        world.run(10, &[CALM, flood(syn_flood)]);
        world.run(20, &[CALM]);
    }
    assert_eq!(words(&world.events), ["began", "mitigating"], "pauses of 2 s, quiet after 3 s");
    let events = world.run(20, &[CALM]);
    let Some(Happened::Ended { peak_pps, duration_s, packets, rules, .. }) = events.last().map(|e| &e.what) else {
        panic!("{events:#?}")
    };
    assert!((450_000.0..550_000.0).contains(peak_pps), "{peak_pps}");
    assert!((12.9..13.1).contains(duration_s), "four times 3 s and the fifth second: {duration_s}");
    assert!(*packets > 2_000_000 && rules.len() == 2);
}

#[test]
fn shadow_first_shows_the_legitimate_share_and_then_acts() {
    let mut config = thresholds();
    config.shadow.first_s = 2.0;
    config.ladder = [(AttackClass::SynFlood, vec![StepConfig::Drop {}])].into();
    let mut world = calm(config, 100);
    let flood = || Stream { pps: 100_000, make: syn_flood };
    let events = world.run(10, &[CALM, flood()]);
    assert_eq!(words(&events), ["began", "mitigating"]);
    assert!(world.detector.rules().iter().all(|r| r.shadow), "only counts");
    let events = world.run(15, &[CALM, flood()]);
    assert_eq!(words(&events), ["shadowed", "mitigating"]);
    let Happened::Shadowed { would_apply_pps, legitimate_share, enforced, .. } = &events[0].what else {
        panic!("{events:#?}")
    };
    assert!((90_000.0..110_000.0).contains(would_apply_pps), "{would_apply_pps}");
    // Three in a hundred packets of the known clients are SYNs, which it would drop.
    let part = legitimate_share.expect("known sources came");
    assert!((0.015..0.05).contains(&part), "{part}");
    assert!(enforced);
    assert!(world.detector.rules().iter().all(|r| !r.shadow), "acts");
}

#[test]
fn what_would_hit_too_much_gives_way_to_the_next_step() {
    let mut config = thresholds();
    config.shadow.first_s = 1.0;
    config.shadow.legitimate_max = 0.01;
    config.ladder = [(AttackClass::SynFlood, vec![StepConfig::Drop {}, StepConfig::Challenge {}])].into();
    let mut world = calm(config, 100);
    let events = world.run(40, &[CALM, Stream { pps: 100_000, make: syn_flood }]);
    assert_eq!(
        words(&events),
        ["began", "mitigating", "shadowed", "mitigating", "shadowed", "mitigating"],
        "{events:#?}"
    );
    assert!(matches!(&events[2].what, Happened::Shadowed { enforced: false, .. }));
    assert_eq!(first_action(&events).expect("acts").0, "challenge TCP SYN");
}

#[test]
fn shadow_only_never_acts() {
    let mut config = thresholds();
    config.shadow.only = true;
    let mut world = calm(config, 100);
    let events = world.run(100, &[CALM, flood(reflection)]);
    assert_eq!(words(&events), ["began", "mitigating", "shadowed"]);
    assert!(first_action(&events).is_none());
    assert!(world.detector.rules().iter().all(|r| r.shadow));
}

#[test]
fn what_is_not_enough_is_followed_by_the_next_step_and_then_reported() {
    let mut config = thresholds();
    let per_source = StepConfig::LimitPerSource { pps: 1000, burst: None };
    config.ladder = [(AttackClass::Unknown, vec![per_source, StepConfig::DropSources {}])].into();
    let mut world = calm(config, 20);
    // 5,000,000 packets/s from sources that send one packet each: a limit per source ends none of them.
    let events = world.run(60, &[CALM, Stream { pps: 5_000_000, make: gre }]);
    assert_eq!(words(&events), ["began", "mitigating", "exhausted"], "no source is heavy enough to drop: {events:#?}");
}

#[test]
fn an_attack_that_turns_is_answered_anew_and_what_held_stays() {
    let mut world = calm(thresholds(), 20);
    let both = |syn, udp| [CALM, Stream { pps: syn, make: syn_flood }, Stream { pps: udp, make: reflection }];
    world.run(30, &both(500_000, 0));
    let events = world.run(10, &both(500_000, 500_000));
    assert_eq!(words(&events), ["reclassified", "mitigating"], "{events:#?}");
    assert_eq!(events[1].class, AttackClass::Reflection);
    let rules = world.detector.rules();
    assert!(rules.iter().any(|r| r.action == Action::Challenge) && rules.iter().any(|r| r.action == Action::Drop));
    assert_eq!(words(&world.run(50, &both(500_000, 500_000))), [""; 0], "both are held");
}

/// Traffic that replaces or joins what was mitigated is mitigated as soon as a first attack.
#[test]
fn what_no_step_has_met_is_not_waited_for() {
    for beside in [false, true] {
        let mut world = calm(thresholds(), 100);
        let reflected = Stream { pps: 200_000, make: reflection };
        let events = world.run(4, &[CALM, reflected]);
        assert_eq!(words(&events), ["began", "mitigating"], "{events:#?}");
        let flood = Stream { pps: 300_000, make: syn_flood };
        let reflected = Stream { pps: if beside { 200_000 } else { 0 }, make: reflection };
        let events = world.run(4, &[CALM, reflected, flood]);
        assert_eq!(words(&events), ["reclassified", "mitigating"], "{events:#?}");
        assert_eq!(events[0].class, AttackClass::SynFlood);
        assert!(events[1].since_s < 0.6, "some looks later: {events:#?}");
    }
}

/// Where a ladder has no step, an attack that turns to and fro is told of once in each form until patience is over.
#[test]
fn an_attack_that_nothing_is_done_about_is_not_reported_again_and_again() {
    let mut config = thresholds();
    config.ladder = AttackClass::ALL.map(|class| (class, Vec::new())).into();
    config.ladder.insert(AttackClass::Reflection, vec![StepConfig::DropPorts {}]);
    let mut world = calm(config, 100);
    // Met, so that the steps so far are not in vain.
    let met = || Stream { pps: 300_000, make: reflection };
    let mut events = world.run(4, &[CALM, met()]);
    for turn in 0..4 {
        let make = if turn % 2 == 0 { gre } else { syn_flood };
        events.extend(world.run(4, &[CALM, met(), Stream { pps: 300_000, make }]));
    }
    let turns = words(&events).into_iter().filter(|word| *word == "reclassified").count();
    assert!(turns <= 2, "{turns} in 1.6 s: {:?}", words(&events));
}

#[test]
fn few_samples_of_one_prefix_among_many_are_waited_for() {
    let mut world = calm(thresholds(), 20);
    world.samples = 8;
    let events = world.run(6, &[flood(reflection)]);
    assert_eq!(words(&events), ["began", "mitigating"], "{events:#?}");
    assert_eq!(events[0].class, AttackClass::Reflection);
    let events = world.run(30, &[flood(reflection), flood(syn_flood)]);
    assert_eq!(words(&events), ["reclassified", "mitigating"], "{events:#?}");
}

#[test]
fn a_flood_that_changes_to_another_protocol_is_limited_again() {
    let mut world = calm(thresholds(), 20);
    let udp = Stream {
        pps: 500_000,
        make: |dice| mixes::packet(dice.below(1 << 32) as u32, 17, Some((dice.below(65536) as u16, 80)), 100),
    };
    let events = world.run(30, &[CALM, udp]);
    assert_eq!(first_action(&events).expect("acts").0, "drop UDP to closed ports");
    let ack = Stream {
        pps: 500_000,
        make: |dice| rules::packet::Packet {
            tcp_flags: Some(16),
            ..mixes::packet(dice.below(1 << 32) as u32, 6, Some((dice.below(65536) as u16, 80)), 40)
        },
    };
    let events = world.run(30, &[CALM, ack]);
    assert_eq!(first_action(&events).expect("acts again").0, "drop TCP of no connection", "{events:#?}");
    let rules = world.detector.rules();
    let names: std::collections::BTreeSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names.len(), rules.len(), "{names:?}");
}

#[test]
fn shadow_is_ended_and_begun_by_a_reload() {
    let both = || [CALM, flood(reflection)];
    let only = |only| DetectConfig { shadow: ShadowConfig { only, ..thresholds().shadow }, ..thresholds() };
    let mut world = World::new(only(true));
    world.run(20, &[CALM]);
    world.run(30, &both());
    assert!(world.detector.rules().iter().all(|rule| rule.shadow));
    world.detector.reconfigure(only(false), &[protected()]);
    let events = world.run(2, &both());
    assert!(first_action(&events).is_some(), "{events:#?}");
    assert!(!world.detector.rules().is_empty() && world.detector.rules().iter().all(|rule| !rule.shadow));
    world.detector.reconfigure(only(true), &[protected()]);
    assert!(!world.detector.rules().is_empty() && world.detector.rules().iter().all(|rule| rule.shadow));
    world.run(30, &both());
    assert!(world.detector.rules().iter().all(|rule| rule.shadow));
}

#[test]
fn another_ladder_is_begun_at_its_foot_while_the_attack_goes_on() {
    let mut without = thresholds();
    assert!(without.leave_out_challenges());
    let both = || [CALM, flood(syn_flood)];
    let mut world = calm(without, 20);
    world.run(60, &both());
    let limits = |rules: &[Rule]| rules.iter().filter(|rule| matches!(rule.action, Action::Limit(_))).count();
    let before = world.detector.rules();
    assert!(limits(&before) == 1 && before.iter().all(|rule| rule.action != Action::Challenge), "{before:#?}");
    world.detector.reconfigure(thresholds(), &[protected()]);
    assert_eq!(world.detector.rules(), before, "what is done goes on until the next look");
    let revision = world.detector.revision();
    let events = world.run(1, &both());
    assert!(first_action(&events).expect("a step").0.contains("challenge"), "{events:#?}");
    let rules = world.detector.rules();
    assert!(rules.iter().any(|rule| rule.action == Action::Challenge) && limits(&rules) == 0, "{rules:#?}");
    assert_ne!(world.detector.revision(), revision);
    // And of a ladder without a step nothing is left.
    let ladder = AttackClass::ALL.into_iter().map(|class| (class, Vec::new())).collect();
    world.detector.reconfigure(DetectConfig { ladder, ..thresholds() }, &[protected()]);
    let (revision, mut events) = (world.detector.revision(), world.run(1, &both()));
    assert!(world.detector.rules().is_empty() && world.detector.revision() != revision);
    events.extend(world.run(3, &both()));
    assert_eq!(words(&events), ["exhausted"], "of what came without the rules of before");
}

#[test]
fn an_attack_on_what_is_no_longer_protected_is_reported_as_over() {
    let mut world = calm(thresholds(), 20);
    world.run(10, &[CALM, flood(gre)]);
    let (now, at) = (world.now, jiff::Timestamp::UNIX_EPOCH);
    assert!(world.detector.end_attacks(&[protected()], now, at).is_empty(), "it stays");
    let events = world.detector.end_attacks(&[], now, at);
    assert_eq!(words(&events), ["ended"]);
    assert_eq!((events[0].attack, events[0].class), (1, AttackClass::Unknown));
    assert!(world.detector.rules().is_empty());
}

#[test]
fn more_mitigations_than_there_is_room_for_are_cut_and_reported() {
    let many = |n: usize| (0..n).map(|i| Rule { name: i.to_string(), ..Rule::default() }).collect::<Vec<_>>();
    let base = Rules { rules: many(4000), ..Rules::default() };
    let mut mitigations = many(33);
    let message = fit(&mut mitigations, &base).expect("told");
    assert!(message.starts_with("only the first 32 of 33 attack rules are active"), "{message}");
    assert_eq!((mitigations.len(), fit(&mut mitigations, &base)), (32, None));
}

#[test]
fn sources_that_join_a_drop_are_added_to_it() {
    let mut config = thresholds();
    config.ladder = [(AttackClass::FewSources, vec![StepConfig::DropSources {}])].into();
    let mut world = calm(config, 20);
    world.run(30, &[CALM, flood(few_sources)]);
    assert_eq!(world.detector.rules()[0].when.source.len(), 4);
    let others =
        Stream { pps: 500_000, make: |dice| mixes::packet(0x0d00_0001 + dice.below(3) as u32, 17, Some((9, 80)), 100) };
    let events = world.run(10, &[CALM, flood(few_sources), others]);
    assert_eq!(words(&events), ["mitigating"], "{events:#?}");
    assert_eq!(world.detector.rules()[0].when.source.len(), 7);
}

#[test]
fn mitigations_stand_behind_the_management_rules_and_yield_to_what_the_file_drops() {
    let named = |name: &str, action, management| Rule { name: name.into(), action, management, ..Rule::default() };
    let base = Rules {
        rules: vec![named("ssh", Action::Pass, true), named("own", Action::Pass, false)],
        protected: vec![protected()],
        ..Rules::default()
    };
    let limit = Action::Limit(rules::Limit { pps: 1, burst: 1, per_source: None });
    let all = insert(
        &base,
        &[named("c", Action::Challenge, false), named("l", limit, false), named("d", Action::Drop, false)],
    );
    let names: Vec<&str> = all.rules.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["ssh", "d", "l", "c", "own"]);
    assert_eq!(all.protected, base.protected);

    // Port 80 of a file that drops all else is challenged, and all else is dropped.
    let web = Match { protocol: vec![6], destination_port: vec![80..=80], ..Match::default() };
    let closed = Rules {
        rules: vec![Rule { name: "web".into(), when: web, ..Rule::default() }],
        default: Verdict::Drop,
        ..Rules::default()
    };
    let finding = finding(AttackClass::SynFlood, Kind::Syn, false);
    let (rules, _) = ladder::rules(&StepConfig::Challenge {}, 1, &finding, protected()).unwrap();
    let all = insert(&closed, &rules);
    let outcome = |port| {
        let mut packet = mixes::packet(0x0a00_0001, 6, Some((4000, port)), 60);
        packet.tcp_flags = Some(2);
        decide(&all, &packet, Now::read()).outcome
    };
    assert_eq!((outcome(80), outcome(5432)), (Outcome::Challenge, Outcome::Drop));
}

#[test]
fn settings_that_cannot_be_are_named() {
    let bad = |change: fn(&mut DetectConfig)| {
        let mut config = DetectConfig::default();
        change(&mut config);
        config.faults().remove(0).0
    };
    assert!(DetectConfig::default().faults().is_empty());
    assert_eq!(bad(|c| c.every_ms = 5), "every-ms");
    assert_eq!(bad(|c| c.confirm = 0), "confirm");
    assert_eq!(bad(|c| c.leave = 1.5), "leave");
    assert_eq!(bad(|c| c.baseline.factor = 1.0), "baseline.factor");
    assert_eq!(bad(|c| c.quiet_s = f64::NAN), "quiet-s");
    assert_eq!(bad(|c| _ = c.threshold.insert(Measure::NewFlows, 0.0)), "threshold.new-flows");
    assert_eq!(
        bad(|c| _ = c.ladder.insert(AttackClass::Unknown, vec![StepConfig::Limit { pps: 0, burst: None }])),
        "ladder.unknown"
    );
}

#[test]
fn the_files_section_reads_as_written() {
    let text = r#"
        [detection]
        quiet-s = 10
        threshold = { packets = 1e6, syn = 50000 }
        baseline = { factor = 4, floor = { bits = 1e9 } }
        shadow = { first-s = 5, legitimate-max = 0.02 }
        hook = { run = ["/usr/local/bin/page", "--now"] }
        metrics = { file = "/run/evenkeel.prom", port = 9477 }
        [detection.ladder]
        syn-flood = [{ do = "challenge" }, { do = "limit-per-source", pps = 10 }]
        few-sources = []
    "#;
    let read = |text: &str| file::parse_in(text, "rules.toml", Path::new(""));
    let config = read(text).expect("it reads").detection;
    assert_eq!(config.threshold[&Measure::Syn], 50_000.0);
    assert_eq!(config.ladder(AttackClass::SynFlood)[1], StepConfig::LimitPerSource { pps: 10, burst: None });
    assert!(config.ladder(AttackClass::FewSources).is_empty());
    assert_eq!(config.hook.as_ref().map(|h| h.timeout_s), Some(10.0));
    let error = read("[detection]\nquiet = 3\n").expect_err("an unknown key is refused").to_string();
    assert!(error.contains("2:1: `detection` has no key `quiet`; did you mean `quiet-s`?"), "{error}");
}

#[test]
fn what_is_wrong_in_the_section_is_reported_in_its_words_all_at_once() {
    let text = r#"[detection]
threshold = { packets = "5k/s", pps = 1, syn = "many" }
baseline = 5
leave = "half"
every-ms = 5
shadow = { legitimate-max = 2, onyl = true }
metrics = { port = 70000 }
[detection.ladder]
syn-flod = []
syn-flood = ["challenge", { do = "limit", pps = "2k/s" }, { do = "limit" }, { do = "chalenge" }, { do = "drop", pps = 1 }]
unknown = [{ do = "limit", pps = 0 }]
few-sources = "drop"
"#;
    let error = file::parse_in(text, "f", Path::new("")).expect_err("refused").to_string();
    for says in [
        "2:33: `threshold` has no key `pps`; write one of packets, bits",
        "2:48: `syn` `many` is not a rate; write a number per second",
        "3:12: an integer where a table belongs; write baseline = { factor = 5",
        "4:9: `leave` is no number; write it without quotes",
        "5:12: detection.every-ms: 5 ms, but 20 to 1000",
        "6:29: detection.shadow.legitimate-max: 2, but it is a part",
        "6:32: `shadow` has no key `onyl`; did you mean `only`?",
        "7:20: `port` is no port; write a number from 1 to 65535",
        "9:1: `ladder` has no key `syn-flod`; did you mean `syn-flood`?",
        "10:14: a string where a table belongs; write { do = \"challenge\" }",
        "10:66: `limit` without a rate; write { do = \"limit\", pps = 500 }",
        "10:84: `chalenge` is no step of a ladder; did you mean `challenge`?",
        "10:113: the step `drop` has no key `pps`; only `limit`",
        "11:34: a limit of 0 packets; write { do = \"drop\" }",
        "12:15: the ladder of few-sources is a list; write steps as tables: [{ do = \"challenge\" }",
    ] {
        assert!(error.lines().any(|line| line.starts_with(&format!("f:{says}"))), "{says}\n{error}");
    }
    assert_eq!(error.lines().count(), 15, "{error}");
    for rust in ["expected", "StepConfig", "f64", "u16", "invalid type"] {
        assert!(!error.contains(rust), "{error}");
    }
}
