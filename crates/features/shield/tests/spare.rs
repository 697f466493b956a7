//! The program that waits has room for whatever the ladder asks for, so that no attack waits for the verifier.

use std::net::IpAddr;

use bpf::filter::{ShieldConfig, ShieldShared, SpareProgram};
use model::shield_event::AttackClass;
use rules::{
    Prefix, Rule, Rules,
    compile::{self, Cache, Counters, Now},
    detect::DetectConfig,
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

#[test]
fn whatever_the_ladder_asks_for_fits_into_the_program_that_waits() {
    if !testbed::privileged() {
        return;
    }
    let (v4, v6) = (prefix("198.18.0.0", 24), prefix("2001:db8::", 64));
    let calm = Rules { protected: vec![v4, v6], ..Rules::default() };
    let config = DetectConfig::default();
    let mut cache = Cache::expecting(&calm.protected);
    let mut tables = |extra: &[Rule]| {
        let rules = insert(&calm, extra);
        compile::tables_after(&rules, &mut Counters::new(), Now::read(), &mut cache).unwrap()
    };
    let shared = ShieldShared::create().unwrap();
    let settings = ShieldConfig { tell: true, ..ShieldConfig::default() };
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
