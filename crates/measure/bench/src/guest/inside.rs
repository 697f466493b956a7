//! The guest as a router, what it says of its cards, and evenkeel's verbs in it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use guest::{Guest, Ran};
use lab::boxes::Family;
use model::bench::guest::{Verb, VerbOutcome};
use selftest::asked::{ON_A_CARD, ledger_closes};

use super::bed::{Bed, Ends, MACS};
use crate::{BenchError, outside::Addressing};

/// A program in a guest that is emulated ends within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// An interval in which a verb looks at traffic.
const INTERVAL: Duration = Duration::from_secs(2);
/// Frames without a route that the ledger has to find.
const STRANDED_COUNT: u32 = 40;
/// Offloads that are told of.
const OFFLOADS: [&str; 6] = [
    "rx-checksumming",
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
];

/// Makes a router of it: addresses, neighbours, routes, forwarding. The names of its cards.
pub(crate) fn route(guest: &mut Guest, bed: &Bed) -> Result<[String; 2], BenchError> {
    let at = Addressing::routed(Family::V4);
    let mut names = [String::new(), String::new()];
    for (side, (tester, len)) in at.own.into_iter().enumerate() {
        let listed = checked(guest, &["ip", "-o", "link"])?;
        let line = listed.lines().find(|line| line.contains(MACS[side]));
        let name = line.and_then(|line| line.split(": ").nth(1));
        let name = name.ok_or_else(|| lacks(guest, side))?.to_owned();
        let own = at.gateways.map(|gateways| format!("{}/{len}", gateways[side])).unwrap_or_default();
        let (tester, hosts, mac) = (tester.to_string(), at.hosts[side].to_string(), bed.macs[side].to_string());
        checked(guest, &["ip", "link", "set", &name, "up"])?;
        checked(guest, &["ip", "addr", "add", &own, "dev", &name])?;
        checked(guest, &["ip", "neigh", "replace", &tester, "lladdr", &mac, "dev", &name, "nud", "permanent"])?;
        checked(guest, &["ip", "route", "add", &hosts, "via", &tester])?;
        names[side] = name;
    }
    guest.write("/proc/sys/net/ipv4/ip_forward", "1")?;
    Ok(names)
}

fn lacks(guest: &Guest, at: usize) -> BenchError {
    BenchError::Machine(format!(
        "the guest has no card with the address {}; its console says:\n{}",
        MACS[at],
        guest.console()
    ))
}

/// The output of a program that must succeed.
pub(crate) fn checked(guest: &mut Guest, words: &[&str]) -> Result<String, BenchError> {
    let ran = guest.run(words, ANSWER_TIMEOUT)?;
    match ran.code {
        0 => Ok(ran.stdout),
        _ => Err(BenchError::Machine(format!("in the guest, {}: {}", words.join(" "), last(&ran)))),
    }
}

fn last(ran: &Ran) -> String {
    host::ssh::last_words(if ran.stderr.trim().is_empty() { &ran.stdout } else { &ran.stderr })
}

/// Interrupts of both cards so far.
pub(super) fn interrupts(guest: &mut Guest, names: &[String; 2]) -> Result<u64, BenchError> {
    Ok(count(&guest.read("/proc/interrupts")?, names))
}

/// Of the lines whose action is one of these interfaces', or a queue of VirtIO.
fn count(text: &str, names: &[String; 2]) -> u64 {
    let of = |line: &str| -> u64 { line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum() };
    of_cards(text, names).map(of).sum()
}

/// The lines of the cards.
fn of_cards<'a>(text: &'a str, names: &'a [String; 2]) -> impl Iterator<Item = &'a str> {
    let is_ours = move |line: &&str| {
        let actions = line.rsplit("  ").next().unwrap_or_default();
        // The change of a configuration is no frame.
        (names.iter().any(|name| actions.contains(name.as_str())) || actions.contains("virtio"))
            && !actions.contains("config")
    };
    text.lines().filter(is_ours)
}

/// Properties of a card by its driver.
pub(super) struct About {
    pub(super) driver: String,
    pub(super) queues: u32,
    pub(super) ring: Option<u32>,
    pub(super) offloads: Vec<String>,
}

pub(super) fn about(guest: &mut Guest, name: &str) -> Result<About, BenchError> {
    let driver_info = checked(guest, &["ethtool", "-i", name])?;
    let driver = driver_info.lines().find_map(|line| line.strip_prefix("driver: ")).unwrap_or("unknown").to_owned();
    let features = checked(guest, &["ethtool", "-k", name])?;
    let is_on = |offload: &&&str| features.lines().any(|line| line.trim().starts_with(&format!("{offload}: on")));
    let offloads = OFFLOADS.iter().filter(is_on).map(|&offload| offload.to_owned()).collect();
    // A driver without these has neither.
    let rings = guest.run(&["ethtool", "-g", name], ANSWER_TIMEOUT)?;
    let current = rings.stdout.split("Current").nth(1).unwrap_or_default();
    let ring = current.lines().find_map(|line| line.strip_prefix("RX:")?.trim().parse().ok());
    let channels = guest.run(&["ethtool", "-l", name], ANSWER_TIMEOUT)?;
    let current = channels.stdout.split("Current").nth(1).unwrap_or_default();
    let number = |key: &str| current.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
    let queues = number("Combined:").filter(|&n| n > 0).or_else(|| number("RX:")).filter(|&n| n > 0).unwrap_or(1);
    Ok(About { driver, queues, ring, offloads })
}

/// Tries the verbs of evenkeel in the guest.
pub(super) fn verbs(
    guest: &mut Guest,
    names: &[String; 2],
    ends: &mut Ends,
    stop: &AtomicBool,
) -> Result<Vec<Verb>, BenchError> {
    let [first, second] = names.each_ref().map(String::as_str);
    let goes_on = || if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) };
    let mut verbs = vec![ledger(guest, first, ends)?, spread(guest, names)?];
    goes_on()?;
    verbs.push(capture(guest, first, ends)?);
    for asked in ON_A_CARD {
        goes_on()?;
        verbs.push(verb(guest, &asked.on([first, second]), asked.up)?);
    }
    Ok(verbs)
}

/// A verb that ends by itself, or one that holds: `up` is what it says once it does.
fn verb(guest: &mut Guest, words: &[&str], up: Option<&str>) -> Result<Verb, BenchError> {
    guest.begin(&[&["evenkeel"], words].concat())?;
    let holds = match up {
        Some(up) => guest.has_printed(up, ANSWER_TIMEOUT)?,
        None => false,
    };
    if up.is_some() {
        guest.interrupt()?;
    }
    let ran = guest.end(ANSWER_TIMEOUT)?;
    let fares = match (up, holds, ran.code) {
        (Some(_), true, _) => VerbOutcome::Works,
        // A finding, or a verdict, is no failure.
        (None, _, 0 | 1) => VerbOutcome::Works,
        (_, _, 3) => VerbOutcome::Refused,
        _ => VerbOutcome::Fails,
    };
    let message = match (fares, up) {
        (VerbOutcome::Works, Some(up)) => {
            first_line(ran.stderr.lines().chain(ran.stdout.lines()).find(|line| line.contains(up)).unwrap_or(up))
        }
        (VerbOutcome::Works, None) => first_line(&ran.stdout),
        _ => last(&ran),
    };
    Ok(Verb { command: words.join(" "), outcome: fares, message })
}

fn fares(works: bool) -> VerbOutcome {
    if works { VerbOutcome::Works } else { VerbOutcome::Fails }
}

fn first_line(text: &str) -> String {
    host::ssh::last_words(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default())
}

/// The ledger while frames are forwarded and a known number has no route: it closes, and finds those.
fn ledger(guest: &mut Guest, name: &str, ends: &mut Ends) -> Result<Verb, BenchError> {
    let words = ["evenkeel", "ledger", name, "--json", "--count", "1", "--interval", "5s"];
    guest.begin(&words)?;
    if guest.has_printed("counting", ANSWER_TIMEOUT)? {
        ends.strand(STRANDED_COUNT)?;
        let began = Instant::now();
        // All is through before the interval ends.
        while began.elapsed() < INTERVAL {
            ends.train(64, 8)?;
        }
    }
    let ran = guest.end(ANSWER_TIMEOUT)?;
    let command = words[1..].join(" ");
    let Ok(report) = serde_json::from_str::<serde_json::Value>(&ran.stdout) else {
        return Ok(Verb { command, outcome: VerbOutcome::Fails, message: last(&ran) });
    };
    let number = |name: &str| report.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    let [offered, lost, unexplained] = ["offered", "lost", "unexplained"].map(number);
    let message =
        format!("{offered:.0} frames, {lost:.0} lost ({STRANDED_COUNT} had no route), {unexplained:.0} unexplained");
    let closes = ledger_closes(offered, unexplained, 0.0) && lost >= f64::from(STRANDED_COUNT);
    Ok(Verb { command, outcome: fares(ran.code == 0 && closes), message })
}

/// A capture gets the frames that come meanwhile.
fn capture(guest: &mut Guest, name: &str, ends: &mut Ends) -> Result<Verb, BenchError> {
    let words = ["evenkeel", "capture", name, "--duration", "4", "--count-only", "udp"];
    guest.begin(&words)?;
    // It tells of each second.
    if guest.has_printed(" pps", ANSWER_TIMEOUT)? {
        let began = Instant::now();
        while began.elapsed() < INTERVAL {
            ends.train(64, 8)?;
        }
    }
    let ran = guest.end(ANSWER_TIMEOUT)?;
    let message = first_line(if ran.stdout.trim().is_empty() { &ran.stderr } else { &ran.stdout });
    let captured = message.split_whitespace().next().and_then(|word| word.replace(',', "").parse::<u64>().ok());
    Ok(Verb { command: words[1..].join(" "), outcome: fares(ran.code == 0 && captured > Some(0)), message })
}

/// Gathers the interrupts of both cards on one CPU, has them spread, and takes that back: each interrupt is where it was.
fn spread(guest: &mut Guest, names: &[String; 2]) -> Result<Verb, BenchError> {
    for (number, _) in affinities_of(guest, |text| of_cards(text, names).filter_map(number).collect())? {
        // The kernel keeps some where they are.
        let _ = guest.write(&format!("/proc/irq/{number}/smp_affinity_list"), "0");
    }
    let before = affinities(guest)?;
    let applied = guest.run(&["evenkeel", "spread", "apply"], ANSWER_TIMEOUT)?;
    let moved = affinities(guest)?;
    let undone = guest.run(&["evenkeel", "undo"], ANSWER_TIMEOUT)?;
    let command = "spread apply, undo".to_owned();
    if !matches!(applied.code, 0 | 1) {
        return Ok(Verb { command, outcome: VerbOutcome::Fails, message: last(&applied) });
    }
    let same = affinities(guest)? == before;
    let count = before.iter().zip(&moved).filter(|(before, after)| before != after).count();
    let message = match (same, count) {
        (true, 0) => "nothing was to be moved, and nothing was".to_owned(),
        (true, _) => format!("moved {count} of {} interrupts, and exactly as before again", before.len()),
        (false, _) => format!("other than before: {}", last(&undone)),
    };
    Ok(Verb { command, outcome: fares(same), message })
}

/// The number of an interrupt, out of its line.
fn number(line: &str) -> Option<u32> {
    line.trim().split_once(':')?.0.parse().ok()
}

/// The CPUs of each interrupt.
fn affinities(guest: &mut Guest) -> Result<Vec<(u32, String)>, BenchError> {
    affinities_of(guest, |text| text.lines().filter_map(number).collect())
}

/// The affinities of the interrupts that are chosen out of /proc/interrupts.
fn affinities_of(guest: &mut Guest, chosen: impl Fn(&str) -> Vec<u32>) -> Result<Vec<(u32, String)>, BenchError> {
    let text = guest.read("/proc/interrupts")?;
    let mut all = Vec::new();
    for number in chosen(&text) {
        // Some belong to no device.
        if let Ok(cpus) = guest.read(&format!("/proc/irq/{number}/smp_affinity_list")) {
            all.push((number, cpus));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_the_cards_alone_count() {
        let names = ["eth0".to_owned(), "eth1".to_owned()];
        let text = "           CPU0       CPU1\n  0:         50          1   IO-APIC   2-edge      timer\n 10:        100         20   IO-APIC  10-fasteoi   eth0\n 11:          5          0   IO-APIC  11-fasteoi   eth1, eth0\n";
        assert_eq!(count(text, &names), 125);
        let text = "           CPU0\n 24:          7   PCI-MSI 65536-edge      virtio0-config\n 25:         40   PCI-MSI 65537-edge      virtio0-input.0\n 26:          9   PCI-MSI 65538-edge      eth1-rx-0\n";
        assert_eq!(count(text, &names), 49);
    }
}
