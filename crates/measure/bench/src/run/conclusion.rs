//! The conclusion of a run.

use model::{
    bench::{BenchRun, Mode, Point, Status, Trial, Verdict},
    units,
};

use rig::window::STEAL_LIMIT_PERCENT;

use super::request::WIRE;

/// The main result of each mode at its smallest frames, and what stands out.
pub(super) fn conclusion(run: &BenchRun) -> String {
    let total = if run.setup.bidirectional { "both directions together" } else { "one direction" };
    let mut sentences: Vec<String> = Vec::new();
    let mut router: Option<f64> = None;
    for mode in &run.modes {
        let Some((point, throughput)) = mode.points.iter().find_map(|p| Some((p, p.throughput.as_ref()?))) else {
            continue;
        };
        let frame = words_of_frame(point);
        let goal = throughput.results.first().map(|f| f.goal.name.clone()).unwrap_or_default();
        let text = match (&throughput.verdict, throughput.pps(0)) {
            (Verdict::Measured, Some(pps)) => {
                let beside = match router {
                    Some(of_router) if mode.key != "router" => {
                        format!(" ({:+.0} % of the router's)", 100.0 * (pps / of_router - 1.0))
                    }
                    _ => String::new(),
                };
                if mode.key == "router" {
                    router = Some(pps);
                }
                format!("{} forwards {} of {frame} at the goal {goal}{beside}", mode.name, units::pps(pps))
            }
            (Verdict::TesterLimited { ceiling_pps }, _) => format!(
                "{}: tester-limited with {frame}. The tester's own ceiling is {}; the box does nearly that or more",
                mode.name,
                units::pps(*ceiling_pps)
            ),
            (Verdict::Void { reason }, _) => format!("{}: no test with {frame} completed: {reason}", mode.name),
            (Verdict::SameLoss { loss_ratio, min_pps, max_pps }, _) => format!(
                "{} has no throughput with {frame} at the goal {goal}: it loses {} at every load from {} to {}",
                mode.name,
                units::percent(*loss_ratio),
                units::pps(*min_pps),
                units::pps(*max_pps)
            ),
            (Verdict::Unfinished { reason }, _) => format!("{}: no verdict with {frame}: {reason}", mode.name),
            (Verdict::NotMet { min_pps, units, judged }, _) => {
                let least = units::pps(*min_pps);
                let why = if *judged {
                    format!("every load down to {least} loses more")
                } else {
                    format!(
                        "none down to {least} ({} units in a trial there cannot judge {goal})",
                        units::grouped(*units)
                    )
                };
                format!("{} has no throughput with {frame} at the goal {goal}: {why}", mode.name)
            }
            _ => format!("{} forwards no {frame}: nothing comes through", mode.name),
        };
        sentences.push(text);
    }
    match sentences.is_empty() {
        true => "No test completed.".to_owned(),
        false => format!("{}. Rates are the total of {total}.", sentences.join(". ")),
    }
}

pub(super) fn trial(trial: &Trial) -> String {
    let late = trial.failed_ratio() - trial.loss_ratio();
    let late = if late > 0.0 { format!(", {} late", units::percent(late)) } else { String::new() };
    format!(
        "{}: {} sent, {} lost{late} in {:.2} s",
        trial.purpose,
        units::pps(trial.offered_pps),
        units::percent(trial.loss_ratio()),
        trial.seconds
    )
}

fn words_of_frame(point: &Point) -> String {
    match &point.frame {
        model::bench::FrameSpec::Size { bytes } => format!("{bytes}-byte frames"),
        model::bench::FrameSpec::Datagram { payload, .. } => format!("datagrams of {payload} bytes"),
        other => format!("{other} frames"),
    }
}

pub(super) fn notes(run: &BenchRun) -> Vec<String> {
    let mut notes = Vec::new();
    for mode in &run.modes {
        notes.extend(notes_of_mode(mode));
    }
    let steal = trials(run).map(|t| t.observed.steal_percent).fold(0.0, f64::max);
    if steal > STEAL_LIMIT_PERCENT {
        notes.push(format!(
            "The hypervisor took up to {steal:.0} % of the CPU time for other guests: figures of this run are lower than the \
             machine alone would give, and vary more"
        ));
    }
    let void = trials(run).filter(|t| t.invalid.is_some()).count();
    if void > 0 {
        let all = trials(run).count();
        notes.push(format!("{void} of {all} trials are void and do not count; each says why"));
    }
    notes
}

fn notes_of_mode(mode: &Mode) -> Vec<String> {
    let mut notes = Vec::new();
    let all = || mode.points.iter().flat_map(|p| &p.trials);
    let looped: u64 = all().map(|t| t.total().looped).sum();
    if looped > 0 {
        notes.push(format!(
            "{}: {looped} frames came back to the port that sent them: the box loops. Check its routes, its bridge and the cables",
            mode.name
        ));
    }
    let duplicated: u64 = all().map(|t| t.total().duplicated).sum();
    if duplicated > 0 {
        notes.push(format!("{}: {duplicated} units came twice; they count once", mode.name));
    }
    let reordered: u64 = all().map(|t| t.total().reordered).sum();
    if reordered > 0 {
        notes.push(format!("{}: {reordered} units overtook others of their flow", mode.name));
    }
    let held = all().filter(|t| t.invalid.is_none() && t.total().late > 0).max_by_key(|t| t.total().late);
    if let Some(trial) = held {
        notes.push(format!(
            "{}: the box holds back up to {} units; at {} they took {} to come out after the last was sent. They count as not forwarded",
            mode.name,
            units::grouped(trial.total().late),
            units::pps(trial.offered_pps),
            units::nanoseconds(trial.after.drained_ns as f64)
        ));
    }
    let undrained = all().filter(|t| t.after.undrained).count();
    if undrained > 0 {
        notes.push(format!("{}: after {undrained} trials the box was not empty when waiting was given up", mode.name));
    }
    let limited = mode
        .points
        .iter()
        .filter(|p| p.throughput.as_ref().is_some_and(|t| matches!(t.verdict, Verdict::TesterLimited { .. })));
    let limited: Vec<String> = limited.map(|p| p.frame.label()).collect();
    if !limited.is_empty() && mode.key != WIRE {
        notes.push(format!(
            "{}: with frames of {} the tester was the limit. The box does at least this",
            mode.name,
            limited.join(", ")
        ));
    }
    notes
}

fn trials(run: &BenchRun) -> impl Iterator<Item = &Trial> {
    run.modes.iter().flat_map(|m| &m.points).flat_map(|p| &p.trials)
}

/// True if every box that was asked about has got an answer: a throughput of its own with each kind of frame.
pub fn answered(run: &BenchRun) -> bool {
    let mut points = run.modes.iter().filter(|m| m.key != WIRE).flat_map(|m| &m.points);
    let measured = |p: &Point| p.throughput.as_ref().is_some_and(|t| t.verdict == Verdict::Measured);
    run.status == Status::Complete && points.all(measured)
}
