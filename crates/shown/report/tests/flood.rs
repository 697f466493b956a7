//! A flood beside clients as the user reads it: what makes a protection void, and a page that needs no network.

mod page;
mod text;

use model::{
    CoreLoad,
    bench::Delays,
    flood::{Clients, FloodMode, FloodPoint, FloodRun, FloodSetup},
    run::{Arrangement, Machine, Sharing},
};
use report::{Look, flood_page, flood_text};
use text::unwrapped;

/// Nobody measured this: a rate, clients of 3000 that finished, and the time to connect.
fn point(intended_pps: Option<f64>, finished: u32, p99_us: u64) -> FloodPoint {
    let p99_ns = 1000 * p99_us;
    let connect = Delays {
        samples: finished.into(),
        min_ns: 50_000,
        mean_ns: 1.5e5,
        p50_ns: 120_000,
        p90_ns: 300_000,
        p99_ns,
        p999_ns: p99_ns,
        max_ns: p99_ns,
        jitter_ns: None,
    };
    let offered = 2 * intended_pps.unwrap_or(1.5e6) as u64;
    let clients = Clients {
        attempted: 3000,
        connected: finished,
        completed: finished,
        seconds: 6.0,
        connect: (finished > 0).then_some(connect),
        ..Clients::default()
    };
    FloodPoint {
        intended_pps,
        seconds: 2.0,
        offered,
        arrived: offered,
        answered: offered / 2,
        clients,
        ..FloodPoint::default()
    }
}

fn run(points: Vec<FloodPoint>) -> FloodRun {
    let mode = FloodMode {
        key: "shield".into(),
        name: "shield".into(),
        what: "Made-up.".into(),
        settings: Vec::new(),
        points,
    };
    FloodRun {
        timestamp: "2026-01-02T03:04:05Z".into(),
        machine: Machine { hostname: "made-up".into(), kernel: "6.1.0".into(), ..Machine::default() },
        setup: FloodSetup {
            connects: 3000,
            connects_per_s: 500.0,
            timeout_ms: 900,
            lead_ms: 300,
            frame_bytes: 60,
            flood_sources: "10.0.0.0/8".into(),
            client_sources: "198.19.0.0/16".into(),
            arrangement: Arrangement { sharing: Sharing::Apart, roles: Vec::new() },
            host_cpus: vec![1],
            clients_cpu: Some(1),
        },
        modes: vec![mode],
        partial: false,
    }
}

#[test]
fn what_makes_a_protection_void_is_named() {
    let busy = FloodPoint { others: "rustc (pid 7) 86 % of a core".into(), ..point(Some(0.0), 3000, 6387) };
    for (points, sentence) in [
        (
            vec![busy, point(None, 3000, 900)],
            "Void: shield: p99 connect 6.39 ms is above 5.00 ms without any flood (others used these CPUs: rustc (pid 7) 86 % of a core). At the",
        ),
        (vec![point(Some(0.0), 2960, 900)], "Void: shield: 1.3 % failed without any flood. At"),
        (
            vec![point(Some(0.0), 2960, 10_652)],
            "Void: shield: 1.3 % failed, and p99 connect 10.7 ms is above 5.00 ms without any flood. At",
        ),
        (vec![point(Some(0.0), 0, 0)], "Void: shield: 100.0 % failed without any flood. At"),
        (
            vec![point(Some(1e5), 2000, 900), point(None, 1000, 900)],
            "Void: shield: clients notice 100 kpps, the lowest rate, and nothing was measured without a flood (add 0 to --rates). At the",
        ),
        (vec![], "Void: shield: nothing was measured."),
    ] {
        let run = run(points);
        let text = unwrapped(&flood_text(&run, Look::plain(400)));
        assert!(text.starts_with(sentence), "{text}");
        let page = flood_page(&run).unwrap();
        assert!(page.contains(sentence) && page.contains("class=\"conclusion void\""), "{page}");
    }
}

#[test]
fn the_page_stands_alone_and_each_axis_has_its_unit() {
    let mut run = run(vec![point(Some(0.0), 3000, 900), point(Some(5e5), 3000, 1200), point(None, 2900, 9000)]);
    for point in &mut run.modes[0].points {
        point.cores = vec![CoreLoad { cpu: 1, ..CoreLoad::default() }];
    }
    let page = flood_page(&run).unwrap();
    page::stands_alone(&page, &["success", "p99", "goodput", "p50", "answered", "host"]);
    let names = |id: &str| -> Vec<String> {
        let drawing = page.split(&format!("id=\"{id}\">")).nth(1).and_then(|rest| rest.split("</svg>").next());
        let texts = drawing.expect(id).split("<text ").skip(1);
        texts.filter_map(|t| Some(t.split_once('>')?.1.split_once('<')?.0.to_owned())).collect()
    };
    assert!(names("answered").contains(&"200 kpps".to_owned()), "{:?}", names("answered"));
    assert!(names("goodput").contains(&"100/s".to_owned()), "{:?}", names("goodput"));
}
