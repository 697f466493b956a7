//! The same rules as an nftables script: a table of the netdev family at the ingress of one interface.
//!
//! A packet is passed or dropped by the same rule as in the kernel program. What differs, since nftables sees packets differently:
//! frames of two or more VLAN tags are not IP to it: they pass, but are dropped if the outer one is a mere priority, since the stack behind would
//! take both off; behind an IPv6 authentication header it reads no transport header; malformed packets match what can be read of them,
//! and the network stack drops some of them later, which the script says; rules that expire do so to the second.

mod conditions;
mod sets;

use std::fmt::{self, Write as _};

use crate::{
    compile::Now,
    rule::{Action, Limit, Rule, Rules, Verdict},
};

/// The counter of what no rule decides about.
pub const DEFAULT_COUNTER: &str = "by_default";
/// Sources that a limit for each of them can tell apart.
const SOURCES_MAX: u32 = 65_535;
/// Bytes that nftables takes for a comment.
const COMMENT_MAX: usize = 120;

/// A reason why rules have no nftables form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NftError {
    #[error(
        "rule \"{rule}\" challenges: nftables answers SYNs only behind connection tracking (synproxy), not at ingress; leave the rule out or make it drop or limit"
    )]
    Challenge { rule: String },
    #[error(
        "rule \"{rule}\" asks what this machine knows about a packet (connection, listener, source-seen), which nftables cannot say at ingress; leave the rule out"
    )]
    Known { rule: String },
    #[error(
        "nftables cannot name the interface {interface}: it has no way to write a quotation mark; rename it by `ip link set`"
    )]
    Unwritable { interface: String },
}

model::classified!(NftError: Usage, Lacking: Unwritable);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    fn set_type(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }
}

/// The table that the script makes for an interface; what it was before is replaced in the same transaction.
pub fn table(interface: &str) -> String {
    // What nftables takes within a name; an interface may have nearly anything else.
    let mut name = "ek_shield_".to_owned();
    for byte in interface.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => name.push(byte.into()),
            // Written so that no two interfaces share a table.
            other => name += &format!("_{other:02x}"),
        }
    }
    name
}

pub fn counter(rule: usize) -> String {
    format!("r{rule}")
}

/// The script for `nft -f`, which replaces the rules of `interface` at once.
///
/// # Errors
/// A rule that challenges, or asks what is known.
pub fn script(rules: &Rules, interface: &str, now: Now) -> Result<String, NftError> {
    let mut text = Script::default();
    if rules.malformed == Verdict::Drop {
        text.line(0, format_args!("# Frames that are cut short or contradict themselves (malformed = \"drop\") pass here: nftables cannot tell."));
    }
    if interface.contains('"') {
        return Err(NftError::Unwritable { interface: interface.to_owned() });
    }
    text.rules(rules, interface, now)?;
    Ok(text.0)
}

#[derive(Default)]
struct Script(String);

impl Script {
    fn line(&mut self, depth: usize, text: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{:depth$}{text}", "", depth = depth * 4);
    }

    fn rules(&mut self, rules: &Rules, interface: &str, now: Now) -> Result<(), NftError> {
        let table = table(interface);
        self.line(0, format_args!("table netdev {table}"));
        self.line(0, format_args!("delete table netdev {table}"));
        self.line(0, format_args!("table netdev {table} {{"));
        if let Some(rule) = rules.rules.iter().find(|rule| !rule.when.known.is_nothing()) {
            return Err(NftError::Known { rule: rule.name.clone() });
        }
        for (number, rule) in rules.rules.iter().enumerate() {
            self.line(1, format_args!("counter {} {{ comment \"{}\"; }}", counter(number), comment(&rule.name)));
        }
        self.line(1, format_args!("counter {DEFAULT_COUNTER} {{ }}"));
        let mut chains = vec![];
        for family in [Family::V4, Family::V6] {
            let mut lines = vec![];
            for (number, rule) in rules.rules.iter().enumerate() {
                if rule.expires.is_some_and(|at| at <= now.wall) {
                    continue;
                }
                let sets = sets::Sets { rules, number, family };
                let Some(found) = conditions::conditions(&rule.when, &sets) else { continue };
                found.sets.iter().for_each(|set| self.line(1, format_args!("{set}")));
                let end = self.end(rule, number, family)?;
                let until = rule.expires.map_or_else(String::new, |at| format!("meta time < {} ", at.as_second()));
                lines.extend(found.alternatives.iter().map(|when| {
                    let space = if when.is_empty() { "" } else { " " };
                    format!(
                        "{until}{when}{space}counter name {}{end} comment \"{}\"",
                        counter(number),
                        comment(&rule.name)
                    )
                }));
            }
            chains.push((family, lines));
        }
        let default = verdict(rules.default);
        for (family, lines) in &chains {
            self.line(1, format_args!("chain rules_{} {{", family.header()));
            lines.iter().for_each(|line| self.line(2, format_args!("{line}")));
            self.line(2, format_args!("counter name {DEFAULT_COUNTER} {default}"));
            self.line(1, format_args!("}}"));
        }
        self.line(1, format_args!("chain ingress {{"));
        let hook = format!("type filter hook ingress device \"{interface}\" priority 0; policy accept;");
        self.line(2, format_args!("{hook}"));
        self.line(2, format_args!("meta protocol {{ 8021q, 8021ad }} @ll,112,16 & 0xfff == 0 drop"));
        for (family, _) in &chains {
            self.line(2, format_args!("meta protocol {} goto rules_{0}", family.header()));
        }
        self.line(1, format_args!("}}"));
        self.line(0, format_args!("}}"));
        Ok(())
    }

    /// The action of the rule, behind its counter.
    fn end(&mut self, rule: &Rule, number: usize, family: Family) -> Result<String, NftError> {
        if rule.shadow {
            return Ok(String::new());
        }
        Ok(match rule.action {
            Action::Pass => " accept".to_owned(),
            Action::Drop => " drop".to_owned(),
            Action::Limit(Limit { pps, burst, per_source: None }) => {
                format!(" limit rate over {pps}/second burst {burst} packets drop")
            }
            Action::Limit(Limit { pps, burst, per_source: Some(lens) }) => {
                let set = format!("r{number}_sources_{}", family.header());
                self.line(1, format_args!("set {set} {{"));
                self.line(
                    2,
                    format_args!("type {}; size {SOURCES_MAX}; flags dynamic,timeout; timeout 1m;", family.set_type()),
                );
                self.line(1, format_args!("}}"));
                let mask = sets::mask(family, lens);
                let header = family.header();
                format!(
                    " update @{set} {{ {header} saddr & {mask} limit rate over {pps}/second burst {burst} packets }} drop"
                )
            }
            Action::Challenge => return Err(NftError::Challenge { rule: rule.name.clone() }),
        })
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "accept",
        Verdict::Drop => "drop",
    }
}

/// A name as nftables takes it within quotes.
fn comment(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if text.len() + c.len_utf8() > COMMENT_MAX {
            break;
        }
        text.push(if c == '"' || c.is_control() { '\'' } else { c });
    }
    text
}
