//! The rules of nftables that mark established connections for the router's fast path: a table of their own.

use std::{
    io::{self, Write},
    process::Stdio,
};

use model::route::CtMark;
use nix::sys::socket::SockProtocol;

use super::{
    Knob, KnobError,
    live::{read_error, write_error},
};
use crate::{netlink::Netlink, stack::nft};

/// Table of the rules, of the family inet.
const TABLE: &str = "evenkeel_route";
const CHAIN: &str = "forward";
/// Value while there is no such table.
pub const ABSENT: &str = "absent";
/// Value while there is such a table that evenkeel did not make.
const OTHER: &str = "other rules";

/// The two lines for nft: a chain behind those that filter, and the rule.
pub fn lines(mark: CtMark) -> [String; 2] {
    let set = match mark.value == mark.mask {
        true => format!("ct mark | {:#x}", mark.value),
        false => format!("ct mark & {:#x} | {:#x}", !mark.mask, mark.value),
    };
    [
        format!(
            "table inet {TABLE} {{ chain {CHAIN} {{ type filter hook forward priority filter + 10; policy accept; }}; }}"
        ),
        format!("add rule inet {TABLE} {CHAIN} ct state established ct mark set {set}"),
    ]
}

/// The script that makes them so: none, or those of one mark.
fn script(value: &str) -> Option<String> {
    // Made first, it can be deleted whether it was there or not.
    let gone = format!("add table inet {TABLE}\ndelete table inet {TABLE}\n");
    match value {
        ABSENT => Some(gone),
        mark => mark.parse().ok().map(|mark| gone + &lines(mark).join("\n") + "\n"),
    }
}

/// The shell command that makes them so.
pub(super) fn shell(value: &str) -> String {
    match value.parse() {
        Ok(mark) => {
            let [chain, rule] = lines(mark);
            format!("nft '{chain}; {rule}'")
        }
        Err(_) => format!("nft delete table inet {TABLE}"),
    }
}

pub(super) fn read(knob: &Knob) -> Result<String, KnobError> {
    marks().map_err(|source| read_error(knob, "nftables".to_owned(), source))
}

pub(super) fn write(knob: &Knob, value: &str) -> Result<(), KnobError> {
    let script = script(value.trim()).ok_or_else(|| KnobError::Value {
        knob: knob.clone(),
        value: value.to_owned(),
        expected: "a mark such as 0x10000000",
    })?;
    run(&script).map_err(|source| write_error(knob, value, "nft".to_owned(), source))
}

fn run(script: &str) -> io::Result<()> {
    let spawned = sys::program::command("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let missing = |e: io::Error| match e.kind() {
        // The program is not the setting.
        io::ErrorKind::NotFound => io::Error::other("the program nft is not there; is nftables installed?"),
        _ => e,
    };
    let mut child = spawned.map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

fn marks() -> io::Result<String> {
    let mut netfilter = Netlink::open(SockProtocol::NetlinkNetFilter)?;
    let rules = nft::read(&mut netfilter)?.unwrap_or_default();
    if !rules.tables.contains_key(&("inet".to_owned(), TABLE.to_owned())) {
        return Ok(ABSENT.to_owned());
    }
    let own = |key: &&nft::RuleKey| key.chain.family == "inet" && key.chain.table == TABLE;
    let mut of_table = rules.rules.iter().filter(|(key, _)| own(key));
    let (Some((key, rule)), None) = (of_table.next(), of_table.next()) else { return Ok(OTHER.to_owned()) };
    let hook = rules.chains.get(&key.chain).and_then(|chain| chain.hook.as_deref());
    let mark = rule.acts.mark.filter(|_| hook == Some("forward"));
    Ok(mark.map_or_else(|| OTHER.to_owned(), |set| CtMark { value: set.value, mask: set.bits }.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_lines_follow_the_mark() {
        let rule = |text: &str| lines(text.parse().unwrap())[1].clone();
        assert!(rule("0x10").ends_with("ct state established ct mark set ct mark | 0x10"));
        assert!(rule("0x10/0xf0").ends_with("set ct mark & 0xffffff0f | 0x10"));
        assert!(shell("absent").starts_with("nft delete table inet"));
        assert!(shell("0x10").contains("priority filter + 10"));
        assert_eq!(script("nonsense"), None);
    }
}
