//! A rule made of its keys, from a file or the command line.

use std::collections::BTreeSet;

use super::{
    known::Known,
    rule::{Action, Limit, Match, Place, Rule},
    words::{self, Wrong},
};

/// Keys of a rule, in the order of the documentation.
pub const KEYS: &[&str] = &[
    "name",
    "action",
    "shadow",
    "expires",
    "rate",
    "burst",
    "per-source",
    "family",
    "protocol",
    "source",
    "destination",
    "source-port",
    "destination-port",
    "tcp-flags",
    "icmp-type",
    "length",
    "fragment",
    "dscp",
    "vlan",
    "connection",
    "listener",
    "source-seen",
];
pub const ACTIONS: &[&str] = &["pass", "drop", "limit", "challenge", "shadow"];
/// Names of other programs for our keys.
const ELSEWHERE: &[(&str, &str)] = &[
    ("accept", "pass"),
    ("allow", "pass"),
    ("permit", "pass"),
    ("block", "drop"),
    ("deny", "drop"),
    ("discard", "drop"),
    ("reject", "drop"),
    ("rate-limit", "limit"),
    ("police", "limit"),
    ("synproxy", "challenge"),
    ("count", "shadow"),
    ("log", "shadow"),
    ("saddr", "source"),
    ("src", "source"),
    ("daddr", "destination"),
    ("dst", "destination"),
    ("sport", "source-port"),
    ("src-port", "source-port"),
    ("dport", "destination-port"),
    ("dst-port", "destination-port"),
    ("port", "destination-port"),
    ("proto", "protocol"),
    ("pps", "rate"),
    ("verdict", "action"),
    ("tos", "dscp"),
    ("icmp", "icmp-type"),
    ("flags", "tcp-flags"),
    ("packet-length", "length"),
    ("expire", "expires"),
    ("until", "expires"),
    ("ct", "connection"),
    ("state", "connection"),
    ("socket", "listener"),
];
/// The smallest burst that is assumed.
const BURST_MIN: u64 = 5;

/// A value and where it is written (byte offset in its text).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub at: usize,
}

/// A key with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Word,
    /// Values of the key, at least one.
    pub words: Vec<Word>,
}

/// Something wrong at a byte offset.
pub type Fault = (usize, Wrong);

/// The known word that an unknown `word` may mean.
pub fn instead_of(word: &str, known: &[&str]) -> String {
    let word = &word.replace('_', "-");
    if let Some(name) = known.iter().find(|name| *name == word) {
        return format!("write `{name}`");
    }
    let here = |name: &&(&str, &str)| name.0 == word && known.contains(&name.1);
    match ELSEWHERE.iter().find(here) {
        Some((_, name)) => format!("write `{name}`"),
        None => words::one_of(word, known),
    }
}

/// Names of sets, each with its place in the text.
pub type SetNames = Vec<(String, usize)>;

struct Draft<'a> {
    entries: &'a [Entry],
    faults: Vec<Fault>,
}

impl Draft<'_> {
    fn words(&self, key: &str) -> &[Word] {
        self.entries.iter().find(|entry| entry.key.text == key).map_or(&[], |entry| &entry.words)
    }

    fn all<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T, Wrong>) -> Vec<T> {
        let read: Vec<_> = self.words(key).iter().map(|word| (word.at, read(&word.text))).collect();
        read.into_iter().filter_map(|(at, value)| value.map_err(|wrong| self.faults.push((at, wrong))).ok()).collect()
    }

    fn one<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T, Wrong>) -> Option<T> {
        if let Some(second) = self.words(key).get(1) {
            let at = second.at;
            self.faults
                .push((at, Wrong::new(format!("`{key}` has several values"), "write one value, without brackets")));
        }
        self.all(key, read).into_iter().next()
    }

    fn flatten(ranges: Vec<std::ops::RangeInclusive<u16>>) -> Vec<u16> {
        ranges.into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// A rule from its keys, at byte offset `at`. The keys `name` and `action` are needed.
///
/// # Errors
/// Every value that is wrong, with its place.
pub fn rule(entries: &[Entry], at: usize) -> Result<(Rule, SetNames), Vec<Fault>> {
    let mut draft = Draft { entries, faults: Vec::new() };
    for entry in entries.iter().filter(|entry| !KEYS.contains(&entry.key.text.as_str())) {
        let wrong = Wrong::new(format!("a rule has no key `{}`", entry.key.text), instead_of(&entry.key.text, KEYS));
        draft.faults.push((entry.key.at, wrong));
    }
    let name = draft.one("name", name);
    if name.is_none() && draft.words("name").is_empty() {
        let wrong = Wrong::new(
            "a rule without a name",
            "give it one (name = \"…\"): its counters go on under it when rules change",
        );
        draft.faults.push((at, wrong));
    }
    let when = conditions(&mut draft);
    let (action, counts_only) = action(&mut draft, at);
    let shadow = draft.one("shadow", boolean).unwrap_or(false) || counts_only;
    let expires = draft.one("expires", words::moment);
    let sets = ["source", "destination"].iter().flat_map(|key| draft.words(key));
    let sets = sets.filter_map(|word| word.text.strip_prefix('@').map(|name| (name.to_owned(), word.at))).collect();
    if !draft.faults.is_empty() {
        return Err(draft.faults);
    }
    let rule = Rule {
        name: name.unwrap_or_default(),
        when,
        action,
        shadow,
        expires,
        management: false,
        yields: false,
        line: None,
    };
    Ok((rule, sets))
}

fn name(text: &str) -> Result<String, Wrong> {
    let bad =
        |why: &str| Err(Wrong::new(format!("`{text}` cannot be a name: {why}"), "write letters, digits and - _ . : /"));
    match text {
        "" => bad("it is empty"),
        _ if text.len() > 63 => bad("it has more than 63 bytes"),
        _ if text.starts_with("management:") => bad("names of the management allow-list begin so"),
        _ if text.chars().any(char::is_control) => bad("it has control characters"),
        _ => Ok(text.to_owned()),
    }
}

fn boolean(text: &str) -> Result<bool, Wrong> {
    text.parse().map_err(|_| Wrong::new(format!("`{text}` is neither true nor false"), "write true or false"))
}

fn conditions(draft: &mut Draft<'_>) -> Match {
    let port = |noun: &'static str| move |text: &str| words::range(text, noun, 0, 65535);
    let protocol = draft.all("protocol", words::protocol);
    let icmp_type = draft.all("icmp-type", |text| words::icmp_type(text, &protocol));
    let vlan = draft.all("vlan", |text| words::range(text, "VLAN id", 0, 4095));
    let when = Match {
        family: draft.one("family", words::family),
        source: draft.all("source", words::place),
        destination: draft.all("destination", words::place),
        source_port: draft.all("source-port", port("port")),
        destination_port: draft.all("destination-port", port("port")),
        tcp_flags: draft.one("tcp-flags", words::tcp_flags),
        icmp_type,
        length: draft.all("length", |text| words::range(text, "length", 0, 65535)),
        fragment: draft.one("fragment", words::fragment),
        dscp: draft.all("dscp", words::dscp),
        vlan: Draft::flatten(vlan),
        known: Known {
            connection: draft.one("connection", words::connection),
            listener: draft.one("listener", words::listener),
            source_seen: draft.one("source-seen", words::source_seen),
        },
        protocol,
    };
    never_true(draft, &when);
    when
}

/// Conditions that no packet fulfils together.
fn never_true(draft: &mut Draft<'_>, when: &Match) {
    let with_ports = |number: &u8| [6, 17, 33, 132, 136].contains(number);
    let lacks = |protocols: &[u8], has: &dyn Fn(&u8) -> bool| !protocols.is_empty() && !protocols.iter().any(has);
    let mut fault = |key: &str, what: &str, instead: &str| {
        if let Some(word) = draft.words(key).first() {
            let at = word.at;
            draft.faults.push((at, Wrong::new(what, instead)));
        }
    };
    if lacks(&when.protocol, &with_ports) {
        for key in ["source-port", "destination-port"] {
            fault(
                key,
                "no protocol of this rule has ports",
                "write protocol = \"tcp\", \"udp\", \"sctp\", \"dccp\" or \"udplite\"",
            );
        }
    }
    if lacks(&when.protocol, &|number| *number == 6) {
        fault(
            "tcp-flags",
            "no protocol of this rule has TCP flags",
            "write protocol = \"tcp\", or leave the protocol out",
        );
    }
    if lacks(&when.protocol, &|number| [1, 58].contains(number)) {
        fault("icmp-type", "no protocol of this rule has ICMP types", "write protocol = \"icmp\" or \"icmpv6\"");
    }
    if lacks(&when.protocol, &|number| [6, 17].contains(number)) {
        for key in ["connection", "listener"] {
            fault(key, "no protocol of this rule has connections", "write protocol = \"tcp\" or \"udp\"");
        }
    }
    for (key, places) in [("source", &when.source), ("destination", &when.destination)] {
        let other = |place: &Place| match place {
            Place::Prefix(prefix) => when.family.is_some_and(|family| (family == 4) != prefix.address.is_ipv4()),
            Place::Set(_) => false,
        };
        if !places.is_empty() && places.iter().all(other) {
            fault(
                key,
                "no address of this condition is of the rule's family",
                "leave `family` out: the addresses say it",
            );
        }
    }
}

fn action(draft: &mut Draft<'_>, at: usize) -> (Action, bool) {
    let known = |text: &str| match ACTIONS.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(Wrong::new(format!("`{text}` is not an action"), instead_of(text, ACTIONS))),
    };
    let word = draft.one("action", known);
    if draft.words("action").is_empty() {
        let instead = "write action = \"pass\", \"drop\", \"limit\" (with rate = …), \"challenge\" or \"shadow\"";
        draft.faults.push((at, Wrong::new("a rule without an action", instead)));
    }
    let limits = word.as_deref() == Some("limit");
    for key in ["rate", "burst", "per-source"] {
        if let (false, Some(action), Some(place)) = (limits, &word, draft.words(key).first().map(|word| word.at)) {
            let wrong = Wrong::new(
                format!("`{key}` has no meaning beside action = \"{action}\""),
                "write action = \"limit\", or leave it out",
            );
            draft.faults.push((place, wrong));
        }
    }
    match word.as_deref() {
        Some("drop") => (Action::Drop, false),
        Some("shadow") => (Action::Drop, true),
        Some("challenge") => (Action::Challenge, false),
        Some("limit") => (limit(draft, at), false),
        _ => (Action::Pass, false),
    }
}

fn limit(draft: &mut Draft<'_>, at: usize) -> Action {
    let pps = draft.one("rate", words::rate);
    if draft.words("rate").is_empty() {
        draft.faults.push((at, Wrong::new("a limit without a rate", "write rate = \"1000/s\" beside it")));
    }
    let pps = pps.unwrap_or(1);
    let burst = draft.one("burst", |text| {
        let number = text.parse::<u64>().ok().filter(|burst| (1..=1_000_000_000).contains(burst));
        number.ok_or_else(|| {
            Wrong::new(format!("`{text}` is not a burst"), "write packets that may come at once, 1 or more")
        })
    });
    let sources = draft.words("per-source").to_vec();
    let texts: Vec<_> = sources.iter().map(|word| word.text.as_str()).collect();
    let per_source = match words::per_source(&texts) {
        _ if texts.is_empty() => None,
        Ok(lens) => lens,
        Err(wrong) => {
            draft.faults.push((sources[0].at, wrong));
            None
        }
    };
    Action::Limit(Limit { pps, burst: burst.unwrap_or((pps / 10).max(BURST_MIN)), per_source })
}
