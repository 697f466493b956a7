//! Log lines of a broker, rate-limited: a flood of frames from new addresses causes no flood of lines.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use model::units::counted;

/// Lines within [`LINES_PERIOD`].
const LINES_MAX: usize = 16;
const LINES_PERIOD: Duration = Duration::from_secs(10);

/// A rate limit for log lines that other nodes can cause.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    since: Option<Instant>,
    lines: usize,
    suppressed: usize,
}

impl LogLimit {
    /// Logs `line`, or counts it as suppressed. The number of suppressed lines is logged at the end of their period.
    pub(crate) fn log(&mut self, now: Instant, line: String, log: &mut impl FnMut(String)) {
        self.begin_period(now, log);
        if self.lines < LINES_MAX {
            self.lines += 1;
            log(line);
        } else {
            self.suppressed += 1;
        }
    }

    fn begin_period(&mut self, now: Instant, log: &mut impl FnMut(String)) {
        if self.since.is_some_and(|since| now < since + LINES_PERIOD) {
            return;
        }
        if self.suppressed > 0 {
            log(format!(
                "{} like these within {} s",
                counted(self.suppressed as u64, "more message", "more messages"),
                LINES_PERIOD.as_secs()
            ));
        }
        *self = Self { since: Some(now), lines: 0, suppressed: 0 };
    }
}

/// Warnings whose conditions hold; each is logged once while it does.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Warnings that hold, logged or suppressed.
    active: BTreeSet<String>,
    limit: LogLimit,
}

impl Warnings {
    /// Replaces the warnings that hold, and logs the new ones.
    pub(crate) fn update(&mut self, now: Instant, warnings: Vec<String>, mut log: impl FnMut(String)) {
        self.limit.begin_period(now, &mut log);
        let warnings: BTreeSet<String> = warnings.into_iter().collect();
        for new in warnings.difference(&self.active) {
            self.limit.log(now, new.clone(), &mut log);
        }
        self.active = warnings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_warnings_takes_some_lines_and_a_sum() {
        let (mut warnings, mut lines, began) = (Warnings::default(), Vec::new(), Instant::now());
        for at in 0..2000 {
            // 256 are active at once.
            let active = (at..at + 256).map(|n| format!("node {n} speaks version 2")).collect();
            warnings.update(began, active, |line| lines.push(line));
        }
        assert_eq!((lines.len(), warnings.active.len()), (LINES_MAX, 256));
        warnings.update(began + LINES_PERIOD, vec!["node 2000 speaks version 2".to_owned()], |line| lines.push(line));
        assert!(lines.len() == LINES_MAX + 1 && lines[LINES_MAX].starts_with("2239 more"), "{lines:?}");
        // A warning that goes and comes back is logged again.
        warnings.update(began + LINES_PERIOD, Vec::new(), |line| lines.push(line));
        warnings.update(began + LINES_PERIOD, vec!["node 2000 speaks version 2".to_owned()], |line| lines.push(line));
        assert_eq!(lines.len(), LINES_MAX + 2);
    }
}
