//! A run of the bench, composed to look at: nobody measured any of it.

use std::collections::BTreeMap;

use model::{
    CoreLoad, CpuSet,
    bench::{
        Aftermath, BackToBack, BenchRun, Counts, Delays, Discarded, Drop, FrameSpec, Goal, GoalResult, Jitter, Latency,
        LossPoint, Mode, Observation, Pacing, Point, Recovery, Reset, Setup, Stamps, Status, Throughput, Trial,
        Verdict,
    },
    profile::Class,
    run::{Arrangement, CoreRole, Machine, Sharing},
    sources,
};

/// Key, name, what, nanoseconds per frame and per fragment.
const MODES: [(&str, &str, &str, f64); 4] = [
    ("router", "Router", "The kernel forwards by route, without a filter.", 1180.0),
    ("stateless", "Stateless filter", "The router with 25 nftables rules of which the last matches.", 2310.0),
    ("stateful", "Stateful filter", "The router with connection tracking and 25 rules.", 2940.0),
    ("xdp-fib", "XDP router", "An XDP program forwards by the kernel's own routes.", 480.0),
];

pub(crate) fn frames() -> Vec<FrameSpec> {
    let sizes = [64, 128, 256, 512, 1024, 1280, 1518].map(|bytes| FrameSpec::Size { bytes });
    let mut frames = sizes.to_vec();
    frames.push(FrameSpec::Datagram { payload: 4096, fragments: 3 });
    frames.push(FrameSpec::Mix {
        name: "imix".into(),
        bytes: vec![64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518],
    });
    frames
}

fn goal() -> Goal {
    Goal {
        name: "0.1 %".into(),
        loss_ratio: 0.001,
        exceed_ratio: 0.5,
        initial_s: 0.2,
        trial_s: 0.4,
        sum_s: 0.8,
        width: 0.01,
        longest_s: 10.0,
    }
}

/// The whole run, with every test in it.
pub(crate) fn run() -> BenchRun {
    let mut number = 0;
    let modes = MODES.iter().map(|&(key, name, what, ns)| Mode {
        key: key.into(),
        name: name.into(),
        what: what.into(),
        settings: if key == "xdp-fib" {
            vec!["driver mode on both ports".into()]
        } else {
            vec!["sysctl net.ipv4.ip_forward=1".into(), "gro on, NAPI in threads on CPU 1".into()]
        },
        points: frames().into_iter().map(|frame| point(key, ns, frame, &mut number)).collect(),
    });
    let modes = modes.collect();
    BenchRun {
        timestamp: "2026-01-02T03:04:05Z".into(),
        ended: Some("2026-01-02T03:12:41Z".into()),
        version: "0.1.0".into(),
        machine: Machine {
            hostname: "composed".into(),
            kernel: "6.1.0-18-amd64".into(),
            cpu_model: "Imaginary CPU 9000".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
            virtualised: Some("KVM".into()),
        },
        setup: setup(),
        modes,
        status: Status::Complete,
        sources: sources::firewall_rates(),
        conclusion: "Composed data: the router forwards 844 kpps of 64-byte frames at a loss of at most 0.1 %, both directions together; \
                     25 stateless rules take half of it."
            .into(),
        notes: vec!["With two cores the box's NAPI threads and the receiving ends share CPU 1.".into()],
    }
}

fn setup() -> Setup {
    Setup {
        preset: "quick".into(),
        goals: vec![goal()],
        bidirectional: true,
        ip_version: 4,
        flows: 256,
        rules: 25,
        rule_order: "study".into(),
        ports: ["ekp0", "ekp1"].map(|p| format!("{p}: veth, MTU 1500, 1 queue")).to_vec(),
        line_bits_per_s: None,
        protocol: "UDP, destination port 7 (RFC 2544, appendix C), checksums correct".into(),
        addressing: "known: the box was built here".into(),
        arrangement: Arrangement {
            sharing: Sharing::Apart,
            roles: vec![
                CoreRole { cpus: CpuSet::single(0), role: "sends".into() },
                CoreRole { cpus: CpuSet::single(1), role: "the box and the receiving ends".into() },
            ],
        },
        stamps: Stamps { cost_ns: 19.8, resolution_ns: 1.0, one_in: 17 },
    }
}

fn point(key: &str, ns: f64, frame: FrameSpec, number: &mut u32) -> Point {
    let frames = f64::from(frame.frames_per_unit());
    let bytes = frame.frame_bytes(20);
    let ceiling = 1e9 / (160.0 * frames + 0.25 * bytes);
    let able = 1e9 / (ns * frames + if key == "xdp-fib" { 0.0 } else { 0.08 * bytes });
    let limited = able >= 0.95 * ceiling;
    let lower = able.min(ceiling);
    let trials: Vec<Trial> = [1.6, 1.2, 0.8, 1.1, 0.95, 1.01, 0.99, 1.0]
        .iter()
        .filter(|&&share| !(limited && share > 1.0))
        .map(|share| {
            *number += 1;
            trial(key, frame.clone(), share * lower, lower, *number)
        })
        .collect();
    let seconds = trials.iter().map(|t| t.seconds).sum();
    let found = GoalResult {
        goal: goal(),
        lower_pps: Some(lower),
        upper_pps: (!limited).then_some(1.01 * lower),
        forwarded_pps: Some([0.9991 * lower, 0.9998 * lower, lower]),
        trials: trials.len() as u32,
        seconds,
    };
    let verdict = if limited { Verdict::TesterLimited { ceiling_pps: ceiling } } else { Verdict::Measured };
    let slow = key == "stateful";
    Point {
        ceiling_pps: Some(ceiling),
        throughput: Some(Throughput {
            results: vec![found],
            verdict,
            steps: trials.iter().map(|t| format!("{}: loss {:.2} %", t.purpose, 100.0 * t.loss_ratio())).collect(),
        }),
        loss_curve: loss_curve(&frame, lower, ceiling),
        back_to_back: matches!(frame, FrameSpec::Size { bytes: 64 }).then(|| back_to_back(lower, ceiling)),
        latency: [0.0, 0.1, 0.5, 0.9, 0.95].map(|load| latency(load, ns, bytes, lower)).to_vec(),
        recovery: matches!(frame, FrameSpec::Size { bytes: 64 }).then(|| Recovery {
            overload_pps: 1.1 * lower,
            after_pps: 0.5 * lower,
            seconds: vec![0.0012, 0.0014, 0.0011],
            mean_s: 0.001_233,
            unfinished: 0,
        }),
        resets: if slow && matches!(frame, FrameSpec::Size { bytes: 64 }) { vec![reset(lower)] } else { Vec::new() },
        jitter: Some(Jitter {
            offered_pps: lower,
            reading_s: 0.2,
            readings_ns: [0.9, 1.0, 1.1].map(|x| [x * ns, 1.2 * x * ns].map(Some)).to_vec(),
            mean_ns: [ns, 1.2 * ns].map(Some),
        }),
        trials,
        ..Point::new(frame)
    }
}

fn loss_curve(frame: &FrameSpec, lower: f64, ceiling: f64) -> Vec<LossPoint> {
    if !matches!(frame, FrameSpec::Size { bytes: 64 | 512 | 1518 }) {
        return Vec::new();
    }
    let shares = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1];
    let at = |share: f64| {
        let offered_pps = share * ceiling;
        let received_pps = offered_pps.min(lower);
        let loss_ratio = 1.0 - received_pps / offered_pps;
        LossPoint { offered_pps, received_pps, loss_ratio, units: (offered_pps * 0.4) as u64, late_ratio: 0.0 }
    };
    shares.map(at).to_vec()
}

fn back_to_back(lower: f64, ceiling: f64) -> BackToBack {
    let bursts = vec![412, 398, 420, 405, 409];
    let mean = 408.8;
    let implied = mean / ceiling;
    BackToBack {
        bursts,
        mean,
        burst_pps: ceiling,
        implied_buffer_s: implied,
        corrected_buffer_s: Some(implied * (1.0 - lower / ceiling)),
        tester_limited: false,
    }
}

fn reset(lower: f64) -> Reset {
    Reset {
        what: "link of the second port down and up".into(),
        offered_pps: 0.5 * lower,
        by_loss_s: vec![1.21, 1.18, 1.25],
        by_time_s: vec![1.22, 1.19, 1.25],
    }
}

fn delays(base: f64, samples: u64) -> Delays {
    let ns = |times: f64| (times * base) as u64;
    Delays {
        samples,
        min_ns: ns(0.8),
        mean_ns: 1.1 * base,
        p50_ns: ns(1.0),
        p90_ns: ns(1.4),
        p99_ns: ns(2.6),
        p999_ns: ns(7.0),
        max_ns: ns(40.0),
        jitter_ns: Some(0.2 * base),
    }
}

fn latency(load: f64, ns: f64, bytes: f64, lower: f64) -> Latency {
    let idle = load == 0.0;
    let base = 6000.0 + 3.0 * ns + bytes + 9.0 * ns * load.powi(8);
    let one_way = [base, 1.05 * base].map(|b| (!idle).then(|| delays(b, 20_000)));
    let round_trip = if idle { 2.6 * base } else { 2.1 * base };
    Latency {
        load,
        offered_pps: load * lower,
        one_way,
        pdv_p99_ns: [base, 1.05 * base].map(|b| (!idle).then_some((1.8 * b) as u64)),
        ipdv: [None, None],
        series_ns: [0.97, 0.99, 1.0, 1.0, 1.01, 1.03, 1.04, 1.05, 1.1].map(|x| x * round_trip).to_vec(),
        discarded: u32::from(load > 0.9),
        causes: Discarded { overloaded: u32::from(load > 0.9), ..Discarded::default() },
        series_planned: 9,
        round_trip_ns: Some(round_trip),
        contradiction_ns: None,
        probes_lost: 0,
        flags: if idle && bytes < 65.0 { vec!["the idle latency is above the loaded one".into()] } else { Vec::new() },
    }
}

fn trial(key: &str, frame: FrameSpec, offered_pps: f64, able: f64, number: u32) -> Trial {
    let seconds = if number % 8 == 1 { 0.2 } else { 0.4 };
    let received_pps = offered_pps.min(able);
    let way = |x: f64| (0.5 * x * seconds) as u64;
    let one = Counts { sent: way(offered_pps), received: way(received_pps), ..Counts::default() };
    let busy = (100.0 * received_pps / able).min(99.0);
    Trial {
        number,
        purpose: format!("halfway between passed and failed at {offered_pps:.0} units/s"),
        frame,
        intended_pps: Some(offered_pps),
        offered_pps,
        received_pps,
        seconds,
        counts: [one, one],
        one_way: [Some(delays(20_000.0, 9000)), Some(delays(21_000.0, 9000))],
        ipdv: [None, None],
        round_trip: None,
        probes: (0, 0),
        round_trips_ns: Vec::new(),
        max_gap_ns: [None, None],
        last_loss_after_ns: [None, None],
        pacing: Pacing { error: Some(0.0004), max_lag_ns: 38_000, skipped_ns: 0, idle_share: 0.6, stalled: 0.0 },
        after: Aftermath { late_after_ns: 12_000_000, ..Aftermath::default() },
        observed: observation(key, busy, one.lost()),
        invalid: (number % 40 == 3).then(|| "pacing missed by 2.1 %".into()),
    }
}

fn observation(key: &str, busy: f64, lost: u64) -> Observation {
    let shares: &[(Class, f64)] = match key {
        "xdp-fib" => &[(Class::Bpf, 0.5), (Class::Receive, 0.3), (Class::Transmit, 0.15), (Class::Memory, 0.05)],
        "router" => &[
            (Class::Receive, 0.3),
            (Class::Ip, 0.25),
            (Class::Memory, 0.2),
            (Class::Transmit, 0.2),
            (Class::Bpf, 0.05),
        ],
        _ => &[
            (Class::Netfilter, 0.55),
            (Class::Receive, 0.15),
            (Class::Ip, 0.12),
            (Class::Memory, 0.1),
            (Class::Transmit, 0.08),
        ],
    };
    let mut classes: BTreeMap<Class, f64> = shares.iter().map(|&(class, share)| (class, share * busy)).collect();
    classes.insert(Class::Idle, 100.0 - busy);
    let core =
        |cpu, busy: f64| CoreLoad { cpu, softirq_percent: busy, idle_percent: 100.0 - busy, ..CoreLoad::default() };
    let place = "eka1: receive ring full (rx_dropped)".to_owned();
    Observation {
        cores: vec![core(0, 0.7 * busy), core(1, busy)],
        classes,
        tester_percent: 0.0,
        samples: 997,
        seconds: 1.0,
        drops: if lost > 0 { vec![Drop { place, packets: 2 * lost }] } else { Vec::new() },
        steal_percent: 0.4,
    }
}
