//! The choice of the backend by trial on the interface's own traffic.

use std::{sync::atomic::AtomicBool, time::Duration};

use model::units;

use crate::{
    open::AnySource,
    plan::Backend,
    run::{self, Limits, Report, Sink},
};

/// Below this rate, in packets per second, a trial says nothing about what a backend can bear.
const TRAFFIC_PPS_MIN: f64 = 20_000.0;
/// Backends within this share of the best rate count as equal.
const TIE_SHARE: f64 = 0.05;
/// Backends with at least this share of the best in the first trial are tried again: one short trial is noisy.
const FINALIST_SHARE: f64 = 0.6;

/// Result of a backend in its trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub backend: Backend,
    /// Packets delivered per second, without what a buffer still held at the end.
    pub delivered_pps: f64,
    /// Packets lost at the sockets per second.
    pub dropped_pps: f64,
    /// CPU time of the readers per delivered packet, in nanoseconds.
    pub cpu_ns_per_packet: f64,
    pub readers: usize,
}

/// The backend that was chosen, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub backend: Backend,
    pub reason: String,
}

/// Runs opened sources for `duration`, doing with the packets what the capture would do except for the disk.
pub fn trial(
    backend: Backend,
    sources: Vec<(AnySource, Option<u32>)>,
    duration: Duration,
    limits: Limits,
    count_only: bool,
    stop: &AtomicBool,
) -> Result<Trial, run::RunError> {
    let readers = sources.len();
    let limits = Limits { packets: None, duration: Some(duration), ..limits };
    let sink = if count_only { Sink::Count } else { Sink::Nowhere };
    let report = run::run(sources, sink, limits, stop, |_| {});
    measure(backend, readers, report)
}

fn measure(backend: Backend, readers: usize, report: Report) -> Result<Trial, run::RunError> {
    let (packets, dropped, delivered_pps) = (report.packets(), report.dropped(), report.packets_per_second());
    if let Some(failure) = report.failure {
        return Err(failure);
    }
    let seconds = report.elapsed.as_secs_f64().max(1e-9);
    let cpu_ns: u64 = report.readers.iter().map(|r| r.cpu_ns).sum();
    Ok(Trial {
        backend,
        delivered_pps,
        dropped_pps: dropped as f64 / seconds,
        cpu_ns_per_packet: if packets == 0 { 0.0 } else { cpu_ns as f64 / packets as f64 },
        readers,
    })
}

/// The backends that deserve more trials: those near the best of the first round, when they are several and the traffic
/// tells them apart.
pub fn finalists(trials: &[Trial]) -> Vec<Backend> {
    let best = trials.iter().map(|t| t.delivered_pps).fold(0.0, f64::max);
    if best < TRAFFIC_PPS_MIN {
        return Vec::new();
    }
    let near: Vec<Backend> =
        trials.iter().filter(|t| t.delivered_pps >= best * FINALIST_SHARE).map(|t| t.backend).collect();
    if near.len() < 2 { Vec::new() } else { near }
}

/// The trials of each backend as one: means over its trials, in the order of each backend's first.
pub fn means(trials: &[Trial]) -> Vec<Trial> {
    let mut backends: Vec<Backend> = Vec::new();
    for trial in trials {
        if !backends.contains(&trial.backend) {
            backends.push(trial.backend);
        }
    }
    let mean = |backend: Backend, value: fn(&Trial) -> f64| {
        let of: Vec<f64> = trials.iter().filter(|t| t.backend == backend).map(value).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    let first = |backend: Backend| trials.iter().find(|t| t.backend == backend).map_or(0, |t| t.readers);
    backends
        .into_iter()
        .map(|backend| Trial {
            backend,
            delivered_pps: mean(backend, |t| t.delivered_pps),
            dropped_pps: mean(backend, |t| t.dropped_pps),
            cpu_ns_per_packet: mean(backend, |t| t.cpu_ns_per_packet),
            readers: first(backend),
        })
        .collect()
}

/// Chooses: the most packets delivered; among equals the least CPU time per packet. Without telling traffic it is the
/// ring, whose buffer bears a burst best for its cost, or the first that could be tried. None without a trial.
pub fn choose(trials: &[Trial]) -> Option<Choice> {
    let quiet = trials.iter().find(|t| t.backend == Backend::Ring).or(trials.first())?.backend;
    let best = trials.iter().map(|t| t.delivered_pps).fold(0.0, f64::max);
    let offered = trials.iter().map(|t| t.delivered_pps + t.dropped_pps).fold(0.0, f64::max);
    if offered < TRAFFIC_PPS_MIN {
        let why = match quiet {
            Backend::Ring => "a ring holds the longest burst for the least work",
            _ => "it is the simplest of those that could be tried",
        };
        let reason = format!(
            "{} at most is too little traffic to tell the backends apart (from {} on it shows); {why}",
            units::pps(offered),
            units::pps(TRAFFIC_PPS_MIN)
        );
        return Some(Choice { backend: quiet, reason });
    }
    let equals = trials.iter().filter(|t| t.delivered_pps >= best * (1.0 - TIE_SHARE));
    let winner = equals.min_by(|a, b| a.cpu_ns_per_packet.total_cmp(&b.cpu_ns_per_packet))?;
    let rivals: Vec<&Trial> = trials.iter().filter(|t| t.backend != winner.backend).collect();
    let equal = rivals.iter().any(|t| t.delivered_pps >= best * (1.0 - TIE_SHARE));
    let reason = format!(
        "it delivered {} and lost {}{}, at {} of CPU time per packet in its {} reader{}",
        units::pps(winner.delivered_pps),
        units::pps(winner.dropped_pps),
        if equal { ", as much as any within 5 %" } else { ", the most of all" },
        units::nanoseconds(winner.cpu_ns_per_packet),
        winner.readers,
        if winner.readers == 1 { "" } else { "s" },
    );
    Some(Choice { backend: winner.backend, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(backend: Backend, delivered_pps: f64, dropped_pps: f64, cpu_ns_per_packet: f64) -> Trial {
        Trial { backend, delivered_pps, dropped_pps, cpu_ns_per_packet, readers: 1 }
    }

    #[test]
    fn the_most_delivered_wins_then_the_cheapest() {
        let a = trial(Backend::Packet, 400e3, 600e3, 900.0);
        let b = trial(Backend::Ring, 980e3, 0.0, 300.0);
        let c = trial(Backend::RingFanout, 1000e3, 0.0, 500.0);
        let chosen = |trials: &[Trial]| choose(trials).map(|c| c.backend);
        assert_eq!(chosen(&[a.clone(), b, c.clone()]), Some(Backend::Ring));
        assert_eq!(chosen(&[a, c]), Some(Backend::RingFanout));
    }

    #[test]
    fn those_near_the_best_are_tried_again_and_counted_in_the_mean() {
        let (a, b) = (trial(Backend::Tap, 1000e3, 0.0, 100.0), trial(Backend::Xdp, 700e3, 0.0, 200.0));
        let c = trial(Backend::Packet, 300e3, 0.0, 900.0);
        assert_eq!(finalists(&[a.clone(), b.clone(), c.clone()]), [Backend::Tap, Backend::Xdp]);
        assert_eq!(finalists(&[a.clone(), c.clone()]), [], "nobody to decide between");
        assert_eq!(finalists(&[trial(Backend::Tap, 10.0, 0.0, 1.0), trial(Backend::Xdp, 10.0, 0.0, 1.0)]), []);
        let again = trial(Backend::Tap, 2000e3, 10e3, 300.0);
        assert_eq!(means(&[a, b.clone(), c.clone(), again]), [trial(Backend::Tap, 1500e3, 5e3, 200.0), b, c]);
    }

    #[test]
    fn what_a_buffer_held_at_the_end_is_no_speed() {
        let (elapsed, span) = (Duration::from_millis(500), Duration::from_millis(500));
        let readers = vec![run::ReaderStats {
            packets: 900,
            in_time: 400,
            span,
            dropped: 50,
            cpu_ns: 1800,
            ..Default::default()
        }];
        let report = Report { readers, elapsed, files: 0, closed: false, failure: None };
        let measured = measure(Backend::Ring, 1, report).expect("a trial");
        assert_eq!(measured, Trial { backend: Backend::Ring, readers: 1, ..trial(Backend::Ring, 800.0, 100.0, 2.0) });
    }

    #[test]
    fn little_traffic_is_reported_to_be_little() {
        let (packet, ring) = (trial(Backend::Packet, 10.0, 0.0, 1.0), trial(Backend::Ring, 11.0, 0.0, 9000.0));
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(std::slice::from_ref(&packet)).map(|c| c.backend), Some(Backend::Packet));
        let choice = choose(&[packet, ring]).expect("two were tried");
        assert_eq!(choice.backend, Backend::Ring);
        assert!(choice.reason.contains("too little traffic"), "{}", choice.reason);
    }
}
