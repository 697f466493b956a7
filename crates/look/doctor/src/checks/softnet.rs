//! The soft interrupt that does the packet work: what it loses, how long it may run, busy polling.

use host::{
    counters::{TaskTime, ran_between},
    knob::{Knob, Live, NicFile, Store, receives},
    netdev::NapiEntry,
    picture::Nic,
    setting::napi,
};
use model::doctor::Role;

use crate::{
    check::Check,
    evidence::{Evidence, WatchedTasks},
    outcome::Outcome,
};

/// A backlog of so many packets is the fix for one that overflows.
const LARGE_BACKLOG: u64 = 10_000;
/// A loss of one packet in so many since boot is worth a word.
const WORTH_A_WORD: u64 = 1_000_000;
/// The kernel's defaults (net/core/hotdata.c).
const BUDGET: u64 = 300;
const WEIGHT: u64 = 64;
/// Two ticks are the default; less than this cuts work short whatever the tick is.
const SHORT_USECS: u64 = 2000;
/// A finding from this rate on: one squeeze in so many packets since boot.
const PACKETS_PER_SQUEEZE: u64 = 10_000;
/// Microseconds of busy polling that the kernel's documentation recommends (admin-guide/sysctl/net.rst).
const BUSY_POLL_USECS: u64 = 50;

/// A suspension of this length is what the kernel's documentation shows; from the longer one on, readers that died cost.
const SUSPENSION_NS: u64 = 20_000_000;
const LONG_SUSPENSION_NS: u64 = 1_000_000_000;

/// A thread that receives is held up when it waited for this share of the time, and had work for that one.
const WAITED_MIN: f64 = 0.1;
const RAN_MIN: f64 = 0.01;
/// A program takes a core when it has this share of it; so many are named.
const PROGRAM_MIN: f64 = 0.2;
const PROGRAMS_MAX: usize = 3;
/// The nice value of who comes first.
const NICE_MIN: i32 = -20;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "backlog",
        group: "softnet",
        question: "Does a core's backlog overflow?",
        reads: "/proc/net/softnet_stat (dropped, flow limit), since boot and while watched; net.core.netdev_max_backlog",
        fix: "net.core.netdev_max_backlog 10000",
        risk: "a longer backlog is a longer queue: latency under overload",
        roles: &[],
        run: backlog,
    },
    Check {
        id: "napi-budget",
        group: "softnet",
        question: "Is the budget of the packet work large enough?",
        reads: "netdev_budget, netdev_budget_usecs, dev_weight; squeezes of /proc/net/softnet_stat",
        fix: "net.core.netdev_budget 600 and netdev_budget_usecs twice as long, or the defaults where they were lowered",
        risk: "programs on that core wait longer for it",
        roles: &[],
        run: napi_budget,
    },
    Check {
        id: "core-neighbour",
        group: "softnet",
        question: "Does a program delay the packet work on its core?",
        reads: "run and waiting time (schedstat) of the kernel threads that receive (ksoftirqd, NAPI) and of all programs, while watched",
        fix: "those threads to nice -20, as measured by `evenkeel bench --neighbour`",
        risk: "programs on that core wait longer for it",
        roles: &[],
        run: core_neighbour,
    },
    Check {
        id: "busy-poll",
        group: "softnet",
        question: "Do readers on a cluster poll for packets before they sleep?",
        reads: "net.core.busy_poll, net.core.busy_read",
        fix: "both to 50 us",
        risk: "a core is busy while it waits: more power, less for others",
        roles: &[Role::Cluster],
        run: busy_poll,
    },
    Check {
        id: "irq-suspension",
        group: "softnet",
        question: "Is deferring of interrupts fully configured?",
        reads: "napi_defer_hard_irqs and gro_flush_timeout of each interface; defer-hard-irqs, gro-flush-timeout and \
            irq-suspend-timeout of each NAPI instance (netdev netlink)",
        fix: "gro_flush_timeout 20000 ns where interrupts are deferred without it or for too long; of single instances by hand",
        risk: "a packet may wait for the timeout",
        roles: &[],
        run: irq_suspension,
    },
];

fn backlog(ev: &Evidence) -> Vec<Outcome> {
    let table = ev.softnet();
    if table.is_empty() {
        return vec![ev.lacking("/proc/net/softnet_stat is missing.")];
    }
    let dropped: u64 = table.values().map(|c| u64::from(c.dropped)).sum();
    let limited: u64 = table.values().map(|c| u64::from(c.flow_limited)).sum();
    let processed: u64 = table.values().map(|c| u64::from(c.processed)).sum();
    let length = ev.sysctl_number("net/core/netdev_max_backlog");
    let now = ev.softnet_grown(|c| c.dropped);
    let since = ev.since_when();
    let saw = format!("{dropped} dropped and {limited} cut by the flow limit {since}, {processed} processed");
    let drops = now.is_some_and(|now| now > 0);
    let while_watched = |o: Outcome| match now {
        Some(now) => o.saw(format!("{now} dropped while watched")),
        None => o,
    };
    if !drops && (!ev.counts(now) || dropped.saturating_mul(WORTH_A_WORD) <= processed) {
        return vec![while_watched(Outcome::good("The backlogs are long enough.").saw(saw))];
    }
    let why = "Packets that RPS, a tunnel or a virtual interface hands to a core wait in its backlog; what does not fit is dropped.";
    let mut outcome = while_watched(if drops { Outcome::bad(why) } else { Outcome::improve(why) }.saw(saw));
    if let Some(length) = length {
        outcome = outcome.saw(format!("netdev_max_backlog {length}"));
        if length < LARGE_BACKLOG {
            let knob = Knob::Sysctl { path: "net/core/netdev_max_backlog".to_owned() };
            outcome = outcome.set(knob, length.to_string(), LARGE_BACKLOG.to_string());
        } else {
            outcome = outcome.advise("# the backlog is long already: spread the work (checks uneven, queue-irqs, rps)");
        }
    } else {
        outcome = outcome.advise(
            "# counted on the whole machine; net.core.netdev_max_backlog is in the first network namespace: `evenkeel doctor` there",
        );
    }
    vec![outcome]
}

fn napi_budget(ev: &Evidence) -> Vec<Outcome> {
    let read = |name: &str| ev.sysctl_number(&format!("net/core/{name}"));
    let (Some(budget), Some(usecs)) = (read("netdev_budget"), read("netdev_budget_usecs")) else {
        return vec![ev.lacking(
            "net.core.netdev_budget and netdev_budget_usecs are missing (another network namespace than the first).",
        )];
    };
    let weight = read("dev_weight").unwrap_or(WEIGHT);
    let table = ev.softnet();
    let squeezed: u64 = table.values().map(|c| u64::from(c.time_squeeze)).sum();
    let processed: u64 = table.values().map(|c| u64::from(c.processed)).sum();
    let rate: f64 = ev.watched.as_ref().map_or(0.0, |w| w.rates.cores.iter().map(|c| c.softnet_squeezed_per_s).sum());
    let seen = |o: Outcome| {
        let o = o
            .saw(format!("netdev_budget {budget}, netdev_budget_usecs {usecs}, dev_weight {weight}"))
            .saw(format!("cut short: {squeezed} times in {processed} packets {}", ev.since_when()))
            .holds("netdev_budget", budget)
            .holds("netdev_budget_usecs", usecs);
        if rate > 0.0 { o.saw(format!("{rate:.1} times per second just now")) } else { o }
    };
    let sysctl = |name: &str| Knob::Sysctl { path: format!("net/core/{name}") };
    if budget < BUDGET || usecs < SHORT_USECS || weight < WEIGHT {
        let why = "The budget is below the kernel's default: packet work stops early, with packets left in the rings.";
        let mut outcome = seen(Outcome::improve(why));
        for (name, now, least) in [
            ("netdev_budget", budget, BUDGET),
            ("netdev_budget_usecs", usecs, SHORT_USECS),
            ("dev_weight", weight, WEIGHT),
        ] {
            if now < least {
                outcome = outcome.set(sysctl(name), now.to_string(), least.to_string());
            }
        }
        return vec![outcome];
    }
    let counts = ev.counts(ev.softnet_grown(|c| c.time_squeeze));
    let often = rate >= 1.0 || counts && squeezed >= 100 && squeezed.saturating_mul(PACKETS_PER_SQUEEZE) > processed;
    if often && budget <= BUDGET {
        let why = "The packet work is cut short with work left over, which then waits behind other tasks.";
        let outcome = seen(Outcome::improve(why))
            .set(sysctl("netdev_budget"), budget.to_string(), (2 * BUDGET).to_string())
            .set(sysctl("netdev_budget_usecs"), usecs.to_string(), usecs.saturating_mul(2).to_string());
        return vec![outcome];
    }
    if often {
        let why = "The packet work is cut short although its budget was raised: the core has more to do than it can.";
        return vec![
            seen(Outcome::improve(why)).advise("# spread the work over more cores: checks uneven, queue-irqs, rps"),
        ];
    }
    vec![seen(Outcome::good("The packet work completes in time."))]
}

fn core_neighbour(ev: &Evidence) -> Vec<Outcome> {
    let Some(tasks) = &ev.tasks else {
        return vec![Outcome::unknown("A saved copy does not have the time of threads.")];
    };
    let held: Vec<Held> = held(tasks);
    if held.is_empty() {
        return vec![Outcome::good("No thread that receives waits for its core.")];
    }
    let why = "A kernel thread that receives packets has a program's priority: while it waits for its core, rings and backlogs fill.";
    let outcome = |held: Held| {
        let Held { name, pid, cpu, waited, programs } = held;
        let saw = format!(
            "{name} waited {:.0} % of the time for CPU {cpu}, where {} ran",
            100.0 * waited,
            programs
                .iter()
                .map(|(name, share)| format!("{name} {:.0} %", 100.0 * share))
                .collect::<Vec<_>>()
                .join(", ")
        );
        let outcome = Outcome::improve(why).on(name.clone()).saw(saw);
        let knob = Knob::ThreadNice { name, pid };
        match Live.read(&knob).ok().and_then(|nice| nice.parse::<i32>().ok()) {
            Some(nice) if nice > NICE_MIN => outcome.set(knob, nice.to_string(), NICE_MIN.to_string()),
            _ => outcome.advise(
                "# it comes first already: give the program other cores (CPUAffinity= in its unit, or a cpuset)",
            ),
        }
    };
    held.into_iter().map(outcome).collect()
}

/// A thread that receives, and that waited for its core.
#[derive(Debug, PartialEq)]
struct Held {
    name: String,
    pid: u32,
    cpu: u32,
    waited: f64,
    /// The programs on that core, with their shares of it.
    programs: Vec<(String, f64)>,
}

fn held(tasks: &WatchedTasks) -> Vec<Held> {
    let window = tasks.window_ns.max(1) as f64;
    let mut all = Vec::new();
    for (&tid, now) in tasks.after.iter().filter(|(_, task)| task.kernel && receives(&task.process)) {
        let Some(then) = tasks.before.get(&tid) else { continue };
        let waited = now.waited_ns.saturating_sub(then.waited_ns) as f64 / window;
        let ran = now.ran_ns.saturating_sub(then.ran_ns) as f64 / window;
        if waited < WAITED_MIN || ran < RAN_MIN {
            continue;
        }
        let me = std::process::id();
        let of = |task: &TaskTime| !task.kernel && task.cpu == now.cpu && task.pid != me;
        let programs = ran_between(&tasks.before, &tasks.after, of);
        let programs: Vec<(String, f64)> = programs
            .into_iter()
            .map(|program| (program.name, program.ran_ns as f64 / window))
            .filter(|(_, share)| *share >= PROGRAM_MIN)
            .take(PROGRAMS_MAX)
            .collect();
        if !programs.is_empty() {
            all.push(Held { name: now.process.clone(), pid: tid, cpu: now.cpu, waited, programs });
        }
    }
    all
}

fn busy_poll(ev: &Evidence) -> Vec<Outcome> {
    let names = ["busy_read", "busy_poll"];
    let values = names.map(|name| ev.sysctl_number(&format!("net/core/{name}")));
    let [Some(read), Some(poll)] = values else {
        return vec![ev.lacking("net.core.busy_read and busy_poll are missing (CONFIG_NET_RX_BUSY_POLL).")];
    };
    let saw = format!("busy_read {read} us, busy_poll {poll} us");
    if read > 0 && poll > 0 {
        return vec![Outcome::good("Readers poll before they sleep.").saw(saw)];
    }
    let why = "A reader that sleeps is woken by an interrupt and the scheduler, which takes longer than the packet took on the wire.";
    let mut outcome = Outcome::improve(why).saw(saw);
    for (name, value) in names.iter().zip([read, poll]).filter(|(_, value)| *value == 0) {
        let knob = Knob::Sysctl { path: format!("net/core/{name}") };
        outcome = outcome.set(knob, value.to_string(), BUSY_POLL_USECS.to_string());
    }
    vec![outcome]
}

fn irq_suspension(ev: &Evidence) -> Vec<Outcome> {
    ev.devices().filter_map(|nic| suspension(ev, nic).or_else(|| deferral(ev, nic))).collect()
}

/// Instances whose interrupt stays off while a program polls, but that lack what holds it off between its rounds.
fn suspension(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let napis = napi::read(&ev.root, &nic.name, nic.index).ok()??;
    let suspended: Vec<_> = napis.iter().filter(|n| n.irq_suspend_timeout_ns.is_some_and(|ns| ns > 0)).collect();
    let longest = suspended.iter().filter_map(|n| n.irq_suspend_timeout_ns).max()?;
    let lacks = |n: &NapiEntry| n.defer_hard_irqs.unwrap_or(0) == 0 || n.gro_flush_timeout_ns.unwrap_or(0) == 0;
    let lacking: Vec<u32> = suspended.iter().filter(|n| lacks(n)).map(|n| n.id).collect();
    let saw = format!(
        "irq-suspend-timeout of {} of {} NAPI instances, {longest} ns at most; {} of them defer no interrupts",
        suspended.len(),
        napis.len(),
        lacking.len()
    );
    let outcome = if longest > LONG_SUSPENSION_NS {
        let why = "A program that stops polling without a word leaves its packets waiting for this timeout.";
        Outcome::bad(why).advise(napi_set(suspended[0].id, &format!("\"irq-suspend-timeout\": {SUSPENSION_NS}")))
    } else if let Some(&id) = lacking.first() {
        let why =
            "The interrupt is off only while the program polls: without deferral it fires again at each pause between.";
        let both = "\"defer-hard-irqs\": 2, \"gro-flush-timeout\": 20000";
        Outcome::improve(why).advise(napi_set(id, both))
    } else {
        Outcome::good("Interrupts stay off while the program polls, and are deferred in its pauses.")
    };
    Some(outcome.on(&nic.name).saw(saw))
}

/// The kernel's own tool for this setting; there is no file for it.
fn napi_set(id: u32, settings: &str) -> String {
    format!("ynl --family netdev --do napi-set --json '{{\"id\": {id}, {settings}}}'  # and each other instance")
}

fn deferral(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let read = |file: NicFile| ev.number(&format!("sys/class/net/{}/{}", nic.name, file.as_str()));
    let (defer, timeout) = (read(NicFile::NapiDeferHardIrqs)?, read(NicFile::GroFlushTimeout)?);
    if defer == 0 && timeout == 0 {
        return nic.bus.as_ref().map(|_| {
            Outcome::good("Interrupts are not deferred.")
                .on(&nic.name)
                .saw("napi_defer_hard_irqs 0, gro_flush_timeout 0")
        });
    }
    let saw = format!("napi_defer_hard_irqs {defer}, gro_flush_timeout {timeout} ns");
    let knob = |file| Knob::NicFile { nic: nic.name.clone(), file };
    if defer > 0 && timeout == 0 {
        let why =
            "Without a timeout nothing polls again once the interrupt is off, so the kernel does not defer at all.";
        let outcome = Outcome::improve(why).on(&nic.name).saw(saw);
        return Some(outcome.set(knob(NicFile::GroFlushTimeout), "0", "20000"));
    }
    if timeout > 1_000_000 {
        let why = "A packet that GRO holds back, or that comes while the interrupt is off, waits for this timeout.";
        let outcome = Outcome::bad(why).on(&nic.name).saw(saw);
        return Some(outcome.set(knob(NicFile::GroFlushTimeout), timeout.to_string(), "20000"));
    }
    Some(Outcome::good("Deferring has its timeout.").on(&nic.name).saw(saw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(name: &str, kernel: bool, cpu: u32, ran_ns: u64, waited_ns: u64) -> TaskTime {
        TaskTime { pid: 7, process: name.to_owned(), ran_ns, waited_ns, cpu, parent: 1, kernel }
    }

    #[test]
    fn a_thread_that_waits_beside_a_program_is_held() {
        let idle = |name, kernel, cpu| task(name, kernel, cpu, 0, 0);
        let before = [
            (1, idle("ksoftirqd/0", true, 0)),
            (2, idle("ksoftirqd/1", true, 1)),
            (3, idle("burn", false, 1)),
            (4, idle("napi/eth0-5", true, 0)),
            (5, idle("kworker/1:0", true, 1)),
        ];
        let after = [
            // It has its core to itself.
            (1, task("ksoftirqd/0", true, 0, 900, 200)),
            (2, task("ksoftirqd/1", true, 1, 300, 500)),
            (3, task("burn", false, 1, 600, 300)),
            // Nothing to do.
            (4, task("napi/eth0-5", true, 0, 1, 0)),
            (5, task("kworker/1:0", true, 1, 90, 900)),
        ];
        let tasks = WatchedTasks { before: before.into(), after: after.into(), window_ns: 1000 };
        let found = held(&tasks);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].cpu, found[0].waited), ("ksoftirqd/1", 1, 0.5));
        assert_eq!(found[0].programs, [("burn".to_owned(), 0.6)]);
    }
}
