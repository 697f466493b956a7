//! Latency: round trips as the study takes them (FW-3), and one-way delays, idle and under load.

use model::{
    bench::{Delays, Discarded, Judged, Latency, Trial, judge},
    units,
};
use rig::repeat::sorted;

use super::{Bench, Tried};
use crate::{BenchError, Load, Order, Probes, Stamping, search::LatencyOrder};

/// Series of one load contradict each other when the highest mean is more than so many times the least.
const MEAN_RATIO_MAX: f64 = 3.0;

/// Latency at each load of the settings, as a share of `throughput_pps`; without a throughput, on an idle box alone.
pub fn latency(
    bench: &mut Bench<'_>,
    settings: &LatencyOrder,
    throughput_pps: Option<f64>,
) -> Result<Vec<Latency>, BenchError> {
    let mut found = Vec::new();
    for &load in &settings.loads {
        let offered = match throughput_pps {
            _ if load == 0.0 => 0.0,
            Some(throughput) => throughput * load,
            None => continue,
        };
        found.push(at(bench, settings, load, offered)?);
    }
    flag_idle(&mut found);
    Ok(found)
}

/// Marks an idle latency that is above a loaded one. That is real (power states, batching), and kept.
pub fn flag_idle(found: &mut [Latency]) {
    let Some(idle_ns) = found.iter().find(|l| l.load == 0.0).and_then(|l| l.round_trip_ns) else { return };
    let loaded = found.iter().filter(|l| l.load > 0.0).filter_map(|l| Some((l.load, l.round_trip_ns?)));
    let Some((load, loaded_ns)) = loaded.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|l| l.1 < idle_ns) else { return };
    let flag = format!(
        "the idle box is slower ({}) than at {} of its throughput ({}): cores that sleep wake up late, and loaded ones work in batches",
        units::nanoseconds(idle_ns),
        units::percent(load),
        units::nanoseconds(loaded_ns)
    );
    found.iter_mut().filter(|l| l.load == 0.0).for_each(|l| l.flags.push(flag.clone()));
}

fn at(bench: &mut Bench<'_>, settings: &LatencyOrder, load: f64, offered: f64) -> Result<Latency, BenchError> {
    let wanted = settings.series.max(1) as usize;
    let mut good: Vec<Series> = Vec::new();
    let mut flags = Vec::new();
    let (mut discarded, mut causes, mut probes_lost) = (0, Discarded::default(), 0);
    loop {
        let enough = good.len() >= wanted;
        // Of series that contradict each other, a few more tell which are the exception.
        let further = good.len().saturating_sub(wanted) as u32;
        let settled = || contradiction(&best(&good, settings)).is_none();
        if (enough && (discarded + further >= settings.discarded || settled()))
            || (!enough && discarded > settings.discarded)
        {
            break;
        }
        let number = good.len() as u32 + discarded + 1;
        match bench.attempt(&order(bench, settings, (load, offered), number))? {
            Tried::Void { reason, .. } => {
                let flag = format!("a series could not be measured: {reason}");
                if !flags.contains(&flag) {
                    flags.push(flag);
                }
                causes.invalid += 1;
                discarded += 1;
            }
            Tried::Good(trial) => {
                bench.require_life(&trial)?;
                probes_lost += trial.probes.0.saturating_sub(trial.probes.1);
                match Series::new(trial, settings, &mut causes) {
                    Some(series) => good.push(series),
                    None => discarded += 1,
                }
            }
        }
    }
    let best = best(&good, settings);
    let contradiction_ns = contradiction(&best);
    if let Some([least, most]) = contradiction_ns {
        flags.push(format!(
            "no mean: series of the same load contradict each other, {} and {} ({:.1} times as long)",
            units::nanoseconds(least),
            units::nanoseconds(most),
            most / least.max(1.0)
        ));
    }
    let middle = middle(&good).filter(|_| contradiction_ns.is_none());
    let delays = |pick: fn(&Trial) -> [Option<Delays>; 2]| middle.map_or([None; 2], pick);
    let one_way = delays(|t| t.one_way);
    let offered_pps = middle.map_or(offered, |t| t.offered_pps);
    let ipdv = delays(|t| t.ipdv);
    let series_ns = sorted(good.iter().map(|s| s.mean_ns));
    let round_trip_ns =
        (!best.is_empty() && contradiction_ns.is_none()).then(|| best.iter().sum::<f64>() / best.len() as f64);
    Ok(Latency {
        load,
        offered_pps,
        one_way,
        pdv_p99_ns: one_way.map(|d| d.map(|d| d.p99_ns.saturating_sub(d.min_ns))),
        ipdv,
        round_trip_ns,
        contradiction_ns,
        series_ns,
        discarded,
        causes,
        series_planned: wanted as u32,
        probes_lost,
        flags,
    })
}

fn order(bench: &Bench<'_>, settings: &LatencyOrder, (load, offered): (f64, f64), number: u32) -> Order {
    let of = if load == 0.0 { "an idle box".to_owned() } else { format!("{} of throughput", units::percent(load)) };
    let kind = if load == 0.0 { Load::Idle } else { Load::Pps(offered) };
    let mut order = bench.order(format!("latency of {of}, series {number}"), kind, settings.load);
    order.probes = Some(Probes { every: settings.probes_every, after: settings.probes_after });
    order.stamping = Stamping::Every;
    order
}

/// A series of probes that agrees with itself.
struct Series {
    trial: Box<Trial>,
    mean_ns: f64,
}

impl Series {
    /// None when less than half of the probes came back, when more of the load was lost than a throughput may lose (the box was overloaded,
    /// and its full queue is the steadiest of all), or when the round trips have so much spread that the mean says nothing. The cause is counted.
    fn new(trial: Box<Trial>, settings: &LatencyOrder, causes: &mut Discarded) -> Option<Self> {
        // The load goes on after the last probe of the series; what was sent then does not belong to it.
        let trips = &trial.round_trips_ns[..trial.round_trips_ns.len().min(settings.probes.max(1) as usize)];
        // An overloaded box loses probes too: the load is the cause.
        let total = trial.total();
        let cause = if judge(settings.loss_ratio, total.sent, total.failed()) == Judged::Beyond {
            &mut causes.overloaded
        } else if trips.is_empty() || trial.probes.1 * 2 < trial.probes.0 {
            &mut causes.unanswered
        } else if spread(trips) > settings.agreement {
            &mut causes.inconsistent
        } else {
            let mean_ns = trips.iter().sum::<u64>() as f64 / trips.len() as f64;
            return Some(Self { trial, mean_ns });
        };
        *cause += 1;
        None
    }
}

/// The distance of the quartiles as a share of the median: one probe that met a stall of the machine does not make a series disagree.
fn spread(trips: &[u64]) -> f64 {
    let mut trips = trips.to_vec();
    trips.sort_unstable();
    let at = |share: usize| trips[(trips.len() - 1) * share / 4] as f64;
    (at(3) - at(1)) / at(2).max(1.0)
}

/// The lowest means, as many as count.
fn best(good: &[Series], settings: &LatencyOrder) -> Vec<f64> {
    let mut means = sorted(good.iter().map(|s| s.mean_ns));
    means.truncate(settings.best.max(1) as usize);
    means
}

/// The least and the highest of rising means if they lie so far apart that a mean of them says nothing. Of ten and more the outermost tenth
/// on each side does not count.
fn contradiction(means: &[f64]) -> Option<[f64; 2]> {
    let last = means.len().checked_sub(1)?;
    let (least, most) = (means[last / 10], means[last - last / 10]);
    (most > MEAN_RATIO_MAX * least).then_some([least, most])
}

/// The series whose median delay is the middle one: distributions cannot be added up from their percentiles.
fn middle(series: &[Series]) -> Option<&Trial> {
    let key = |t: &Trial| t.one_way.iter().flatten().map(|d| d.p50_ns).max().unwrap_or(0);
    let mut order: Vec<&Trial> = series.iter().map(|s| &*s.trial).collect();
    order.sort_by_key(|t| key(t));
    order.get(order.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    fn measure(tester: &mut SimBox, settings: &LatencyOrder, throughput: Option<f64>) -> Vec<Latency> {
        let settings = settings.clone();
        tester.with(|b| latency(b, &settings, throughput)).unwrap()
    }

    #[test]
    fn each_load_has_its_round_trip_and_its_delays() {
        let mut tester = SimBox { delay_ns: 2_000_000.0, ..SimBox::default() };
        let found = measure(&mut tester, &Preset::quick().latency, Some(400_000.0));
        let loads: Vec<f64> = found.iter().map(|l| l.load).collect();
        assert_eq!(loads, [0.0, 0.1, 0.5, 0.9, 0.95]);
        for l in &found {
            assert!((l.round_trip_ns.unwrap() - 4e6).abs() < 0.05 * 4e6, "{l:?}");
            assert_eq!(l.one_way[0].is_some(), l.load > 0.0);
        }
        assert_eq!((found[0].series_ns.len(), found[1].series_ns.len(), found[4].series_ns.len()), (2, 2, 2));
        assert!((found[4].offered_pps - 380_000.0).abs() < 1.0);
    }

    #[test]
    fn the_mean_is_that_of_the_six_best_of_nine() {
        // Each series is slower than the one before.
        let mut tester = SimBox { delay_ns: 1000.0, drift_ns: 100.0, ..SimBox::default() };
        let settings = LatencyOrder { loads: vec![0.0], ..Preset::study().latency };
        let found = measure(&mut tester, &settings, None);
        assert_eq!(found[0].series_ns.len(), 9);
        let best: f64 = (0..6).map(|i| 2.0 * (1000.0 + 100.0 * f64::from(i))).sum::<f64>() / 6.0;
        assert!((found[0].round_trip_ns.unwrap() - best).abs() < 0.02 * best, "{found:?}");
    }

    #[test]
    fn a_series_that_does_not_agree_with_itself_is_thrown_away_and_made_again() {
        let mut tester = SimBox { wild_every: 2, ..SimBox::default() };
        let settings = LatencyOrder { loads: vec![0.0], ..Preset::study().latency };
        let found = measure(&mut tester, &settings, None);
        assert_eq!((found[0].series_ns.len(), found[0].discarded, found[0].flags.len()), (9, 8, 0));

        let mut always = SimBox { wild_every: 1, ..SimBox::default() };
        let found = measure(&mut always, &settings, None);
        assert_eq!((found[0].series_ns.len(), found[0].round_trip_ns, found[0].discarded), (0, None, 10));
        assert_eq!(found[0].causes, Discarded { inconsistent: 10, ..Discarded::default() });
        assert_eq!((found[0].series_planned, found[0].flags.len()), (9, 0), "{found:?}");
    }

    #[test]
    fn one_probe_that_met_a_stall_does_not_make_a_series_disagree() {
        assert_eq!(spread(&[100, 100, 9000, 100, 100]), 0.0);
        // One half at 100, the other at 300.
        assert_eq!(spread(&[300, 100, 300, 100, 300, 100, 300, 100]), 2.0);
        assert_eq!((spread(&[7]), spread(&[0, 0])), (0.0, 0.0));
        let mut tester = SimBox { stall_every: 1, ..SimBox::default() };
        let settings = LatencyOrder { loads: vec![0.0], ..Preset::study().latency };
        let found = measure(&mut tester, &settings, None);
        assert_eq!((found[0].series_ns.len(), found[0].discarded), (9, 0));
    }

    #[test]
    fn a_series_of_an_overloaded_box_is_thrown_away_however_steady_its_delay_is() {
        let settings = LatencyOrder { loads: vec![0.95], ..Preset::quick().latency };
        assert_eq!(settings.loss_ratio, 0.001);
        // The box does 380,000 of 383,800 units per second: 1 % is lost.
        let mut tester = SimBox { capacity_pps: 380_000.0, ..SimBox::default() };
        let found = measure(&mut tester, &settings, Some(404_000.0));
        assert_eq!((found[0].series_ns.len(), found[0].round_trip_ns, found[0].one_way), (0, None, [None; 2]));
        assert_eq!(found[0].discarded, settings.discarded + 1);
        assert_eq!(found[0].causes, Discarded { overloaded: settings.discarded + 1, ..Discarded::default() });
        // A loss that the settings allow is no overload.
        let lenient = LatencyOrder { loss_ratio: 0.02, ..settings.clone() };
        let found = measure(&mut tester, &lenient, Some(404_000.0));
        assert_eq!((found[0].series_ns.len(), found[0].discarded), (settings.series as usize, 0));
    }

    #[test]
    fn an_idle_box_that_is_slower_than_a_loaded_one_is_flagged_and_kept() {
        let mut tester = SimBox { idle_ns: 90_000.0, delay_ns: 10_000.0, ..SimBox::default() };
        let found = measure(&mut tester, &Preset::quick().latency, Some(400_000.0));
        assert!(found[0].flags[0].contains("the idle box is slower"), "{found:?}");
        assert!(found[0].round_trip_ns.unwrap() > found[4].round_trip_ns.unwrap() && found[4].flags.is_empty());
    }

    #[test]
    fn series_that_contradict_each_other_make_no_mean() {
        let settings = LatencyOrder { loads: vec![0.0], ..Preset::quick().latency };
        // The first one met what was left of a trial before it; two more agree.
        let mut tester = SimBox { delay_ns: 4e6, slow_trials: 1, ..SimBox::default() };
        let found = &measure(&mut tester, &settings, None)[0];
        assert!((found.round_trip_ns.unwrap() - 8e6).abs() < 1e5, "{found:?}");
        assert_eq!((found.series_ns.len(), found.contradiction_ns, found.flags.len()), (3, None, 0));
        // Each is thirteen times as slow as the one before.
        let mut never = SimBox { delay_ns: 4e6, slow_trials: u32::MAX, ..SimBox::default() };
        let found = &measure(&mut never, &settings, None)[0];
        let [least, most] = found.contradiction_ns.unwrap();
        assert!(most / least > 12.0, "{found:?}");
        assert_eq!((found.round_trip_ns, found.one_way, found.flags.len()), (None, [None; 2], 1));
        assert_eq!(found.series_ns.len() as u32, settings.series + settings.discarded);
        // Of many, one that differs makes no contradiction.
        let many: Vec<f64> = (0..20).map(|i| if i == 19 { 1000.0 } else { 10.0 }).collect();
        assert_eq!((contradiction(&many), contradiction(&[])), (None, None));
    }

    #[test]
    fn without_a_throughput_there_is_the_idle_box_alone() {
        let found = measure(&mut SimBox::default(), &Preset::quick().latency, None);
        assert_eq!((found.len(), found[0].load), (1, 0.0));
    }
}
