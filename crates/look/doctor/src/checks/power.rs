//! Power management and time: frequency governor, idle states, clock source.

use std::collections::BTreeMap;

use host::{
    knob::Knob,
    setting::{
        Missing, clock,
        guest::{self, Platform},
        power,
    },
};
use model::doctor::Role;

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// Leaving a state takes longer than the gap between packets of a busy link: from here on a state counts as deep, in
/// microseconds.
const DEEP_US: u64 = 20;
/// Longest poll of haltpoll by the kernel's own default, in nanoseconds.
const HALT_POLL_NS: u64 = 200_000;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "governor",
        group: "power",
        question: "Do the CPUs run at full speed when packets come?",
        reads: "cpufreq/scaling_governor and scaling_driver of each CPU",
        fix: "the governor `performance`",
        risk: "more power and heat; on a shared machine less turbo for the others",
        roles: &[],
        run: |ev| or_unknown(governor(ev)),
    },
    Check {
        id: "idle-states",
        group: "power",
        question: "Do the CPUs wake up fast enough for the next packet?",
        reads: "cpuidle's states with their exit latency, its governor, haltpoll's guest_halt_poll_ns",
        fix: "deep states off (cpupower idle-set -D), or a polling halt in a guest",
        risk: "more power and heat; a polling guest keeps its host's CPU busy",
        roles: &[],
        run: |ev| or_unknown(idle(ev)),
    },
    Check {
        id: "clock-source",
        group: "power",
        question: "Is the clock cheap to read?",
        reads: "clocksource0/current_clocksource and available_clocksource",
        fix: "the clock source `tsc`, or the hypervisor's own",
        risk: "a TSC that the kernel found unstable lets the time jump: see the kernel's log first",
        roles: &[],
        run: |ev| or_unknown(clock_source(ev)),
    },
];

/// A slow first packet matters more than power.
fn wants_speed(role: Role) -> bool {
    !matches!(role, Role::Server)
}

fn governor(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    const WHY: &str =
        "A CPU that idles between bursts is clocked down and takes the first packets of the next one slowly.";
    let all = power::governors(&ev.root, &ev.host)?;
    if all.is_empty() {
        return Ok(Vec::new()); // the firmware or the hypervisor decides
    }
    let driver = power::frequency_driver(&ev.root, &ev.host)?.unwrap_or_default();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for governor in all.values() {
        *counts.entry(governor).or_default() += 1;
    }
    let names: Vec<String> = counts.iter().map(|(name, count)| format!("{name} (CPUs: {count})")).collect();
    // With these drivers `powersave` only leans towards low frequencies; with all others it is the lowest one, always.
    let active = driver.contains("pstate");
    let outcome = if counts.keys().all(|&name| name == "performance") {
        Outcome::good("The CPUs do not wait for a higher clock.")
    } else if counts.contains_key("powersave") && !active {
        Outcome::bad("This governor keeps the CPUs at their lowest frequency, whatever the load.")
    } else if wants_speed(ev.role) {
        Outcome::improve(WHY)
    } else {
        Outcome::good("The governor follows the load, which is enough for a server.")
    };
    let outcome = outcome.saw(format!("driver {driver}, governors: {}", names.join(", ")));
    let outcome = outcome.holds("governor", counts.keys().copied().collect::<Vec<_>>().join(","));
    if !outcome.verdict.is_finding() {
        return Ok(vec![outcome]);
    }
    let slow = all.iter().filter(|(_, governor)| *governor != "performance");
    Ok(vec![
        slow.fold(outcome, |outcome, (&cpu, governor)| outcome.set(Knob::Governor { cpu }, governor, "performance")),
    ])
}

fn idle(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let idle = power::idle(&ev.root, &ev.host)?;
    let is_guest = matches!(guest::read(&ev.root)?, Platform::Guest(_));
    if is_guest {
        return Ok(vec![idle_guest(&idle, ev.role)]);
    }
    let Some(driver) = &idle.driver else { return Ok(Vec::new()) };
    let deep: Vec<_> = idle.states.iter().filter(|s| s.exit_latency_us >= DEEP_US && !s.disabled).collect();
    let states: Vec<String> = idle
        .states
        .iter()
        .map(|s| format!("{} {} us{}", s.name, s.exit_latency_us, if s.disabled { " (off)" } else { "" }))
        .collect();
    let deepest = deep.iter().map(|s| s.exit_latency_us).max();
    let outcome = match deepest {
        Some(us) if wants_speed(ev.role) => Outcome::improve(format!(
            "The first packet after a pause waits up to {us} us for the CPU to wake up: latency on an idle machine is then above \
             that under load."
        ))
        .advise(format!("cpupower idle-set -D {DEEP_US}")),
        Some(_) => Outcome::good("Deep idle states save power, which suits a server."),
        None => Outcome::good("No idle state takes long to leave."),
    };
    let governor = idle.governor.as_deref().unwrap_or("unknown");
    let deepest = deepest.map_or_else(|| "none".to_owned(), |us| format!("{us} us"));
    Ok(vec![
        outcome.saw(format!("driver {driver}, governor {governor}: {}", states.join(", "))).holds("deep idle", deepest),
    ])
}

/// In a guest every halt leaves to the hypervisor, whatever the states say.
fn idle_guest(idle: &power::Idle, role: Role) -> Outcome {
    const WHY: &str = "A guest's CPU that halts between packets takes a hypervisor's wake-up (some 100 us) for the next one; \
        polling a little first avoids most of them.";
    const FILE: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
    let (driver, governor) = (idle.driver.as_deref().unwrap_or("none"), idle.governor.as_deref().unwrap_or("none"));
    let outcome = match (governor, idle.guest_halt_poll_ns) {
        ("haltpoll", Some(ns)) if ns > 0 => Outcome::good("The guest polls for a moment before it halts."),
        _ if !wants_speed(role) => {
            Outcome::good("A server's packets can wait for the wake-up; its host's CPUs are not kept busy.")
        }
        ("haltpoll", Some(_)) => Outcome::improve(WHY).set(Knob::GuestHaltPoll, "0", HALT_POLL_NS.to_string()),
        ("haltpoll", None) => Outcome::unknown(format!("{FILE} is not there, which says how long the guest polls")),
        _ => Outcome::improve(WHY)
            .advise("modprobe cpuidle_haltpoll")
            .advise("echo haltpoll > /sys/devices/system/cpu/cpuidle/current_governor")
            .advise(format!("echo {HALT_POLL_NS} > {FILE}")),
    };
    let ns = idle.guest_halt_poll_ns.map_or_else(|| "absent".to_owned(), |ns| ns.to_string());
    let line = format!("a guest; idle driver {driver}, governor {governor}, guest_halt_poll_ns {ns}");
    outcome.saw(line).holds("idle governor", governor).holds("guest_halt_poll_ns", ns)
}

fn clock_source(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    const CHEAP: [&str; 7] =
        ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen", "timebase", "riscv_clocksource"];
    const DEAR: [&str; 3] = ["hpet", "acpi_pm", "jiffies"];
    let Some(clock) = clock::read(&ev.root)? else { return Ok(Vec::new()) };
    let current = clock.current.as_str();
    let outcome = if DEAR.contains(&current) {
        let why = "Every time stamp (one per packet and taps, TCP, traces) reads a slow device outside the CPU.";
        let better = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"].into_iter();
        let better = better.into_iter().find(|name| clock.available.iter().any(|a| a == name));
        match better {
            Some(name) => Outcome::bad(why)
                .advise("journalctl -k | grep -i -e tsc -e clocksource  # why the kernel left it")
                .advise(format!("echo {name} > /sys/devices/system/clocksource/clocksource0/current_clocksource")),
            None => Outcome::bad(why)
                .advise("# the kernel offers no better one: see its log for why the TSC is not trusted"),
        }
    } else if CHEAP.contains(&current) {
        Outcome::good("The clock is read without leaving the CPU.")
    } else {
        Outcome::unknown(format!("what it costs to read the clock source `{current}` is not known to this program"))
    };
    let saw = format!("{current} in use, available: {}", clock.available.join(" "));
    Ok(vec![outcome.saw(saw).holds("clock source", current)])
}
