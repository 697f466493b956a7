//! What decides who may come in: SYN cookies, queues of listening sockets, reverse path filter.

use host::{
    knob::Knob,
    setting::{Missing, listen, sysctl},
};
use model::doctor::Role;

use super::or_unknown;
use crate::{
    check::{Check, Outcome},
    evidence::Evidence,
};

/// The kernel's own limit of an accept queue since Linux 5.4.
const ACCEPT_QUEUE: i64 = 4096;

/// The checks of this group.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "syn-cookies",
        group: "listen",
        asks: "Can the machine be reached during a flood of SYNs?",
        reads: "net.ipv4.tcp_syncookies",
        fix: "net.ipv4.tcp_syncookies = 1",
        risk: "during a flood connections come without window scaling and SACK, unless both sides have timestamps",
        roles: &[Role::Server, Role::Router, Role::Firewall, Role::Capture],
        run: |ev| or_unknown(cookies(ev)),
    },
    Check {
        id: "accept-queues",
        group: "listen",
        asks: "Are finished connections lost because nobody takes them up in time?",
        reads: "ListenOverflows and ListenDrops of /proc/net/netstat, net.core.somaxconn, net.ipv4.tcp_max_syn_backlog",
        fix: "net.core.somaxconn and net.ipv4.tcp_max_syn_backlog = 4096",
        risk: "the program must ask for a longer queue too, and be started anew; a longer queue does not make it faster",
        roles: &[],
        run: |ev| or_unknown(accept_queues(ev)),
    },
    Check {
        id: "rp-filter",
        group: "listen",
        asks: "Does the reverse path filter drop traffic that comes back another way?",
        reads: "net.ipv4.conf.all.rp_filter and each interface's (the larger counts)",
        fix: "rp_filter = 2 (loose)",
        risk: "packets with forged sender addresses of other networks pass: filter these at the edge",
        roles: &[Role::Router, Role::Firewall],
        run: |ev| or_unknown(reverse_path(ev)),
    },
];

fn cookies(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    const SYSCTL: &str = "net/ipv4/tcp_syncookies";
    let Some(value) = sysctl::number(&ev.root, SYSCTL)? else {
        return Ok(vec![Outcome::unknown(
            "net.ipv4.tcp_syncookies is not there: the kernel was built without SYN cookies",
        )]);
    };
    let knob = || Knob::Sysctl { path: SYSCTL.to_owned() };
    let outcome = match value {
        0 => Outcome::bad(
            "Without cookies some thousand forged SYNs per second fill the queue, and nobody else gets in.",
        )
        .set(knob(), "0", "1"),
        2 => Outcome::improve(
            "Cookies for every connection, flood or not, take its options away: this value is for tests.",
        )
        .set(knob(), "2", "1"),
        _ => Outcome::good("When the queue is full, the kernel answers with cookies."),
    };
    Ok(vec![outcome.saw(format!("net.ipv4.tcp_syncookies = {value}")).holds("tcp_syncookies", value)])
}

fn accept_queues(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let Some(counters) = listen::read(&ev.root)? else { return Ok(Vec::new()) };
    let most = sysctl::number(&ev.root, "net/core/somaxconn")?;
    let half_open = sysctl::number(&ev.root, "net/ipv4/tcp_max_syn_backlog")?;
    let small = most.is_some_and(|most| most < ACCEPT_QUEUE);
    let mut outcome = if counters.overflows > 0 {
        Outcome::bad(
            "A finished connection that finds the queue full is thrown away, and the client waits a second or more.",
        )
    } else if small && matches!(ev.role, Role::Server) {
        Outcome::improve("No listening socket can have a longer queue than this, whatever its program asks for.")
    } else {
        Outcome::good("No finished connection was thrown away.")
    };
    let shown = |value: Option<i64>| value.map_or_else(|| "absent".to_owned(), |v| v.to_string());
    outcome = outcome
        .saw(format!("ListenOverflows {}, ListenDrops {} since boot", counters.overflows, counters.drops))
        .saw(format!("net.core.somaxconn = {}, net.ipv4.tcp_max_syn_backlog = {}", shown(most), shown(half_open)))
        .holds("somaxconn", shown(most))
        .holds("tcp_max_syn_backlog", shown(half_open));
    if !outcome.verdict.is_finding() {
        return Ok(vec![outcome]);
    }
    for (path, value) in [("net/core/somaxconn", most), ("net/ipv4/tcp_max_syn_backlog", half_open)] {
        if let Some(value) = value.filter(|&value| value < ACCEPT_QUEUE) {
            outcome = outcome.set(Knob::Sysctl { path: path.to_owned() }, value.to_string(), ACCEPT_QUEUE.to_string());
        }
    }
    Ok(vec![outcome.advise("ss -ltn  # Recv-Q near Send-Q: that program takes up its connections too slowly")])
}

fn reverse_path(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let Some(all) = sysctl::number(&ev.root, "net/ipv4/conf/all/rp_filter")? else { return Ok(Vec::new()) };
    let own = sysctl::by_interface(&ev.root, &ev.host, "rp_filter")?;
    let judge = |nic: &host::picture::Nic| {
        let own = own.iter().find(|(name, _)| *name == nic.name).map(|(_, value)| *value)?;
        let effective = all.max(own);
        let saw = format!("all {all}, {} {own}: {effective} counts", nic.name);
        let outcome = match effective {
            1 => {
                let why = "A strict filter drops whatever comes in by an interface by which the route back does not lead: \
                    with more than one way that is good traffic.";
                let mut outcome = Outcome::improve(why);
                for (name, value) in [("all", all), (nic.name.as_str(), own)] {
                    if value == 1 {
                        let knob = Knob::Sysctl { path: format!("net/ipv4/conf/{name}/rp_filter") };
                        outcome = outcome.set(knob, "1", "2");
                    }
                }
                outcome
            }
            2 => Outcome::good("The loose filter drops only what has no route back at all."),
            _ => Outcome::good("No packet is dropped for the way it came."),
        };
        Some(outcome.on(&nic.name).saw(saw).holds("rp_filter", effective))
    };
    Ok(ev.devices().filter_map(judge).collect())
}
