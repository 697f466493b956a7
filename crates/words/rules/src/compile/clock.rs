//! The wall clock, by which rules expire.

use super::Now;
use crate::file::RuleFile;

/// The wall clock may differ this much from the monotonic one before rules that expire are compiled anew.
const CLOCK_JUMP_NS: i128 = 500_000_000;

/// Returns whether the wall clock was set between two moments, or the machine slept, which the monotonic one does not notice.
fn was_set(then: Now, now: Now) -> bool {
    let offset = |now: Now| now.wall.as_nanosecond() - i128::from(now.monotonic_ns);
    (offset(now) - offset(then)).abs() > CLOCK_JUMP_NS
}

/// Returns whether what was compiled `then` expires at other moments if it is compiled `now`.
pub fn expires_otherwise(file: &RuleFile, then: Now, now: Now) -> bool {
    was_set(then, now) && file.rules.rules.iter().any(|rule| rule.expires.is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::file;

    fn at(wall_s: i64, monotonic_s: u64) -> Now {
        Now { wall: Timestamp::from_second(wall_s).unwrap(), monotonic_ns: monotonic_s * 1_000_000_000 }
    }

    #[test]
    fn a_clock_that_is_set_by_an_hour_either_way_is_noticed_and_one_that_goes_is_not() {
        let then = at(1_900_000_000, 1000);
        assert!(!was_set(then, at(1_900_000_060, 1060)));
        assert!(was_set(then, at(1_900_003_660, 1060)), "an hour forward");
        assert!(was_set(then, at(1_899_996_460, 1060)), "an hour back");
        assert!(was_set(then, at(1_900_000_060, 1001)), "slept for 59 s");
        let near = Now { wall: then.wall + SignedDuration::from_millis(400), ..then };
        assert!(!was_set(then, near), "a clock that is slewed");
    }

    #[test]
    fn an_expiry_is_where_the_wall_clock_says_after_each_setting() {
        let rule = "[[rule]]\nname = \"a\"\naction = \"drop\"\n";
        let with = file::parse_in(&format!("{rule}expires = 2030-03-17T18:46:40Z\n"), "f", Path::new("")).unwrap();
        let expires = with.rules.rules[0].expires.unwrap();
        // An hour before it expires.
        let then = at(expires.as_second() - 3600, 1000);
        assert_eq!(then.monotonic_at(expires), 4600 * 1_000_000_000);
        for (wall_s, again, monotonic_s) in [(-3590, false, 4600), (10, true, 0), (-7190, true, 8200)] {
            let now = at(expires.as_second() + wall_s, 1010);
            assert_eq!(expires_otherwise(&with, then, now), again, "{wall_s}");
            // 1 ns after the start has long been.
            assert_eq!(now.monotonic_at(expires), if monotonic_s == 0 { 1 } else { monotonic_s * 1_000_000_000 });
        }
        let without = file::parse_in(rule, "f", Path::new("")).unwrap();
        assert!(!expires_otherwise(&without, then, at(0, 1010)), "nothing expires");
    }
}
