//! The rules of nftables, and runs of rules that one lookup in a set would replace.

use std::process::Stdio;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sys::program::command;

use super::{Missing, live_or_saved};
use crate::root::Root;

/// Consecutive rules of a chain that match the same fields and differ in the values only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinearRun {
    /// Family and name of the table, such as `inet filter`.
    pub table: String,
    pub chain: String,
    pub rules: usize,
    /// The fields whose values differ, as nft writes them, such as `ip saddr`.
    pub fields: Vec<String>,
    /// Every rule ends in the same verdict: a set does. Otherwise a verdict map.
    pub same_verdict: bool,
}

/// The rules as nft's JSON gives them.
pub fn ruleset(root: &Root) -> Result<Value, Missing> {
    let rules: Value = live_or_saved(root, "nft", || {
        let output =
            command("nft").args(["-j", "-t", "list", "ruleset"]).stdin(Stdio::null()).output().map_err(|e| {
                Missing(format!("cannot run nft to list the rules: {e} (the Debian package is nftables)"))
            })?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            let message = message.lines().next().unwrap_or("no message");
            return Err(Missing(format!("nft does not list the rules: {message} (run as root)")));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|e| Missing(format!("nft answers something else than JSON: {e}")))
    })?;
    if root.recorded().is_some() {
        // A copy has no business with addresses.
        root.note("setting/nft.json", &anonymous(&rules.to_string()));
    }
    Ok(rules)
}

/// The kept rules without what they compare with (addresses, ports) and without comments; equal values stay equal.
fn anonymous(text: &str) -> String {
    let Ok(mut ruleset) = serde_json::from_str::<Value>(text) else { return "{}\n".to_owned() };
    let mut seen = Vec::new();
    for object in ruleset.get_mut("nftables").and_then(Value::as_array_mut).into_iter().flatten() {
        for kind in ["rule", "set", "map", "chain", "table"] {
            if let Some(Value::Object(body)) = object.get_mut(kind) {
                body.remove("comment");
                body.remove("elem");
            }
        }
        let statements = object.get_mut("rule").and_then(|rule| rule.get_mut("expr")).and_then(Value::as_array_mut);
        for statement in statements.into_iter().flatten() {
            hide(statement, &mut seen);
        }
    }
    ruleset.to_string() + "\n"
}

/// Matches keep what they look at, not what they compare it with; of other statements only the kind is kept, unless it is a
/// verdict or a counter.
fn hide(statement: &mut Value, seen: &mut Vec<Value>) {
    let Some((kind, body)) = statement.as_object_mut().and_then(|o| o.iter_mut().next()) else { return };
    match kind.as_str() {
        "match" => {
            let Some(right) = body.get_mut("right") else { return };
            let is_set = right.get("set").is_some() || right.as_str().is_some_and(|name| name.starts_with('@'));
            let number = seen.iter().position(|value| value == right).unwrap_or_else(|| {
                seen.push(right.clone());
                seen.len() - 1
            });
            *right = Value::String(if is_set { format!("@set{number}") } else { format!("value{number}") });
        }
        "counter" | "accept" | "drop" | "reject" | "jump" | "goto" | "return" => {}
        _ => *body = Value::Null,
    }
}

pub fn rule_count(ruleset: &Value) -> usize {
    rules(ruleset).count()
}

fn rules(ruleset: &Value) -> impl Iterator<Item = &Value> {
    ruleset.get("nftables").and_then(Value::as_array).into_iter().flatten().filter_map(|object| object.get("rule"))
}

/// Parts of a rule that decide whether it belongs to a run.
#[derive(Debug, PartialEq)]
struct Shape<'a> {
    place: (&'a str, &'a str, &'a str),
    fields: Vec<(&'a str, &'a Value)>,
}

#[derive(Debug)]
struct Rule<'a> {
    shape: Shape<'a>,
    values: Vec<&'a Value>,
    verdict: String,
}

/// The runs of at least `least` rules, in the order of the rules.
pub fn linear_runs(ruleset: &Value, least: usize) -> Vec<LinearRun> {
    let mut runs = Vec::new();
    let mut run: Vec<Rule<'_>> = Vec::new();
    for rule in rules(ruleset) {
        let simple = simple(rule);
        let goes_on = matches!((&simple, run.first()), (Some(rule), Some(first)) if rule.shape == first.shape);
        if !goes_on {
            runs.extend(summary(&run, least));
            run.clear();
        }
        run.extend(simple);
    }
    runs.extend(summary(&run, least));
    runs
}

/// The rule, when it consists of comparisons with single values and one verdict (a counter or a comment beside them).
fn simple(rule: &Value) -> Option<Rule<'_>> {
    let word = |key| rule.get(key).and_then(Value::as_str);
    let mut fields = Vec::new();
    let mut values = Vec::new();
    let mut verdict = None;
    for statement in rule.get("expr")?.as_array()? {
        let (kind, body) = statement.as_object()?.iter().next()?;
        match kind.as_str() {
            "match" => {
                let right = body.get("right")?;
                if right.get("set").is_some() || right.as_str().is_some_and(|name| name.starts_with('@')) {
                    return None;
                }
                fields.push((body.get("op")?.as_str()?, body.get("left")?));
                values.push(right);
            }
            "counter" => {}
            "accept" | "drop" | "reject" | "jump" | "goto" | "return" => verdict = Some(statement.to_string()),
            _ => return None,
        }
    }
    let place = (word("family")?, word("table")?, word("chain")?);
    (!fields.is_empty()).then_some(())?;
    Some(Rule { shape: Shape { place, fields }, values, verdict: verdict? })
}

fn summary(run: &[Rule<'_>], least: usize) -> Option<LinearRun> {
    let first = run.first().filter(|_| run.len() >= least)?;
    let (family, table, chain) = first.shape.place;
    let differing = (0..first.values.len()).filter(|&at| run.iter().any(|rule| rule.values[at] != first.values[at]));
    let fields: Vec<String> = differing.map(|at| field_name(first.shape.fields[at].1)).collect();
    (!fields.is_empty()).then(|| LinearRun {
        table: format!("{family} {table}"),
        chain: chain.to_owned(),
        rules: run.len(),
        fields,
        same_verdict: run.iter().all(|rule| rule.verdict == first.verdict),
    })
}

/// `ip saddr`, `meta l4proto`, `ct state`; anything else as its JSON.
fn field_name(left: &Value) -> String {
    let pair = |outer: &str, one: &str, two: Option<&str>| {
        let body = left.get(outer)?;
        let one = body.get(one)?.as_str()?;
        Some(match two {
            Some(two) => format!("{one} {}", body.get(two)?.as_str()?),
            None => format!("{outer} {one}"),
        })
    };
    pair("payload", "protocol", Some("field"))
        .or_else(|| pair("meta", "key", None))
        .or_else(|| pair("ct", "key", None))
        .unwrap_or_else(|| left.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(chain: &str, field: &str, value: &str, verdict: &str) -> Value {
        json!({"rule": {"family": "inet", "table": "filter", "chain": chain, "handle": 4, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": field}}, "right": value}},
            {"counter": {"packets": 0, "bytes": 0}},
            {verdict: null}]}})
    }

    #[test]
    fn a_run_of_addresses_is_found_and_named() {
        let mut objects = vec![json!({"metainfo": {}}), rule("input", "daddr", "10.0.0.1", "accept")];
        objects.extend((0..25).map(|n| rule("input", "saddr", &format!("192.0.2.{n}"), "drop")));
        objects.extend((0..3).map(|n| rule("forward", "saddr", &format!("192.0.2.{n}"), "drop")));
        let rules = json!({"nftables": objects});
        assert_eq!(rule_count(&rules), 29);
        let run = LinearRun {
            table: "inet filter".into(),
            chain: "input".into(),
            rules: 25,
            fields: vec!["ip saddr".into()],
            same_verdict: true,
        };
        assert_eq!(linear_runs(&rules, 8), [run]);
    }

    #[test]
    fn without_addresses_the_runs_stay() {
        let objects: Vec<Value> = (0..9).map(|n| rule("x", "saddr", &format!("192.0.2.{n}"), "drop")).collect();
        let open = json!({"nftables": objects});
        let hidden = anonymous(&open.to_string());
        assert!(!hidden.contains("192.0"), "{hidden}");
        assert_eq!(linear_runs(&serde_json::from_str(&hidden).unwrap(), 8), linear_runs(&open, 8));
    }

    #[test]
    fn other_verdicts_make_a_map_and_sets_end_a_run() {
        let verdict = |n: u32| if n.is_multiple_of(2) { "accept" } else { "drop" };
        let mut objects: Vec<Value> = (0..9).map(|n| rule("x", "saddr", &format!("192.0.2.{n}"), verdict(n))).collect();
        assert!(!linear_runs(&json!({"nftables": objects}), 8)[0].same_verdict);
        objects.insert(4, rule("x", "saddr", "@bad", "drop"));
        assert_eq!(linear_runs(&json!({"nftables": objects}), 8), []);
        assert_eq!(
            linear_runs(&json!({"nftables": vec![rule("x", "saddr", "192.0.2.1", "drop"); 9]}), 8),
            [],
            "no field differs"
        );
        assert_eq!(linear_runs(&json!({}), 1), []);
    }
}
