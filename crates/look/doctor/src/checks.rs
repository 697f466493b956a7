//! The table of checks: a file per group, a small function per check.

mod apps;
mod buffers;
mod guest;
mod kernel;
mod leftovers;
mod link;
mod listen;
mod placing;
mod power;
mod queues;
mod rings;
mod softnet;
mod stack;
mod steering;
mod tables;
mod taps;

use host::setting::Missing;

use crate::{check::Check, outcome::Outcome};

/// The groups, in the order in which a report of equally grave findings shows them.
const GROUPS: &[&[Check]] = &[
    guest::CHECKS,
    power::CHECKS,
    link::CHECKS,
    tables::CHECKS,
    listen::CHECKS,
    taps::CHECKS,
    leftovers::CHECKS,
    rings::CHECKS,
    stack::CHECKS,
    buffers::CHECKS,
    softnet::CHECKS,
    queues::CHECKS,
    steering::CHECKS,
    kernel::CHECKS,
    apps::CHECKS,
];

pub fn all() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().flat_map(|group| group.iter())
}

pub fn find(id: &str) -> Option<&'static Check> {
    all().find(|c| c.id == id)
}

/// Without its evidence a check says so, and why.
fn or_unknown(answers: Result<Vec<Outcome>, Missing>) -> Vec<Outcome> {
    answers.unwrap_or_else(|why| vec![Outcome::unknown(why.to_string())])
}

/// The outcomes, or unknown for one object.
fn or_unknown_of(object: &str, answers: Result<Vec<Outcome>, Missing>) -> Vec<Outcome> {
    answers.unwrap_or_else(|why| vec![Outcome::unknown(why.to_string()).on(object)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_what_it_is() {
        let mut ids: Vec<&str> = all().map(|c| c.id).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        for check in all() {
            let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(check.id.chars().all(name), "{}", check.id);
            assert!(check.question.ends_with('?'), "{}: {}", check.id, check.question);
            assert!(!check.reads.is_empty() && !check.fix.is_empty() && !check.risk.is_empty(), "{}", check.id);
        }
    }
}
