//! Fields whose values are few enough for a table of all of them.

use std::ops::Range;

use crate::tables::FieldTable;

use super::rows::{Rows, narrow, set};
use crate::error::RulesError;

/// The condition of a rule on a field: values, unsorted and overlapping as they come; none: nothing is asked.
pub(super) type Condition = Option<Vec<Range<usize>>>;

/// The table of a field of `values` values from every rule's condition; none: no rule asks for it.
///
/// Walks over the values once: between two ends of ranges all values have the same row.
pub(super) fn table(
    field: &'static str,
    values: usize,
    conditions: &[Condition],
    words: usize,
) -> Result<Option<FieldTable>, RulesError> {
    if conditions.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut row = vec![0; words];
    let mut turns: Vec<(usize, usize, bool)> = Vec::new();
    for (rule, condition) in conditions.iter().enumerate() {
        match condition {
            None => set(&mut row, rule, true),
            Some(ranges) => {
                for range in merged(ranges.clone()) {
                    turns.extend([(range.start, rule, true), (range.end, rule, false)]);
                }
            }
        }
    }
    // A rule's ranges do not touch, so that at one value it turns at most once.
    turns.sort_unstable();
    let mut rows = Rows::new(words);
    let absent = narrow(rows.class(&row), field)?;
    let mut class_of = Vec::with_capacity(values);
    let mut turns = turns.into_iter().peekable();
    while class_of.len() < values {
        while let Some((_, rule, on)) = turns.next_if(|turn| turn.0 <= class_of.len()) {
            set(&mut row, rule, on);
        }
        let class = narrow(rows.class(&row), field)?;
        let end = turns.peek().map_or(values, |turn| turn.0.min(values));
        class_of.resize(end, class);
    }
    Ok(Some(FieldTable { class_of, absent, rows: rows.into_rows() }))
}

/// The table of a field that no rule asks for: one class, whose row has all `rules`.
pub(super) fn whole(values: usize, rules: usize, words: usize) -> FieldTable {
    let mut row = vec![0; words];
    for rule in 0..rules {
        set(&mut row, rule, true);
    }
    FieldTable { class_of: vec![0; values], absent: 0, rows: row }
}

/// The same values in ranges that are sorted and neither overlap nor touch.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_row_of_the_rules_that_hold_it() {
        let conditions = [Some(vec![5..6, 0..3, 2..4]), None, Some(vec![]), Some(vec![3..8, 9..9])];
        let table = table("x", 8, &conditions, 1).unwrap().unwrap();
        let row = |value: usize| table.rows[usize::from(table.class_of[value])];
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(row), [3, 3, 3, 11, 10, 11, 10, 10]);
        assert_eq!(table.rows[usize::from(table.absent)], 2);
        assert_eq!(table.rows.len(), 4, "as many rows as there are different ones");
    }

    #[test]
    fn a_field_that_nobody_asks_for_has_no_table() {
        assert_eq!(table("x", 8, &[None, None], 1).unwrap(), None);
    }

    #[test]
    fn rules_beyond_the_first_word() {
        let mut conditions = vec![None; 130];
        conditions[129] = Some(std::iter::once(7..8).collect());
        let table = table("x", 8, &conditions, 3).unwrap().unwrap();
        assert_eq!(table.rows, [u64::MAX, u64::MAX, 1, u64::MAX, u64::MAX, 3]);
        assert_eq!((table.class_of[6], table.class_of[7]), (0, 1));
    }

    #[test]
    fn more_classes_than_a_table_can_number_are_refused() {
        // Rule n holds the values whose bit n is set: all 65,536 differ, and the absent one differs from value 65,535 only if a
        // seventeenth rule tells them apart.
        let bit = |n: usize| Some((0..65_536).filter(|v| v >> n & 1 == 1).map(|v| v..v + 1).collect());
        let mut conditions: Vec<Condition> = (0..16).map(bit).collect();
        assert_eq!(table("x", 65_536, &conditions, 1).unwrap().unwrap().rows.len(), 65_536);
        conditions.push(Some(std::iter::once(0..65_536).collect()));
        assert!(matches!(table("x", 65_536, &conditions, 1), Err(RulesError::TooManyClasses { .. })));
    }
}
