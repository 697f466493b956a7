//! Rules as text, from the programs that administrators know: `nft -a -t list ruleset`, and `iptables-legacy-save -c` where
//! tables of the old kind are in use.

use std::{collections::BTreeMap, io};

use super::{
    nft::{Chain, ChainKey, Rule, RuleKey, Rules, Verdict},
    unread::{Source, Unread},
};
use crate::root::Root;

/// The texts of nftables' rules. The elements of named sets are left out: they may be many, and no rule is among them.
pub(super) fn nft() -> io::Result<BTreeMap<RuleKey, String>> {
    listing().map(|text| parse_nft(&text))
}

fn listing() -> io::Result<String> {
    run("nft", &["-s", "-a", "-t", "list", "ruleset"])
}

/// Adds the rules of the old kind, if there are any. What cannot be read is said in `unread`.
pub(super) fn legacy(root: &Root, rules: &mut Rules, unread: &mut Unread) {
    for (names, program, family) in [
        ("proc/net/ip_tables_names", "iptables-legacy-save", "iptables"),
        ("proc/net/ip6_tables_names", "ip6tables-legacy-save", "ip6tables"),
    ] {
        let tables = root.read_opt(names).ok().flatten().unwrap_or_default();
        if tables.is_empty() {
            continue;
        }
        match run(program, &["-c"]) {
            Ok(text) => parse_legacy(&text, family, rules),
            Err(e) => unread.miss(
                Source::OldRules(family),
                format!("{family} has tables ({}), but `{program} -c` fails: {e}", words(&tables)),
            ),
        }
    }
}

fn words(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(", ")
}

fn run(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = sys::program::command(program).args(arguments).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(why.lines().next().unwrap_or("it failed without a word").to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The rules in what `nft -a list ruleset` prints, by their handles.
fn parse_nft(text: &str) -> BTreeMap<RuleKey, String> {
    let mut texts = BTreeMap::new();
    let (mut family, mut table, mut chain) = (String::new(), String::new(), None);
    for line in text.lines() {
        let line = line.trim();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["table", f, t, "{", ..] => {
                (family, table) = ((*f).to_owned(), (*t).to_owned());
                chain = None;
            }
            ["chain", c, "{", ..] => {
                chain = Some(ChainKey { family: family.clone(), table: table.clone(), chain: (*c).to_owned() });
            }
            ["}", ..] => chain = None,
            _ => {
                if let (Some(chain), Some((rule, handle))) = (&chain, line.rsplit_once(" # handle "))
                    && let Ok(handle) = handle.parse()
                {
                    texts.insert(RuleKey { chain: chain.clone(), handle }, rule.trim().to_owned());
                }
            }
        }
    }
    texts
}

/// `*filter`, `:INPUT ACCEPT [5:300]`, `[2:120] -A INPUT -p udp -j DROP`.
fn parse_legacy(text: &str, family: &str, rules: &mut Rules) {
    let mut table = String::new();
    let mut places: BTreeMap<ChainKey, u64> = BTreeMap::new();
    let key = |table: &str, chain: &str| ChainKey {
        family: family.to_owned(),
        table: table.to_owned(),
        chain: chain.to_owned(),
    };
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            name.trim().clone_into(&mut table);
        } else if let Some(rest) = line.strip_prefix(':') {
            let mut words = rest.split_ascii_whitespace();
            let (Some(chain), Some(policy)) = (words.next(), words.next()) else { continue };
            let builtin = policy != "-";
            let entry = Chain {
                hook: builtin.then(|| chain.to_ascii_lowercase()),
                kind: if table == "nat" { "nat" } else { "filter" }.to_owned(),
                policy_drop: policy == "DROP",
                policy_packets: words.next().and_then(counts).map(|c| c.0).filter(|_| builtin),
                ..Chain::default()
            };
            rules.chains.insert(key(&table, chain), entry);
        } else if let Some((counters, rest)) = line.split_once("] -A ") {
            let Some((packets, bytes)) = counts(&format!("{counters}]")) else { continue };
            let (chain, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let chain = key(&table, chain);
            let place = places.entry(chain.clone()).or_default();
            *place += 1;
            let rule = Rule {
                packets: Some(packets),
                bytes,
                verdict: legacy_verdict(text),
                exact: true,
                named: None,
                text: text.to_owned(),
                ..Rule::default()
            };
            rules.rules.insert(RuleKey { chain, handle: *place }, rule);
        }
    }
}

/// `[5:300]`
fn counts(text: &str) -> Option<(u64, u64)> {
    let (packets, bytes) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some((packets.parse().ok()?, bytes.parse().ok()?))
}

fn legacy_verdict(text: &str) -> Verdict {
    let mut words = text.split_ascii_whitespace().skip_while(|word| !matches!(*word, "-j" | "-g"));
    match (words.next(), words.next()) {
        (Some("-j"), Some("DROP")) => Verdict::Drop,
        (Some("-j"), Some("REJECT")) => Verdict::Reject,
        (Some("-j"), Some("ACCEPT")) => Verdict::Accept,
        (Some("-j"), Some("RETURN")) => Verdict::Return,
        (Some("-j"), Some("NFQUEUE")) => Verdict::Queue,
        (Some("-j"), Some("SYNPROXY")) => Verdict::Synproxy,
        // Targets are in capitals by custom, chains need not be: a chain is found among the chains.
        (Some("-j"), Some(target)) => Verdict::Jump(target.to_owned()),
        (Some("-g"), Some(chain)) => Verdict::Goto(chain.to_owned()),
        _ => Verdict::None,
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, process::Stdio, thread};

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn the_elements_of_sets_are_not_printed() {
        let rules = "table ip ekt {\n set s {\n type ipv4_addr\n elements = { 198.18.9.1, 198.18.9.2 }\n }\n \
            chain c {\n ip saddr @s counter drop\n ip saddr { 198.18.8.1, 198.18.8.2 } drop\n ct state new udp dport 53 drop\n }\n }";
        let test = move || {
            if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
                assert!(std::env::var_os("CI").is_none(), "no namespace: {e}");
                return eprintln!("skipped: no namespace ({e}): run as root");
            }
            let mut child = sys::program::command("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft");
            child.stdin.take().expect("a pipe").write_all(rules.as_bytes()).expect("nft reads");
            assert!(child.wait().expect("nft ends").success());
            let text = listing().expect("a listing");
            assert!(!text.contains("198.18.9."), "{text}");
            let texts: Vec<String> = parse_nft(&text).into_values().collect();
            let as_written = [
                "ip saddr @s counter drop",
                "ip saddr { 198.18.8.1, 198.18.8.2 } drop",
                "ct state new udp dport 53 drop",
            ];
            assert_eq!(texts, as_written);
        };
        thread::spawn(test).join().expect("the test");
    }

    #[test]
    fn what_nft_prints() {
        let text = "table inet ek { # handle 5\n\tset s { # handle 9\n\t\ttype ipv4_addr\n\t}\n\n\
            \tchain in { # handle 1\n\t\ttype filter hook input priority filter; policy accept;\n\
            \t\tudp dport 9 counter drop # handle 3\n\t\tcomment # handle x\n\t}\n}\n";
        let texts = parse_nft(text);
        let chain = ChainKey { family: "inet".into(), table: "ek".into(), chain: "in".into() };
        assert_eq!(texts.len(), 1);
        assert_eq!(texts[&RuleKey { chain, handle: 3 }], "udp dport 9 counter drop");
    }

    #[test]
    fn what_iptables_save_prints() {
        let text = "# Generated\n*filter\n:INPUT DROP [7:420]\n:mine - [0:0]\n\
            [12:720] -A INPUT -p udp -m udp --dport 9 -j DROP\n[3:180] -A INPUT -j mine\nCOMMIT\n";
        let mut rules = Rules::default();
        parse_legacy(text, "iptables", &mut rules);
        let chain = ChainKey { family: "iptables".into(), table: "filter".into(), chain: "INPUT".into() };
        let input = &rules.chains[&chain];
        assert_eq!((input.hook.as_deref(), input.policy_drop, input.policy_packets), (Some("input"), true, Some(7)));
        let first = &rules.rules[&RuleKey { chain: chain.clone(), handle: 1 }];
        assert_eq!((first.packets, first.bytes, &first.verdict), (Some(12), 720, &Verdict::Drop));
        assert_eq!(first.text, "-p udp -m udp --dport 9 -j DROP");
        let second = &rules.rules[&RuleKey { chain, handle: 2 }];
        assert_eq!(second.verdict, Verdict::Jump("mine".into()));
        let mine = ChainKey { family: "iptables".into(), table: "filter".into(), chain: "mine".into() };
        assert_eq!(rules.hooks(&mine), ["input"]);
    }
}
