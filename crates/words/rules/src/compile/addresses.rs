//! Fields of addresses: prefixes of all rules become classes of equal membership.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use crate::tables::{AddressTable, FEW_MAX, FewPrefix};

use super::{
    cache::{Cache, Group, Kept, List},
    rows::{narrow, set},
};
use crate::{
    error::RulesError,
    prefixes::{self, CLASSES_MAX, TableError},
    rule::{Place, Prefix, Rule, Rules},
};

/// The lists of prefixes that rules name, each once, with the rules that they make apply.
#[derive(Default)]
struct Lists<'a> {
    numbers: HashMap<&'a Place, usize>,
    lists: Vec<List>,
    rules: Vec<Vec<usize>>,
    /// Number of leading ones that are each told apart.
    expected: usize,
}

impl<'a> Lists<'a> {
    fn add(&mut self, place: &'a Place, number: usize, rules: &'a Rules) -> Result<(), RulesError> {
        let at = match self.numbers.get(place) {
            Some(&at) => at,
            None => {
                let list = match place {
                    Place::Prefix(prefix) => List::One(*prefix),
                    Place::Set(name) => match rules.sets.get(name) {
                        Some(set) => List::Set(Arc::clone(set)),
                        None => {
                            let rule = rules.rules[number].name.clone();
                            return Err(RulesError::UnknownSet { rule, set: name.clone() });
                        }
                    },
                };
                self.numbers.insert(place, self.lists.len());
                self.lists.push(list);
                self.rules.push(Vec::new());
                self.lists.len() - 1
            }
        };
        if self.rules[at].last() != Some(&number) {
            self.rules[at].push(number);
        }
        Ok(())
    }

    /// Lists that make the same rules apply, together, and these rules.
    fn groups(self) -> (Vec<Group>, Vec<Vec<usize>>) {
        let (mut groups, mut of_group): (Vec<Group>, Vec<Vec<usize>>) = Default::default();
        let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
        for (at, (list, rules)) in self.lists.into_iter().zip(self.rules).enumerate() {
            let group = if at < self.expected { None } else { known.get(&rules).copied() };
            if let Some(group) = group {
                groups[group].push(list);
                continue;
            }
            if at >= self.expected {
                known.insert(rules.clone(), groups.len());
            }
            groups.push(vec![list]);
            of_group.push(rules);
        }
        (groups, of_group)
    }
}

/// The table of one address field, `places` saying which of a rule's conditions is meant; none: no rule asks for it. `expected` have
/// classes of their own, whether or not a rule names them.
pub(super) fn table<'a>(
    rules: &'a Rules,
    field: &'static str,
    places: impl Fn(&'a Rule) -> &'a [Place],
    words: usize,
    expected: &'a [Place],
    kept: &mut Kept,
) -> Result<Option<AddressTable>, RulesError> {
    let mut lists = Lists { expected: expected.len(), ..Lists::default() };
    for (at, place) in expected.iter().enumerate() {
        let Place::Prefix(prefix) = place else { continue };
        lists.numbers.insert(place, at);
        lists.lists.push(List::One(*prefix));
        lists.rules.push(Vec::new());
    }
    let mut always = vec![0; words];
    let mut used = false;
    for (number, rule) in rules.rules.iter().enumerate() {
        let places = places(rule);
        if places.is_empty() {
            set(&mut always, number, true);
        }
        for place in places {
            lists.add(place, number, rules)?;
            used = true;
        }
    }
    if !used {
        return Ok(None);
    }
    let (groups, of_group) = lists.groups();
    let (laid, numbers) = kept.lay(&groups).map_err(|error| refused(field, error))?;
    let mut rows = Vec::with_capacity(laid.members.len() * words);
    for members in &laid.members {
        let from = rows.len();
        rows.extend_from_slice(&always);
        for rule in members.iter().flat_map(|list| &of_group[numbers[*list]]) {
            set(&mut rows[from..], *rule, true);
        }
    }
    Ok(Some(AddressTable { v4: laid.v4.clone(), v6: laid.v6.clone(), rows }))
}

/// The protected prefixes of IPv4, the longest first; none if they are many. Of equal ones the first counts.
pub(super) fn protected_few(prefixes: &[Prefix]) -> Vec<FewPrefix> {
    let mut few = Vec::new();
    for (prefix, number) in prefixes.iter().zip(1u16..) {
        if let IpAddr::V4(address) = prefix.address {
            few.push(FewPrefix { address: address.to_bits(), len: prefix.len, number });
        }
    }
    few.sort_by_key(|prefix| (Reverse(prefix.len), prefix.address));
    few.dedup_by_key(|prefix| (prefix.address, prefix.len));
    if few.len() <= FEW_MAX { few } else { Vec::new() }
}

/// The protected prefix of a destination: the longest that holds it, by number + 1.
pub(super) fn protected(prefixes: &[Prefix], cache: &mut Cache) -> Result<Option<AddressTable>, RulesError> {
    if prefixes.is_empty() {
        return Ok(None);
    }
    if let Some((_, table)) = cache.protected.as_ref().filter(|(of, _)| of == prefixes) {
        return Ok(Some(table.clone()));
    }
    if prefixes.len() >= CLASSES_MAX {
        return Err(RulesError::TooManyClasses {
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
    let table = build(&classes, Vec::new()).map_err(|error| refused("protected prefixes", error))?;
    cache.protected = Some((prefixes.to_vec(), table.clone()));
    Ok(Some(table))
}

fn refused(field: &'static str, error: TableError) -> RulesError {
    match error {
        TableError::Classes { classes } => RulesError::TooManyClasses { field, classes, max: CLASSES_MAX },
        TableError::Crowded { prefixes } => RulesError::Crowded { field, prefixes },
    }
}

/// The tables of both families.
fn build(classes: &[(Prefix, u16)], rows: Vec<u64>) -> Result<AddressTable, TableError> {
    let has = |v4: bool| classes.iter().any(|(prefix, _)| prefix.address.is_ipv4() == v4);
    Ok(AddressTable {
        v4: has(true).then(|| prefixes::v4(classes).into()),
        v6: if has(false) { Some(prefixes::v6(classes)?.into()) } else { None },
        rows,
    })
}
