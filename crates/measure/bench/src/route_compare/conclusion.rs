//! The meaning of a comparison.

use model::{
    bench::Verdict,
    profile::Class,
    route_compare::{Configuration, RouteCompare},
    sweep::{Gain, Step},
    units,
};
use rig::{repeat, window::STEAL_LIMIT_PERCENT};

use super::plan::{Forwarding, cores_in_words};

/// The most measurements that failed of which the reason is told.
const REMARKS_MAX: usize = 4;

/// Lays each way beside no program on as many cores.
pub(super) fn gains(run: &mut RouteCompare) {
    let resolution = 1.0 + run.goal.width;
    let plain: Vec<Configuration> =
        run.configurations.iter().filter(|w| w.mode == Forwarding::None.key()).cloned().collect();
    for way in run.configurations.iter_mut().filter(|w| w.mode != Forwarding::None.key()) {
        let Some(plain) = plain.iter().find(|p| p.cores == way.cores) else { continue };
        let pairs =
            plain.rounds.iter().zip(&way.rounds).filter_map(|(a, b)| Some((a.throughput_pps?, b.throughput_pps?)));
        let holds = [plain, way].into_iter().all(|w| w.answered() && repeat::holds(&w.setup, resolution));
        way.gain = repeat::gain(pairs, resolution, holds);
    }
}

/// Concludes what each way forwards beside no program, and what becomes of the memory of packets.
pub(super) fn conclusion(run: &RouteCompare) -> String {
    let mut sentences = Vec::new();
    for bed in &run.beds {
        let ways: Vec<&Configuration> = run.configurations.iter().filter(|w| w.cores == bed.cores).collect();
        if !ways.is_empty() {
            let all: Vec<String> = ways.iter().map(|w| throughput(w)).collect();
            sentences.push(format!("On {}: {}", cores_in_words(bed.cores), all.join("; ")));
        }
        let memory: Vec<String> = ways.iter().filter_map(|w| memory(w, bed.cores)).collect();
        if !memory.is_empty() {
            sentences.push(format!("Memory management's share of the box's CPU time: {}", memory.join(", ")));
        }
        let buffers: Vec<String> = ways.iter().filter_map(|w| buffers(w)).collect();
        if !buffers.is_empty() {
            sentences.push(format!("Socket buffers of each packet: {}", buffers.join(", ")));
        }
    }
    format!("{}.", sentences.join(". "))
}

fn name(way: &Configuration) -> &str {
    if way.mode == Forwarding::None.key() { Forwarding::None.name() } else { &way.mode }
}

fn throughput(way: &Configuration) -> String {
    let pps = match way.setup.ceilings_pps.is_empty() {
        true => return format!("{} {}", name(way), without(way)),
        false => units::pps(way.setup.ceiling_pps),
    };
    let limited = way.rounds.iter().any(|r| matches!(r.verdict, Verdict::TesterLimited { .. }));
    let least = if limited { "at least " } else { "" };
    let gain = way.gain.as_ref().map_or_else(String::new, |gain| format!(" ({})", beside(gain, way.rounds.len())));
    format!("{} {least}{pps}{gain}", name(way))
}

/// Reason why a way has no throughput.
fn without(way: &Configuration) -> &'static str {
    match way.rounds.last().map(|r| &r.verdict) {
        Some(Verdict::Nothing) => "lets nothing through",
        Some(Verdict::SameLoss { .. }) => "loses too much at every load",
        Some(Verdict::Unfinished { .. }) => "was not measured in the time",
        Some(Verdict::Void { .. }) => "was not measured, as no trial could be believed",
        _ => "has no throughput",
    }
}

/// `+162 %, +150 % to +171 %`, and whether that can be told.
fn beside(gain: &Gain, rounds: usize) -> String {
    let percent = |ratio: f64| format!("{:+.0} %", 100.0 * (ratio - 1.0));
    let range = format!("{}, {} to {}", percent(gain.ratio), percent(gain.lowest), percent(gain.highest));
    match gain {
        _ if gain.significant => range,
        _ if gain.lowest <= 1.0 && gain.highest >= 1.0 => format!("{range}: no difference that can be told"),
        _ if rounds < repeat::REPEATS_MIN => {
            format!("{range}: no verdict from fewer than {} rounds", repeat::REPEATS_MIN)
        }
        _ => format!("{range}: no verdict, as the rounds do not bear each other out"),
    }
}

fn memory(way: &Configuration, cores: u32) -> Option<String> {
    let of = |part: fn(&Step) -> f64| Some(way.setup.ns_per_packet(cores, part)?[1]);
    let (memory, all) = (of(|s| s.percent(Class::Memory))?, of(Step::busy_percent)?);
    (all > 0.0).then(|| format!("{} {:.1} %", name(way), 100.0 * memory / all))
}

fn buffers(way: &Configuration) -> Option<String> {
    let each = way.allocations?.socket_buffers;
    Some(format!("{} {each:.2}", name(way)))
}

/// The reason of a verdict that is none.
pub(super) fn void(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Void { reason } | Verdict::Unfinished { reason } => Some(reason),
        _ => None,
    }
}

/// The failed measurements: the first in words, the rest as a number.
pub(super) fn remarks(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(REMARKS_MAX);
    all.truncate(REMARKS_MAX);
    if more > 0 {
        all.push(format!("{more} more measurements could not be believed, for reasons like these"));
    }
    all
}

/// Notes on the origin of the figures.
pub(super) fn notes(run: &RouteCompare) -> Vec<String> {
    let mut notes = vec![
        "Frames go one way, into one receive queue. A second core gets what the first one receives: in standard and without a program by RPS, \
         otherwise by `evenkeel route cpus`"
            .to_owned(),
        format!(
            "Mode stateful forwards connections that are there before the first frame, past rules of nftables that ask for their state. No program is \
             the router without rules: `evenkeel bench --dut stateful,route-stateful` lays the kernel past the same rules beside it. Latency and memory \
             are those at {} of each way's own throughput",
            units::percent(run.latency_load)
        ),
        "The receiving ends of the lab are not the box's work: where they share its cores they have an area of their own, and lower what it forwards. What \
         other programs do there is in the classes"
            .to_owned(),
    ];
    let void = |w: &&Configuration| !w.answered();
    for way in run.configurations.iter().filter(void) {
        let limited = way.rounds.iter().any(|r| matches!(r.verdict, Verdict::TesterLimited { .. }));
        let why = match limited {
            true => "in a round the tester was the limit: the rate is a lower bound",
            false => "a round has no throughput of the box's own",
        };
        notes.push(format!("{}: {why}", way.setup.name));
    }
    let steps = || run.configurations.iter().flat_map(|w| w.setup.steps.iter().chain(&w.setup.at_ceiling));
    let steal = steps().map(|s| s.percent(Class::Steal)).fold(0.0, f64::max);
    if steal > STEAL_LIMIT_PERCENT {
        notes.push(format!("The hypervisor took up to {steal:.0} % of the box's cores for other guests"));
    }
    let programs = steps().map(|s| s.percent(Class::User)).fold(0.0, f64::max);
    if programs >= 2.0 {
        notes.push(format!(
            "Other programs took up to {programs:.0} % of the box's cores, which lowers what it forwards"
        ));
    }
    notes
}
