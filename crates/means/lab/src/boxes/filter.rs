//! The rules of a firewall, through the program `nft` and its JSON (libnftables-json(5)).

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use crate::{LabError, Namespace};

use super::{Inside, Network, RuleForm, Ruleset};

/// The table (family inet) that holds the rules; its chain is called `forward`.
pub const TABLE: &str = "ekbox";
const CHAIN: &str = "forward";

/// Loads the rules into the box, in one transaction.
pub(super) fn load(inside: &Inside, rules: &Ruleset, accepted: &Network) -> Result<(), LabError> {
    let exit = inside.exit.as_ref().unwrap_or(&inside.entry);
    let text = text(rules, accepted, [&inside.entry.name, &exit.name]);
    inside.namespace.run(|| nft(&["-j", "-f", "-"], &text).map(|_| ()))?
}

/// The rules between `interfaces` as `nft -j -f` takes them: for a box that this machine only tells of them. Those that are accepted are in `accepted`.
pub fn text(rules: &Ruleset, accepted: &Network, interfaces: [&str; 2]) -> String {
    ruleset(rules, accepted, interfaces).to_string()
}

pub(super) fn unload(namespace: &Namespace) -> Result<(), LabError> {
    namespace.run(|| nft(&["delete", "table", "inet", TABLE], "").map(|_| ()))?
}

/// The counter of the last rule.
pub(super) fn accepted(namespace: &Namespace) -> Result<u64, LabError> {
    let answer = namespace.run(|| nft(&["-j", "list", "chain", "inet", TABLE, CHAIN], ""))??;
    let unreadable = || LabError::Nft { what: "list its rules".into(), message: "its JSON has no counter".into() };
    let value: Value = serde_json::from_slice(&answer.stdout).map_err(|_| unreadable())?;
    let items = value["nftables"].as_array().ok_or_else(unreadable)?;
    let of_rule = |item: &Value| item["rule"]["expr"].as_array()?.iter().find_map(|e| e["counter"]["packets"].as_u64());
    items.iter().rev().find_map(of_rule).ok_or_else(unreadable)
}

/// The program of the rules between `interfaces`. Addresses that are refused lie in 10.0.0.0/8 and 2001:db8::/32, which no test sends
/// from; all that are accepted are in `accepted`, whichever way their packets go.
fn ruleset(rules: &Ruleset, accepted: &Network, interfaces: [&str; 2]) -> Value {
    let ip = if accepted.address.is_ipv4() { "ip" } else { "ip6" };
    let refused: Vec<String> = rules.refused(accepted.address.is_ipv4()).iter().map(IpAddr::to_string).collect();
    let field = |name: &str| json!({ "payload": { "protocol": ip, "field": name } });
    let is = |left: Value, right: Value| json!({ "match": { "op": "==", "left": left, "right": right } });
    let rule =
        |expr: Value| json!({ "add": { "rule": { "family": "inet", "table": TABLE, "chain": CHAIN, "expr": expr } } });
    let mut commands = vec![
        json!({ "add": { "table": { "family": "inet", "name": TABLE } } }),
        json!({ "add": { "chain": { "family": "inet", "table": TABLE, "name": CHAIN, "type": "filter", "hook": "forward",
            "prio": 0, "policy": "drop" } } }),
    ];
    match rules.form {
        _ if refused.is_empty() => {}
        RuleForm::Linear => {
            commands.extend(refused.iter().map(|a| rule(json!([is(field("saddr"), json!(a)), { "drop": null }]))));
        }
        RuleForm::PerSide => {
            let (first, second) = refused.split_at(refused.len().div_ceil(2));
            for (interface, addresses) in interfaces.into_iter().zip([first, second]) {
                let enters = is(json!({ "meta": { "key": "iifname" } }), json!(interface));
                let refuse = |a| rule(json!([enters, is(field("saddr"), json!(a)), { "drop": null }]));
                commands.extend(addresses.iter().map(refuse));
            }
        }
        RuleForm::Set => {
            let kind = if ip == "ip" { "ipv4_addr" } else { "ipv6_addr" };
            commands.push(json!({ "add": { "set": { "family": "inet", "table": TABLE, "name": "refused", "type": kind,
                "elem": refused } } }));
            commands.push(rule(json!([is(field("saddr"), json!("@refused")), { "drop": null }])));
        }
    }
    let prefix = json!({ "prefix": { "addr": accepted.address.to_string(), "len": accepted.prefix_len } });
    let mut last = vec![is(field("daddr"), prefix)];
    if rules.stateful {
        let states = json!(["established", "related", "new"]);
        last.push(json!({ "match": { "op": "in", "left": { "ct": { "key": "state" } }, "right": states } }));
    }
    last.extend([json!({ "counter": { "packets": 0, "bytes": 0 } }), json!({ "accept": null })]);
    commands.push(rule(Value::Array(last)));
    json!({ "nftables": commands })
}

impl Ruleset {
    /// The addresses that all rules but the last one refuse: in 10.0.0.0/8 or 2001:db8::/32.
    pub fn refused(&self, v4: bool) -> Vec<IpAddr> {
        (1..self.rules.max(1)).map(|n| address(n, v4)).collect()
    }
}

fn address(n: u32, v4: bool) -> IpAddr {
    match v4 {
        true => Ipv4Addr::from_bits(0x0a00_0000 | n & 0x00ff_ffff).into(),
        false => Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n)).into(),
    }
}

pub(super) fn nft(args: &[&str], input: &str) -> Result<Output, LabError> {
    let failed = |message: String| LabError::Nft { what: args.join(" "), message };
    let mut child = sys::program::command("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("{e}; is nftables installed?")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(|e| failed(e.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{super::Family, *};

    fn rules(n: u32, form: RuleForm, stateful: bool) -> Vec<Value> {
        let all = ruleset(&Ruleset { rules: n, stateful, form }, &Family::V4.whole(), ["lan0", "wan0"]);
        all["nftables"].as_array().unwrap().iter().filter(|c| !c["add"]["rule"].is_null()).cloned().collect()
    }

    #[test]
    fn there_are_as_many_rules_as_requested_and_the_last_accepts() {
        for n in [1, 2, 25, 1000] {
            let all = rules(n, RuleForm::Linear, false);
            assert_eq!(all.len(), n as usize);
            let accepts = |r: &Value| r.to_string().contains("accept");
            assert!(accepts(all.last().unwrap()) && all.iter().filter(|r| accepts(r)).count() == 1);
        }
        assert_eq!(rules(1000, RuleForm::Set, false).len(), 2);
        assert_eq!(rules(1, RuleForm::Set, false).len(), 1);
        assert!(!rules(5, RuleForm::Linear, false).last().unwrap().to_string().contains("established"));
        assert!(rules(5, RuleForm::Linear, true).last().unwrap().to_string().contains("established"));
    }

    #[test]
    fn each_side_has_its_half_of_the_rules() {
        let all = rules(25, RuleForm::PerSide, false);
        let of = |side: &str| all.iter().filter(|r| r.to_string().contains(side)).count();
        assert_eq!((all.len(), of("lan0"), of("wan0")), (25, 12, 12));
        assert!(all[11].to_string().contains("lan0") && all[12].to_string().contains("wan0"));
        assert!(all[24].to_string().contains(r#""addr":"198.18.0.0","len":15"#));
    }

    #[test]
    fn refused_addresses_differ() {
        let v4 = Ruleset { rules: 301, stateful: false, form: RuleForm::Linear }.refused(true);
        assert_eq!((v4.len(), v4[0].to_string(), v4[299].to_string()), (300, "10.0.0.1".into(), "10.0.1.44".into()));
        assert_eq!(address(258, false).to_string(), "2001:db8::102");
    }
}
