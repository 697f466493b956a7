//! Rules to kernel tables: pure, the same rules always give the same tables.
//!
//! Each field's values fall into classes, values of one class being those that the same rules hold; a class has a row with a bit
//! per rule. The kernel program (and [`lookup`]) ANDs the rows of a packet's nine classes.

use crate::tables::{Field, FieldTable, RuleAction, RuleEntry, RuleTables};

use crate::{
    error::RulesError,
    rule::{Action, RULES_MAX, Rule, Rules, Verdict},
};

mod addresses;
mod cache;
mod clock;
mod conditions;
mod counters;
pub mod lookup;
mod now;
mod rows;
mod values;

pub use cache::Cache;
pub use clock::expires_otherwise;
pub use counters::{COUNTERS_MAX, Counters};
pub use now::Now;

/// The tables of these rules. Names that `counters` has not met get a slot there.
///
/// # Errors
/// More rules than [`RULES_MAX`], a set that does not exist, more classes of a field or names than the tables can number.
pub fn tables(rules: &Rules, counters: &mut Counters, now: Now) -> Result<RuleTables, RulesError> {
    tables_after(rules, counters, now, &mut Cache::default())
}

/// As [`tables`], of rules that follow others: what did not change is taken from `cache`.
pub fn tables_after(
    rules: &Rules,
    counters: &mut Counters,
    now: Now,
    cache: &mut Cache,
) -> Result<RuleTables, RulesError> {
    if rules.rules.len() > RULES_MAX {
        return Err(RulesError::TooManyRules { given: rules.rules.len(), max: RULES_MAX });
    }
    let words = rules.rules.len().div_ceil(64).max(1);
    let expected = cache.expected();
    let source = addresses::table(rules, "source addresses", |rule| &rule.when.source, words, &[], &mut cache.source)?;
    let kept = &mut cache.destination;
    let destination =
        addresses::table(rules, "destination addresses", |rule| &rule.when.destination, words, &expected, kept)?;
    let mut fields = fields(rules, words)?;
    let asks_bytes =
        conditions::FIELDS.iter().zip(&fields).any(|((field, ..), table)| *field != Field::Known && table.is_some());
    if source.is_none() && destination.is_none() && !asks_bytes {
        // Without any row to AND, bits of rules that do not exist would be left: the shortest table says which do.
        let (at, values) = (conditions::SHORTEST, conditions::FIELDS[conditions::SHORTEST].2);
        fields[at] = Some(values::whole(values, rules.rules.len(), words));
    }
    Ok(RuleTables {
        words,
        source,
        destination,
        fields,
        rules: rules.rules.iter().map(|rule| entry(rule, counters, now)).collect::<Result<_, _>>()?,
        default_drop: rules.default == Verdict::Drop,
        malformed_drop: rules.malformed == Verdict::Drop,
        protected: addresses::protected(&rules.protected, cache)?,
        protected_few: addresses::protected_few(&rules.protected),
    })
}

fn fields(rules: &Rules, words: usize) -> Result<[Option<FieldTable>; 8], RulesError> {
    let mut fields: [Option<FieldTable>; 8] = Default::default();
    for (table, (field, name, values)) in fields.iter_mut().zip(conditions::FIELDS) {
        let of_rules: Vec<_> = rules.rules.iter().map(|rule| conditions::condition(&rule.when, field)).collect();
        *table = values::table(name, values, &of_rules, words)?;
    }
    Ok(fields)
}

fn entry(rule: &Rule, counters: &mut Counters, now: Now) -> Result<RuleEntry, RulesError> {
    let (action, limit) = match rule.action {
        Action::Pass => (RuleAction::Pass, None),
        Action::Drop => (RuleAction::Drop, None),
        Action::Limit(limit) => (RuleAction::Limit, Some(limit)),
        Action::Challenge => (RuleAction::Challenge, None),
    };
    Ok(RuleEntry {
        action,
        shadow: rule.shadow,
        management: rule.management,
        yields: rule.yields && rule.action == Action::Challenge,
        counter: counters.slot(&rule.name)?,
        expires_ns: rule.expires.map_or(0, |at| now.monotonic_at(at)),
        pps: limit.map_or(0, |l| l.pps),
        burst: limit.map_or(0, |l| l.burst),
        per_source: limit.and_then(|l| l.per_source),
    })
}

#[cfg(test)]
mod tests;
