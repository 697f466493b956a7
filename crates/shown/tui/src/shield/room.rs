//! Division of a screen that is too small for all.

use model::shield::ShieldStatus;

/// Lines of the rates: heads, now, since the start.
pub(super) const RATE_LINES: u16 = 3;
/// Lines of an alarm, which is a sentence, where not all of them fit.
pub(super) const ALARM_LINES: u16 = 2;
/// Lines of the curve with its title.
const CURVE_LINES: u16 = 4;
/// Attacks and sources that are shown.
pub(super) const SHOWN_MAX: usize = 4;
/// Lines of the table of rules that go before the curve and the sources: title, heads, rules.
const RULE_LINES: u16 = 6;

/// Lines of the parts; the rules have what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) curve: u16,
    pub(super) attacks: u16,
    pub(super) sources: u16,
}

impl Shares {
    /// Divides `height` lines, with so many lines of alarms.
    pub(super) fn of(height: u16, alarms: u16, status: &ShieldStatus) -> Self {
        let mut left = for_alarms(height, status).saturating_sub(alarms);
        let mut take = |title: u16, each: u16, wanted: usize| {
            let room = left.saturating_sub(title) / each;
            let lines =
                if wanted == 0 || room == 0 { 0 } else { title + each * room.min(wanted.min(SHOWN_MAX) as u16) };
            left -= lines;
            lines
        };
        let attacks = take(1, 2, status.attacks.len());
        let sources = take(1, 1, status.sources.len());
        let curve = if left >= CURVE_LINES { CURVE_LINES } else { 0 };
        Self { curve, attacks, sources }
    }
}

/// The lines that alarms can have: the rates and the first rules go before them.
pub(super) fn for_alarms(height: u16, status: &ShieldStatus) -> u16 {
    height.saturating_sub(RATE_LINES + RULE_LINES.min(status.rules.len() as u16 + 2))
}

/// Shares `room` columns between two texts of the lengths `first` and `second`: what one does not need the other has.
pub(super) fn two(room: usize, first: usize, second: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let half = room / 2;
    if second <= half {
        (room - second, second)
    } else if first <= room - half {
        (first, room - first)
    } else {
        (room - half, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_shared_by_need() {
        assert_eq!(two(50, 20, 20), (20, 20));
        assert_eq!(two(50, 60, 20), (30, 20));
        assert_eq!(two(50, 20, 60), (20, 30));
        assert_eq!(two(51, 60, 60), (26, 25));
    }
}
