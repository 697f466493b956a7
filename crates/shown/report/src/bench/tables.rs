//! The tables of a bench, for text and page alike.

use std::collections::BTreeMap;

use model::{
    bench::{
        BackToBack, Discarded, FrameSpec, GoalResult, Jitter, Latency, Mode, Point, Recovery, Reset, Trial, Verdict,
    },
    profile::Class,
    units,
};

use super::{
    figures::{self, Figures, or_dash, seconds, short},
    table::Table,
};

/// Every test that was made of the mode; latency idle and at the highest load only, unless at every load.
pub(crate) fn all(figures: Figures<'_>, mode: &Mode, every_load: bool) -> Vec<Table> {
    let tables = [
        throughput(figures, mode),
        cpu(mode),
        latency(mode, every_load),
        jitter(mode),
        losses(figures, mode),
        back_to_back(mode),
        recovery(mode),
        resets(mode),
    ];
    tables.into_iter().filter(|t| !t.rows.is_empty()).collect()
}

/// RFC 2544, section 26.1.
fn throughput(figures: Figures<'_>, mode: &Mode) -> Table {
    let heads = vec![
        "Frame",
        "Goal",
        ">Total",
        ">Each way",
        ">Fails at",
        ">Came through",
        ">Payload",
        ">>Frames",
        ">>Of the ceiling",
        ">>Of the line",
        ">>Trials",
        "Verdict",
    ];
    let goals = figures.0.setup.goals.len() > 1;
    let row = |point: &Point, found: &GoalResult, verdict: &Verdict| {
        let pps = found.lower_pps.filter(|_| !matches!(verdict, Verdict::Void { .. }));
        let rate = |share: f64| pps.map(|pps| units::pps(share * pps));
        let of = |all: Option<f64>| pps.zip(all).map_or_else(String::new, |(pps, all)| units::percent(pps / all));
        let both = figures.0.setup.bidirectional;
        vec![
            short(&point.frame),
            if goals { found.goal.name.clone() } else { String::new() },
            or_dash(rate(1.0)),
            if both { or_dash(rate(0.5)) } else { String::new() },
            or_dash(found.upper_pps.map(units::pps)),
            or_dash(found.forwarded_pps.map(|[low, _, high]| pps_range(low, high))),
            or_dash(pps.map(|pps| units::bits_per_second(figures.payload_bps(&point.frame, pps)))),
            or_dash(pps.map(|pps| frames(figures, &point.frame, pps))),
            of(point.ceiling_pps),
            of(figures.line_pps(&point.frame)),
            format!("{} in {}", found.trials, seconds(found.seconds)),
            if *verdict == Verdict::Measured { String::new() } else { figures::verdict(verdict) },
        ]
    };
    let rows = mode.points.iter().filter_map(|p| Some((p, p.throughput.as_ref()?)));
    let rows = rows.flat_map(|(p, t)| t.results.iter().map(move |f| row(p, f, &t.verdict))).collect();
    let heading = format!("throughput (RFC 2544, 26.1), units per second, {}", figures.total_of());
    Table::new(heading, heads, rows, Vec::new())
}

/// Bits of Ethernet frames; of datagrams the frames per second as well.
fn frames(figures: Figures<'_>, frame: &FrameSpec, pps: f64) -> String {
    let bits = units::bits_per_second(figures.frame_bps(frame, pps));
    match frame.frames_per_unit() {
        1 => bits,
        n => format!("{bits}, {} frames", units::pps(pps * f64::from(n))),
    }
}

/// `790-801 kpps`, or one rate where both read the same.
fn pps_range(low: f64, high: f64) -> String {
    let (low, high) = (units::pps(low), units::pps(high));
    match (low.split_once(' '), high.split_once(' ')) {
        _ if low == high => high,
        (Some((number, a)), Some((_, b))) if a == b => format!("{number}-{high}"),
        _ => format!("{low} to {high}"),
    }
}

/// The load of the box at its throughput, and where it drops beyond.
fn cpu(mode: &Mode) -> Table {
    let heads = vec![
        "Frame",
        ">Box's cores",
        "Top classes, %",
        ">>Tester's ends on them",
        "~Every core, %",
        "Where it drops beyond its throughput",
    ];
    let row = |point: &Point| {
        let trial = figures::at_throughput(point)?;
        let drops = figures::at_failure(point).and_then(|t| t.observed.drops.first());
        Some(vec![
            short(&point.frame),
            or_dash(figures::busy_percent(trial).map(|p| format!("{p:.0} %"))),
            shares(&figures::dearest(trial, 3)),
            match trial.observed.tester_percent {
                percent if percent > 0.0 => format!("{percent:.0} %"),
                _ => String::new(),
            },
            cores(trial),
            drops.map_or_else(String::new, |d| d.place.clone()),
        ])
    };
    Table::new("CPU at the throughput", heads, mode.points.iter().filter_map(row).collect(), Vec::new())
}

fn shares(classes: &[(Class, f64)]) -> String {
    classes.iter().map(|(class, percent)| format!("{class} {percent:.0}")).collect::<Vec<_>>().join(", ")
}

fn cores(trial: &Trial) -> String {
    let busy = trial.observed.cores.iter().map(|c| format!("{:.0}", c.busy_percent()));
    busy.collect::<Vec<_>>().join(" ")
}

/// RFC 2544, section 26.2, and RFC 5481.
fn latency(mode: &Mode, every_load: bool) -> Table {
    let heads = vec![
        "Frame",
        ">Load",
        ">Offered",
        ">p50",
        ">>p90",
        ">p99",
        ">p99.9",
        ">>Most",
        ">Jitter",
        ">PDV p99",
        ">Round trip",
    ];
    let delay = |ns: Option<f64>| or_dash(ns.map(units::nanoseconds));
    let row = |point: &Point, l: &Latency| {
        let one_way = |get: fn(&model::bench::Delays) -> u64| delay(figures::worse(&l.one_way).map(|d| get(d) as f64));
        vec![
            short(&point.frame),
            figures::load(l),
            if l.load > 0.0 { units::pps(l.offered_pps) } else { "-".into() },
            one_way(|d| d.p50_ns),
            one_way(|d| d.p90_ns),
            one_way(|d| d.p99_ns),
            one_way(|d| d.p999_ns),
            one_way(|d| d.max_ns),
            delay(figures::jitter_ns(l)),
            delay(figures::pdv_ns(l)),
            delay(l.round_trip_ns),
        ]
    };
    let all = || mode.points.iter().flat_map(|p| p.latency.iter().map(move |l| (p, l)));
    // What is to be said of many points is said once.
    let mut by_flag: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (p, l) in all() {
        let mut flags = l.flags.clone();
        if l.discarded > 0 {
            flags.push(discarded(l));
        }
        if l.probes_lost > 0 {
            let probes = if l.probes_lost == 1 { "probe" } else { "probes" };
            flags.push(format!("{} {probes} did not come back", units::grouped(l.probes_lost)));
        }
        for flag in flags {
            by_flag.entry(flag).or_default().push(format!("{} {}", short(&p.frame), figures::load(l)));
        }
    }
    let notes = by_flag.into_iter().map(|(flag, places)| format!("{flag}: {}", places.join(", "))).collect();
    let shown = all()
        .filter(|(p, l)| every_load || l.load == 0.0 || figures::highest_load(p).is_some_and(|h| h.load == l.load));
    Table::new(
        "latency (RFC 2544, 26.2): one way by percentile, jitter (RFC 3550), delay variation (RFC 5481)",
        heads,
        shown.map(|(p, l)| row(p, l)).collect(),
        notes,
    )
}

/// Number of series that count, and of those that do not, with the reason.
fn discarded(l: &Latency) -> String {
    let Discarded { invalid, overloaded, unanswered, inconsistent } = l.causes;
    let causes: Vec<String> = [
        (overloaded, "lost too much of the load"),
        (unanswered, "lost half of the probes or more"),
        (inconsistent, "did not agree with themselves"),
        (invalid, "could not be measured"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{n} {}", if n == 1 { what.replace("themselves", "itself") } else { what.to_owned() }))
    .collect();
    let count = l.series_ns.len();
    // Runs that were saved before the causes were kept have none.
    let why = |what: &str| if causes.is_empty() { String::new() } else { format!("{what}{}", causes.join(", ")) };
    match (count, l.series_planned as usize) {
        (0, wanted) if wanted > 0 => {
            format!("no latency: {} of {} series do not count{}", l.discarded, l.discarded, why(": "))
        }
        (_, wanted) if count < wanted => {
            format!("{count} of {wanted} series, {} more do not count{}", l.discarded, why(": "))
        }
        _ => {
            let verb = if l.discarded == 1 { "does" } else { "do" };
            let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
            format!("{} series {verb} not count{causes}", l.discarded)
        }
    }
}

/// RFC 3550, section 6.4.1, read again and again at the throughput.
fn jitter(mode: &Mode) -> Table {
    let heads = vec!["Frame", ">Offered", ">Forward", ">Backward", ">Least", ">Most", ">Readings"];
    let delay = |ns: Option<f64>| ns.map_or_else(String::new, units::nanoseconds);
    let row = |p: &Point, j: &Jitter| {
        let readings = || j.readings_ns.iter().flatten().flatten().copied();
        vec![
            short(&p.frame),
            units::pps(j.offered_pps),
            delay(j.mean_ns[0]),
            delay(j.mean_ns[1]),
            delay(readings().reduce(f64::min)),
            delay(readings().reduce(f64::max)),
            format!("{} of {}", j.readings_ns.len(), seconds(j.reading_s)),
        ]
    };
    let rows = mode.points.iter().filter_map(|p| Some(row(p, p.jitter.as_ref()?))).collect();
    Table::new("jitter at the throughput (RFC 3550), means of readings", heads, rows, Vec::new())
}

/// RFC 2544, section 26.3.
fn losses(figures: Figures<'_>, mode: &Mode) -> Table {
    let of = if figures.0.setup.line_bits_per_s.is_some() { ">Of the line" } else { ">Of the ceiling" };
    let late = mode.points.iter().flat_map(|p| &p.loss_curve).any(|l| l.late_ratio > 0.0);
    let heads = vec!["Frame", ">Offered", of, ">Came through", ">Loss", ">Late", ">>Units"];
    let rows = mode.points.iter().flat_map(|point| {
        let theory = figures.theory(point);
        point.loss_curve.iter().map(move |l| {
            vec![
                short(&point.frame),
                units::pps(l.offered_pps),
                theory.map_or_else(String::new, |pps| units::percent(l.offered_pps / pps)),
                units::pps(l.received_pps),
                units::percent(l.loss_ratio),
                if late { units::percent(l.late_ratio) } else { String::new() },
                if l.units > 0 { units::grouped(l.units) } else { String::new() },
            ]
        })
    });
    let note =
        "Late units came after the box's time was over: they were held in buffers, and are not in \"came through\".";
    let notes = late.then(|| note.to_owned()).into_iter().collect();
    Table::new("frame loss (RFC 2544, 26.3)", heads, rows.collect(), notes)
}

/// RFC 2544, section 26.4, and RFC 9004.
fn back_to_back(mode: &Mode) -> Table {
    let heads = vec![
        "Frame",
        ">Mean burst",
        ">Least",
        ">Most",
        ">>Deviation",
        ">Repeats",
        ">At",
        ">Buffer, implied",
        ">Corrected",
    ];
    let row = |p: &Point, b: &BackToBack| {
        let count = |n: Option<&u64>| or_dash(n.map(|&n| units::grouped(n)));
        let n = b.bursts.len() as f64;
        let squares: f64 = b.bursts.iter().map(|&x| (x as f64 - b.mean).powi(2)).sum();
        vec![
            short(&p.frame),
            format!("{}{:.0}", if b.tester_limited { ">= " } else { "" }, b.mean),
            count(b.bursts.iter().min()),
            count(b.bursts.iter().max()),
            or_dash((n > 1.0).then(|| format!("{:.0}", (squares / (n - 1.0)).sqrt()))),
            format!("{n}"),
            units::pps(b.burst_pps),
            seconds(b.implied_buffer_s),
            or_dash(b.corrected_buffer_s.map(seconds)),
        ]
    };
    let all = || mode.points.iter().filter_map(|p| Some((p, p.back_to_back.as_ref()?)));
    let limited = all().any(|(_, b)| b.tester_limited);
    let note = "The longest burst that was tried passed where >= stands: the buffer is at least so long.";
    Table::new(
        "back-to-back (RFC 2544, 26.4; RFC 9004), units in the longest burst without loss",
        heads,
        all().map(|(p, b)| row(p, b)).collect(),
        limited.then(|| note.to_owned()).into_iter().collect(),
    )
}

/// RFC 2544, section 26.5.
fn recovery(mode: &Mode) -> Table {
    let heads = vec!["Frame", ">Overload", ">Then", ">Recovered after", "Each"];
    let row = |p: &Point, r: &Recovery| {
        vec![short(&p.frame), units::pps(r.overload_pps), units::pps(r.after_pps), seconds(r.mean_s), list(&r.seconds)]
    };
    let all = || mode.points.iter().filter_map(|p| Some((p, p.recovery.as_ref()?)));
    let notes = all().filter(|(_, r)| r.unfinished > 0).map(|(p, r)| {
        let (n, of) = (r.unfinished, r.seconds.len());
        format!(
            "{}: in {n} of {of} repetitions it still lost units at the end, and the time is a lower bound",
            short(&p.frame)
        )
    });
    let rows = all().map(|(p, r)| row(p, r)).collect();
    Table::new("recovery after overload (RFC 2544, 26.5)", heads, rows, notes.collect())
}

/// RFC 2544, section 26.6, and RFC 6201.
fn resets(mode: &Mode) -> Table {
    let heads = vec!["Frame", "What was reset", ">Offered", ">By loss", ">By time", "~Each by loss"];
    let row = |p: &Point, r: &Reset| {
        vec![
            short(&p.frame),
            r.what.clone(),
            units::pps(r.offered_pps),
            or_dash(mean(&r.by_loss_s)),
            or_dash(mean(&r.by_time_s)),
            list(&r.by_loss_s),
        ]
    };
    let rows = mode.points.iter().flat_map(|p| p.resets.iter().map(move |r| row(p, r)));
    Table::new("reset (RFC 2544, 26.6; RFC 6201), mean time without forwarding", heads, rows.collect(), Vec::new())
}

fn list(all: &[f64]) -> String {
    all.iter().map(|&s| seconds(s)).collect::<Vec<_>>().join(", ")
}

fn mean(all: &[f64]) -> Option<String> {
    (!all.is_empty()).then(|| seconds(all.iter().sum::<f64>() / all.len() as f64))
}

/// Published rates, each beside the same mode and frame of this run.
pub(crate) fn published(figures: Figures<'_>) -> Table {
    let heads = vec!["Mode", ">Frame", "On", ">Theirs", "Of", ">Here, total"];
    let mut citations: Vec<String> = Vec::new();
    let rows = figures.0.sources.iter().filter_map(|s| {
        let frame = FrameSpec::Size { bytes: s.frame_bytes };
        let modes = figures.0.modes.iter().filter(|m| m.key == s.mode);
        // What has nothing here to stand beside is left out.
        let here = modes.flat_map(|m| &m.points).find(|p| p.frame == frame).and_then(super::text::throughput_cell)?;
        if !citations.contains(&s.citation) {
            citations.push(s.citation.clone());
        }
        Some(vec![
            s.mode.clone(),
            s.frame_bytes.to_string(),
            s.platform.clone(),
            units::pps(s.pps),
            if s.per_direction { "one direction" } else { "both directions" }.to_owned(),
            here,
        ])
    });
    let rows = rows.collect();
    Table::new(format!("{}: never measured by evenkeel", crate::page::PUBLISHED), heads, rows, citations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(series: usize, wanted: u32, causes: Discarded) -> Latency {
        Latency {
            load: 0.95,
            offered_pps: 1e5,
            one_way: [None; 2],
            pdv_p99_ns: [None; 2],
            ipdv: [None; 2],
            series_ns: vec![1e5; series],
            discarded: 4,
            causes,
            series_planned: wanted,
            round_trip_ns: None,
            contradiction_ns: None,
            probes_lost: 0,
            flags: Vec::new(),
        }
    }

    #[test]
    fn each_cause_of_a_series_thrown_away_is_counted_by_itself() {
        let causes = Discarded { invalid: 1, overloaded: 2, unanswered: 0, inconsistent: 1 };
        let text =
            "4 series do not count (2 lost too much of the load, 1 did not agree with itself, 1 could not be measured)";
        assert_eq!(discarded(&with(2, 2, causes)), text);
        let overloaded = Discarded { overloaded: 4, ..Discarded::default() };
        let text = "no latency: 4 of 4 series do not count: 4 lost too much of the load";
        assert_eq!(discarded(&with(0, 2, overloaded)), text);
        assert_eq!(discarded(&with(1, 0, Discarded::default())), "4 series do not count");
    }
}
