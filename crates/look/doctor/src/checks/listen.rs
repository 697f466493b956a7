//! Admission of connections: SYN cookies, queues of listening sockets, reverse path filter.

use host::{
    Root,
    knob::Knob,
    setting::{Missing, listen, sysctl},
};
use model::doctor::Role;

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// The kernel's own limit of an accept queue since Linux 5.4.
const ACCEPT_QUEUE: i64 = 4096;

/// Fewer connections thrown away since boot are of one moment.
const WORTH_A_WORD: u64 = 10;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "syn-cookies",
        group: "listen",
        question: "Can the machine be reached during a flood of SYNs?",
        reads: "net.ipv4.tcp_syncookies",
        fix: "net.ipv4.tcp_syncookies = 1",
        risk: "during a flood connections come without window scaling and SACK, unless both sides have timestamps",
        roles: &[Role::Server, Role::Router, Role::Firewall, Role::Capture],
        run: |ev| or_unknown(cookies(ev)),
    },
    Check {
        id: "accept-queues",
        group: "listen",
        question: "Are established connections dropped because programs accept them too late?",
        reads: "the queue of each listening socket (sock_diag), ListenOverflows and ListenDrops of /proc/net/netstat while \
            watched and since boot, net.core.somaxconn",
        fix: "net.core.somaxconn = 4096; by hand: a longer queue in the program's own listen()",
        risk: "the program must ask for a longer queue too, and be started anew; a longer queue does not make it faster",
        roles: &[],
        run: |ev| or_unknown(accept_queues(ev)),
    },
    Check {
        id: "rp-filter",
        group: "listen",
        question: "Does the reverse path filter drop traffic that comes back another way?",
        reads: "net.ipv4.conf.all.rp_filter and each interface's (the larger counts); IPReversePathFilter of /proc/net/netstat",
        fix: "rp_filter = 2 (loose), where the filter has dropped packets",
        risk: "packets with forged sender addresses of other networks pass: filter these at the edge",
        roles: &[],
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
            "Without cookies a few thousand forged SYNs per second fill the queue, and new connections are refused.",
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
    if listen::read(&ev.root)?.is_none() {
        return Ok(Vec::new());
    }
    let since = ev.since_when();
    let most = sysctl::number(&ev.root, "net/core/somaxconn")?;
    let small = most.is_some_and(|most| most < ACCEPT_QUEUE);
    let overflowed = |root: &Root| listen::read(root).ok()?.map(|c| c.overflows);
    let (overflows, now) = (ev.since(overflowed).unwrap_or(0), ev.grown(overflowed));
    let drops = ev.since(|root| listen::read(root).ok()?.map(|c| c.drops)).unwrap_or(0);
    let why = "A finished connection that finds the queue full is thrown away, and the client waits a second or more.";
    let mut outcome = if overflows > 0 && now.is_some_and(|now| now > 0) {
        Outcome::bad(why)
    } else if overflows >= WORTH_A_WORD && ev.counts(now) {
        Outcome::improve(why)
    } else if small && matches!(ev.role, Role::Server) {
        Outcome::improve("No listening socket can have a longer queue than this, whatever its program asks for.")
    } else if overflows > 0 && now == Some(0) {
        Outcome::good("No established connection is dropped now.")
    } else if overflows > 0 {
        Outcome::good("Hardly any established connection was dropped.")
    } else {
        Outcome::good("No established connection was dropped.")
    };
    let shown = |value: Option<i64>| value.map_or_else(|| "absent".to_owned(), |v| v.to_string());
    outcome = outcome
        .saw(match now {
            Some(now) => {
                format!("ListenOverflows {now} while watched, {overflows} {since}; ListenDrops {drops} {since}")
            }
            None => format!("ListenOverflows {overflows}, ListenDrops {drops} {since}"),
        })
        .saw(format!("net.core.somaxconn = {}", shown(most)))
        .holds("somaxconn", shown(most));
    let mut answers = full_queues(ev);
    if !outcome.verdict.is_finding() {
        answers.push(outcome);
        return Ok(answers);
    }
    // The queue has the length that its program asked for, and at most this. The queue of half-open connections is another one.
    if let Some(value) = most.filter(|&value| value < ACCEPT_QUEUE) {
        let knob = Knob::Sysctl { path: "net/core/somaxconn".to_owned() };
        outcome = outcome.set(knob, value.to_string(), ACCEPT_QUEUE.to_string());
    }
    outcome = outcome.advise("ss -ltn  # Recv-Q near Send-Q: that program takes up its connections too slowly").advise(
        "# Send-Q is the length of its queue: a longer one takes a larger `backlog` in that program, started anew",
    );
    answers.push(outcome);
    Ok(answers)
}

/// The listening sockets whose queue is full or nearly so. (A copy of an earlier version does not tell; the counters do.)
fn full_queues(ev: &Evidence) -> Vec<Outcome> {
    let queues = listen::accept_queues(&ev.root).unwrap_or_default();
    let judge = |queue: listen::AcceptQueue| {
        let share = u64::from(queue.waiting) * 100 / u64::from(queue.most.max(1));
        let outcome = match share {
            // The kernel takes one more than the limit before it throws away.
            _ if queue.waiting == 0 => return None,
            100.. => Outcome::bad(
                "This program's accept queue is full: further connections are dropped, and their clients wait a second or more.",
            ),
            70..100 => Outcome::improve("This program accepts connections more slowly than they arrive."),
            _ => return None,
        };
        let most = queue.most;
        let longer =
            format!("# listen() with more than {most} in that program (its `backlog` option), then start it anew");
        Some(
            outcome
                .on(format!("port {}", queue.port))
                .saw(format!("connections that wait: {}; at most {most}", queue.waiting))
                .advise(format!("ss -ltnp 'sport = :{}'  # whose it is", queue.port))
                .advise(longer),
        )
    };
    queues.into_iter().filter_map(judge).collect()
}

fn reverse_path(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let Some(all) = sysctl::number(&ev.root, "net/ipv4/conf/all/rp_filter")? else { return Ok(Vec::new()) };
    let dropped = |root: &Root| listen::reverse_path_drops(root).ok()?;
    let (total, now) = (ev.since(dropped), ev.grown(dropped));
    let since = ev.since_when();
    // With one way there is no other by which good traffic could come.
    let several = ev.devices().count() > 1;
    let own = sysctl::by_interface(&ev.root, &ev.host, "rp_filter")?;
    let judge = |nic: &host::picture::Nic| {
        let own = own.iter().find(|(name, _)| *name == nic.name).map(|(_, value)| *value)?;
        let effective = all.max(own);
        let saw = format!("all {all}, {} {own}: {effective} counts", nic.name);
        let drops = match (total, now) {
            (Some(total), Some(now)) => format!("dropped on all interfaces: {now} while watched, {total} {since}"),
            (Some(total), None) => format!("dropped on all interfaces: {total} {since}"),
            (None, _) => "how many it dropped is not known".to_owned(),
        };
        let outcome = match effective {
            1 if !several || total == Some(0) => {
                Outcome::good("The strict filter keeps forged sender addresses out, and has dropped nothing else.")
            }
            1 if total.is_some() && !ev.counts(now) => Outcome::good("The strict filter drops nothing now.").saw(drops),
            1 => {
                let why = "A strict filter drops whatever comes in by an interface by which the route back does not lead: \
                    with more than one way that is good traffic.";
                let is_now = now.is_some_and(|now| now > 0);
                let mut outcome = if is_now { Outcome::bad(why) } else { Outcome::improve(why) };
                outcome = outcome.saw(drops);
                for (name, value) in [("all", all), (nic.name.as_str(), own)] {
                    if value == 1 {
                        let knob = Knob::Sysctl { path: format!("net/ipv4/conf/{name}/rp_filter") };
                        outcome = outcome.set(knob, "1", "2");
                    }
                }
                outcome
            }
            2 => Outcome::good("The loose filter drops only what has no route back at all."),
            _ => Outcome::good("No packet is dropped by its return path."),
        };
        Some(outcome.on(&nic.name).saw(saw).holds("rp_filter", effective))
    };
    Ok(ev.devices().filter_map(judge).collect())
}
