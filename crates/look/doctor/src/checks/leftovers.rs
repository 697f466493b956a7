//! Settings that a tuning guide left behind: right on another kernel, for another purpose, or never.

use host::{
    knob::Knob,
    setting::{Missing, sysctl},
};
use model::doctor::Role;

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "removed-sysctls",
        group: "leftovers",
        question: "Do configuration files set sysctls that the kernel no longer has, or that do nothing?",
        reads: "/etc/sysctl.conf and sysctl.d",
        fix: "none by itself: make the line a comment",
        risk: "none: the kernel passes the setting over",
        roles: &[],
        run: |ev| or_unknown(removed(ev)),
    },
    Check {
        id: "tcp-options",
        group: "leftovers",
        question: "Are TCP's timestamps, SACK and window scaling on?",
        reads: "net.ipv4.tcp_timestamps, tcp_sack, tcp_window_scaling",
        fix: "1 for each",
        risk: "connections that are open keep what they agreed on",
        roles: &[],
        run: |ev| or_unknown(tcp_options(ev)),
    },
    Check {
        id: "socket-defaults",
        group: "leftovers",
        question: "Is the default buffer of sockets larger than programs need?",
        reads: "net.core.rmem_default, net.core.wmem_default",
        fix: "212992, the kernel's own default; programs that want more ask for it",
        risk: "a program that counted on the large default without asking loses packets: give it the buffer itself",
        roles: &[],
        run: |ev| or_unknown(socket_defaults(ev)),
    },
    Check {
        id: "tcp-memory",
        group: "leftovers",
        question: "Are the limits of TCP's and UDP's memory the kernel's own?",
        reads: "net.ipv4.tcp_mem, net.ipv4.udp_mem (in pages; the kernel makes them of the memory at boot, 3 : 4 : 6)",
        fix: "none by itself: delete the setting and restart, or set a share of the memory",
        risk: "a machine with very many connections may need more than the kernel's own",
        roles: &[],
        run: |ev| or_unknown(memory_limits(ev)),
    },
    Check {
        id: "backlog-length",
        group: "leftovers",
        question: "Is the backlog between interrupt and stack of a sensible length?",
        reads: "net.core.netdev_max_backlog",
        fix: "net.core.netdev_max_backlog = 10000",
        risk: "bursts beyond that are dropped instead of delayed",
        roles: &[],
        run: |ev| or_unknown(backlog(ev)),
    },
    Check {
        id: "polling-router",
        group: "leftovers",
        question: "Is busy polling on where no socket waits?",
        reads: "net.core.busy_poll, net.core.busy_read",
        fix: "0 for both",
        risk: "programs on this machine that count on it wait for interrupts again",
        roles: &[Role::Router, Role::Firewall],
        run: |ev| or_unknown(polling(ev)),
    },
    Check {
        id: "rps-many-queues",
        group: "leftovers",
        question: "Does software steer packets that the card already spreads?",
        reads: "rps_cpus of each receive queue, the number of queues",
        fix: "rps_cpus = 0",
        risk: "tunnels whose packets all fall into one queue need RPS: then leave it",
        roles: &[],
        run: rps,
    },
    Check {
        id: "rfs-half",
        group: "leftovers",
        question: "Is receive flow steering set up by both its halves?",
        reads: "net.core.rps_sock_flow_entries, rps_flow_cnt and rps_cpus of each receive queue",
        fix: "net.core.rps_sock_flow_entries = 0",
        risk: "none: without the other half it does nothing but cost",
        roles: &[],
        run: |ev| or_unknown(rfs(ev)),
    },
];

/// Settings of old guides, and what became of them.
const REMOVED: [(&str, &str); 6] = [
    ("net.ipv4.tcp_tw_recycle", "gone since Linux 4.12; before that it broke clients behind NAT"),
    ("net.ipv4.tcp_low_latency", "without effect since Linux 4.14"),
    ("net.ipv4.tcp_fack", "without effect since Linux 4.15"),
    ("net.ipv4.route.flush", "an action, not a setting: it empties a cache that is gone since Linux 3.6"),
    ("net.ipv4.route.max_size", "without effect since Linux 3.6"),
    ("net.ipv4.netfilter.ip_conntrack_max", "gone for years; the name is net.netfilter.nf_conntrack_max"),
];

fn removed(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let lines = sysctl::lines(&ev.root)?;
    let found: Vec<Outcome> = lines
        .iter()
        .filter_map(|line| {
            let (_, what) = REMOVED.iter().find(|(key, _)| *key == line.key)?;
            let place = format!("/{}:{}", line.file, line.line);
            let outcome = Outcome::improve(format!("{}: the line misleads who reads it.", capital(what)));
            let outcome = outcome.on(&line.key).saw(format!("{place}: {} = {}", line.key, line.value));
            // By its text and not by its number: with two of them the second would have moved.
            let pattern = line.key.replace('.', "[./]");
            Some(outcome.advise(format!("sed -i -E 's/^[[:space:]-]*{}[[:space:]]*=/# &/' /{}", pattern, line.file)))
        })
        .collect();
    if found.is_empty() {
        let saw = format!("lines that set a network sysctl: {}", lines.len());
        return Ok(vec![Outcome::good("No file sets a sysctl that the kernel no longer has.").saw(saw)]);
    }
    Ok(found)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn set(path: &str, old: i64, new: i64, outcome: Outcome) -> Outcome {
    outcome.set(Knob::Sysctl { path: path.to_owned() }, old.to_string(), new.to_string())
}

fn tcp_options(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    const TCP_OPTIONS: [(&str, &str); 3] = [
        ("tcp_timestamps", "Without timestamps TCP measures round trips poorly, and a SYN cookie loses its options."),
        ("tcp_sack", "Without SACK one lost packet makes TCP send the whole window again."),
        ("tcp_window_scaling", "Without window scaling a connection has at most 64 KiB under way, whatever the link."),
    ];
    let mut all = Vec::new();
    for (name, why) in TCP_OPTIONS {
        let path = format!("net/ipv4/{name}");
        let Some(value) = sysctl::number(&ev.root, &path)? else { continue };
        let outcome = match value {
            0 => set(&path, 0, 1, Outcome::bad(why)),
            _ => Outcome::good("It is on, as TCP needs it."),
        };
        all.push(outcome.on(format!("net.ipv4.{name}")).saw(format!("net.ipv4.{name} = {value}")).holds(name, value));
    }
    Ok(all)
}

fn socket_defaults(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    const DEFAULT: i64 = 212_992;
    const HUGE: i64 = 4 << 20;
    let mut all = Vec::new();
    for name in ["rmem_default", "wmem_default"] {
        let path = format!("net/core/{name}");
        let Some(value) = sysctl::number(&ev.root, &path)? else { continue };
        let outcome = if value > HUGE {
            let why =
                "Every UDP and raw socket may then hold so much: the memory is gone before a slow reader is noticed.";
            set(&path, value, DEFAULT, Outcome::improve(why))
        } else {
            Outcome::good("Sockets that want more ask for it.")
        };
        all.push(
            outcome.on(format!("net.core.{name}")).saw(format!("net.core.{name} = {value} bytes")).holds(name, value),
        );
    }
    Ok(all)
}

fn memory_limits(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let mut all = Vec::new();
    for name in ["tcp_mem", "udp_mem"] {
        let Some(values) = sysctl::numbers(&ev.root, &format!("net/ipv4/{name}"))? else { continue };
        let [low, pressure, high] = values[..] else { continue };
        let saw = format!("net.ipv4.{name} = {low} {pressure} {high} pages");
        // The kernel's own: a quarter of the middle three times, rounded down, and twice that.
        let own = low == pressure / 4 * 3 && Some(high) == low.checked_mul(2);
        let outcome = if own {
            Outcome::good("The kernel computed these limits from the machine's memory.")
        } else {
            let why = "A limit set by hand does not scale with the memory: too low, TCP drops and shrinks windows; too high, the \
                machine runs out of memory first.";
            Outcome::improve(why).advise(format!(
                "grep -rn {name} /etc/sysctl.conf /etc/sysctl.d  # delete the line, then restart the machine"
            ))
        };
        all.push(outcome.on(format!("net.ipv4.{name}")).saw(saw).holds(name, format!("{low} {pressure} {high}")));
    }
    Ok(all)
}

fn backlog(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    const PATH: &str = "net/core/netdev_max_backlog";
    const BACKLOG_MAX: i64 = 100_000;
    let Some(value) = sysctl::number(&ev.root, PATH)? else { return Ok(Vec::new()) };
    let outcome = if value > BACKLOG_MAX {
        let why = "A backlog of that length holds packets for seconds under overload, and never loses them where it would help.";
        set(PATH, value, 10_000, Outcome::improve(why))
    } else {
        Outcome::good("The backlog holds packets for a short time only.")
    };
    Ok(vec![
        outcome
            .saw(format!("net.core.netdev_max_backlog = {value} packets per CPU"))
            .holds("netdev_max_backlog", value),
    ])
}

fn polling(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let mut outcome = Outcome::good("No CPU spins for a socket.");
    let mut saw = Vec::new();
    for name in ["busy_poll", "busy_read"] {
        let path = format!("net/core/{name}");
        let Some(value) = sysctl::number(&ev.root, &path)? else { continue };
        saw.push((name, value));
    }
    if saw.iter().any(|(_, value)| *value > 0) {
        outcome = Outcome::improve("Forwarded packets reach no socket: busy polling takes CPU time from forwarding.");
        for &(name, value) in saw.iter().filter(|(_, value)| *value > 0) {
            outcome = set(&format!("net/core/{name}"), value, 0, outcome);
        }
    }
    Ok(vec![saw.into_iter().fold(outcome, |outcome, (name, value)| {
        outcome.saw(format!("net.core.{name} = {value} us")).holds(name, value)
    })])
}

fn rps(ev: &Evidence) -> Vec<Outcome> {
    let cpus = ev.host.online().len();
    let flows = ev.sysctl_number("net/core/rps_sock_flow_entries").is_some_and(|n| n > 0);
    let judge = |nic: &host::picture::Nic| {
        // Receive flow steering needs the masks of RPS: then they are there for the sockets, not for the queues.
        if flows && nic.rx_queues.iter().any(|q| q.rps_flow_cnt > 0 && !q.rps_cpus.is_empty()) {
            let why = "Receive flow steering uses these masks: packets go to the core of their reader.";
            return Some(Outcome::good(why).on(&nic.name));
        }
        // A card with fewer queues than half the CPUs can use the help.
        if nic.rx_queues.len() < 2 || nic.rx_queues.len() * 2 < cpus {
            return None;
        }
        let steered: Vec<u32> =
            (0u32..).zip(&nic.rx_queues).filter(|(_, q)| !q.rps_cpus.is_empty()).map(|(n, _)| n).collect();
        let saw = format!(
            "{} receive queues on {cpus} CPU{}, RPS on {} of them",
            nic.rx_queues.len(),
            if cpus == 1 { "" } else { "s" },
            steered.len()
        );
        let on = format!("{} of {}", steered.len(), nic.rx_queues.len());
        if steered.is_empty() {
            return Some(
                Outcome::good("The card spreads the packets by itself.")
                    .on(&nic.name)
                    .saw(saw)
                    .holds("queues with RPS", on),
            );
        }
        let why = "The card has spread these packets already: steering them again costs each an inter-processor interrupt and a \
            second backlog.";
        let outcome = Outcome::improve(why).on(&nic.name).saw(saw).holds("queues with RPS", on);
        Some(steered.iter().fold(outcome, |outcome, &queue| {
            let knob = Knob::RpsCpus { nic: nic.name.clone(), queue };
            let old = nic.rx_queues[queue as usize].rps_cpus.to_mask();
            outcome.set(knob, old, "0")
        }))
    };
    ev.ports().filter_map(judge).collect()
}

fn rfs(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let Some(entries) = sysctl::number(&ev.root, "net/core/rps_sock_flow_entries")? else { return Ok(Vec::new()) };
    let queues = || ev.ports().flat_map(|nic| &nic.rx_queues);
    let counts = queues().filter(|q| q.rps_flow_cnt > 0).count();
    let steered = queues().filter(|q| !q.rps_cpus.is_empty() && q.rps_flow_cnt > 0).count();
    let hardware = ev.ports().any(|nic| nic.features.get("rx-ntuple-filter").is_some_and(|f| f.on));
    let saw = format!(
        "net.core.rps_sock_flow_entries = {entries}; {counts} queues have a flow table, {steered} of them RPS too"
    );
    let outcome = if entries > 0 && steered == 0 && !(hardware && counts > 0) {
        let why = "Every receive call of a socket writes into the table of flows, and no queue ever looks into it.";
        Outcome::improve(why).set(Knob::RfsEntries, entries.to_string(), "0")
    } else if entries == 0 && counts > 0 {
        let why = "The queues have tables of flows, but without the machine's own table no packet is steered by them.";
        Outcome::improve(why).advise("echo 32768 > /proc/sys/net/core/rps_sock_flow_entries")
    } else {
        Outcome::good("Both halves of receive flow steering are there, or neither.")
    };
    Ok(vec![outcome.saw(saw).holds("rps_sock_flow_entries", entries)])
}
