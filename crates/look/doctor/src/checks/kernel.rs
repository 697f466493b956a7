//! The kernel that packets run through: preemption, tick, driver.

use host::{
    knob::Knob,
    setting::{
        self, Missing,
        kernel::{self, Preemption},
        nft,
    },
};
use model::doctor::Role;

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome, place};

/// Drivers of cards that are older than NAPI, or whose driver does not use it to any good.
const OLD_DRIVERS: [&str; 12] = [
    "8139cp",
    "8139too",
    "ne2k-pci",
    "pcnet32",
    "3c59x",
    "sis900",
    "via-rhine",
    "tulip",
    "de2104x",
    "natsemi",
    "sundance",
    "r6040",
];

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "preemption",
        group: "kernel",
        question: "Does the preemption model favour throughput?",
        reads: "/sys/kernel/debug/sched/preempt, /proc/version, the command line, the kernel's configuration",
        fix: "preempt=none (or voluntary, lazy) on the kernel's command line; at once through debugfs where it is dynamic",
        risk: "programs with deadlines of microseconds wait longer",
        roles: &[],
        run: |ev| or_unknown(preemption(ev)),
    },
    Check {
        id: "tick",
        group: "kernel",
        question: "Does the timer tick leave the packet cores alone?",
        reads: "CONFIG_HZ, CONFIG_NO_HZ_*, nohz_full and isolated CPUs",
        fix: "nohz_full= for the isolated CPUs on the kernel's command line; a kernel with HZ of 250 or less",
        risk: "a reboot; nohz_full makes entering the kernel dearer",
        roles: &[],
        run: |ev| or_unknown(tick(ev)),
    },
    Check {
        id: "napi-driver",
        group: "kernel",
        question: "Is the NIC's driver one that polls under load (NAPI)?",
        reads: "driver, NAPI instances, threaded",
        fix: "another card",
        risk: "none: advice only",
        roles: &[],
        run: napi_driver,
    },
    Check {
        id: "accounting",
        group: "kernel",
        question: "Does the kernel keep statistics that nothing reads?",
        reads: "net.netfilter.nf_conntrack_acct, nf_conntrack_timestamp, kernel.sched_schedstats, kernel.task_delayacct",
        fix: "each to 0",
        risk: "whatever reads these numbers reads none any more",
        roles: &[],
        run: accounting,
    },
];

fn preemption(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let Some(found) = kernel::preemption(&ev.root)? else {
        return Ok(vec![Outcome::unknown("Neither debugfs nor the kernel's configuration can be read here.")]);
    };
    let saw = format!("{} (from {})", found.model.as_str(), found.from);
    let advice = "# preempt=none on the kernel's command line; until the next start: echo none > /sys/kernel/debug/sched/preempt";
    let outcome = match found.model {
        Preemption::None | Preemption::Voluntary | Preemption::Lazy => {
            Outcome::good("Packet work is not preempted by other tasks.")
        }
        Preemption::Full => Outcome::improve(
            "Each lock of the packet path maintains the preemption counter, and other tasks interrupt packet work.",
        )
        .advise(advice),
        Preemption::RealTime => Outcome::improve(
            "A real-time kernel takes sleeping locks on the packet path and runs interrupts in threads: it keeps deadlines, not rates.",
        )
        .advise("# boot a kernel without PREEMPT_RT, unless the deadlines are what this machine is for"),
    };
    Ok(vec![outcome.saw(saw).holds("preemption", found.model.as_str())])
}

fn tick(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let config = kernel::config(&ev.root)?;
    let hz: Option<u32> = config.get("CONFIG_HZ").and_then(|v| v.parse().ok());
    let has = |option: &str| config.contains_key(option);
    let isolated = ev.host.cpus.iter().filter(|c| c.online && c.isolated).count();
    let full = ev.text("sys/devices/system/cpu/nohz_full").filter(|t| !t.is_empty() && t != "(null)");
    let kind = match () {
        () if has("CONFIG_HZ_PERIODIC") => "always",
        () if full.is_some() => "off on idle CPUs and on those of nohz_full",
        () => "off on idle CPUs",
    };
    let hz_shown = hz.map_or_else(|| "?".to_owned(), |hz| hz.to_string());
    let saw = format!("HZ {hz_shown}, tick {kind}, {isolated} isolated CPUs");
    let roles = [Role::Router, Role::Firewall, Role::Capture, Role::Cluster];
    let outcome = if has("CONFIG_HZ_PERIODIC") {
        Outcome::improve("The tick wakes idle CPUs as well, which costs power and, in a guest, an exit each time.")
            .advise("# a kernel with CONFIG_NO_HZ_IDLE")
    } else if isolated > 0 && full.is_none() && roles.contains(&ev.role) {
        let cpus: model::CpuSet = ev.host.cpus.iter().filter(|c| c.online && c.isolated).map(|c| c.id).collect();
        let advice = match has("CONFIG_NO_HZ_FULL") {
            true => format!("# nohz_full={cpus} rcu_nocbs={cpus} on the kernel's command line"),
            false => "# a kernel with CONFIG_NO_HZ_FULL, then nohz_full= on its command line".to_owned(),
        };
        Outcome::improve("CPUs were set apart for one task each, and the tick still interrupts that task.")
            .advise(advice)
    } else if hz.is_some_and(|hz| hz >= 1000) && roles.contains(&ev.role) {
        Outcome::improve("A thousand ticks per second and core are a thousand interruptions of the packet work.")
            .advise("# a kernel with CONFIG_HZ=250, or nohz_full= for the packet cores")
    } else {
        Outcome::good("The tick costs little.")
    };
    Ok(vec![outcome.saw(saw).holds("HZ", hz_shown)])
}

fn napi_driver(ev: &Evidence) -> Vec<Outcome> {
    let of = |nic: &host::picture::Nic| {
        let driver = nic.driver.as_deref()?;
        let threads: Vec<_> = nic.napis.iter().filter(|n| n.pid.is_some()).collect();
        let saw = match (nic.threaded, nic.napis.len()) {
            (Some(true), n) => format!("driver {driver}, NAPI instances in threads: {n}"),
            (_, 0) => format!("driver {driver}"),
            (_, n) => format!("driver {driver}, NAPI instances: {n}"),
        };
        let near = place::near(&ev.host, nic);
        let far = threads.iter().filter(|n| n.cpus.as_ref().is_some_and(|c| c.intersection(&near).is_empty())).count();
        let outcome = if OLD_DRIVERS.contains(&driver) {
            let why =
                "The card interrupts for each frame and copies it by hand: it does not stand a flood of small ones.";
            Outcome::improve(why).advise("# a card whose driver has NAPI; in a guest: virtio-net")
        } else if far > 0 {
            let why = "NAPI threads that run far from the NIC fetch every packet over the link between the sockets.";
            Outcome::improve(why)
                .saw(format!("threads that may only run far from the NIC: {far}"))
                .advise("evenkeel spread plan")
        } else {
            Outcome::good("The driver polls under load.")
        };
        Some(outcome.on(&nic.name).saw(saw).holds("driver", driver))
    };
    ev.ports().filter_map(of).collect()
}

fn accounting(ev: &Evidence) -> Vec<Outcome> {
    let rows = [
        ("net/netfilter/nf_conntrack_acct", "counts packets and bytes of every connection"),
        ("net/netfilter/nf_conntrack_timestamp", "notes begin and end of every connection"),
        ("kernel/sched_schedstats", "times every wake-up of every task"),
        ("kernel/task_delayacct", "times what every task waits for"),
    ];
    let values = rows.map(|(path, _)| ev.sysctl_number(path));
    if values.iter().all(Option::is_none) {
        return match setting::kept(&ev.root) {
            Ok(()) => Vec::new(),
            Err(why) => vec![Outcome::unknown(why.to_string())],
        };
    }
    let read_by_rules = nft::ruleset(&ev.root).is_ok_and(|rules| reads_accounting(&rules));
    let on: Vec<(&str, &str, u64)> = rows
        .iter()
        .zip(values)
        .filter_map(|(&(path, what), v)| Some((path, what, v?)))
        .filter(|r| r.2 > 0)
        .filter(|r| !(read_by_rules && r.0.ends_with("conntrack_acct")))
        .collect();
    if on.is_empty() {
        return vec![Outcome::good("No accounting beyond the kernel's own counters.")];
    }
    let outcome = Outcome::improve("Each packet or wake-up costs time for statistics that are rarely read.");
    vec![on.iter().fold(outcome, |o, (path, what, value)| {
        let knob = Knob::Sysctl { path: (*path).to_owned() };
        o.saw(format!("{} = {value}: {what}", path.replace('/', "."))).set(knob, value.to_string(), "0")
    })]
}

/// A rule looks at the packets or bytes of its connection, which are counted only while accounting is on.
fn reads_accounting(rules: &serde_json::Value) -> bool {
    match rules {
        serde_json::Value::Object(fields) => fields.iter().any(|(name, value)| {
            let key = value.get("key").and_then(serde_json::Value::as_str);
            name == "ct" && matches!(key, Some("bytes" | "packets" | "avgpkt")) || reads_accounting(value)
        }),
        serde_json::Value::Array(all) => all.iter().any(reads_accounting),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_read_the_accounting() {
        let rule = |key: &str| serde_json::json!({"nftables": [{"rule": {"expr": [{"match": {"left": {"ct": {"key": key}}}}]}}]});
        assert!(reads_accounting(&rule("bytes")));
        assert!(!reads_accounting(&rule("state")));
    }
}
