//! The view of a shield under attack drawn into memory, at the sizes people have.

mod drawn;

use std::time::Duration;

use drawn::screen;
use model::shield::{AttackStatus, Fail, Rates, RuleStatus, ShieldStatus, SourceStatus, Totals};
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use tui::{
    live::{Reaction, Screen},
    shield::View,
};

fn rule(name: &str, action: &str, packets: u64, limited: u64, pps: f64) -> RuleStatus {
    RuleStatus {
        name: name.into(),
        line: Some(3),
        action: action.into(),
        shadow: false,
        management: name.starts_with("management:"),
        attack: false,
        expires: None,
        expired: false,
        packets,
        bytes: packets * 60,
        limited,
        pps: Some(pps),
    }
}

fn attacked() -> ShieldStatus {
    let attack = |number, prefix: &str, class: &str, mitigation: &str| AttackStatus {
        number,
        prefix: prefix.into(),
        class: class.into(),
        since_s: 12.4,
        mitigation: mitigation.into(),
        shadow: number == 2,
    };
    ShieldStatus {
        timestamp: "2026-01-02T03:04:05.678Z".into(),
        interface: "eth0".into(),
        mode: "native".into(),
        program_id: 7,
        pid: Some(1234),
        unreachable: false,
        heartbeat_age_s: 0.1,
        reattached: 0,
        heartbeat_timeout_s: 0.7,
        fail: Some(Fail::Open),
        file: Some("/etc/rules.toml".into()),
        loaded: "2026-01-02T03:00:00Z".into(),
        reloads: 0,
        reload_error: None,
        challenge: None,
        known_sources: None,
        protected: Vec::new(),
        rules: vec![
            rule("management:neighbours", "pass", 12, 0, 0.2),
            rule("management:session", "pass", 4_711, 0, 13.0),
            rule("attack 198.18.0.2/32 few-sources 2", "drop", 18_300_000, 0, 151_000.0),
            rule("attack 198.18.0.2/32 few-sources 1", "limit 2000/s per source /32 /64", 31_100, 24_000, 0.0),
            rule("attack 198.18.0.0/24 syn-flood 1", "challenge", 292_000_000, 0, 2_104_000.0),
            rule("a-list-that-somebody-gave-a-long-name", "drop", 63_200, 0, 0.0),
            rule("pings", "limit 20/s per source /24 /56", 0, 0, 0.0),
            rule("web", "challenge", 0, 0, 0.0),
        ],
        default: "pass".into(),
        totals: Totals {
            passed: 443_217_929,
            dropped: 18_381_575,
            limited: 24_000,
            challenged: 292_000_000,
            ..Totals::default()
        },
        rates: Some(Rates {
            interval_s: 1.0,
            passed_pps: 40_000.0,
            passed_bps: 19.2e6,
            dropped_pps: 151_000.0,
            dropped_bps: 72.1e6,
            challenged_pps: 2_104_000.0,
            limited_pps: 240.0,
        }),
        sources: (1..=5)
            .map(|n| SourceStatus { source: format!("198.18.5.{n}"), pps: 30_000.0 / f64::from(n) })
            .chain([SourceStatus { source: "2001:db8:1:2::/64".into(), pps: 900.0 }])
            .collect(),
        attacks: vec![
            attack(1, "198.18.0.2/32", "few-sources", "step 2 of 2: drop the 13 heaviest sources"),
            attack(2, "198.18.0.0/24", "syn-flood", "step 1 of 1: challenge SYNs"),
        ],
        warnings: Vec::new(),
    }
}

fn drawn(width: u16, height: u16, status: &ShieldStatus) -> String {
    let mut view = View::new(Duration::from_secs(1), false, false, || ());
    for part in [0.1, 0.5, 1.0] {
        let rates = status.rates.map(|rates| Rates { challenged_pps: rates.challenged_pps * part, ..rates });
        view.push(ShieldStatus { rates, ..status.clone() });
    }
    screen(&view, width, height)
}

#[test]
fn an_attack_at_the_sizes_people_have() {
    for (width, height) in [(80, 24), (200, 50), (60, 20)] {
        insta::assert_snapshot!(format!("shield_{width}x{height}"), drawn(width, height, &attacked()));
    }
}

#[test]
fn calm() {
    let status = ShieldStatus { attacks: Vec::new(), sources: Vec::new(), rates: Some(Rates::default()), ..attacked() };
    let text = drawn(80, 24, &status);
    assert!(!text.contains("Attacks") && !text.contains("Sources"), "{text}");
    assert!(text.contains("Rules (8, 2 built-in); by default: pass"), "{text}");
}

#[test]
fn no_size_breaks_it_and_no_number_is_cut() {
    for width in [1, 2, 10, 30, 54, 55, 60, 72, 80, 120] {
        for height in [1, 2, 3, 5, 6, 10, 15, 20, 24, 40] {
            let text = drawn(width, height, &attacked());
            // The rate of what passes: whole wherever its line is there at all.
            if width >= 55 && height >= 6 {
                assert!(text.contains("40.0 kpps") && text.contains("BEYOND LIMITS"), "{width}x{height}\n{text}");
            }
        }
    }
}

#[test]
fn an_alarm_is_whole_or_marked_and_hides_no_other() {
    let long = "SYNs of an attack are not challenged: eth0 does not take the answers that XDP sends: a veth does while its peer runs NAPI \
                (`ethtool -K PEER gro on` in its network namespace, or an XDP program there)";
    let other = "the clock went back";
    let status = ShieldStatus { warnings: vec![long.into(), other.into()], ..attacked() };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (width, height) in [(60, 24), (80, 24), (200, 50)] {
        let text = drawn(width, height, &status);
        assert!(words(&text).contains(&format!("{long} {other}")), "{width}x{height}\n{text}");
    }
    let text = drawn(60, 14, &status);
    assert!(text.contains("…\nthe clock went back\n") && text.contains("RULE"), "{text}");
}

#[test]
fn the_heads_of_rates_are_whole_on_a_narrow_terminal() {
    for width in [44, 50, 54] {
        let text = drawn(width, 24, &attacked());
        let heads = text.lines().find(|line| line.contains("PASSED")).expect("heads");
        let heads: Vec<&str> = heads.split_whitespace().collect();
        assert_eq!(heads, ["PASSED", "DROPPED", "CHALLENGED", "BEYOND"], "{width}\n{text}");
    }
}

#[test]
fn head_and_help_are_whole_where_there_is_little_room() {
    let mut view: View<fn()> = View::new(Duration::from_secs(1), false, false, || ());
    view.push(attacked());
    for width in [50, 60, 80] {
        let shown = screen(&view, width, 20);
        let time = if width > 50 { "03:04:05 UTC  " } else { "" };
        let head = format!("eth0  native XDP  {time}if killed: all passes");
        assert!(shown.contains(&head) && shown.contains("? help"), "{shown}");
    }
    view.key(KeyEvent::from(KeyCode::Char('?')));
    for width in [40, 60, 80] {
        let shown = screen(&view, width, 20);
        for part in ["q end the shield", "a all rules or those with packets", "↑ ↓ rules", "? less help"] {
            assert!(shown.contains(part), "{part} in {width} columns: {shown}");
        }
    }
}

#[test]
fn rules_that_have_expired_are_marked() {
    let mut status = attacked();
    status.rules[5].expired = true;
    let text = drawn(120, 40, &status);
    assert!(text.contains("expired: drop") && text.contains("Rules (8, 2 built-in, 1 expired); by default"), "{text}");
}

#[test]
fn the_shield_ends_only_after_a_clear_yes() {
    let press = |view: &mut View<fn()>, key: char| view.key(KeyEvent::from(KeyCode::Char(key)));
    let foot = |view: &View<fn()>| screen(view, 80, 20).lines().last().map(ToOwned::to_owned).expect("a last line");
    for leave in [false, true] {
        let mut view: View<fn()> = View::new(Duration::from_secs(1), false, leave, || ());
        view.push(attacked());
        let keys = foot(&view);
        for other in ['q', 'n', 'x', '\n'] {
            assert_eq!(press(&mut view, 'q'), Reaction::Redraw);
            let question = foot(&view);
            assert!(question.contains("eth0") && question.contains("y/N"), "{question}");
            assert_eq!(press(&mut view, other), Reaction::Redraw);
            assert_eq!(foot(&view), keys, "it goes on");
        }
        assert_eq!((press(&mut view, 'q'), press(&mut view, 'y')), (Reaction::Redraw, Reaction::Quit));
    }
    let mut view: View<fn()> = View::new(Duration::from_secs(1), false, false, || ());
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), ratatui::crossterm::event::KeyModifiers::CONTROL);
    assert_eq!(view.key(ctrl_c), Reaction::Quit, "nobody types that by mistake");
}
