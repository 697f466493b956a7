//! Loss against offered rate (RFC 2544, section 26.3).

use std::time::Duration;

use model::{
    bench::{LossPoint, NO_LOSS},
    units,
};

use super::{Bench, Tried};
use crate::{BenchError, Load, search::CurveOrder};

/// Loads that lie closer together than this, as a share, are one.
const DISTANCE_MIN: f64 = 0.03;
/// A trial has so many units if it can: then one lost in a thousand shows …
const UNIT_COUNT: f64 = 5000.0;
/// … and it becomes so many times as long for it at most.
const LENGTH_FACTOR_MAX: f64 = 10.0;

/// Trials from the highest rate downwards in even steps until several in a row lose nothing; a load that the tester cannot offer is left
/// out. Where the box is much slower than the tester, the steps begin in the neighbourhood of its throughput, where the curve bends.
pub fn loss_curve(
    bench: &mut Bench<'_>,
    settings: &CurveOrder,
    highest_pps: f64,
    throughput_pps: Option<f64>,
) -> Result<Vec<LossPoint>, BenchError> {
    let mut points: Vec<LossPoint> = Vec::new();
    for pps in loads(settings, highest_pps, throughput_pps) {
        // A loss of nothing is to mean something.
        let seconds =
            (UNIT_COUNT / pps).min(settings.trial.as_secs_f64() * LENGTH_FACTOR_MAX).max(settings.trial.as_secs_f64());
        let duration = Duration::from_secs_f64(seconds);
        let order = bench.order(format!("loss at {}", units::pps(pps)), Load::Pps(pps), duration);
        let Tried::Good(trial) = bench.attempt(&order)? else { continue };
        if throughput_pps.is_some() {
            bench.require_life(&trial)?;
        }
        points.push(LossPoint {
            offered_pps: trial.offered_pps,
            received_pps: trial.received_pps,
            loss_ratio: trial.loss_ratio(),
            units: trial.total().sent,
            late_ratio: trial.failed_ratio() - trial.loss_ratio(),
        });
        let is_clean = |p: &&LossPoint| p.loss_ratio == 0.0 && p.late_ratio <= NO_LOSS;
        let clean = points.iter().rev().take_while(is_clean).count();
        if clean >= settings.clean.max(1) as usize {
            break;
        }
    }
    Ok(points)
}

/// The loads by falling rate: the highest of all, then steps.
fn loads(settings: &CurveOrder, highest: f64, throughput: Option<f64>) -> Vec<f64> {
    let from = throughput.map_or(highest, |t| highest.min(t * settings.from));
    let steps = (1.0 / settings.step.clamp(0.001, 0.5)).floor() as u32;
    let mut loads = vec![highest];
    loads.extend((0..steps).map(|i| from * (1.0 - f64::from(i) * settings.step)).filter(|&l| l > 0.0));
    loads.dedup_by(|lower, upper| *lower > *upper * (1.0 - DISTANCE_MIN));
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{methods::simulated::SimBox, search::Preset};

    #[test]
    fn it_ends_after_two_loads_without_loss() {
        let mut tester = SimBox { capacity_pps: 655_000.0, ..SimBox::default() };
        let settings = Preset::rfc2544().loss_curve;
        let points = tester.with(|bench| loss_curve(bench, &settings, 1e6, None)).unwrap();
        let percent: Vec<u32> = points.iter().map(|p| (p.offered_pps / 1e4).round() as u32).collect();
        assert_eq!(percent, [100, 90, 80, 70, 60, 50]);
        assert!((points[0].loss_ratio - 0.345).abs() < 0.001, "{points:?}");
        assert_eq!((points[4].loss_ratio, points[5].loss_ratio), (0.0, 0.0));
    }

    #[test]
    fn a_slow_box_shows_its_bend_too() {
        let mut tester = SimBox { capacity_pps: 20_000.0, ..SimBox::default() };
        let settings = Preset::quick().loss_curve;
        let points = tester.with(|bench| loss_curve(bench, &settings, 1e6, Some(20_000.0))).unwrap();
        let near = points.iter().filter(|p| p.offered_pps < 30_001.0).count();
        assert!(near >= 5, "{points:?}");
        assert!(points.windows(2).all(|w| w[0].offered_pps > w[1].offered_pps));
        assert_eq!(points.last().unwrap().loss_ratio, 0.0);
    }

    #[test]
    fn loads_that_cannot_be_offered_are_no_points() {
        let mut tester = SimBox { ceiling_pps: 550_000.0, ..SimBox::default() };
        let settings = Preset::rfc2544().loss_curve;
        let points = tester.with(|bench| loss_curve(bench, &settings, 1e6, None)).unwrap();
        assert!(points.iter().all(|p| p.offered_pps <= 550_000.0), "{points:?}");
        assert_eq!(points.len(), 2);
    }
}
