//! The kernel's drop reasons, explained by name, as their numbers change between kernels: the table is `hints.txt`.

use std::{collections::BTreeMap, sync::LazyLock};

/// The meaning of a drop reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// The event, in half a sentence.
    pub meaning: &'static str,
    /// The remedy; empty when nothing is to be done.
    pub remedy: &'static str,
    /// Nothing was lost that anybody waited for: duplicates, frames for others, a queue emptied on purpose.
    pub harmless: bool,
}

/// The explanation of a reason by its name without `SKB_DROP_REASON_`; none for rare ones.
pub fn explain(name: &str) -> Option<Explanation> {
    TABLE.get(name).copied()
}

static TABLE: LazyLock<BTreeMap<&str, Explanation>> =
    LazyLock::new(|| include_str!("hints.txt").lines().filter_map(row).collect());

/// Parses a line of the table; none for a comment or an empty line.
fn row(line: &'static str) -> Option<(&'static str, Explanation)> {
    let mut fields = line.split('|').map(str::trim);
    let (name, kind) = (fields.next()?, fields.next()?);
    let (meaning, remedy) = (fields.next()?, fields.next()?);
    Some((name, Explanation { meaning, remedy, harmless: kind == "harmless" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_complete_in_itself() {
        let lines = include_str!("hints.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let names: Vec<_> = lines.clone().filter_map(row).map(|(name, _)| name).collect();
        assert!(names.is_sorted_by(|a, b| a < b));
        assert_eq!(names.len(), lines.clone().count());
        assert!(lines.clone().all(|line| matches!(line.split('|').nth(1).map(str::trim), Some("loss" | "harmless"))));
        for (name, Explanation { meaning, remedy, harmless }) in TABLE.iter() {
            assert!(!meaning.is_empty() && meaning.len() < 80, "{name}");
            assert!(*harmless || !remedy.is_empty(), "{name}: a loss needs something to do");
        }
    }

    #[test]
    fn reasons_are_found_by_name() {
        let full = explain("SOCKET_RCVBUFF").expect("explained");
        assert!(full.remedy.contains("rmem_max") && !full.harmless);
        assert!(explain("OTHERHOST").is_some_and(|e| e.harmless));
        assert_eq!(explain("NO_SUCH_REASON"), None);
    }
}
