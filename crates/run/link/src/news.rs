//! Messages of a broker to its operator, each once while its cause lasts, and bounded: a flood of frames from new addresses causes no flood of lines.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use model::units::counted;

/// Lines within [`LINES_PERIOD`].
const LINES_MAX: usize = 16;
const LINES_PERIOD: Duration = Duration::from_secs(10);

/// Bounds the lines that others can cause.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    since: Option<Instant>,
    lines: usize,
    left_out: usize,
}

impl Lines {
    /// Tells `line`, or counts it; a sum of those that were counted first, once their time is over.
    pub(crate) fn tell(&mut self, now: Instant, line: String, told: &mut impl FnMut(String)) {
        self.look(now, told);
        if self.lines < LINES_MAX {
            self.lines += 1;
            told(line);
        } else {
            self.left_out += 1;
        }
    }

    fn look(&mut self, now: Instant, told: &mut impl FnMut(String)) {
        if self.since.is_some_and(|since| now < since + LINES_PERIOD) {
            return;
        }
        if self.left_out > 0 {
            told(format!(
                "{} like these within {} s",
                counted(self.left_out as u64, "more message", "more messages"),
                LINES_PERIOD.as_secs()
            ));
        }
        *self = Self { since: Some(now), lines: 0, left_out: 0 };
    }
}

/// Messages that still hold.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Messages that still hold, reported or counted.
    known: BTreeSet<String>,
    lines: Lines,
}

impl Told {
    /// Tells what of `news`, which is all that is so now, is new.
    pub(crate) fn tell(&mut self, now: Instant, news: Vec<String>, mut told: impl FnMut(String)) {
        self.lines.look(now, &mut told);
        let news: BTreeSet<String> = news.into_iter().collect();
        for new in news.difference(&self.known) {
            self.lines.tell(now, new.clone(), &mut told);
        }
        self.known = news;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_news_takes_some_lines_and_a_sum() {
        let (mut told, mut lines, began) = (Told::default(), Vec::new(), Instant::now());
        for at in 0..2000 {
            // 256 are known at once.
            let news = (at..at + 256).map(|n| format!("node {n} speaks version 2")).collect();
            told.tell(began, news, |line| lines.push(line));
        }
        assert_eq!((lines.len(), told.known.len()), (LINES_MAX, 256));
        told.tell(began + LINES_PERIOD, vec!["node 2000 speaks version 2".to_owned()], |line| lines.push(line));
        assert!(lines.len() == LINES_MAX + 1 && lines[LINES_MAX].starts_with("2239 more"), "{lines:?}");
        // What goes and comes back is told again.
        told.tell(began + LINES_PERIOD, Vec::new(), |line| lines.push(line));
        told.tell(began + LINES_PERIOD, vec!["node 2000 speaks version 2".to_owned()], |line| lines.push(line));
        assert_eq!(lines.len(), LINES_MAX + 2);
    }
}
