//! A shield as text.

use model::{
    counters::{Counter, Row},
    shield::{ProtectedStatus, RuleStatus, ShieldStatus, Totals},
    units,
};

use crate::table::Look;

/// The shield's process, and the consequences without it.
fn tended(status: &ShieldStatus) -> String {
    let silent = format!("no process has run it for {:.1} s", status.heartbeat_age_s);
    match (status.pid, status.fail) {
        (Some(pid), _) => format!("run by process {pid}"),
        (None, _) if status.unreachable => "run by a process that cannot be asked".to_owned(),
        (None, None) => format!("{silent}; whether and when it fails open or closed is not known"),
        (None, Some(fail)) if status.has_failed() => format!("failed {}: {silent}", fail.word()),
        (None, Some(fail)) => format!("{silent}: it fails {} after {} s", fail.word(), status.heartbeat_timeout_s),
    }
}

/// A shield in a list of them.
#[derive(Debug, Clone)]
pub enum ShieldRow<'a> {
    Known(&'a ShieldStatus),
    /// Nothing is known but where it is.
    Unknown {
        interface: &'a str,
    },
}

pub fn shield_list(shields: &[ShieldRow<'_>], look: Look) -> String {
    if shields.is_empty() {
        return "no shield in this network namespace\n".to_owned();
    }
    let row = |shield: &ShieldRow<'_>| match shield {
        ShieldRow::Known(status) => {
            let run_by = match (status.pid, status.fail) {
                (Some(pid), _) => format!("process {pid}"),
                (None, _) if status.unreachable => "a process that cannot be asked".to_owned(),
                (None, Some(fail)) if status.has_failed() => format!("nobody: failed {}", fail.word()),
                (None, _) => "nobody".to_owned(),
            };
            let counts = [status.totals.passed, status.totals.dropped].map(units::grouped);
            let own = status.rules.iter().filter(|rule| rule.counts()).count();
            let mut row = vec![status.interface.clone(), status.mode.clone(), run_by, own.to_string()];
            row.extend(counts);
            row.push(status.attacks.len().to_string());
            row
        }
        ShieldRow::Unknown { interface } => {
            let mut row = vec![(*interface).to_owned(), String::new(), "not known".to_owned()];
            row.resize(7, String::new());
            row
        }
    };
    let heads = ["INTERFACE", "MODE", "RUN BY", ">RULES", ">PASSED", ">DROPPED", ">ATTACKS"];
    look.narrow_table(&heads, shields.iter().map(row).collect(), &["ATTACKS", "MODE", "RULES", "RUN BY"])
}

/// A line: the rates of an interval.
pub fn shield_line(status: &ShieldStatus) -> String {
    let rates = status.rates.unwrap_or_default();
    let time = status.timestamp.split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or_default();
    format!(
        "{time} UTC  {}  passed {}  dropped {}  challenged {}  limited {}",
        status.interface,
        units::pps(rates.passed_pps),
        units::pps(rates.dropped_pps),
        units::pps(rates.challenged_pps),
        units::pps(rates.limited_pps),
    )
}

pub fn shield_text(status: &ShieldStatus, look: Look) -> String {
    // A program of the kernel has an id.
    let kind = match status.program_id {
        0 => format!("by {}", status.mode),
        id => format!("in {} XDP mode (program {id})", status.mode),
    };
    let rules = match &status.file {
        _ if status.loaded.is_empty() => "Its rules are not known: the record of them is lost".to_owned(),
        file => {
            let from = file.as_deref().unwrap_or("the command line");
            format!("Rules of {from} since {}", to_the_second(&status.loaded))
        }
    };
    let mut text = look.paragraph(&format!("{}: shield {kind}, {}. {rules}.", status.interface, tended(status)));
    if let Some(refused) = &status.reload_error {
        text += &format!("the last reload was refused: {refused}\n");
    }
    if let Some(challenge) = &status.challenge {
        text += &look.paragraph(&format!("{}.", challenge.text()));
    }
    if let Some(known) = &status.known_sources {
        text += &look.paragraph(&format!("{}.", known.text()));
    }
    for warning in &status.warnings {
        text += &look.paragraph(&format!("warning: {warning}"));
    }
    let row = |counter: &Counter<Totals>| {
        let (count, rate) = ((counter.get)(&status.totals), status.rates.unwrap_or_default().of(counter.name));
        let what = match counter.row {
            Row::Always(what) => what,
            Row::IfAny(what) if count > 0 => what,
            _ => return None,
        };
        let what = what.replace("{default}", &status.default);
        Some((rate.is_none(), vec![what, units::grouped(count), rate.map_or_else(String::new, units::pps)]))
    };
    // Those with a rate come first.
    let mut rows: Vec<_> = Totals::COUNTERS.iter().filter_map(row).collect();
    rows.sort_by_key(|(is_last, _)| *is_last);
    let rows = rows.into_iter().map(|(_, row)| row);
    text += "\n";
    text += &look.table(&["FRAMES", ">SINCE THE START", ">RATE"], rows);
    text += "\n";
    text += &rule_table(&status.rules, true, look);
    if !status.protected.is_empty() {
        text += "\n";
        text += &protected_table(&status.protected, look);
    }
    if !status.attacks.is_empty() {
        let attacks = status.attacks.iter().map(|attack| {
            let shadow = if attack.shadow { "shadow: " } else { "" };
            let mitigation = format!("{shadow}{}", attack.mitigation);
            vec![attack.prefix.clone(), attack.class.clone(), format!("{:.0} s", attack.since_s), mitigation]
        });
        text += "\n";
        text += &look.table(&["ATTACK ON", "CLASS", ">FOR", "WHAT IS DONE"], attacks);
    }
    if !status.sources.is_empty() {
        let sources = status.sources.iter().map(|source| vec![source.source.clone(), units::pps(source.pps)]);
        text += "\n";
        text += &look.table(&["SOURCE THAT SENDS MOST", ">RATE"], sources);
    }
    text
}

/// Protected prefixes that are shown.
const PROTECTED_MAX: usize = 10;

/// Protected prefixes, those that are closest to a limit first.
fn protected_table(protected: &[ProtectedStatus], look: Look) -> String {
    let reached = |it: &ProtectedStatus| it.closest().map_or(0.0, |(_, part)| part);
    let mut shown: Vec<_> = protected.iter().collect();
    shown.sort_by(|a, b| reached(b).total_cmp(&reached(a)));
    let row = |it: &&ProtectedStatus| {
        let packets = it.measures.iter().find(|measure| measure.measure == "packets");
        let rate = packets.map_or_else(String::new, |packets| units::pps(packets.rate));
        let limit = packets.and_then(|packets| packets.limit).map_or_else(|| "none".to_owned(), units::pps);
        let closest = it.closest().map(|(measure, part)| {
            let limit = measure.limit.unwrap_or_default();
            let limit = match &*measure.measure {
                "bits" => units::bits_per_second(limit),
                "new-flows" => format!("{}/s", units::count(limit as u64)),
                _ => units::pps(limit),
            };
            let origin = measure.origin.as_deref().unwrap_or_default();
            format!("{}: {} of {limit} ({origin})", measure.measure, units::percent(part))
        });
        let learning = (it.learning_s > 0.0).then(|| format!("learning for {:.0} s more", it.learning_s.ceil()));
        let closest = [closest, learning].into_iter().flatten().collect::<Vec<_>>().join("; ");
        vec![it.prefix.clone(), rate, limit, closest]
    };
    let heads = ["PROTECTED", ">PACKETS NOW", ">LIMIT", "CLOSEST TO ITS LIMIT"];
    let mut text = look.table(&heads, shown.iter().take(PROTECTED_MAX).map(row));
    if shown.len() > PROTECTED_MAX {
        text += &format!("{} more protected prefixes: see --json\n", shown.len() - PROTECTED_MAX);
    }
    text
}

/// Rules with what they counted, and with `rates` their packets per second.
pub(crate) fn rule_table(rules: &[RuleStatus], rates: bool, look: Look) -> String {
    let row = |rule: &RuleStatus| {
        let mut row = vec![rule.name.clone(), rule.does(), units::grouped(rule.packets)];
        row.extend(rates.then(|| rule.pps.map_or_else(String::new, units::pps)));
        row.push(if rule.limited > 0 { units::grouped(rule.limited) } else { String::new() });
        row
    };
    let mut heads = vec!["RULE", "ACTION", ">PACKETS"];
    heads.extend(rates.then_some(">RATE"));
    heads.push(">BEYOND LIMIT");
    look.narrow_table(&heads, rules.iter().map(row).collect(), &["BEYOND LIMIT", "RATE"])
}

/// A moment of RFC 3339 without the parts of its second.
pub(crate) fn to_the_second(moment: &str) -> String {
    let (whole, _) = moment.split_once('.').unwrap_or((moment, ""));
    format!("{}Z", whole.trim_end_matches('Z'))
}
