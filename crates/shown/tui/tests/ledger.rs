//! The live ledger drawn into memory. Made-up data: nobody measured any of it.

mod drawn;

use std::time::Duration;

use drawn::screen;
use model::stations::{Cause, Direction, Entry, LedgerReport, LossKind, Side, Station, StationLoss};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tui::{
    ledger::View,
    live::{Reaction, Screen},
};

fn report(lost: u64) -> LedgerReport {
    let cause = Cause {
        reason: "NO_SOCKET".into(),
        function: Some("__udp4_lib_rcv".into()),
        packets: lost,
        ..Cause::default()
    };
    let loss = StationLoss {
        place: "no socket on the UDP port".into(),
        packets: lost,
        share_of_offered: lost as f64 / 1e6,
        counter: "Udp.NoPorts".into(),
        agrees: true,
        causes: vec![cause],
        advice: Some(
            "Nobody listens there: the service is down, or the traffic is unwanted; then drop it earlier.".into(),
        ),
        ..StationLoss::default()
    };
    let entry = |what: &str, packets| Entry { what: what.into(), packets, ..Entry::default() };
    let station = Station {
        name: "udp".into(),
        direction: Direction::Receive,
        packets_in: None,
        packets_out: None,
        lost,
        losses: vec![loss],
    };
    LedgerReport {
        timestamp: "2026-01-02T03:04:05.678Z".into(),
        hostname: "box".into(),
        offered: 1_000_000,
        delivered: 1_000_000 - lost,
        lost,
        receive: Side {
            offered: vec![entry("arrived on eth0", 1_000_000)],
            delivered: vec![entry("TCP", 1_000_000 - lost)],
            lost,
            ..Side::default()
        },
        stations: vec![station],
        ..LedgerReport::default()
    }
}

fn view() -> View {
    View::new(Duration::from_secs(1), false)
}

#[test]
fn sixty_columns_have_the_whole_title_and_the_whole_cause() {
    let mut long = report(90);
    let cause = &mut long.stations[0].losses[0].causes[0];
    cause.function = Some("a_function_with_a_line_alone".into());
    let words = cause.words();
    let mut view = view();
    view.push(long);
    let text = screen(&view, 60, 30);
    let shown = text.split(['"', ' ', '\n']).filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
    assert!(words.len() > 33 && shown.contains(&words), "`{words}` in\n{text}");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("every 1 s  interfaces: all"), "{first}");
}

/// Heads of columns and numbers that are cut would say something else.
#[test]
fn the_sums_of_a_small_terminal_are_whole() {
    let mut view = view();
    let mut many = report(90);
    many.receive.unexplained = -123_456;
    view.push(many);
    let text = screen(&view, 60, 18);
    for words in [" UNEXPLAINED", " DELIVERED", " 1 000 000 ", " -123 456"] {
        assert!(text.contains(words), "`{words}` in\n{text}");
    }
    let text = screen(&view, 48, 18);
    assert!(!text.contains("EXPLAINED") && text.contains(" UNEXPL."), "{text}");
}

#[test]
fn a_loss_higher_than_its_room_is_one_and_stays() {
    let mut view = view();
    view.push(report(90));
    for _ in 0..3 {
        let text = screen(&view, 60, 13);
        assert!(text.contains("no socket on") && !text.contains("(0 of"), "{text}");
        view.key(KeyEvent::from(KeyCode::Down));
    }
}

#[test]
fn the_advice_of_a_small_terminal_is_reached_by_scrolling() {
    let mut view = view();
    view.push(report(90));
    let mut seen = String::new();
    for _ in 0..8 {
        seen += &screen(&view, 60, 13);
        view.key(KeyEvent::from(KeyCode::Down));
    }
    assert!(seen.contains("udp, no socket on the UDP port:") && seen.contains("earlier."), "{seen}");
}

#[test]
fn a_wide_terminal_tells_the_kind_and_cuts_no_label() {
    let mut view = view();
    let mut harmless = report(90);
    let label = "made here ".repeat(9);
    harmless.receive.delivered[0].what = label.clone();
    harmless.stations[0].losses[0].kind = LossKind::Harmless;
    view.push(harmless);
    let text = screen(&view, 250, 50);
    assert!(text.contains("KIND") && text.contains(" no loss ") && text.contains(label.trim()), "{text}");
    assert!(screen(&view, 100, 30).contains("(no loss)"));
}

#[test]
fn notes_are_shown_in_full() {
    let mut view = view();
    let mut noted = report(1);
    noted.notes =
        vec!["a note that is longer than a line of sixty columns, to its very last word".into(), "two".into()];
    view.push(noted);
    assert!(screen(&view, 60, 18).contains("2 notes"));
    assert_eq!(view.key(KeyEvent::from(KeyCode::Char('?'))), Reaction::Redraw);
    let text = screen(&view, 60, 18);
    assert!(text.contains("very last word") && text.contains("- two") && text.contains("hold"), "{text}");
    view.key(KeyEvent::from(KeyCode::Char('?')));
    assert!(!screen(&view, 60, 18).contains("- two"));
}

#[test]
fn the_screen_of_a_terminal() {
    let mut view = view();
    assert!(screen(&view, 80, 24).contains("counting"));
    view.push(report(250_000));
    insta::assert_snapshot!("ledger_80x24", screen(&view, 80, 24));
    for (width, height) in [(20, 5), (40, 10), (200, 60)] {
        screen(&view, width, height);
    }
    let mut quiet = self::view();
    quiet.push(LedgerReport::default());
    assert!(screen(&quiet, 80, 24).contains("Quiet"));
    assert!(screen(&quiet, 40, 12).contains("lost."));
}

#[test]
fn forty_columns_cut_no_number_and_no_word() {
    let mut view = view();
    assert!(!screen(&view, 40, 24).contains("UTC"), "there is no time yet");
    let mut many = report(90_000);
    many.receive.unexplained = -123_456;
    view.push(many);
    let sums = screen(&view, 40, 17);
    for words in ["PACKETS ", " LOST", " UNEXPL.", " 90.0 k", " -123 k", "(9.0 %)"] {
        assert!(sums.contains(words), "`{words}` in\n{sums}");
    }
    assert!(screen(&view, 40, 24).contains("WHERE  "));
    let low = screen(&view, 40, 12);
    assert!(!low.contains("UNEXPL.") && low.contains("STATION") && low.contains("no socket on the UDP"), "{low}");
}

#[test]
fn a_wide_terminal_keeps_numbers_at_their_words_and_advice_at_the_losses() {
    let mut view = view();
    view.push(report(250_000));
    let text = screen(&view, 200, 50);
    let line = |word: &str| text.lines().position(|l| l.contains(word)).unwrap_or_else(|| panic!("{word}: {text}"));
    assert!(
        text.lines().nth(line("- TCP")).is_some_and(|l| l.trim_end_matches(['"', ' ']).chars().count() <= 101),
        "{text}"
    );
    assert!(line("What to do") - line("udp ") <= 3, "{text}");
}

#[test]
fn details_stand_below_the_advice() {
    use model::stations::{Details, Sample, Share};
    let mut detailed = report(10);
    let share = |what: &str| vec![Share { what: what.into(), packets: 10 }];
    detailed.stations[0].losses[0].details = Some(Details {
        targets: share("UDP 198.18.0.2:9"),
        sources: share("198.18.0.1"),
        sample: Some(Sample { text: "IP a packet".into(), length: 46, ..Sample::default() }),
        stack: vec!["__udp4_lib_rcv".into(), "ip_protocol_deliver_rcu".into()],
    });
    let mut view = view();
    view.push(detailed);
    let text = screen(&view, 100, 40);
    for words in ["to UDP 198.18.0.2:9 (10) from 198.18.0.1 (10)", "46 bytes: IP a packet", "__udp4_lib_rcv < ip_pro"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn keys_hold_and_leave() {
    let mut view = view();
    let press = |view: &mut View, c| view.key(KeyEvent::from(KeyCode::Char(c)));
    view.push(report(1));
    assert_eq!(press(&mut view, 'p'), Reaction::Redraw);
    view.push(report(2));
    assert!(screen(&view, 80, 24).contains("HELD"));
    assert!(!screen(&view, 80, 24).contains("and 2 (0.0"), "a held picture stays");
    assert_eq!(press(&mut view, '+'), Reaction::Redraw);
    assert_eq!(view.interval(), Duration::from_secs(2));
    assert_eq!(press(&mut view, 'x'), Reaction::Nothing);
    assert_eq!(press(&mut view, 'q'), Reaction::Quit);
    assert_eq!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Reaction::Quit);
}

#[test]
fn what_was_meant_is_not_called_lost_and_losses_come_first() {
    let mut report = report(90);
    let rule =
        StationLoss { packets: 4_000, kind: LossKind::Intended, place: "an nft rule".into(), ..StationLoss::default() };
    // A packet meets the rule before the socket.
    report.stations.insert(
        0,
        Station {
            name: "nft".into(),
            direction: Direction::Forward,
            lost: 4_000,
            losses: vec![rule],
            ..report.stations[0].clone()
        },
    );
    (report.lost, report.intended, report.receive.lost) = (4_090, 4_000, 4_090);
    let mut view = view();
    view.push(report);
    let small = screen(&view, 60, 16);
    let sums = small.lines().find(|l| l.contains("receive ")).expect("a line of sums");
    assert!(small.contains("PURPOSE") && sums.contains("4.00 k      90"), "{small}");
    let at = |word: &str| small.find(word).unwrap_or_else(|| panic!("{word} in\n{small}"));
    assert!(at("udp  ") < small.find("nft  ").unwrap_or(usize::MAX), "{small}");
    let full = screen(&view, 120, 50);
    for (row, packets) in [("- dropped on purpose", "4 000"), ("- lost", " 90 ")] {
        assert!(full.lines().any(|l| l.contains(row) && l.contains(packets)), "{row} in\n{full}");
    }
}
