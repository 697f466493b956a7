//! Messages between nodes as text.

use model::{
    link::{LinkConnection, LinkNode, LinkNodes, LinkPing, LinkProgram, LinkStatus, LinkTcpFallback},
    units,
    visible::visible_word,
};

use crate::table::Look;

/// Characters of a host's name (HOST_NAME_MAX).
const NODE_NAME_MAX: usize = 64;

/// The nodes that answered.
pub fn link_nodes_text(nodes: &LinkNodes, look: Look) -> String {
    if nodes.nodes.is_empty() {
        return look.paragraph(&format!(
            "No node answered on {}. Start one there: `evenkeel link serve INTERFACE`.",
            nodes.interface
        ));
    }
    node_table(&nodes.nodes, look)
}

/// A node's own name; of one that is longer than Linux lets a host's be, the beginning.
fn node_name(name: &str) -> String {
    let whole = visible_word(name);
    match whole.char_indices().nth(NODE_NAME_MAX) {
        Some((at, _)) => format!("{}…", &whole[..at]),
        None => whole.into_owned(),
    }
}

fn node_table(nodes: &[LinkNode], look: Look) -> String {
    look.table(&["NODE", "ADDRESS"], nodes.iter().map(|n| vec![node_name(&n.name), n.address.clone()]))
}

/// The connections of programs that use TCP, and what went by TCP all the same.
fn connections(status: &LinkStatus, look: Look) -> String {
    let mut text = String::new();
    if !status.connections.is_empty() {
        let row = |c: &LinkConnection| {
            let time = c.round_trip_ns.map_or("-".to_owned(), |ns| units::nanoseconds(ns as f64));
            let bytes = units::bytes;
            vec![
                visible_word(&c.program).into_owned(),
                c.local.clone(),
                c.peer.clone(),
                node_name(&c.node),
                c.carrier.clone(),
                bytes(c.sent_bytes),
                bytes(c.received_bytes),
                c.retransmitted.to_string(),
                time,
            ]
        };
        let head =
            ["CONNECTION OF", "FROM", "TO", "NODE", "CARRIED BY", ">SENT", ">RECEIVED", ">RESENT", ">ROUND TRIP"];
        text += "\n";
        text += &look.table(&head, status.connections.iter().map(row));
    }
    if !status.tcp_fallbacks.is_empty() {
        let row = |tcp: &LinkTcpFallback| {
            vec![tcp.peer.clone(), tcp.count.to_string(), visible_word(&tcp.reason).into_owned()]
        };
        text += "\n";
        text += &look.table(&["WENT OVER TCP TO", ">TIMES", "REASON"], status.tcp_fallbacks.iter().map(row));
    }
    text
}

/// A node, the others, its programs.
pub fn link_text(status: &LinkStatus, look: Look) -> String {
    let mut text = look.paragraph(&format!(
        "Node {} serves on {} ({}) for {}, with at most {} bytes in a frame. Frames reach programs through {}.",
        status.node,
        status.interface,
        status.address,
        units::nanoseconds(1e9 * status.uptime_s),
        status.payload_max,
        status.carrier
    ));
    for other in &status.duplicate_names {
        text += &look.paragraph(&format!(
            "{other} has the name {} too. Give one of the two another: `evenkeel link serve --name`.",
            status.node
        ));
    }
    for other in &status.other_versions {
        text += &look.paragraph(&format!(
            "{} speaks version {} of the protocol: no message passes between it and this node. Run one version on all.",
            other.address, other.version
        ));
    }
    text += "\n";
    text += &match status.nodes.as_slice() {
        [] => look.paragraph("No other node has answered in the last 15 s."),
        nodes => node_table(nodes, look),
    };
    text += "\n";
    text += &match status.programs.as_slice() {
        [] => look.paragraph("No program has ports."),
        programs => look.table(
            &["PROGRAM", ">PID", ">USER", "SENDS", "LISTENS ON"],
            programs.iter().map(|p| {
                let ports = p.listening_ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
                vec![visible_word(&p.name).into_owned(), p.pid.to_string(), p.uid.to_string(), way(p).to_owned(), ports]
            }),
        ),
    };
    if let Some(n @ 1..) = status.forged {
        let frames = units::counted(n, "frame", "frames");
        text += &look.paragraph(&format!("{frames} of guarded programs had a forged sender and were dropped."));
    }
    if let Some(warning) = &status.memory_unbounded {
        text += &look.paragraph(&format!("Warning: {warning}."));
    }
    text += &connections(status, look);
    if let Some(d) = &status.delivery {
        let counts = [
            ("delivered", d.delivered),
            ("probes answered", d.answered),
            ("to the broker", d.to_broker),
            ("dropped: ring full", d.ring_full),
            ("dropped: damaged or unknown", d.bad),
        ];
        text += "\n";
        let rows = counts.iter().filter(|(what, n)| *n > 0 || *what == "delivered");
        text += &look.table(
            &["FRAMES IN THE XDP HOOK", ">NUMBER"],
            rows.map(|(what, n)| vec![(*what).to_owned(), n.to_string()]),
        );
    }
    let r = &status.refused;
    let counts = [
        ("shorter than their header says", r.short),
        ("of another version", r.version),
        ("of an unknown kind", r.kind),
        ("with a wrong checksum", r.checksum),
        ("for an unknown connection", r.unknown),
        ("to a port without a listener", r.refused),
        ("to a listener with a full queue", r.busy),
        ("offers never acknowledged (half open)", r.half_open),
    ];
    let counts: Vec<_> = counts.iter().filter(|(_, n)| *n > 0).collect();
    if !counts.is_empty() {
        text += "\n";
        text += &look.table(
            &["REFUSED FRAMES", ">NUMBER"],
            counts.iter().map(|(why, n)| vec![(*why).to_owned(), n.to_string()]),
        );
    }
    text
}

/// The way of a program's frames to the wire.
fn way(program: &LinkProgram) -> &'static str {
    if program.guarded { "guarded" } else { "directly" }
}

/// Result of probes, in the form of ping(8).
pub fn link_ping_text(ping: &LinkPing) -> String {
    let mut sorted = ping.round_trips_ns.clone();
    sorted.sort_unstable();
    let lost = f64::from(ping.sent) - sorted.len() as f64;
    let share = if ping.sent == 0 { 0.0 } else { lost / f64::from(ping.sent) };
    let mut text = format!(
        "{} sent, {} answered, {} lost\n",
        units::counted(ping.sent.into(), "probe", "probes"),
        sorted.len(),
        units::percent(share)
    );
    let at = |share: f64| {
        let rank = ((sorted.len() - 1) as f64 * share).round() as usize;
        units::nanoseconds(sorted[rank] as f64)
    };
    if !sorted.is_empty() {
        text += &format!("round trip: least {}, median {}, 99 % {}, most {}\n", at(0.0), at(0.5), at(0.99), at(1.0));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_a_long_name_widens_no_table() {
        let node = |name: &str| LinkNode { name: name.to_owned(), address: "02:00:00:00:00:01".to_owned(), epoch: 1 };
        let table = node_table(&[node("b"), node(&"é\x1b".repeat(120))], Look::plain(200));
        assert!(table.lines().all(|line| line.chars().count() < 100), "{table}");
        assert!(table.contains('…') && !table.contains('\x1b'), "{table}");
    }
}
