//! Numbers, sparklines and bars as pieces of a line.

use std::collections::VecDeque;

use model::{CoreLoad, units};
use ratatui::{
    style::{Color, Style},
    text::{Line, Span},
};

use crate::controls::Controls;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The parts of a core's bar: word, letter where there is no colour, colour, share in percent.
pub(super) type Part = (&'static str, char, Color, fn(&CoreLoad) -> f64);

pub(super) const PARTS: [Part; 5] = [
    ("user", 'u', Color::Green, |l| l.user_percent),
    ("system", 's', Color::Blue, |l| l.system_percent),
    ("irq", 'i', Color::Magenta, |l| l.irq_percent),
    ("softirq", 'f', Color::Red, |l| l.softirq_percent),
    ("steal", 't', Color::Yellow, |l| l.steal_percent),
];

/// The newest values as blocks, the newest at the right, the largest of them full height.
pub(super) fn sparkline(history: Option<&VecDeque<f64>>, width: usize) -> String {
    let Some(history) = history else { return String::new() };
    let shown = history.iter().skip(history.len().saturating_sub(width));
    let most = shown.clone().copied().fold(0.0, f64::max);
    let blocks: String = shown
        .map(|&v| if v <= 0.0 { ' ' } else { LEVELS[((v / most * 8.0).ceil() as usize).clamp(1, 8) - 1] })
        .collect();
    format!("{blocks:>width$}")
}

/// The load of a core as a bar of `width` columns.
pub(super) fn bar(load: &CoreLoad, width: usize, controls: &Controls) -> Line<'static> {
    let mut spans = Vec::with_capacity(PARTS.len() + 1);
    let (mut sum, mut used) = (0.0, 0);
    for (_, letter, hue, share) in PARTS {
        // Rounding the running sum keeps the parts' ends where they belong.
        sum += share(load).max(0.0);
        let end = ((sum / 100.0 * width as f64).round() as usize).min(width);
        if end > used {
            spans.push(part(end - used, letter, hue, controls));
            used = end;
        }
    }
    spans.push(Span::raw("·".repeat(width - used)).style(controls.dim()));
    Line::from(spans)
}

pub(super) fn part(width: usize, letter: char, hue: Color, controls: &Controls) -> Span<'static> {
    if controls.has_colour() {
        Span::styled("█".repeat(width), Style::new().fg(hue))
    } else {
        Span::raw(letter.to_string().repeat(width))
    }
}

pub(super) fn rate(pps: Option<f64>) -> String {
    pps.map_or_else(|| "-".into(), units::pps)
}

/// A count per second without a unit: `12.3 k`.
pub(super) fn per_second(rate: f64) -> String {
    units::count(rate.round() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sparkline_shows_the_newest_at_the_right() {
        let history = VecDeque::from([9.0, 0.0, 1.0, 4.0, 8.0]);
        assert_eq!(sparkline(Some(&history), 4), " ▁▄█");
        assert_eq!(sparkline(Some(&history), 7), "  █ ▁▄█");
        assert_eq!(sparkline(Some(&VecDeque::from([0.0])), 2), "  ");
    }

    #[test]
    fn a_bar_is_as_wide_as_requested() {
        let plain = Controls::new(Duration::ZERO, false);
        let load = CoreLoad { user_percent: 25.0, softirq_percent: 50.0, idle_percent: 25.0, ..CoreLoad::default() };
        assert_eq!(bar(&load, 8, &plain).to_string(), "uuffff··");
        let over = CoreLoad { user_percent: 80.0, softirq_percent: 80.0, ..CoreLoad::default() };
        assert_eq!(bar(&over, 8, &plain).to_string(), "uuuuuuff");
    }
}
