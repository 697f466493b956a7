//! The places where the kernel loses packets: which drop reasons name them, which counters count them, what to do about it.
//!
//! One table, in the order in which a packet meets the places. A traced drop belongs to the first place that wants it; a
//! place whose counter exists takes its number from there.

use model::stations::Direction::{self, Forward, Receive, Transmit};

/// Between which counters a place lies, and so which equation its losses belong to (see the crate's documentation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before the driver's receive counter.
    Wire,
    /// Counted by the driver as received, ended before the stack saw it.
    Driver,
    /// Between the driver's receive counter and IP's, or another protocol's.
    Link,
    /// Within a bridge.
    Bridge,
    /// Between IP's receive counter, its counter of deliveries and its transmit counter.
    Ip,
    /// Behind IP's counter of deliveries.
    Local,
    /// Received by a protocol other than IP.
    Other,
    /// At the postrouting hook: before IP's transmit counter since Linux 6.7, behind what older kernels count.
    Postrouting,
    /// Between IP's transmit counter and the interface.
    Out,
    /// At the interface's transmit side.
    Device,
    /// Copies: the packet itself went on.
    Copy,
}

/// A place.
#[derive(Debug)]
pub struct Place {
    /// Its name in this program.
    pub id: &'static str,
    /// The station it belongs to.
    pub station: &'static str,
    /// The way of the packets lost there.
    pub direction: Direction,
    /// Which equation it is in.
    pub stage: Stage,
    /// Words for people.
    pub words: &'static str,
    /// The counters, as `Group.Name` of the protocols; the place's number is their sum. Empty: only the trace tells, or
    /// the counter is worked out elsewhere.
    pub counters: &'static [&'static str],
    /// The drop reasons, and the beginnings of the functions' names that a drop must come from (none: any).
    pub reasons: &'static [(&'static str, &'static [&'static str])],
    /// What to do about it.
    pub advice: &'static str,
}

const ANY: &[&str] = &[];
const TCP: &[&str] = &["tcp_", "__tcp", "inet_csk", "sk_stream"];
const UDP: &[&str] = &["udp", "__udp"];
const ICMP: &[&str] = &["icmp", "ping_"];
const ARP: &[&str] = &["arp_"];
/// A veth drops what its other end cannot take in the sender's call, when the packet belongs to the other end already.
const VETH: &[&str] = &["veth_xmit", "veth_forward"];
/// Drivers whose XDP programs run on socket buffers: there the kernel's trace sees the verdict as a drop.
const XDP: &[&str] = &["veth_xdp_rcv", "tun_xdp", "tun_build"];
/// Generic XDP, whose verdict gives no reason.
const GENERIC_XDP: &[&str] = &["do_xdp_generic", "netif_receive_generic_xdp", "bpf_prog_run_generic_xdp"];
/// Routes that refuse (blackhole, prohibit): they give no reason.
const ROUTE: &[&str] = &["ip_error", "dst_discard", "ip6_pkt_prohibit"];
/// An interface without IPv6 gives no reason either.
const IPV6: &[&str] = &["ip6_rcv_core", "ipv6_rcv"];
/// Where IP keeps fragments: without room it drops them at once and gives no reason.
const DEFRAG: &[&str] =
    &["ip_defrag", "ip_frag_", "ip_expire", "inet_frag_", "ipv6_frag_rcv", "ip6_frag_", "nf_ct_frag6"];
const FORWARD: &[&str] = &["ip_forward", "ip6_forward"];

macro_rules! places {
    ($($id:literal $station:literal $direction:ident $stage:ident $words:literal [$($counter:literal),*] [$($reason:literal $from:ident),*] $advice:literal;)+) => {
        /// Every place, in the order in which a packet meets them. A counter that holds another one's losses as well stands
        /// behind it: see [`HOLDS`].
        pub const PLACES: &[Place] = &[$(Place {
            id: $id,
            station: $station,
            direction: $direction,
            stage: Stage::$stage,
            words: $words,
            counters: &[$($counter),*],
            reasons: &[$(($reason, $from)),*],
            advice: $advice,
        }),+];
    };
}

places! {
    "backlog" "softnet" Receive Link "backlog of a CPU full" [] ["CPU_BACKLOG" ANY]
        "One core cannot keep up: spread the load (`evenkeel spread`), or raise net.core.netdev_max_backlog if the load comes in bursts.";
    "tap" "taps" Receive Copy "packet tap full: its reader is too slow (copies; the packets themselves went on)" [] ["PACKET_SOCK_ERROR" ANY]
        "Give the reader a larger ring, a core of its own or fanout (`evenkeel capture` does), or a filter.";
    "veth-ring" "nic" Receive Wire "receive ring of the veth full" [] ["NOT_SPECIFIED" VETH, "FULL_RING" VETH]
        "One core cannot keep up: give the veth more queues, or spread its load (`evenkeel spread`).";
    "xdp-native" "xdp" Receive Driver "dropped by the XDP program" [] ["NOT_SPECIFIED" XDP, "XDP" XDP]
        "The program's verdict: `bpftool prog show` names it.";
    "xdp-generic" "xdp" Receive Link "dropped by the generic XDP program" [] ["XDP" ANY, "NOT_SPECIFIED" GENERIC_XDP]
        "The program's verdict; `bpftool net` shows which one is attached.";
    "tc-ingress" "tc" Receive Link "dropped by a tc filter on ingress" [] ["TC_INGRESS" ANY, "TC_COOKIE_ERROR" ANY, "TC_CHAIN_NOTFOUND" ANY, "TC_RECLASSIFY_LOOP" ANY]
        "A rule's verdict: `tc -s filter show dev IFACE ingress`.";
    "stp" "bridge" Receive Bridge "arrived at a bridge port that may not forward (spanning tree)" [] ["BRIDGE_INGRESS_STP_STATE" ANY]
        "`bridge link` shows the states; a blocked port is right where the wiring has a loop.";
    "bridge" "bridge" Forward Bridge "not forwarded by the bridge" [] ["NO_TX_TARGET" ANY, "LOCAL_MAC" ANY, "MAC_INVALID_SOURCE" ANY, "MAC_IEEE_MAC_CONTROL" ANY]
        "`bridge fdb show` tells the port of the destination's MAC: the frame came by it already, or no port may take it (`bridge -d link`).";
    "otherhost" "ethernet" Receive Link "addressed to another host's MAC" ["link.rx_otherhost_dropped"] ["OTHERHOST" ANY]
        "Harmless on a mirror port. Otherwise the switch floods, or a neighbour has an old MAC: look at its ARP table.";
    "unhandled" "ethernet" Receive Link "no protocol wanted it" [] ["UNHANDLED_PROTO" ANY, "PTYPE_ABSENT" ANY]
        "Frames of a protocol nobody here speaks (the cause names its EtherType): stop them at the switch.";
    "arp" "arp" Receive Other "refused by ARP" [] ["NOT_SPECIFIED" ARP, "NOMEM" ARP, "ARP_PVLAN_DISABLE" ANY]
        "";
    "truncated" "ip" Receive Ip "shorter than its header says" ["IpExt.InTruncatedPkts", "Ip6.InTruncatedPkts"] ["PKT_TOO_SMALL" ANY, "HDR_TRUNC" ANY]
        "A damaged sender or a broken tunnel: capture some (`evenkeel capture`).";
    "ttl" "ip" Forward Ip "TTL or hop limit expired" [] ["IP_INHDR" FORWARD]
        "traceroute, or a routing loop: look at `ip route get` for the destination here and at the next hop.";
    "ip-checksum" "ip" Receive Ip "bad checksum of the IPv4 header" ["IpExt.InCsumErrors"] ["IP_CSUM" ANY]
        "Damaged on the way or built wrong by the sender: compare with the NIC's error counters.";
    "ip-header" "ip" Receive Ip "bad IP header" ["Ip.InHdrErrors", "Ip6.InHdrErrors"] ["IP_INHDR" ANY, "IPV6_BAD_EXTHDR" ANY]
        "Damaged on the way or built wrong by the sender: capture some (`evenkeel capture`).";
    "ipv6-off" "ip" Receive Ip "IPv6 is switched off on the interface" [] ["IPV6DISABLED" ANY, "NOT_SPECIFIED" IPV6]
        "`sysctl net.ipv6.conf.IFACE.disable_ipv6` says so, or an MTU below 1280; harmless if meant.";
    "rp-filter" "ip" Receive Ip "came by an interface that does not lead back to its sender (rp_filter)" ["TcpExt.IPReversePathFilter"] ["IP_RPFILTER" ANY]
        "Spoofed, or routing is asymmetric: then net.ipv4.conf.IFACE.rp_filter=2 (loose).";
    "martian" "ip" Receive Ip "martian: impossible source or destination address" [] ["IP_INVALID_SOURCE" ANY, "IP_LOCAL_SOURCE" ANY, "IP_LOCALNET" ANY, "IP_INVALID_DEST" ANY, "UNICAST_IN_L2_MULTICAST" ANY]
        "Spoofed, or two hosts have one address: net.ipv4.conf.all.log_martians=1 logs them.";
    "no-route" "ip" Forward Ip "no route to the destination" ["IpExt.InNoRoutes", "Ip6.InNoRoutes"] ["IP_INNOROUTES" ANY]
        "`ip route get DESTINATION from SOURCE iif IFACE`; a default route is missing, or the sender's is wrong.";
    "route-refuses" "ip" Forward Ip "a route refuses it (blackhole, prohibit)" [] ["NOT_SPECIFIED" ROUTE]
        "`ip route get DESTINATION` and `ip -6 route` show the route: meant, or to be deleted.";
    "in-address" "ip" Receive Ip "not for an address of this host, and it does not forward" ["Ip.InAddrErrors", "Ip6.InAddrErrors"] ["IP_INADDRERRORS" ANY]
        "If it is to route: net.ipv4.ip_forward=1. Otherwise the sender's route is wrong.";
    "too-big" "ip" Forward Ip "too large for the way on, and not to be fragmented" ["Ip.FragFails", "Ip6.InTooBigErrors"] ["PKT_TOO_BIG" ANY]
        "MTUs differ along the way: let ICMP `fragmentation needed` through, or clamp TCP's MSS.";
    "no-protocol" "ip" Receive Ip "no such IP protocol here" ["Ip.InUnknownProtos", "Ip6.InUnknownProtos"] ["IP_NOPROTO" ANY]
        "";
    "xfrm" "ip" Receive Ip "refused by an IPsec policy" [] ["XFRM_POLICY" ANY]
        "`ip -s xfrm policy` and /proc/net/xfrm_stat tell which.";
    "fragments" "ip" Receive Ip "fragments that never became whole" [] ["FRAG_REASM_TIMEOUT" ANY, "FRAG_TOO_FAR" ANY, "DUP_FRAG" ANY, "NOT_SPECIFIED" DEFRAG, "NOMEM" DEFRAG]
        "Their other parts were lost before, or there is no room: `sysctl -w net.ipv4.ipfrag_high_thresh=16777216` (IPv6: net.ipv6.ip6frag_high_thresh).";
    "ip-discard" "ip" Receive Ip "discarded by IP, mostly for want of memory" ["Ip.InDiscards", "Ip6.InDiscards"] ["NOMEM" ANY, "SECURITY_HOOK" ANY]
        "Look at free memory and at vm.min_free_kbytes.";
    "conntrack" "conntrack" Receive Ip "connection table full, or the connection could not be entered" [] []
        "`sysctl -w net.netfilter.nf_conntrack_max=N` (and nf_conntrack_buckets=N) with N twice as many, or no tracking of such traffic: a rule with `notrack`.";
    "netfilter" "netfilter" Receive Ip "dropped by rules or policies without a counter" [] ["NETFILTER_DROP" ANY]
        "Put `counter` into the rules to see which: `nft list ruleset`.";
    "no-port" "udp" Receive Local "no socket on the UDP port" ["Udp.NoPorts", "Udp6.NoPorts"] ["NO_SOCKET" UDP]
        "Nobody listens there: the service is down, or the traffic is unwanted; then drop it earlier.";
    "udp-buffer" "udp" Receive Local "socket buffer full" ["Udp.RcvbufErrors", "Udp6.RcvbufErrors"] ["SOCKET_RCVBUFF" UDP]
        "The program reads too slowly: give it CPU time, or a larger SO_RCVBUF (net.core.rmem_max).";
    "udp-checksum" "udp" Receive Local "bad UDP checksum" ["Udp.InCsumErrors", "Udp6.InCsumErrors"] ["UDP_CSUM" ANY]
        "Damaged on the way, or a sender with broken offload: `ethtool -K IFACE tx off` there as a test.";
    "udp-memory" "udp" Receive Local "no memory for UDP" ["Udp.MemErrors", "Udp6.MemErrors"] ["PROTO_MEM" UDP]
        "Raise the three numbers of net.ipv4.udp_mem (pages): `sysctl net.ipv4.udp_mem` shows them.";
    "udp-other" "udp" Receive Local "refused by UDP (socket filter, policy, encapsulation)" ["Udp.InErrors", "Udp6.InErrors"] ["SOCKET_FILTER" UDP, "XFRM_POLICY" UDP, "NOT_SPECIFIED" UDP]
        "";
    "tcp-checksum" "tcp" Receive Local "bad TCP checksum" ["Tcp.InCsumErrors"] ["TCP_CSUM" ANY]
        "Damaged on the way, or a sender with broken offload: `ethtool -K IFACE tx off` there as a test.";
    "tcp-header" "tcp" Receive Local "bad TCP segment" ["Tcp.InErrs"] ["NOT_SPECIFIED" TCP]
        "";
    "tcp-no-socket" "tcp" Receive Local "no socket on the TCP port (answered with RST)" [] ["NO_SOCKET" TCP]
        "Nobody listens there: the service is down, or the traffic is unwanted; then drop it earlier.";
    "listen-overflow" "tcp" Receive Local "accept queue of a listener full" ["TcpExt.ListenOverflows"] ["TCP_LISTEN_OVERFLOW" ANY]
        "`ss -ltnp` names the program (Recv-Q above Send-Q): it accepts too slowly. More acceptors, or a larger backlog in its listen() and `sysctl -w net.core.somaxconn=4096`.";
    "listen-drop" "tcp" Receive Local "not taken by a listener (queue of half-open connections full, no memory, no route back)" ["TcpExt.ListenDrops"] []
        "`sysctl -w net.ipv4.tcp_syncookies=1 net.ipv4.tcp_max_syn_backlog=4096`, and a larger backlog in the program's listen() (`ss -ltnp`).";
    "tcp-backlog" "tcp" Receive Local "backlog of a busy TCP socket full" ["TcpExt.TCPBacklogDrop"] ["SOCKET_BACKLOG" ANY]
        "Raise net.ipv4.tcp_rmem, or use more connections.";
    "tcp-buffer" "tcp" Receive Local "receive buffer of a TCP socket full" ["TcpExt.TCPRcvQDrop", "TcpExt.TCPOFODrop", "TcpExt.OfoPruned"] ["PROTO_MEM" TCP, "TCP_OFO_DROP" ANY, "TCP_OFO_QUEUE_PRUNE" ANY, "SOCKET_RCVBUFF" TCP]
        "Raise net.ipv4.tcp_rmem and tcp_mem.";
    "tcp-window" "tcp" Receive Local "old, duplicate or outside of the window" [] [
            "TCP_OLD_DATA" ANY, "TCP_OLD_ACK" ANY, "TCP_TOO_OLD_ACK" ANY, "TCP_OVERWINDOW" ANY, "TCP_ZEROWINDOW" ANY, "TCP_OFOMERGE" ANY,
            "TCP_RFC7323_PAWS" ANY, "TCP_RFC7323_PAWS_ACK" ANY, "TCP_RFC7323_TW_PAWS" ANY, "TCP_RFC7323_TSECR" ANY, "TCP_OLD_SEQUENCE" ANY,
            "TCP_INVALID_SEQUENCE" ANY, "TCP_INVALID_END_SEQUENCE" ANY, "TCP_INVALID_ACK_SEQUENCE" ANY, "TCP_ACK_UNSENT_DATA" ANY]
        "TCP sees to it itself. Many of them mean loss or reordering on the way.";
    "tcp-state" "tcp" Receive Local "not acceptable in the connection's state" [] [
            "TCP_FLAGS" ANY, "TCP_RESET" ANY, "TCP_CLOSE" ANY, "TCP_INVALID_SYN" ANY, "TCP_ABORT_ON_DATA" ANY, "TCP_FASTOPEN" ANY, "TCP_MINTTL" ANY,
            "TCP_AUTH_HDR" ANY, "TCP_MD5NOTFOUND" ANY, "TCP_MD5UNEXPECTED" ANY, "TCP_MD5FAILURE" ANY,
            "TCP_AONOTFOUND" ANY, "TCP_AOUNEXPECTED" ANY, "TCP_AOKEYNOTFOUND" ANY, "TCP_AOFAILURE" ANY]
        "";
    "icmp" "icmp" Receive Local "bad ICMP message" ["Icmp.InErrors", "Icmp6.InErrors"] ["ICMP_CSUM" ANY, "INVALID_PROTO" ANY, "NOT_SPECIFIED" ICMP,
            "IPV6_NDISC_FRAG" ANY, "IPV6_NDISC_HOP_LIMIT" ANY, "IPV6_NDISC_BAD_CODE" ANY, "IPV6_NDISC_BAD_OPTIONS" ANY, "IPV6_NDISC_NS_OTHERHOST" ANY]
        "";
    "closed" "sockets" Receive Local "unread when its socket was closed" [] ["SOCKET_CLOSE" ANY, "QUEUE_PURGE" ANY]
        "Normal when a program ends.";
    "socket-filter" "sockets" Receive Local "refused by the socket's filter" [] ["SOCKET_FILTER" ANY]
        "The program asked for it.";
    "raw-buffer" "sockets" Receive Local "buffer of a raw socket full" [] ["SOCKET_RCVBUFF" ANY]
        "The program reads too slowly: a larger SO_RCVBUF, or a filter.";
    "out-no-route" "ip" Transmit Out "no route out" [] ["IP_OUTNOROUTES" ANY]
        "`ip route get DESTINATION` tells what is missing.";
    "cgroup" "ip" Transmit Out "refused by a cgroup's BPF program" [] ["BPF_CGROUP_EGRESS" ANY]
        "`bpftool cgroup tree` shows it.";
    "neighbour-failed" "neighbour" Transmit Out "no answer to ARP or neighbour discovery" [] ["NEIGH_FAILED" ANY, "NEIGH_DEAD" ANY, "NEIGH_HH_FILLFAIL" ANY]
        "The next hop is down or not on this link: `ip neigh`.";
    "neighbour-queue" "neighbour" Transmit Out "waited for ARP or neighbour discovery, queue full" [] ["NEIGH_QUEUEFULL" ANY]
        "The next hop does not answer (fast enough): `ip neigh`; net.ipv4.neigh.IFACE.unres_qlen_bytes.";
    "neighbour-table" "neighbour" Transmit Out "neighbour table full" [] ["NEIGH_CREATEFAIL" ANY]
        "Raise net.ipv4.neigh.default.gc_thresh3.";
    "tc-egress" "tc" Transmit Out "dropped by a tc filter on egress" [] ["TC_EGRESS" ANY]
        "A rule's verdict: `tc -s filter show dev IFACE egress`.";
    "qdisc" "qdisc" Transmit Device "queue full" [] ["QDISC_DROP" ANY, "QDISC_OVERLIMIT" ANY, "QDISC_CONGESTED" ANY, "CAKE_FLOOD" ANY, "FQ_BAND_LIMIT" ANY,
            "FQ_HORIZON_LIMIT" ANY, "FQ_FLOW_LIMIT" ANY, "DUALPI2_STEP_DROP" ANY]
        "More is sent than the rate or the link allows: `tc -s qdisc show`; a longer queue only helps against bursts.";
    "device" "transmit" Transmit Device "not sent by the device" [] ["DEV_HDR" ANY, "DEV_READY" ANY, "FULL_RING" ANY, "SKB_GSO_SEG" ANY, "SKB_CSUM" ANY, "SKB_UCOPY_FAULT" ANY,
            "TAP_FILTER" ANY, "TAP_TXFILTER" ANY, "RECURSION_LIMIT" ANY, "NOMEM" ANY]
        "The device or its other end does not take them: `ip -s -d link show IFACE`, and on the other end `ip link set PEER up`; a tun device: its program reads too slowly.";
}

/// Places for drops that no line of the table wants, by the beginning of the function's name.
pub const BY_FUNCTION: &[(&str, &str)] = &[
    ("tcp", "tcp-state"),
    ("__tcp", "tcp-state"),
    ("udp", "udp-other"),
    ("__udp", "udp-other"),
    ("icmp", "icmp"),
    ("ping", "icmp"),
    ("arp", "arp"),
    ("packet_", "tap"),
    ("tpacket_", "tap"),
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

/// Counters that hold the losses of other places as well: the place, and those that are taken out of its number.
pub const HOLDS: &[(&str, &[&str])] = &[
    ("ip-header", &["ttl", "ip-checksum"]),
    ("ip-discard", &["ipv6-off"]),
    ("udp-other", &["udp-buffer", "udp-checksum", "udp-memory"]),
    ("tcp-header", &["tcp-checksum"]),
    ("listen-drop", &["listen-overflow"]),
];

/// The place for everything else.
pub const UNNAMED: &Place = &Place {
    id: "unnamed",
    station: "stack",
    direction: Receive,
    stage: Stage::Ip,
    words: "dropped for a reason that has no counter and no place in this table",
    counters: &[],
    reasons: &[],
    advice: "The function named as its cause says where.",
};

/// The place with that name.
pub fn place(id: &str) -> &'static Place {
    PLACES.iter().find(|p| p.id == id).unwrap_or(UNNAMED)
}

/// The place that a traced drop belongs to: the first whose reason and function fit; else by the function alone.
pub fn place_of(reason: &str, function: Option<&str>) -> &'static Place {
    let fits = |names: &[&str]| names.is_empty() || function.is_some_and(|f| names.iter().any(|n| f.starts_with(n)));
    PLACES
        .iter()
        .find(|p| p.reasons.iter().any(|(r, from)| *r == reason && fits(from)))
        .or_else(|| {
            let function = function?;
            BY_FUNCTION.iter().find(|(name, _)| function.starts_with(name)).map(|(_, id)| place(id))
        })
        .unwrap_or(UNNAMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, p) in PLACES.iter().enumerate() {
            assert_eq!(PLACES.iter().position(|q| q.id == p.id), Some(i), "{}", p.id);
        }
        for (_, id) in BY_FUNCTION {
            assert_ne!(place(id).id, "unnamed", "{id}");
        }
    }

    #[test]
    fn a_drop_finds_its_place() {
        let id = |reason, function| place_of(reason, function).id;
        assert_eq!(id("NO_SOCKET", Some("__udp4_lib_rcv")), "no-port");
        assert_eq!(id("NO_SOCKET", Some("tcp_v4_rcv")), "tcp-no-socket");
        assert_eq!(id("IP_INHDR", Some("ip_forward")), "ttl");
        assert_eq!(id("IP_INHDR", Some("ip_rcv_core")), "ip-header");
        assert_eq!(id("IP_INHDR", None), "ip-header", "without symbols the TTL cannot be told");
        assert_eq!(id("SOCKET_RCVBUFF", Some("udp_queue_rcv_one_skb")), "udp-buffer");
        assert_eq!(id("SOCKET_RCVBUFF", Some("sock_queue_rcv_skb_reason")), "raw-buffer");
        assert_eq!(id("NOT_SPECIFIED", Some("br_forward")), "bridge");
        assert_eq!(id("NOT_SPECIFIED", Some("something")), "unnamed");
    }
}
