//! Place of a traced drop.

use bpf::drops::DropKind;

use crate::{
    input::Drop,
    places::{PLACES, Place, UNNAMED, place},
};

/// Places for drops that no line of the table wants, by the beginning of the function's name.
pub(crate) const BY_FUNCTION: &[(&str, &str)] = &[
    ("tcp", "tcp-state"),
    ("__tcp", "tcp-state"),
    ("udp", "udp-other"),
    ("__udp", "udp-other"),
    ("icmp", "icmp"),
    ("ping", "icmp"),
    ("arp", "arp"),
    ("packet_", "tap"),
    ("tpacket_", "tap"),
    ("br_stp_rcv", "llc"),
    ("stp_", "llc"),
    ("llc_", "llc"),
    ("snap_", "llc"),
    ("br_", "bridge"),
    ("__br_", "bridge"),
    ("neigh", "neighbour-failed"),
    ("__dev_queue_xmit", "device"),
    ("dev_hard_start_xmit", "device"),
    ("validate_xmit", "device"),
    ("sch_", "qdisc"),
    ("qdisc", "qdisc"),
    ("__dev_forward", "device"),
    ("raw", "raw-buffer"),
];

/// Drivers' functions that free transmitted frames. Some free a frame as if it were dropped (dev_kfree_skb_any in net/core/dev.c), so that the trace
/// sees each frame that leaves: `vmxnet3_tq_tx_complete`, and those of others that do.
const SENT: &[&str] = &[
    "tx_complete",
    "clean_tx",
    "tx_clean",
    "free_tx",
    "tx_done",
    "txdone",
    "free_old_xmit",
    "tx_reclaim",
    "completed_tx",
];

const TCP: &[&str] = &["tcp_", "__tcp", "inet_csk", "sk_stream"];
const IPV6: u16 = 0x86dd;

/// True for a frame that a driver gave back once it was sent.
pub(crate) fn was_sent(drop: &Drop) -> bool {
    let of_driver = |function: &str| SENT.iter().any(|name| function.contains(name));
    drop.reason == "NOT_SPECIFIED" && drop.function.as_deref().is_some_and(of_driver)
}

/// The place that a traced drop belongs to: what kind of packet it was decides first, then reason and function; else the function alone.
pub fn place_of(drop: &Drop) -> &'static Place {
    let function = drop.function.as_deref();
    let fits = |names: &[&str]| names.is_empty() || function.is_some_and(|f| names.iter().any(|n| f.starts_with(n)));
    if let Some(id) = by_kind(drop, fits(TCP)) {
        return place(id);
    }
    PLACES
        .iter()
        .find(|p| p.reasons.iter().any(|(r, from)| *r == drop.reason && fits(from)))
        .or_else(|| {
            let function = function?;
            BY_FUNCTION.iter().find(|(name, _)| function.starts_with(name)).map(|(_, id)| place(id))
        })
        .unwrap_or(UNNAMED)
}

/// The place of drops that reason and function alone would call a loss, or the wrong one. `tcp`: a function of TCP dropped it.
fn by_kind(drop: &Drop, tcp: bool) -> Option<&'static str> {
    let reason = drop.reason.as_str();
    match (drop.kind, reason) {
        (DropKind::Copy, _) => Some("tap"),
        (DropKind::ForeignVlan, _) => Some("vlan"),
        (DropKind::LinkLocal, "UNHANDLED_PROTO" | "PTYPE_ABSENT") => Some("link-local"),
        (_, "IP_INADDRERRORS") if drop.protocol == IPV6 => Some("in-address6"),
        (_, "PKT_TOO_SMALL") if tcp => Some("tcp-header"),
        (DropKind::TcpReset, "NO_SOCKET" | "NOT_SPECIFIED" | "TCP_RESET") if tcp => Some("tcp-reset"),
        (DropKind::TcpReset, _) if is_of_connection(reason) => Some("tcp-reset"),
        (kind, "NO_SOCKET") if kind.is_bare_tcp() && tcp => Some("tcp-refused"),
        // A repeated request, answered again. One that a listener does not take is freed without a trace, and counted (ListenDrops).
        (kind, "NOT_SPECIFIED") if kind.is_bare_tcp() && tcp => Some("tcp-done"),
        (DropKind::TcpFin | DropKind::TcpBare, _) if is_of_connection(reason) => Some("tcp-done"),
        _ => None,
    }
}

/// Reasons that lie in the connection's own state: a segment without data that is dropped for one of them takes nothing with it.
fn is_of_connection(reason: &str) -> bool {
    matches!(reason, "QUEUE_PURGE" | "SOCKET_CLOSE" | "TCP_CLOSE" | "TCP_FLAGS" | "TCP_ABORT_ON_DATA")
        || (PLACES.iter().find(|p| p.id == "tcp-window"))
            .is_some_and(|p| p.reasons.iter().any(|(name, _)| *name == reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::PLACES;

    #[test]
    fn names_are_unique_and_found() {
        for (i, p) in PLACES.iter().enumerate() {
            assert_eq!(PLACES.iter().position(|q| q.id == p.id), Some(i), "{}", p.id);
            assert!(!p.advice.is_empty() || p.id == "conntrack", "{}: no advice", p.id);
        }
        for (_, id) in BY_FUNCTION {
            assert_ne!(place(id).id, "unnamed", "{id}");
        }
    }

    fn id_of(reason: &str, function: Option<&str>, kind: DropKind) -> &'static str {
        let function = function.map(str::to_owned);
        place_of(&Drop { reason: reason.into(), function, kind, protocol: 0x0800, ..Drop::default() }).id
    }

    #[test]
    fn what_a_driver_gives_back_was_sent() {
        let of = |reason: &str, function: &str| {
            was_sent(&Drop { reason: reason.into(), function: Some(function.into()), ..Drop::default() })
        };
        assert!(of("NOT_SPECIFIED", "vmxnet3_tq_tx_complete") && of("NOT_SPECIFIED", "stmmac_tx_clean"));
        assert!(!of("QDISC_DROP", "vmxnet3_tq_tx_complete") && !of("NOT_SPECIFIED", "vmxnet3_rq_rx_complete"));
        assert!(!of("NOT_SPECIFIED", "tcp_v4_rcv"));
    }

    #[test]
    fn a_drop_finds_its_place() {
        let id = |reason, function| id_of(reason, function, DropKind::Other);
        assert_eq!(id("NO_SOCKET", Some("__udp4_lib_rcv")), "no-port");
        assert_eq!(id("NO_SOCKET", Some("tcp_v4_rcv")), "tcp-no-socket");
        assert_eq!(id("IP_INHDR", Some("ip_forward")), "ttl");
        assert_eq!(id("IP_INHDR", Some("ip_rcv_core")), "ip-header");
        assert_eq!(id("IP_INHDR", None), "ip-header", "without symbols the TTL cannot be told");
        assert_eq!(id("SOCKET_RCVBUFF", Some("udp_queue_rcv_one_skb")), "udp-buffer");
        assert_eq!(id("SOCKET_RCVBUFF", Some("sock_queue_rcv_skb_reason")), "raw-buffer");
        assert_eq!(id("NOT_SPECIFIED", Some("br_forward")), "bridge");
        assert_eq!(id("NOT_SPECIFIED", Some("something")), "unnamed");
        let six = Drop { reason: "IP_INADDRERRORS".into(), protocol: IPV6, ..Drop::default() };
        assert_eq!((place_of(&six).id, id("IP_INADDRERRORS", None)), ("in-address6", "in-address"));
    }

    #[test]
    fn frames_of_switches_are_no_loss() {
        let of = |reason: &str, function: &str, kind| {
            place_of(&Drop {
                reason: reason.into(),
                function: Some(function.into()),
                kind,
                protocol: 4,
                ..Drop::default()
            })
        };
        for (reason, function, kind, id) in [
            ("NOT_SPECIFIED", "stp_pdu_rcv", DropKind::LinkLocal, "llc"),
            ("NOT_SPECIFIED", "br_stp_rcv", DropKind::LinkLocal, "llc"),
            ("NOT_SPECIFIED", "llc_rcv", DropKind::Other, "llc"),
            ("NOT_SPECIFIED", "snap_rcv", DropKind::LinkLocal, "llc"),
            ("UNHANDLED_PROTO", "__netif_receive_skb_core", DropKind::LinkLocal, "link-local"),
            ("PTYPE_ABSENT", "__netif_receive_skb_core", DropKind::LinkLocal, "link-local"),
        ] {
            let place = of(reason, function, kind);
            assert_eq!((place.id, place.kind), (id, model::stations::LossKind::Harmless), "{function}");
        }
        assert_eq!(of("UNHANDLED_PROTO", "__netif_receive_skb_core", DropKind::Other).id, "unhandled");
        assert_eq!(of("NOT_SPECIFIED", "br_handle_frame", DropKind::Other).id, "bridge");
    }

    #[test]
    fn a_segment_that_did_its_work_is_no_loss() {
        use DropKind::{TcpBare, TcpData, TcpFin, TcpReset, TcpSyn};
        for (reason, function, kind, place) in [
            ("QUEUE_PURGE", "sk_stream_kill_queues", TcpFin, "tcp-done"),
            ("QUEUE_PURGE", "sk_stream_kill_queues", TcpData, "closed"),
            ("NOT_SPECIFIED", "tcp_v4_rcv", TcpReset, "tcp-reset"),
            ("TCP_RESET", "tcp_rcv_state_process", TcpReset, "tcp-reset"),
            ("NO_SOCKET", "tcp_v4_rcv", TcpReset, "tcp-reset"),
            ("NO_SOCKET", "tcp_v4_rcv", TcpSyn, "tcp-refused"),
            ("NO_SOCKET", "tcp_v4_rcv", TcpData, "tcp-no-socket"),
            ("NOT_SPECIFIED", "tcp_v4_rcv", TcpBare, "tcp-done"),
            ("NOT_SPECIFIED", "tcp_v4_rcv", TcpSyn, "tcp-done"),
            ("NOT_SPECIFIED", "tcp_v4_rcv", TcpData, "tcp-state"),
            ("TCP_OLD_DATA", "tcp_data_queue", TcpData, "tcp-duplicate"),
            ("TCP_OVERWINDOW", "tcp_data_queue", TcpData, "tcp-window"),
            ("TCP_CSUM", "tcp_v4_rcv", TcpReset, "tcp-checksum"),
            ("NETFILTER_DROP", "nf_hook_slow", TcpReset, "netfilter"),
            ("TCP_MD5FAILURE", "tcp_v4_rcv", TcpBare, "tcp-state"),
            ("OTHERHOST", "ip_rcv_core", DropKind::ForeignVlan, "vlan"),
            ("QUEUE_PURGE", "skb_queue_purge_reason", DropKind::Copy, "tap"),
        ] {
            assert_eq!(id_of(reason, Some(function), kind), place, "{reason} in {function}, {kind:?}");
        }
    }
}
