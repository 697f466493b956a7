//! Figures of a bench run for text, page and CSV, computed once for all of them.

use std::collections::BTreeMap;

use model::{
    bench::{
        BenchRun, Delays, FrameSpec, GoalResult, Latency, Mode, Point, Status, Throughput, Trial, Unfinished, Verdict,
    },
    profile::Class,
    units,
};

use crate::chart::once;

/// Unit of the rates, for headings.
const RATES: &str = "A unit is a frame, or a datagram with all its fragments; sizes of frames are with FCS. \"Total\" is of all \
     directions together, \"each way\" of one direction, \"fails at\" the lowest load in all that failed, \"came through\" the lowest and \
     highest of the trials at the total, \"ceiling\" what the tester itself can do. \"Payload\" is bits of UDP payload, \"frames\" bits of Ethernet frames with FCS, both of all directions.";
/// Definition of latency (RFC 2544, section 26.2, asks for it).
const LATENCY: &str = "Latency is from the stamp that a unit bears when the tester hands it to its port to the arrival of its last \
     frame in the tester's program at the other port: the store-and-forward latency of RFC 1242 plus the time on the line and in both ports. \
     Of two directions the worse is shown.";
const ROUND_TRIP: &str = "Round trips are of least-size probes that the far port sends back: the mean of the best series that agree \
     with themselves.";
/// Text in place of a throughput where the tester was the limit.
const LIMITED: &str = "tester-limited";

/// Meaning of the report's words, without those of tests that were not made.
pub(crate) fn meanings(run: &BenchRun) -> Vec<&'static str> {
    let points = || run.modes.iter().flat_map(|m| &m.points);
    let latency = points().any(|p| !p.latency.is_empty());
    let probes = points().flat_map(|p| &p.latency).any(|l| l.round_trip_ns.is_some());
    [(true, RATES), (latency, LATENCY), (probes, ROUND_TRIP)]
        .into_iter()
        .filter_map(|(is, text)| is.then_some(text))
        .collect()
}

/// A run with the arithmetic that all its faces share.
#[derive(Clone, Copy)]
pub(crate) struct Figures<'a>(pub(crate) &'a BenchRun);

impl<'a> Figures<'a> {
    /// Directions in which units go.
    pub(crate) fn directions(self) -> f64 {
        if self.0.setup.bidirectional { 2.0 } else { 1.0 }
    }

    fn ip_header(self) -> u32 {
        if self.0.setup.ip_version == 6 { 40 } else { 20 }
    }

    /// Bits per second of UDP payload.
    pub(crate) fn payload_bps(self, frame: &FrameSpec, pps: f64) -> f64 {
        8.0 * frame.payload_bytes(self.ip_header()) * pps
    }

    /// Bits per second of Ethernet frames with FCS.
    pub(crate) fn frame_bps(self, frame: &FrameSpec, pps: f64) -> f64 {
        8.0 * frame.frame_bytes(self.ip_header()) * pps
    }

    /// Mean bytes of a unit with FCS, and of its payload.
    pub(crate) fn bytes(self, frame: &FrameSpec) -> (f64, f64) {
        (frame.frame_bytes(self.ip_header()), frame.payload_bytes(self.ip_header()))
    }

    /// Units per second over all directions that fill the line; none without a line rate.
    pub(crate) fn line_pps(self, frame: &FrameSpec) -> Option<f64> {
        Some(frame.line_pps(self.ip_header(), self.0.setup.line_bits_per_s?) * self.directions())
    }

    /// The most that could be offered: the line's rate, or the tester's ceiling where there is no line.
    pub(crate) fn theory(self, point: &Point) -> Option<f64> {
        self.line_pps(&point.frame).or(point.ceiling_pps)
    }

    /// Nothing at all was measured.
    pub(crate) fn is_empty(self) -> bool {
        !self.0.modes.iter().flat_map(|m| &m.points).any(has_figure)
    }

    /// Every kind of frame of any mode, in the order of the run.
    pub(crate) fn frames(self) -> Vec<&'a FrameSpec> {
        once(self.0.modes.iter().flat_map(|m| &m.points).map(|point| &point.frame))
    }

    /// The modes whose throughput was looked for: the tester's own ceiling is found without one.
    pub(crate) fn searched(self) -> impl Iterator<Item = &'a Mode> + Clone {
        self.0.modes.iter().filter(|m| m.points.iter().any(|p| p.throughput.is_some()))
    }

    /// Ceiling of the tester with such frames, in units per second.
    pub(crate) fn ceiling_pps(self, frame: &FrameSpec) -> Option<f64> {
        let points = self.0.modes.iter().flat_map(|m| &m.points);
        points.filter(|p| p.frame == *frame).find_map(|p| p.ceiling_pps)
    }

    /// Meaning of `4096/3`, if any kind of frame is such.
    pub(crate) fn datagrams_note(self) -> Option<String> {
        self.frames().into_iter().find_map(|f| match f {
            FrameSpec::Datagram { payload, fragments } => Some(format!(
                "{payload}/{fragments} is a datagram of {payload} bytes of payload in {fragments} fragments; it counts when all of them \
                 arrive."
            )),
            _ => None,
        })
    }

    /// The name of the main goal.
    pub(crate) fn goal(self) -> &'a str {
        self.0.setup.goals.first().map_or("", |g| g.name.as_str())
    }

    pub(crate) fn trials(self) -> impl Iterator<Item = (&'a Mode, &'a Trial)> {
        self.0.modes.iter().flat_map(|m| m.points.iter().flat_map(move |p| p.trials.iter().map(move |t| (m, t))))
    }

    /// `total of both directions` or what else rates are.
    pub(crate) fn total_of(self) -> &'static str {
        if self.0.setup.bidirectional { "total of both directions" } else { "one direction" }
    }

    /// Reason why the run is not whole, and what was begun.
    pub(crate) fn partial(self) -> Option<(&'a str, Option<&'a Unfinished>)> {
        match &self.0.status {
            Status::Partial { reason, begun } => Some((reason, begun.as_ref())),
            Status::Complete => None,
        }
    }

    /// Loss of rate by the filter for the least frames, against the router, for each filtering mode.
    pub(crate) fn filter_costs(self) -> Vec<(&'a str, &'a FrameSpec, f64)> {
        let Some(router) = self.0.modes.iter().find(|m| m.key == "router") else { return Vec::new() };
        let least = |m: &'a Mode| {
            let sized = m.points.iter().filter_map(|p| match p.frame {
                FrameSpec::Size { bytes } => Some((bytes, p)),
                _ => None,
            });
            sized.min_by_key(|(bytes, _)| *bytes).map(|(_, p)| p)
        };
        let cost = |m: &'a Mode| {
            let point = least(m)?;
            let of_router = rate(router.points.iter().find(|p| p.frame == point.frame)?)?;
            Some((m.key.as_str(), &point.frame, 1.0 - rate(point)? / of_router))
        };
        let filters = self.0.modes.iter().filter(|m| matches!(m.key.as_str(), "stateful" | "stateless"));
        filters.filter_map(cost).collect()
    }
}

/// The main goal's result.
pub(crate) fn main_goal(point: &Point) -> Option<&GoalResult> {
    point.throughput.as_ref()?.results.first()
}

/// The throughput for the main goal, if it is the box's own.
pub(crate) fn rate(point: &Point) -> Option<f64> {
    let throughput = point.throughput.as_ref()?;
    matches!(throughput.verdict, Verdict::Measured).then(|| throughput.pps(0)).flatten()
}

/// The rate to draw: the throughput, or what the box did at least.
pub(crate) fn rate_or_least(point: &Point) -> Option<(f64, bool)> {
    let throughput = point.throughput.as_ref()?;
    match throughput.verdict {
        Verdict::Measured => Some((throughput.pps(0)?, false)),
        Verdict::TesterLimited { .. } => Some((throughput.pps(0)?, true)),
        Verdict::Nothing
        | Verdict::NotMet { .. }
        | Verdict::SameLoss { .. }
        | Verdict::Unfinished { .. }
        | Verdict::Void { .. } => None,
    }
}

/// Anything of the box, or of the tester, was measured with these frames.
pub(crate) fn has_figure(p: &Point) -> bool {
    p.ceiling_pps.is_some() || has_result(p)
}

/// Anything of the box was measured with these frames.
pub(crate) fn has_result(p: &Point) -> bool {
    let latency = p.latency.iter().any(|l| !l.series_ns.is_empty());
    let tests = p.back_to_back.is_some() || p.jitter.is_some() || p.recovery.is_some() || !p.resets.is_empty();
    p.throughput.as_ref().is_some_and(says_something) || !p.loss_curve.is_empty() || latency || tests
}

/// The search found a bound, or a verdict on the box.
pub(crate) fn says_something(throughput: &Throughput) -> bool {
    match throughput.verdict {
        Verdict::Void { .. } => false,
        Verdict::Unfinished { .. } => throughput.results.iter().any(|f| f.lower_pps.or(f.upper_pps).is_some()),
        _ => true,
    }
}

/// The verdict in words, with what it means.
pub(crate) fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Measured => "measured".into(),
        Verdict::TesterLimited { ceiling_pps } => format!("{LIMITED} (ceiling {})", units::pps(*ceiling_pps)),
        Verdict::Nothing => "nothing came through".into(),
        Verdict::NotMet { min_pps, judged: true, .. } => {
            format!("every load down to {} loses more", units::pps(*min_pps))
        }
        Verdict::NotMet { min_pps, units, judged: false } => {
            format!(
                "none down to {}: a trial of {} units cannot judge it",
                units::pps(*min_pps),
                units::grouped(*units)
            )
        }
        Verdict::SameLoss { loss_ratio, min_pps, max_pps } => format!(
            "loses {} at every load, {} to {}",
            units::percent(*loss_ratio),
            units::pps(*min_pps),
            units::pps(*max_pps)
        ),
        Verdict::Unfinished { reason } => format!("no verdict: {reason}"),
        Verdict::Void { reason } => format!("void: {reason}"),
    }
}

/// The label of a frame where room is scarce: `64`, `4096/3`, `imix`.
pub(crate) fn short(frame: &FrameSpec) -> String {
    match frame {
        FrameSpec::Datagram { payload, fragments } => format!("{payload}/{fragments}"),
        other => other.label(),
    }
}

/// The trial that shows the box at its throughput: it counts, the box was observed, and its load is the nearest.
pub(crate) fn at_throughput(point: &Point) -> Option<&Trial> {
    nearest(point, main_goal(point)?.lower_pps?, |t| !t.observed.classes.is_empty() || !t.observed.cores.is_empty())
}

/// The trial nearest to the load at which the box failed, with the drops that were seen in it.
pub(crate) fn at_failure(point: &Point) -> Option<&Trial> {
    nearest(point, main_goal(point)?.upper_pps?, |t| !t.observed.drops.is_empty())
}

fn nearest(point: &Point, pps: f64, fits: impl Fn(&Trial) -> bool) -> Option<&Trial> {
    let distance = |t: &Trial| (t.intended_pps.unwrap_or(t.offered_pps) / pps - 1.0).abs();
    let trials = point.trials.iter().filter(|t| t.invalid.is_none() && t.frame == point.frame && fits(t));
    trials.min_by(|a, b| distance(a).total_cmp(&distance(b)).then(b.seconds.total_cmp(&a.seconds)))
}

/// The load of the box's cores in percent; none where it was not seen.
pub(crate) fn busy_percent(trial: &Trial) -> Option<f64> {
    let classes = &trial.observed.classes;
    let busy = classes.iter().filter(|(class, _)| class.is_busy()).map(|(_, percent)| percent).sum();
    (!classes.is_empty()).then_some(busy)
}

/// The dearest classes of the box's cores, in percent.
pub(crate) fn dearest(trial: &Trial, n: usize) -> Vec<(Class, f64)> {
    let mut classes: Vec<(Class, f64)> =
        trial.observed.classes.iter().filter(|(c, _)| c.is_busy()).map(|(c, p)| (*c, *p)).collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    classes.truncate(n);
    classes
}

/// The worse of both directions.
pub(crate) fn worse(delays: &[Option<Delays>; 2]) -> Option<&Delays> {
    delays.iter().flatten().max_by_key(|d| d.p99_ns)
}

/// Jitter of RFC 3550 in nanoseconds, of the worse direction.
pub(crate) fn jitter_ns(latency: &Latency) -> Option<f64> {
    latency.one_way.iter().flatten().filter_map(|d| d.jitter_ns).reduce(f64::max)
}

/// The jitter that stands for a point: the mean of its readings at the throughput, or that at the highest load of latency.
pub(crate) fn jitter_of(point: &Point) -> Option<f64> {
    let readings = point.jitter.as_ref().and_then(|j| j.mean_ns.iter().flatten().copied().reduce(f64::max));
    readings.or_else(|| jitter_ns(highest_load(point)?))
}

pub(crate) fn highest_load(point: &Point) -> Option<&Latency> {
    point.latency.iter().filter(|l| l.load > 0.0).max_by(|a, b| a.load.total_cmp(&b.load))
}

/// Delay variation of RFC 5481 (PDV), percentile 99, in nanoseconds, of the worse direction.
pub(crate) fn pdv_ns(latency: &Latency) -> Option<f64> {
    latency.pdv_p99_ns.iter().flatten().max().map(|&ns| ns as f64)
}

/// The load as a word: `idle`, `95 %`.
pub(crate) fn load(latency: &Latency) -> String {
    if latency.load > 0.0 { format!("{:.0} %", 100.0 * latency.load) } else { "idle".into() }
}

/// The points of loss over offered rate, by rising load, and whether they are a curve of their own or the trials of the searches.
pub(crate) fn losses(point: &Point) -> (Vec<(f64, f64)>, bool) {
    let own = !point.loss_curve.is_empty();
    let mut losses: Vec<(f64, f64)> = if own {
        point.loss_curve.iter().map(|p| (p.offered_pps, p.loss_ratio)).collect()
    } else {
        // Where the rate changed in mid-trial, loss over the mean rate says nothing.
        let steady = |t: &&Trial| t.intended_pps.is_some() && t.last_loss_after_ns.iter().all(Option::is_none);
        // Trials of one load differ: their median stands for them.
        let mut by_load: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for trial in point.trials.iter().filter(|t| t.invalid.is_none()).filter(steady) {
            by_load.entry(trial.intended_pps.unwrap_or(0.0).round() as u64).or_default().push(trial.loss_ratio());
        }
        by_load.into_iter().map(|(load, losses)| (load as f64, median(losses))).collect()
    };
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    (losses, own)
}

/// The middle of some values; of an even number the lower middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// A number of seconds as time: `1.50 s`, `12.0 µs`.
pub(crate) fn seconds(s: f64) -> String {
    units::nanoseconds(1e9 * s)
}

/// The value, or a dash.
pub(crate) fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_seen() {
        assert_eq!(median(vec![0.9, 0.0, 0.1]), 0.1);
        assert_eq!(median(vec![0.3, 0.1, 0.2, 0.9]), 0.2);
        assert_eq!((median(vec![0.5]), median(Vec::new())), (0.5, 0.0));
    }
}
