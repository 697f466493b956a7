//! Loss over the offered rate.

use model::bench::{Mode, Point};

use crate::{
    bench::figures::{self, Figures, short},
    chart::{
        Dash, Look, Mark,
        columns::significant,
        lines::{self, Dot, Line},
        plane::{Across, Up},
        rows,
        scale::{Scale, number},
    },
};

/// Loss over the offered rate: a panel for each mode, a line for each kind of frame.
pub(crate) fn losses<'a>(figures: Figures<'a>) -> Vec<(&'a Mode, String)> {
    const SHADES: [&str; 9] =
        ["#2f7fc1", "#00a3a3", "#1a9850", "#8cb400", "#d0a000", "#e8701a", "#c2334d", "#9b6bb8", "#8a949e"];
    let frames = figures.frames();
    let modes = figures.0.modes.iter().filter_map(|mode| {
        let line = |point: &Point| {
            let at = frames.iter().position(|f| **f == point.frame).unwrap_or(0);
            let look = Look { colour: SHADES[at % SHADES.len()], dash: Dash::Solid, mark: Mark::Circle };
            let (points, _) = figures::losses(point);
            let dot = |(pps, loss): (f64, f64)| {
                let (x, y) = (pps / 1e3, 100.0 * loss);
                Dot { x, y, tip: format!("{} % of {} kpps", significant(y), significant(x)) }
            };
            Line { name: short(&point.frame), look, dots: points.into_iter().map(dot).collect() }
        };
        let all: Vec<Line> = mode.points.iter().map(line).filter(|l| !l.dots.is_empty()).collect();
        let offered = all.iter().flat_map(|l| &l.dots).map(|d| d.x);
        let across =
            Across::Numbers { scale: Scale::from_zero(offered, 6), name: |kpps| rows::rate(1e3 * kpps), title: None };
        let up = Up { scale: Scale::linear(-2.0, 102.0), name: |v| format!("{} %", number(v)), title: None };
        let label = "Lines: loss over the offered rate, one for each frame size; the figures are in the tables below";
        let id = format!("loss-{}", mode.key);
        (!all.is_empty()).then(|| (mode, lines::chart(&id, label, &across, &up, &all, None)))
    });
    modes.collect()
}
