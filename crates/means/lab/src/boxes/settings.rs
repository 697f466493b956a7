//! The settings of a box, for the reader of a report.

use std::{fs, io};

use crate::{LabError, Namespace};

use super::{BoxKind, Napi, RuleForm, Ruleset, TestBox, router};

/// Everything that differs from a bare namespace.
pub(super) fn of(made: &TestBox) -> Result<Vec<String>, LabError> {
    let spec = made.spec();
    let (namespace, entry) = made.entry();
    let mut all = vec![format!(
        "veth, {} queue{}, MTU {}, gro on",
        spec.queues.max(1),
        if spec.queues > 1 { "s" } else { "" },
        mtu(namespace, &entry.name)?
    )];
    let Some(inside) = made.inside() else { return Ok(all) };
    if let Napi::Threads(cpus) = &spec.napi {
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        all.push(format!("threaded NAPI on CPU {}", cpus.join(", ")));
    }
    let family = spec.family;
    match &spec.kind {
        BoxKind::Bridge => all.push("bridge with static entries for both ends, multicast_snooping 0, no STP".into()),
        kind if kind.routes() => {
            all.push(format!("{} = 1", router::switch(family)));
            for (hosts, via, by) in [
                (family.hosts_of_sender(), family.sender(), "ENTRY"),
                (family.hosts_of_receiver(), family.receiver(), "EXIT"),
            ] {
                all.push(format!("ip route add {hosts} via {via} dev {by} (permanent neighbour)"));
            }
        }
        _ => {}
    }
    match &spec.kind {
        BoxKind::XdpFib => all.push("xdp_fib in native mode on ENTRY and EXIT".into()),
        BoxKind::Firewall(rules) => {
            all.extend(rules_in_words(rules, &family.whole().to_string()));
            if rules.stateful {
                for name in ["net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_buckets"] {
                    all.push(format!("{name} = {}", read(&inside.namespace, name)?));
                }
            }
        }
        _ => {}
    }
    Ok(all)
}

fn rules_in_words(rules: &Ruleset, accepted: &str) -> Vec<String> {
    let refused = rules.rules.saturating_sub(1);
    let state = if rules.stateful { " ct state established,related,new" } else { "" };
    let mut all = vec!["nft: chain in hook forward, policy drop".to_owned()];
    match rules.form {
        _ if refused == 0 => {}
        RuleForm::Linear => all.push(format!("nft: {refused} rules `saddr ADDRESS drop`")),
        RuleForm::PerSide => {
            let first = refused.div_ceil(2);
            all.push(format!("nft: {first} rules `iifname ENTRY saddr ADDRESS drop`"));
            all.push(format!("nft: {} rules `iifname EXIT saddr ADDRESS drop`", refused - first));
        }
        RuleForm::Set => all.push(format!("nft: 1 rule `saddr @refused drop` with {refused} addresses")),
    }
    all.push(format!("nft: 1 rule `daddr {accepted}{state} counter accept`, the only one that matches"));
    all
}

fn mtu(namespace: &Namespace, interface: &str) -> Result<String, LabError> {
    file(namespace, &format!("/sys/class/net/{interface}/mtu"))
}

fn read(namespace: &Namespace, sysctl: &str) -> Result<String, LabError> {
    file(namespace, &format!("/proc/sys/{}", sysctl.replace('.', "/")))
}

fn file(namespace: &Namespace, path: &str) -> Result<String, LabError> {
    let failed = |source: io::Error| LabError::Link { what: "read", object: path.to_owned(), source };
    Ok(namespace.run(|| fs::read_to_string(path))?.map_err(failed)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_add_up() {
        let words = |rules, form| rules_in_words(&Ruleset { rules, stateful: false, form }, "198.18.0.0/15").join("; ");
        assert!(words(25, RuleForm::PerSide).contains("12 rules `iifname ENTRY"));
        assert!(words(25, RuleForm::PerSide).contains("12 rules `iifname EXIT"));
        assert!(words(25, RuleForm::Linear).contains("24 rules `saddr"));
        assert!(!words(1, RuleForm::PerSide).contains("ENTRY"));
    }
}
