//! The program that waits has room for whatever the ladder asks for, so that no attack waits for the verifier.

use std::{net::IpAddr, time::Duration};

use bpf::{
    XdpMode,
    filter::{
        Between, CookieMode, Cookies, GatewayCookies, Heartbeat, HostCookies, KnownPackets, ShieldConfig, ShieldLink,
        ShieldShared, SourceCookies, SpareProgram, Watch,
    },
};
use model::shield_event::AttackClass;
use rules::{
    Prefix, Rule, Rules,
    compile::{self, Cache, Counters, Now},
    detect::DetectConfig,
    tables::RuleTables,
};
use shield::detect::{classify::Finding, insert, ladder, mix::Kind, template};

const KINDS: [Kind; 6] = [Kind::Syn, Kind::SynAck, Kind::Tcp, Kind::Udp, Kind::Icmp, Kind::Other];

fn prefix(address: &str, len: u8) -> Prefix {
    Prefix { address: address.parse::<IpAddr>().unwrap(), len }
}

/// All that a ladder does, step by step, about attacks of each class and kind.
fn steps(config: &DetectConfig, on: Prefix) -> Vec<(String, Vec<Rule>)> {
    let mut all = Vec::new();
    for (class, kind) in AttackClass::ALL.into_iter().flat_map(|class| KINDS.map(|kind| (class, kind))) {
        let sources = (1..=16u32).map(|n| (prefix(&format!("10.9.{n}.1"), 32), 0.05)).collect();
        let finding = Finding {
            class,
            kind,
            fragments: true,
            sources,
            ports: vec![19, 53, 123, 389, 1900, 11211],
            connects: true,
            remembers: true,
        };
        for (n, step) in config.ladder(class).into_iter().enumerate() {
            let Some((rules, words)) = ladder::rules(&step, n + 1, &finding, on) else { continue };
            all.push((format!("{class} {kind:?}: {words}"), rules));
        }
    }
    all
}

/// The tables of quiet times with rules of a ladder in front.
fn tables(calm: &Rules, cache: &mut Cache, extra: &[Rule]) -> RuleTables {
    compile::tables_after(&insert(calm, extra), &mut Counters::new(), Now::read(), cache).unwrap()
}

#[test]
fn whatever_the_ladder_asks_for_fits_into_the_program_that_waits() {
    let Some(()) = testbed::privileged() else { return };
    let (v4, v6) = (prefix("198.18.0.0", 24), prefix("2001:db8::", 64));
    let calm = Rules { protected: vec![v4, v6], ..Rules::default() };
    let config = DetectConfig::default();
    let mut cache = Cache::expecting(&calm.protected);
    let mut tables = |extra: &[Rule]| tables(&calm, &mut cache, extra);
    let shared = ShieldShared::create().unwrap();
    let settings = ShieldConfig { report: true, ..ShieldConfig::default() };
    let spare = SpareProgram::load(&tables(&template(&config, v4)), &settings, &shared).unwrap();
    let [on_v4, on_v6] = [v4, v6].map(|on| steps(&config, on));
    assert!(on_v4.len() > 30, "{}", on_v4.len());
    for (what, rules) in on_v4.iter().chain(&on_v6) {
        assert!(spare.fits(&tables(rules)).unwrap(), "{what}");
    }
    // An attack on each at the same time.
    for (first, second) in on_v4.iter().zip(on_v6.iter().rev()) {
        let both = [&first.1[..], &second.1[..]].concat();
        assert!(spare.fits(&tables(&both)).unwrap(), "{} beside {}", first.0, second.0);
    }
}

/// As many rules in front as make the rows of all several words.
fn many() -> Vec<Rule> {
    let settings = template(&DetectConfig::default(), prefix("198.18.0.0", 24));
    settings.iter().cycle().take(settings.len() + 100).cloned().collect()
}

/// A row of calls has 512 bytes of stack, which the verifier counts for what a program may do, not for what packets do. Each way to answer is tried with
/// rows of one word and of several, and for the two interfaces that frames cross between.
#[test]
fn each_way_to_answer_has_stack_enough_beside_all_that_rules_may_ask() {
    let Some((_bed, [_, far])) = testbed::Bed::pair("stack") else { return };
    let calm = Rules { protected: vec![prefix("198.18.0.0", 24), prefix("2001:db8::", 64)], ..Rules::default() };
    let template = template(&DetectConfig::default(), calm.protected[0]);
    let [few, several] = [&template, &many()].map(|rules| tables(&calm, &mut Cache::expecting(&calm.protected), rules));
    assert!(few.words == 1 && several.words > 1, "{} and {} words", few.words, several.words);
    far.run(|| {
        let host = HostCookies::of(far.interface()).unwrap();
        let modes = [
            CookieMode::Host(host.clone()),
            CookieMode::Kernel(host.clone()),
            CookieMode::Gateway(GatewayCookies::default()),
            CookieMode::Sources(SourceCookies { known_s: 600, until_ns: u64::MAX, host: host.clone() }),
        ];
        let link = ShieldLink::take(far.interface(), XdpMode::Native).unwrap();
        let shared = ShieldShared::create().unwrap();
        let watch = Watch::create(2).unwrap();
        for (mode, tables) in modes.iter().flat_map(|mode| [(mode, &few), (mode, &several)]) {
            let across = matches!(mode, CookieMode::Gateway(_));
            let config = ShieldConfig {
                heartbeat: Some(Heartbeat { timeout: Duration::from_secs(1), closed: true }),
                cookies: Some(Cookies::create(far.interface(), mode.clone(), 1 << 10).unwrap()),
                watch: Some(watch.config().clone()),
                between: across.then_some(Between { first: 1, second: 2 }),
                slots: vec![link.maps(); if across { 2 } else { 1 }],
                known: Some(KnownPackets {
                    mac: host.mac,
                    forwards: true,
                    tracked: KnownPackets::tracks(),
                    listeners: true,
                    nothing: false,
                }),
                ..ShieldConfig::default()
            };
            if let Err(error) = SpareProgram::load(tables, &config, &shared) {
                panic!("{mode:?}, {} words: {error}", tables.words);
            }
        }
    });
}
