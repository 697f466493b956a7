//! Rows: a bit for every rule.

use std::collections::HashMap;

use crate::error::RulesError;

pub(super) struct Rows {
    words: usize,
    classes: HashMap<Box<[u64]>, usize>,
    rows: Vec<u64>,
}

impl Rows {
    pub(super) fn new(words: usize) -> Self {
        Self { words, classes: HashMap::new(), rows: Vec::new() }
    }

    pub(super) fn class(&mut self, row: &[u64]) -> usize {
        debug_assert_eq!(row.len(), self.words);
        if let Some(&class) = self.classes.get(row) {
            return class;
        }
        let class = self.classes.len();
        self.classes.insert(row.into(), class);
        self.rows.extend_from_slice(row);
        class
    }

    pub(super) fn into_rows(self) -> Vec<u64> {
        self.rows
    }
}

pub(super) fn narrow(class: usize, field: &'static str) -> Result<u16, RulesError> {
    let max = usize::from(u16::MAX) + 1;
    u16::try_from(class).map_err(|_| RulesError::TooManyClasses { field, classes: class + 1, max })
}

pub(super) fn set(row: &mut [u64], rule: usize, on: bool) {
    let bit = 1 << (rule % 64);
    if on {
        row[rule / 64] |= bit;
    } else {
        row[rule / 64] &= !bit;
    }
}
