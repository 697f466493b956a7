//! The programs behind the sockets: limits on their CPU time, their priority, their place.

use std::collections::BTreeSet;

use host::setting::{
    Missing, cgroup,
    owners::{self, Owner},
};
use model::{CpuSet, doctor::Role};

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome, place};

/// Processes that are looked at: those with the most CPU time.
const PROCESSES_MAX: usize = 8;
/// Scheduling policies of include/uapi/linux/sched.h.
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;
/// A share of memory on far nodes that is worth a word.
const FAR_SHARE: f64 = 0.25;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "cpu-limits",
        group: "apps",
        question: "Does a control group hold back programs that receive packets?",
        reads: "cpu.max and cpu.stat of every control group; who owns receiving sockets",
        fix: "a higher limit in the unit or the container's settings, by hand",
        risk: "others on the machine get less",
        roles: &[],
        run: |ev| or_unknown(cpu_limits(ev)),
    },
    Check {
        id: "app-priority",
        group: "apps",
        question: "Has the program that reads the packets the priority for it?",
        reads: "nice value and policy of the owners of receiving sockets with the most CPU time",
        fix: "renice, or Nice= in its unit, by hand",
        risk: "others on the machine get less",
        roles: &[],
        run: |ev| or_unknown(priority(ev)),
    },
    Check {
        id: "app-node",
        group: "apps",
        question: "Does the program that reads the packets run near the NIC, with its memory there?",
        reads: "CPUs and memory nodes (numa_maps) of the owners of receiving sockets; the NICs' nodes",
        fix: "numactl --cpunodebind --membind, or CPUAffinity= and NUMAMask= in its unit, by hand",
        risk: "the other node's cores and memory stay unused by it",
        roles: &[],
        run: |ev| or_unknown(node(ev)),
    },
];

fn name(owner: &Owner) -> String {
    let kinds: Vec<&str> = owner.kinds.iter().copied().collect();
    format!("{} (process {}, {} {} sockets)", owner.name, owner.pid, owner.sockets, kinds.join("+"))
}

fn cpu_limits(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let limits = cgroup::limits(&ev.root)?;
    if limits.is_empty() {
        return Ok(vec![Outcome::good("No control group limits CPU time.")]);
    }
    // Who receives is known on the live machine only; in a copy every group counts.
    let receivers: Option<BTreeSet<u32>> =
        owners::read(&ev.root, usize::MAX).ok().map(|all| all.iter().map(|o| o.pid).collect());
    let receives =
        |l: &cgroup::Limited| receivers.as_ref().is_none_or(|pids| l.processes.iter().any(|pid| pids.contains(pid)));
    let held: Vec<&cgroup::Limited> = limits.iter().filter(|l| l.throttled > 0 && receives(l)).collect();
    if held.is_empty() {
        let saw = format!("{} groups have a limit; none that receives packets has reached it", limits.len());
        return Ok(vec![Outcome::good("No limit throttles a program that receives packets.").saw(saw)]);
    }
    let why = "A throttled program does not empty its socket until the next period, and packets that arrive meanwhile are lost.";
    let mut outcomes = Vec::new();
    for l in held {
        let share = 100.0 * l.throttled as f64 / l.periods.max(1) as f64;
        let saw =
            format!("limit {:.2} CPUs, reached in {} of {} periods ({share:.1} %)", l.cpus, l.throttled, l.periods);
        let outcome = if share >= 10.0 { Outcome::bad(why) } else { Outcome::improve(why) };
        let advice = format!(
            "systemctl set-property {} CPUQuota=  # no limit, or a higher one",
            l.group.rsplit('/').next().unwrap_or("")
        );
        outcomes.push(outcome.on(&l.group).saw(saw).advise(advice));
    }
    Ok(outcomes)
}

fn priority(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let owners = owners::read(&ev.root, PROCESSES_MAX)?;
    Ok(owners.iter().map(|owner| rank(ev, owner).on(owner.name.clone())).collect())
}

fn rank(ev: &Evidence, owner: &Owner) -> Outcome {
    let policy = match owner.policy {
        0 => "normal",
        1 | 2 => "real-time",
        SCHED_BATCH => "batch",
        SCHED_IDLE => "idle",
        6 => "deadline",
        _ => "other",
    };
    let saw = format!("{}: nice {}, policy {policy}", name(owner), owner.nice);
    let first = owner.nice < 0 || matches!(owner.policy, 1 | 2 | 6);
    // TCP waits for a slow reader; what comes by datagrams and taps is lost.
    let loses = owner.kinds.iter().any(|kind| *kind != "tcp");
    if loses && (owner.nice > 0 || owner.policy == SCHED_IDLE || owner.policy == SCHED_BATCH) {
        let why = "A reader of low priority gets the core after all others, and its socket overflows until then.";
        let command = match owner.policy {
            SCHED_IDLE | SCHED_BATCH => format!("chrt --other --pid 0 {}", owner.pid),
            _ => format!("renice -n 0 -p {}", owner.pid),
        };
        return Outcome::improve(why).saw(saw).advise(command);
    }
    // Packet sockets and AF_XDP are what a capture lives on; on a cluster it is the program that computes.
    let matters = match ev.role {
        Role::Capture => owner.kinds.iter().any(|k| matches!(*k, "packet" | "xdp")),
        Role::Cluster => owner.ticks > 0 && owner.kinds.contains("udp"),
        _ => false,
    };
    if matters && !first {
        let why = "The reader shares its core with all others at the same priority; with a higher one it empties its ring in time.";
        return Outcome::improve(why).saw(saw).advise(format!("renice -n -10 -p {}", owner.pid));
    }
    Outcome::good("Its priority fits.").saw(saw)
}

fn node(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let nodes: BTreeSet<u32> = ev.ports().filter_map(|n| n.node).collect();
    // NICs on several nodes have no one near side.
    let (true, Some(&node), 1) = (place::has_nodes(&ev.host), nodes.first(), nodes.len()) else {
        return Ok(Vec::new());
    };
    let near: CpuSet = ev.host.cpus.iter().filter(|c| c.node == node).map(|c| c.id).collect();
    let owners = owners::read(&ev.root, PROCESSES_MAX)?;
    let of = |owner: &Owner| {
        let total: u64 = owner.pages.values().sum();
        let far_pages = total - owner.pages.get(&node).copied().unwrap_or(0);
        let share = if total > 0 { far_pages as f64 / total as f64 } else { 0.0 };
        let away = owner.cpus.intersection(&near).is_empty();
        let saw = format!(
            "{}: may run on {}, {:.0} % of its memory is far from node {node}",
            name(owner),
            owner.cpus,
            100.0 * share
        );
        let outcome = if away || share > FAR_SHARE && owner.cpus.difference(&near).is_empty() {
            let why = "Packets land in memory beside the NIC; a reader on the other node fetches each over the link between the sockets.";
            Outcome::improve(why).advise(format!("# start it with: numactl --cpunodebind={node} --membind={node}"))
        } else {
            Outcome::good("It is allowed to run on the NIC's node.")
        };
        outcome.on(owner.name.clone()).saw(saw)
    };
    Ok(owners.iter().map(of).collect())
}
