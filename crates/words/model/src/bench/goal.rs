//! The goal of a search, and what a trial must send to judge it.

use serde::{Deserialize, Serialize};

use crate::share;

/// A trial's word counts when chance alone would make the box look so good, or so bad, in fewer cases than this.
pub const SURE: f64 = 0.01;
/// A trial so long that the goal itself would lose this many units judges by its own count: chance then moves it by a seventh.
pub const COUNTED: f64 = 50.0;
/// "No loss" is judged by a trial that would have shown a loss of this share.
pub const NO_LOSS: f64 = 0.001;

/// The goal of a search (RFC 9971's goal attributes).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Name of the goal, such as `0.1 %`.
    pub name: String,
    /// Lost units that are still fine, as a share.
    pub loss_ratio: f64,
    /// The share of a load's full-length trials that may be worse.
    pub exceed_ratio: f64,
    /// The length of trials that only find the way, in seconds: at most a full-length one (RFC 9971, Goal Initial Trial Duration).
    pub initial_s: f64,
    /// The length of a full-length trial, in seconds.
    pub trial_s: f64,
    /// The least length of all full-length trials of a load together, in seconds.
    pub sum_s: f64,
    /// The least distance of lower and upper bound that is asked for, as a share of the upper one.
    pub width: f64,
    /// A trial that sends too few units to judge the goal is made longer, up to so many seconds. 0 in runs saved before this was kept.
    #[serde(default)]
    pub longest_s: f64,
}

/// The verdict of a trial on a loss ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// No more is lost.
    Within,
    Beyond,
    /// Too few units were sent to tell.
    Unsure,
}

/// The verdict of `lost` of `sent` units on `loss_ratio`.
pub fn judge(loss_ratio: f64, sent: u64, lost: u64) -> Judged {
    if loss_ratio <= 0.0 {
        return match lost {
            0 if share::at_most(0, sent, NO_LOSS) < SURE => Judged::Within,
            0 => Judged::Unsure,
            _ => Judged::Beyond,
        };
    }
    if sent as f64 * loss_ratio >= COUNTED {
        return if lost as f64 / sent as f64 > loss_ratio { Judged::Beyond } else { Judged::Within };
    }
    if sent > 0 && share::at_most(lost, sent, loss_ratio) < SURE {
        Judged::Within
    } else if share::at_least(lost, sent, loss_ratio) < SURE {
        Judged::Beyond
    } else {
        Judged::Unsure
    }
}

impl Goal {
    /// The verdict of `lost` of `sent` units on it.
    pub fn judge(&self, sent: u64, lost: u64) -> Judged {
        judge(self.loss_ratio, sent, lost)
    }

    /// The longest that one of its trials may become, in seconds.
    pub fn longest_s(&self) -> f64 {
        self.longest_s.max(self.trial_s)
    }

    /// Units of a trial without any loss that is enough.
    pub fn least_units(&self) -> f64 {
        let share = if self.loss_ratio > 0.0 { self.loss_ratio } else { NO_LOSS };
        (SURE.ln() / (-share).ln_1p()).ceil()
    }

    /// The length of a trial at `pps` that is to take `seconds`: longer where even a trial without loss would be too few units.
    pub fn first_s(&self, pps: f64, seconds: f64) -> f64 {
        self.within(seconds, self.least_units() / pps)
    }

    /// The length of a trial at `pps` after one that could not judge it.
    pub fn judging_s(&self, pps: f64) -> f64 {
        let units = if self.loss_ratio > 0.0 { COUNTED / self.loss_ratio } else { self.least_units() };
        self.within(self.trial_s, units / pps)
    }

    fn within(&self, least_s: f64, needed_s: f64) -> f64 {
        // A little more: a sender that is held up for a moment sends a little less. Whole milliseconds, so that sums stay exact.
        let needed_s = (needed_s * 1020.0).ceil() / 1000.0;
        needed_s.min(self.longest_s()).max(least_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(loss_ratio: f64) -> Goal {
        Goal {
            name: String::new(),
            loss_ratio,
            exceed_ratio: 0.5,
            initial_s: 0.3,
            trial_s: 0.3,
            sum_s: 0.9,
            width: 0.03,
            longest_s: 10.0,
        }
    }

    #[test]
    fn few_units_do_not_distinguish_one_in_700_from_one_in_1000() {
        let goal = goal(0.001);
        // What 486 frames may show.
        assert_eq!([0, 1, 2].map(|lost| goal.judge(486, lost)), [Judged::Unsure; 3]);
        assert_eq!(goal.judge(486, 6), Judged::Beyond);
        // Enough of them, counted.
        assert_eq!((goal.judge(50_000, 71), goal.judge(50_000, 45)), (Judged::Beyond, Judged::Within));
        // One in a thousand is 0.1 %.
        assert_eq!((goal.judge(50_000, 50), goal.judge(50_000, 51)), (Judged::Within, Judged::Beyond));
        // Without any loss fewer are enough.
        assert_eq!((goal.judge(4603, 0), goal.judge(4602, 0)), (Judged::Within, Judged::Unsure));
        assert_eq!(goal.least_units(), 4603.0);
        assert_eq!(goal.judge(0, 0), Judged::Unsure);
    }

    #[test]
    fn no_loss_asks_for_as_many_as_would_have_shown_one_in_a_thousand() {
        let goal = goal(0.0);
        let of = |sent, lost| goal.judge(sent, lost);
        assert_eq!(
            [of(486, 0), of(486, 1), of(5000, 0), of(0, 0)],
            [Judged::Unsure, Judged::Beyond, Judged::Within, Judged::Unsure]
        );
    }

    #[test]
    fn a_trial_lengthens_itself_within_its_bound() {
        let goal = goal(0.001);
        assert_eq!((goal.first_s(1e6, 0.3), goal.judging_s(1e6)), (0.3, 0.3));
        assert!((goal.first_s(10_000.0, 0.3) - 0.47).abs() < 1e-9 && (goal.judging_s(10_000.0) - 5.1).abs() < 1e-9);
        assert_eq!((goal.first_s(100.0, 0.3), goal.judging_s(100.0)), (10.0, 10.0));
        let fixed = Goal { longest_s: 0.0, ..goal };
        assert_eq!(fixed.judging_s(100.0), 0.3);
    }
}
