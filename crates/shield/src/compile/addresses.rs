//! Fields of addresses: prefixes of all rules become classes of equal membership.

use std::collections::{HashMap, HashSet};

use bpf::shield::AddressTable;

use super::rows::{Rows, narrow, set};
use crate::{
    error::ShieldError,
    prefixes::{self, CLASSES_MAX},
    rules::{Place, Prefix, Rule, Rules},
};

/// The lists of prefixes that rules name, each once.
#[derive(Default)]
struct Lists<'a> {
    numbers: HashMap<&'a Place, usize>,
    prefixes: Vec<&'a [Prefix]>,
}

impl<'a> Lists<'a> {
    fn number(&mut self, place: &'a Place, rule: &Rule, rules: &'a Rules) -> Result<usize, ShieldError> {
        if let Some(&number) = self.numbers.get(place) {
            return Ok(number);
        }
        let prefixes = match place {
            Place::Prefix(prefix) => std::slice::from_ref(prefix),
            Place::Set(name) => match rules.sets.get(name) {
                Some(set) => set.prefixes.as_slice(),
                None => return Err(ShieldError::UnknownSet { rule: rule.name.clone(), set: name.clone() }),
            },
        };
        let number = self.prefixes.len();
        self.prefixes.push(prefixes);
        self.numbers.insert(place, number);
        Ok(number)
    }
}

/// The table of one address field, `places` saying which of a rule's conditions is meant; none: no rule asks for it.
pub(super) fn table<'a>(
    rules: &'a Rules,
    field: &'static str,
    places: impl Fn(&'a Rule) -> &'a [Place],
    words: usize,
) -> Result<Option<AddressTable>, ShieldError> {
    let mut lists = Lists::default();
    // Which rules each list makes apply, and which apply to any address.
    let mut of_list: Vec<Vec<usize>> = Vec::new();
    let mut always = vec![0; words];
    for (number, rule) in rules.rules.iter().enumerate() {
        let places = places(rule);
        if places.is_empty() {
            set(&mut always, number, true);
        }
        for place in places {
            let list = lists.number(place, rule, rules)?;
            of_list.resize(lists.prefixes.len(), Vec::new());
            of_list[list].push(number);
        }
    }
    if lists.prefixes.is_empty() {
        return Ok(None);
    }
    let overlay = prefixes::overlay(&lists.prefixes);
    if overlay.members.len() > CLASSES_MAX {
        return Err(ShieldError::TooManyClasses { field, classes: overlay.members.len(), max: CLASSES_MAX });
    }
    // Memberships that make the same rules apply (a set and a prefix of one rule) share a row.
    let mut rows = Rows::new(words);
    let mut class_of = Vec::with_capacity(overlay.members.len());
    rows.class(&always);
    for members in &overlay.members {
        let mut row = always.clone();
        for rule in members.iter().flat_map(|list| &of_list[*list]) {
            set(&mut row, *rule, true);
        }
        class_of.push(narrow(rows.class(&row), field)?);
    }
    let classes: Vec<(Prefix, u16)> =
        overlay.classes.into_iter().map(|(prefix, class)| (prefix, class_of[usize::from(class)])).collect();
    Ok(Some(build(&classes, rows.into_rows())))
}

/// Which protected prefix a destination belongs to: the longest that holds it, by number + 1.
pub(super) fn protected(prefixes: &[Prefix]) -> Result<Option<AddressTable>, ShieldError> {
    if prefixes.is_empty() {
        return Ok(None);
    }
    if prefixes.len() >= CLASSES_MAX {
        return Err(ShieldError::TooManyClasses {
            field: "protected prefixes",
            classes: prefixes.len() + 1,
            max: CLASSES_MAX,
        });
    }
    // Of equal ones the first.
    let mut seen = HashSet::new();
    let mut classes = Vec::with_capacity(prefixes.len());
    for (number, prefix) in prefixes.iter().enumerate().filter(|(_, prefix)| seen.insert(**prefix)) {
        classes.push((*prefix, narrow(number + 1, "protected prefixes")?));
    }
    Ok(Some(build(&classes, Vec::new())))
}

/// The tables of both families.
fn build(classes: &[(Prefix, u16)], rows: Vec<u64>) -> AddressTable {
    let has = |v4: bool| classes.iter().any(|(prefix, _)| prefix.address.is_ipv4() == v4);
    AddressTable { v4: has(true).then(|| prefixes::v4(classes)), v6: has(false).then(|| prefixes::v6(classes)), rows }
}
