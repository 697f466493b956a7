//! The live view drawn into memory, at the sizes people have.

mod drawn;

use std::time::Duration;

use drawn::screen;
use model::{
    CoreLoad, CpuSet,
    route::RouteMode,
    top::{Coalescing, CoreRates, DropRate, FastPathRates, InterfaceRates, QueueRates, TopSample},
};
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use tui::live::Screen;
use tui::top::{Filter, View};

fn sample(cpus: u32, load: f64) -> TopSample {
    let queue = |n| QueueRates {
        n,
        rx_pps: Some(1_100_000.0 * load),
        tx_pps: Some(12.0),
        drops_pps: Some(if n == 0 { 4000.0 } else { 0.0 }),
        irq: Some(40 + n),
        irq_rate: Some(21_300.0),
        cpu: Some(n),
        affinity: Some(CpuSet::single(n)),
        ..QueueRates::default()
    };
    let eth0 = InterfaceRates {
        name: "eth0".into(),
        driver: Some("ixgbe".into()),
        rx_pps: 4_400_000.0 * load,
        rx_bps: 2.1e9 * load,
        tx_pps: 48.0,
        tx_bps: 31e3,
        drops: vec![DropRate {
            place: "no free descriptor in the ring (rx_missed_errors)".into(),
            counter: "rx_missed_errors".into(),
            pps: 56_000.0,
        }],
        no_loss: vec![DropRate {
            place: "for another host's MAC (rx_otherhost_dropped)".into(),
            counter: "rx_otherhost_dropped".into(),
            pps: 5000.0,
        }],
        queues: (0..cpus).map(queue).collect(),
        coalescing: Some(Coalescing { adaptive_rx: Some(true), rx_usecs: Some(8), ..Coalescing::default() }),
        ..InterfaceRates::default()
    };
    let veth =
        InterfaceRates { name: "veth-a-long-nam".into(), is_virtual: true, rx_pps: 5.0, ..InterfaceRates::default() };
    let lo = InterfaceRates { name: "lo".into(), is_virtual: true, ..InterfaceRates::default() };
    let core = |cpu: u32| CoreRates {
        load: CoreLoad {
            cpu,
            user_percent: 10.0,
            system_percent: 5.0,
            irq_percent: 0.0,
            softirq_percent: 70.0 * load,
            steal_percent: 5.0,
            idle_percent: 80.0 - 70.0 * load,
        },
        net_rx_per_s: 41_000.0,
        device_irqs_per_s: 21_300.0,
        softnet_processed_pps: 1_100_000.0 * load,
        softnet_dropped_pps: if cpu == 0 { 120.0 } else { 0.0 },
        softnet_squeezed_per_s: 17.0,
        ..CoreRates::default()
    };
    TopSample {
        timestamp: "2026-01-02T03:04:05.678Z".into(),
        interval_s: 1.0,
        hostname: "made-up".into(),
        interfaces: vec![eth0, veth, lo],
        cores: (0..cpus).map(core).collect(),
        notes: Vec::new(),
    }
}

#[test]
fn a_tiny_terminal_shows_an_interface_and_how_many_more_there_are() {
    let text = screen(&view(2), 30, 5);
    assert!(text.contains("eth0") && text.contains(", 1 more"), "{text}");
}

#[test]
fn forty_columns_have_the_losses_and_no_half_of_a_title() {
    let mut view = View::new(Duration::from_secs(1), Filter::Busy, false);
    assert!(!screen(&view, 80, 24).contains("UTC"), "there is no time yet");
    let mut sample = sample(2, 1.0);
    sample.interfaces.truncate(1);
    view.push(sample);
    let text = screen(&view, 40, 12);
    for words in ["every 1 s  shown: busy", " LOST", " 56.0 kpps", " 4.00 kpps"] {
        assert!(text.contains(words), "`{words}` in\n{text}");
    }
}

fn view(cpus: u32) -> View {
    // Without colour the parts of the bars are letters, which a snapshot shows.
    let mut view = View::new(Duration::from_secs(1), Filter::Busy, false);
    for load in [0.1, 0.5, 1.0, 0.7] {
        view.push(sample(cpus, load));
    }
    view
}

fn press(view: &mut View, keys: &str) {
    for key in keys.chars() {
        view.key(KeyEvent::from(KeyCode::Char(key)));
    }
}

#[test]
fn the_sizes_people_have() {
    insta::assert_snapshot!("80x24", screen(&view(4), 80, 24));
    insta::assert_snapshot!("200x50", screen(&view(24), 200, 50));
    insta::assert_snapshot!("50x16", screen(&view(2), 50, 16));
}

#[test]
fn keys_change_the_screen() {
    let mut v = view(4);
    press(&mut v, "?");
    insta::assert_snapshot!("help", screen(&v, 80, 24));
    press(&mut v, "x3sSp");
    insta::assert_snapshot!("queues_alone_held", screen(&v, 80, 24));
    press(&mut v, "1");
    insta::assert_snapshot!("interfaces_and_losses", screen(&v, 80, 16));
    press(&mut v, "ff");
    assert!(screen(&v, 80, 24).contains("\nlo "), "all interfaces are shown");
}

#[test]
fn the_last_row_never_leaves_the_screen() {
    let mut v = view(64);
    press(&mut v, "2");
    for _ in 0..20 {
        v.key(KeyEvent::from(KeyCode::PageDown));
    }
    let shown = screen(&v, 80, 24);
    assert!(shown.contains("\n 63 ") && !shown.contains("\n 42 "), "{shown}");
}

#[test]
fn no_size_makes_it_panic() {
    let mut v = view(5);
    for keys in ["", "1", "2", "3", "0?"] {
        press(&mut v, keys);
        for (width, height) in [(1, 1), (3, 2), (10, 5), (40, 10), (79, 23), (160, 20), (250, 80)] {
            screen(&v, width, height);
        }
    }
    screen(&View::new(Duration::from_secs(1), Filter::All, true), 80, 24);
}

#[test]
fn the_fast_path_has_its_columns_where_it_runs() {
    let mut sample = sample(2, 1.0);
    assert!(!drawn_of(sample.clone(), 80).contains("FAST PATH"));
    let route = FastPathRates { mode: RouteMode::Routed, forwarded_pps: 4_399_000.0, slow_path_pps: 1_000.0 };
    sample.interfaces[0].route = Some(route);
    for width in [80, 120, 200] {
        let text = drawn_of(sample.clone(), width);
        let row = text.lines().find(|line| line.starts_with("eth0")).expect("its row");
        assert!(row.contains("routed 100.0 %") && row.contains("4.40 Mpps"), "{width}: {text}");
    }
}

fn drawn_of(sample: TopSample, width: u16) -> String {
    let mut view = View::new(Duration::from_secs(1), Filter::Busy, false);
    view.push(sample);
    screen(&view, width, 24)
}
