//! What a broker tells its operator, each thing once while it lasts: whoever floods a node with frames of ever new addresses gets no line for each.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// So many things are told within [`EVERY`].
const LINES: usize = 16;
const EVERY: Duration = Duration::from_secs(10);

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What still lasts, told or counted.
    known: BTreeSet<String>,
    since: Option<Instant>,
    lines: usize,
    left_out: usize,
}

impl Told {
    /// Tells what of `news`, which is all that is so now, is new.
    pub(crate) fn tell(&mut self, now: Instant, news: Vec<String>, mut told: impl FnMut(String)) {
        if self.since.is_none_or(|since| now >= since + EVERY) {
            if self.left_out > 0 {
                let (count, seconds) = (self.left_out, EVERY.as_secs());
                told(format!(
                    "{count} more messages like these within {seconds} s: `evenkeel link status` has what is so now"
                ));
            }
            (self.since, self.lines, self.left_out) = (Some(now), 0, 0);
        }
        let news: BTreeSet<String> = news.into_iter().collect();
        for new in news.difference(&self.known) {
            if self.lines < LINES {
                self.lines += 1;
                told(new.clone());
            } else {
                self.left_out += 1;
            }
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
        assert_eq!((lines.len(), told.known.len()), (LINES, 256));
        told.tell(began + EVERY, vec!["node 2000 speaks version 2".to_owned()], |line| lines.push(line));
        assert!(lines.len() == LINES + 1 && lines[LINES].starts_with("2239 more"), "{lines:?}");
        // What goes and comes back is told again.
        told.tell(began + EVERY, Vec::new(), |line| lines.push(line));
        told.tell(began + EVERY, vec!["node 2000 speaks version 2".to_owned()], |line| lines.push(line));
        assert_eq!(lines.len(), LINES + 2);
    }
}
