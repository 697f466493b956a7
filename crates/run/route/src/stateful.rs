//! Mode stateful: what stands against it, and what it costs.

use model::route::{CtMark, Obstacle};

use crate::evidence::Evidence;

fn item(code: &str, what: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
    Obstacle { code: code.to_owned(), what: what.into(), remedy: remedy.into() }
}

/// Obstacles to mode stateful: netfilter, conntrack, rules of policy routing.
pub(crate) fn obstacles(evidence: &Evidence, mark: CtMark) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if evidence.conntrack.is_none() {
        let what =
            "the kernel tracks no connections: no rule of nftables asks for it, or the module nf_conntrack is missing";
        found.push(item("conntrack", what, "modprobe nf_conntrack, or stay in mode standard or routed"));
    }
    let is_given = |set: &host::stack::MarkSet| set.value & set.bits & mark.value == mark.value;
    if !evidence.netfilter.marks.iter().any(is_given) {
        let what =
            format!("mode stateful needs a rule of nftables that marks connections with {mark}, and there is none");
        found.push(item("consent", what, format!("evenkeel route rules --mark {mark} --apply")));
    }
    for what in &evidence.netfilter.old {
        found.push(item("netfilter", what.clone(), "write those rules for nftables, or stay in mode standard"));
    }
    for chain in &evidence.netfilter.zones {
        let what = format!("rules put packets into conntrack zones ({chain}); the fast path knows zone 0 only");
        found.push(item("zones", what, "remove those rules, or stay in mode standard"));
    }
    if evidence.rules.iter().any(|rule| rule.by_mark) {
        let what = "rules of policy routing match packet marks (fwmark), which the fast path does not have";
        found.push(item("fwmark", what, "see `ip rule`; stay in mode standard"));
    }
    found
}

/// Notes on mode stateful: limits that the operator accepts with it.
pub(crate) fn notes(evidence: &Evidence) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let conntrack = evidence.conntrack.unwrap_or_default();
    if !conntrack.liberal {
        let what = "the kernel forwards TCP until conntrack ignores TCP windows";
        found.push(item("tcp-window", what, "sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1"));
    }
    let what = "new rules do not apply to connections that are already marked";
    found.push(item(
        "new-rules",
        what,
        "to end a host's connections at once: `conntrack -D -s HOST` and `conntrack -D -d HOST`, or `evenkeel route mode standard`",
    ));
    if conntrack.counts {
        let what = "conntrack's counters (nf_conntrack_acct) miss what the fast path forwards";
        found.push(item("acct", what, "count by `evenkeel route status`, or do not mark connections that are billed"));
    }
    for chain in &evidence.netfilter.sees {
        let what = format!("these statements neither count nor change packets of marked connections ({chain})");
        let remedy = "nothing, if only new connections reach them; else do not mark the connections that they must see";
        found.push(item("passed-by", what, remedy));
    }
    found
}
