//! The places where the kernel loses packets: which drop reasons name them, which counters count them, what to do about it.
//!
//! A single table, in the order in which a packet meets the places. A traced drop belongs to the first place that wants it; a place whose counter
//! exists takes its number from there.

use model::stations::{
    Direction::{self, Forward, Receive, Transmit},
    LossKind::{self, Copy, Harmless, Intended, Lost},
};

/// Between which counters a place lies, and so which equation its losses belong to (see the crate's documentation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before the driver's receive counter.
    Wire,
    /// Counted by the driver as received, ended before the stack saw it.
    Driver,
    /// Between the driver's receive counter and IP's, or another protocol's.
    Link,
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
    /// The interface's transmit side.
    Device,
    /// Copies: the packet itself went on.
    Copy,
}

#[derive(Debug)]
pub struct Place {
    /// Name of the place in this program.
    pub id: &'static str,
    pub station: &'static str,
    /// The way of the packets lost there.
    pub direction: Direction,
    pub stage: Stage,
    /// Meaning of an end there.
    pub kind: LossKind,
    pub words: &'static str,
    /// The counters, as `Group.Name` of the protocols; the place's number is their sum. Empty: only the trace tells, or
    /// the counter is worked out elsewhere.
    pub counters: &'static [&'static str],
    /// The drop reasons, and the beginnings of the functions' names that a drop must come from (none: any).
    pub reasons: &'static [(&'static str, &'static [&'static str])],
    /// Advice. Words in braces are filled in from the last packet that was looked at: see [`crate::advice`].
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
/// Multicast that no socket wants; neighbour discovery asks in groups of its own.
const MULTICAST: &[&str] = &["ip6_mc_input"];
/// Functions in which IP keeps fragments: without room it drops them at once and gives no reason.
const DEFRAG: &[&str] =
    &["ip_defrag", "ip_frag_", "ip_expire", "inet_frag_", "ipv6_frag_rcv", "ip6_frag_", "nf_ct_frag6"];
const FORWARD: &[&str] = &["ip_forward", "ip6_forward"];

macro_rules! places {
    ($($id:literal $station:literal $direction:ident $stage:ident $kind:ident $words:literal [$($counter:literal),*] [$($reason:literal $from:ident),*] $advice:literal;)+) => {
        /// Every place, in the order in which a packet meets them. A counter that holds another one's losses as well stands
        /// behind it: see [`HOLDS`].
        pub const PLACES: &[Place] = &[$(Place {
            id: $id,
            station: $station,
            direction: $direction,
            stage: Stage::$stage,
            kind: $kind,
            words: $words,
            counters: &[$($counter),*],
            reasons: &[$(($reason, $from)),*],
            advice: $advice,
        }),+];
    };
}

places! {
    "backlog" "softnet" Receive Link Lost "backlog of a CPU full" [] ["CPU_BACKLOG" ANY]
        "One core cannot keep up with {iface}. Spread the load: `evenkeel spread plan`. If the load comes in bursts, raise net.core.netdev_max_backlog.";
    "tap" "taps" Receive Copy Copy "copies for a packet tap, which reads too slowly" [] ["PACKET_SOCK_ERROR" ANY]
        "The packets went on; only the copies were lost. Give the reader a larger ring, a core of its own or fanout (`evenkeel capture` does), or a narrower filter.";
    "veth-ring" "nic" Receive Wire Lost "receive ring of the veth full" [] ["NOT_SPECIFIED" VETH, "FULL_RING" VETH]
        "One core cannot keep up. Give the veth more queues, or spread its load: `evenkeel spread plan`.";
    "xdp-native" "xdp" Receive Driver Intended "dropped by the XDP program" [] ["NOT_SPECIFIED" XDP, "XDP" XDP]
        "The XDP program decided so: `bpftool prog show` names it.";
    "xdp-generic" "xdp" Receive Link Intended "dropped by the generic XDP program" [] ["XDP" ANY, "NOT_SPECIFIED" GENERIC_XDP]
        "The XDP program decided so: `bpftool net` shows which one is attached.";
    "tc-ingress" "tc" Receive Link Intended "dropped by a tc filter on ingress" [] ["TC_INGRESS" ANY, "TC_COOKIE_ERROR" ANY, "TC_CHAIN_NOTFOUND" ANY, "TC_RECLASSIFY_LOOP" ANY]
        "A tc filter decided so: `tc -s filter show dev {iface} ingress`.";
    "stp" "bridge" Receive Bridge Intended "arrived at a bridge port that may not forward (spanning tree)" [] ["BRIDGE_INGRESS_STP_STATE" ANY]
        "`bridge link` shows the port states. A blocked port is right where the wiring has a loop.";
    "bridge" "bridge" Forward Bridge Lost "not forwarded by the bridge" [] ["NO_TX_TARGET" ANY, "LOCAL_MAC" ANY, "MAC_INVALID_SOURCE" ANY, "MAC_IEEE_MAC_CONTROL" ANY]
        "`bridge fdb show` tells the port of the destination's MAC. Either the frame came by that port already, or no port may take it (`bridge -d link`).";
    "vlan" "ethernet" Receive Link Lost "VLAN tag without a VLAN interface here" [] []
        "`ip link add link {iface} name {iface}.ID type vlan id ID` takes the tag, if this host is to be in that VLAN. Otherwise remove the VLAN from the switch's port.";
    "otherhost" "ethernet" Receive Link Harmless "addressed to another host's MAC" ["link.rx_otherhost_dropped"] ["OTHERHOST" ANY]
        "Nothing was lost here. Usual on a mirror port; otherwise the switch floods, or the sender has an old MAC in its ARP table.";
    "backup-link" "ethernet" Receive Link Harmless "arrived by the backup link of a bond or team" ["link.rx_nohandler"] []
        "Nothing was lost: the active link carries the traffic, and gets its own copy of what is sent to all.";
    "link-local" "ethernet" Receive Link Harmless "for switches and the next device alone (spanning tree, LLDP, LACP, CDP): no protocol here wanted it" [] []
        "Nothing was lost: switches send these by themselves. To read LLDP, run a daemon for it (lldpd).";
    "llc" "ethernet" Receive Other Harmless "802.2 frame, done with by its handler (spanning tree and the like)" [] []
        "Nothing was lost: the kernel frees these frames after its handler has seen them.";
    "unhandled" "ethernet" Receive Link Lost "no protocol wanted it" [] ["UNHANDLED_PROTO" ANY, "PTYPE_ABSENT" ANY]
        "Nobody here speaks this protocol (the cause names its EtherType). Stop it at the switch or its sender.";
    "arp" "arp" Receive Other Lost "refused by ARP" [] ["NOT_SPECIFIED" ARP, "NOMEM" ARP, "ARP_PVLAN_DISABLE" ANY]
        "A broken, proxied or filtered ARP packet. Look at some: `evenkeel capture {iface} arp`; `sysctl net.ipv4.conf.{iface}` shows arp_ignore and proxy settings.";
    "truncated" "ip" Receive Ip Lost "shorter than its header says" ["IpExt.InTruncatedPkts", "Ip6.InTruncatedPkts"] ["PKT_TOO_SMALL" ANY, "HDR_TRUNC" ANY]
        "A broken sender or tunnel ({source}). Look at some: `evenkeel ledger --details`.";
    "ttl" "ip" Forward Ip Lost "TTL or hop limit expired" [] ["IP_INHDR" FORWARD]
        "Either a traceroute from {source}, or a routing loop: compare `ip route get {destination}` here and at the next hop.";
    "ip-checksum" "ip" Receive Ip Lost "bad checksum of the IPv4 header" ["IpExt.InCsumErrors"] ["IP_CSUM" ANY]
        "Damaged on the way or built wrong by {source}. Compare with the NIC's error counters: `ethtool -S {iface}`.";
    "ip-header" "ip" Receive Ip Lost "bad IP header" ["Ip.InHdrErrors", "Ip6.InHdrErrors"] ["IP_INHDR" ANY, "IPV6_BAD_EXTHDR" ANY]
        "Damaged on the way or built wrong by {source}. Look at some: `evenkeel ledger --details`.";
    "ipv6-off" "ip" Receive Ip Lost "IPv6 is switched off on the interface" [] ["IPV6DISABLED" ANY, "NOT_SPECIFIED" IPV6]
        "`sysctl net.ipv6.conf.{iface}.disable_ipv6` says so, or its MTU is below 1280. To receive IPv6, set it to 0; otherwise stop the sender.";
    "rp-filter" "ip" Receive Ip Lost "reverse path filter (rp_filter): no route back to the source by this interface" ["TcpExt.IPReversePathFilter"] ["IP_RPFILTER" ANY]
        "Either {source} is spoofed, or routing is asymmetric. For asymmetric routing: `sysctl -w net.ipv4.conf.{iface}.rp_filter=2` (loose).";
    "martian" "ip" Receive Ip Lost "martian: impossible source or destination address" [] ["IP_INVALID_SOURCE" ANY, "IP_LOCAL_SOURCE" ANY, "IP_LOCALNET" ANY, "IP_INVALID_DEST" ANY, "UNICAST_IN_L2_MULTICAST" ANY]
        "Either {source} is spoofed, or two hosts share an address. `sysctl -w net.ipv4.conf.all.log_martians=1` logs them.";
    "no-route" "ip" Forward Ip Lost "no route to the destination" ["IpExt.InNoRoutes", "Ip6.InNoRoutes"] ["IP_INNOROUTES" ANY]
        "`ip route get {destination} from {source} iif {iface}` shows what is missing: a default route here, or the sender's route is wrong.";
    "route-refuses" "ip" Forward Ip Intended "a route refuses it (blackhole, prohibit)" [] ["NOT_SPECIFIED" ROUTE]
        "`ip route get {destination}` shows the route. Delete it if these packets should pass: `ip route del`.";
    "in-address" "ip" Receive Ip Lost "IPv4: not an address of this host, and it does not forward" ["Ip.InAddrErrors"] ["IP_INADDRERRORS" ANY]
        "To route for others: `sysctl -w net.ipv4.ip_forward=1`. Otherwise correct the route of the sender: {destination} is not here.";
    "in-address6" "ip" Receive Ip Lost "IPv6: not an address of this host, and it does not forward" ["Ip6.InAddrErrors"] []
        "To route for others: `sysctl -w net.ipv6.conf.all.forwarding=1`. Otherwise correct the route of the sender: {destination} is not here.";
    "too-big" "ip" Forward Ip Lost "too large for the way on, and not to be fragmented" ["Ip.FragFails", "Ip6.InTooBigErrors"] ["PKT_TOO_BIG" ANY]
        "MTUs differ along the way to {destination}. Let ICMP `fragmentation needed` and `packet too big` through, or clamp TCP's MSS.";
    "no-protocol" "ip" Receive Ip Lost "no handler for the IP protocol" ["Ip.InUnknownProtos", "Ip6.InUnknownProtos"] ["IP_NOPROTO" ANY]
        "{source} sends {protocol}, which no module or program here handles. Load its module (`modprobe ip_gre`, `sctp` …), or drop it in the firewall.";
    "multicast" "ip" Receive Ip Harmless "multicast of a group that nobody here joined" [] ["NOT_SPECIFIED" MULTICAST]
        "Nothing was lost. If it should arrive: `ip maddr show dev {iface}` lists the groups that are joined.";
    "xfrm" "ip" Receive Ip Lost "refused by an IPsec policy" [] ["XFRM_POLICY" ANY]
        "`ip -s xfrm policy` and /proc/net/xfrm_stat tell which policy.";
    "fragments" "ip" Receive Ip Lost "fragments that never became whole" [] ["FRAG_REASM_TIMEOUT" ANY, "FRAG_TOO_FAR" ANY, "DUP_FRAG" ANY, "NOT_SPECIFIED" DEFRAG, "NOMEM" DEFRAG]
        "Their other parts were lost before, or there is no room: `sysctl -w net.ipv4.ipfrag_high_thresh=16777216` (IPv6: net.ipv6.ip6frag_high_thresh).";
    "ip-discard" "ip" Receive Ip Lost "discarded by IP, mostly for want of memory" ["Ip.InDiscards", "Ip6.InDiscards"] ["NOMEM" ANY, "SECURITY_HOOK" ANY]
        "Look at free memory and at vm.min_free_kbytes.";
    "conntrack" "conntrack" Receive Ip Lost "connection table full, or the connection could not be entered" [] []
        "`sysctl -w net.netfilter.nf_conntrack_max=N` (and nf_conntrack_buckets=N) with N twice as many, or no tracking of such traffic: a rule with `notrack`.";
    "netfilter" "netfilter" Receive Ip Intended "dropped by rules or policies without a counter" [] ["NETFILTER_DROP" ANY]
        "Rules without a counter dropped them. Put `counter` before their verdict to see which: `nft -a list ruleset`.";
    "no-port" "udp" Receive Local Lost "no socket on the UDP port" ["Udp.NoPorts", "Udp6.NoPorts"] ["NO_SOCKET" UDP]
        "No program listens on {targets}. Start the service, or drop the traffic earlier if nobody wants it.";
    "udp-buffer" "udp" Receive Local Lost "socket buffer full" ["Udp.RcvbufErrors", "Udp6.RcvbufErrors"] ["SOCKET_RCVBUFF" UDP]
        "{process} reads {target} too slowly. Give it CPU time, or a larger buffer (SO_RCVBUF, up to net.core.rmem_max).";
    "udp-checksum" "udp" Receive Local Lost "bad UDP checksum" ["Udp.InCsumErrors", "Udp6.InCsumErrors"] ["UDP_CSUM" ANY]
        "Damaged on the way, or {source} has a broken offload: test with `ethtool -K INTERFACE tx off` there.";
    "udp-memory" "udp" Receive Local Lost "no memory for UDP" ["Udp.MemErrors", "Udp6.MemErrors"] ["PROTO_MEM" UDP]
        "Raise the three numbers of net.ipv4.udp_mem (pages): `sysctl net.ipv4.udp_mem` shows them.";
    "udp-other" "udp" Receive Local Lost "refused by UDP (socket filter, policy, encapsulation)" ["Udp.InErrors", "Udp6.InErrors"] ["SOCKET_FILTER" UDP, "XFRM_POLICY" UDP, "NOT_SPECIFIED" UDP]
        "A socket filter, an IPsec policy or an encapsulation refused {target}: `ss -uanpe` names the program, `ip -s xfrm policy` the policy.";
    "tcp-checksum" "tcp" Receive Local Lost "bad TCP checksum" ["Tcp.InCsumErrors"] ["TCP_CSUM" ANY]
        "Damaged on the way, or {source} has a broken offload: test with `ethtool -K INTERFACE tx off` there.";
    "tcp-header" "tcp" Receive Local Lost "bad TCP segment" ["Tcp.InErrs"] ["PKT_TOO_SMALL" TCP]
        "{source} sends broken TCP segments to {target}, or a SYN within a connection. Look at some: `evenkeel ledger --details`.";
    "tcp-refused" "tcp" Receive Local Harmless "no socket on the TCP port: connection refused with RST" [] []
        "No program listens on {targets}. The sender was told so. Start the service, or look for a port scan.";
    "tcp-reset" "tcp" Receive Local Harmless "RST: it ended its connection, or there was none" [] ["TCP_RESET" ANY]
        "Nothing was lost. Many of them: a scan, or {source} aborts connections to {target}.";
    "tcp-done" "tcp" Receive Local Harmless "TCP segments without data that had done their work (FIN, last ACK, late or repeated)" [] ["TCP_OLD_ACK" ANY, "TCP_RFC7323_PAWS_ACK" ANY]
        "Nothing was lost: usual when connections end.";
    "tcp-duplicate" "tcp" Receive Local Harmless "TCP data that had arrived already" [] ["TCP_OLD_DATA" ANY, "TCP_OLD_SEQUENCE" ANY, "TCP_OFOMERGE" ANY]
        "Nothing was lost here. Many of them mean that segments or acknowledgements are lost or reordered on the way to {source}.";
    "tcp-no-socket" "tcp" Receive Local Lost "data for a TCP port without a socket (answered with RST)" [] ["NO_SOCKET" TCP]
        "{source} sends data to {target}, where its connection is gone: the service restarted, or a middlebox lost its state.";
    "listen-overflow" "tcp" Receive Local Lost "accept queue of a listener full" ["TcpExt.ListenOverflows"] ["TCP_LISTEN_OVERFLOW" ANY]
        "The program behind {target} accepts too slowly (`ss -ltn`: Recv-Q above Send-Q). Give it more acceptors, or a larger backlog in its listen(), up to `sysctl net.core.somaxconn`.";
    "listen-drop" "tcp" Receive Local Lost "not taken by a TCP listener (queue of half-open connections full, no memory, no route back)" ["TcpExt.ListenDrops"] []
        "`sysctl -w net.ipv4.tcp_syncookies=1 net.ipv4.tcp_max_syn_backlog=4096`, and a larger backlog in the program's listen() (`ss -ltnp`).";
    "tcp-backlog" "tcp" Receive Local Lost "backlog of a busy TCP socket full" ["TcpExt.TCPBacklogDrop"] ["SOCKET_BACKLOG" ANY]
        "{process} is busy while {target} receives. Use more connections, or raise net.ipv4.tcp_rmem.";
    "tcp-buffer" "tcp" Receive Local Lost "receive buffer of a TCP socket full" ["TcpExt.TCPRcvQDrop", "TcpExt.TCPOFODrop", "TcpExt.OfoPruned"] ["PROTO_MEM" TCP, "TCP_OFO_DROP" ANY, "TCP_OFO_QUEUE_PRUNE" ANY, "SOCKET_RCVBUFF" TCP]
        "{process} reads {target} too slowly. Give it CPU time, or raise net.ipv4.tcp_rmem and tcp_mem.";
    "tcp-window" "tcp" Receive Local Lost "TCP data out of order of its connection (outside of the window, old timestamp)" [] [
            "TCP_TOO_OLD_ACK" ANY, "TCP_OVERWINDOW" ANY, "TCP_ZEROWINDOW" ANY,
            "TCP_RFC7323_PAWS" ANY, "TCP_RFC7323_TW_PAWS" ANY, "TCP_RFC7323_TSECR" ANY,
            "TCP_INVALID_SEQUENCE" ANY, "TCP_INVALID_END_SEQUENCE" ANY, "TCP_INVALID_ACK_SEQUENCE" ANY, "TCP_ACK_UNSENT_DATA" ANY]
        "TCP sends the data again. Many of them mean loss or reordering on the way from {source}.";
    "tcp-state" "tcp" Receive Local Lost "not acceptable in the TCP connection's state" [] [
            "TCP_FLAGS" ANY, "TCP_CLOSE" ANY, "TCP_INVALID_SYN" ANY, "TCP_FASTOPEN" ANY, "TCP_MINTTL" ANY,
            "TCP_AUTH_HDR" ANY, "TCP_MD5NOTFOUND" ANY, "TCP_MD5UNEXPECTED" ANY, "TCP_MD5FAILURE" ANY,
            "TCP_AONOTFOUND" ANY, "TCP_AOUNEXPECTED" ANY, "TCP_AOKEYNOTFOUND" ANY, "TCP_AOFAILURE" ANY]
        "{source} and this host disagree about a connection to {target}: keys (MD5, AO), a lost state, or a scan. Look at some: `evenkeel ledger --details`.";
    "icmp" "icmp" Receive Local Lost "bad ICMP message" ["Icmp.InErrors", "Icmp6.InErrors"] ["ICMP_CSUM" ANY, "INVALID_PROTO" ANY, "NOT_SPECIFIED" ICMP,
            "IPV6_NDISC_FRAG" ANY, "IPV6_NDISC_HOP_LIMIT" ANY, "IPV6_NDISC_BAD_CODE" ANY, "IPV6_NDISC_BAD_OPTIONS" ANY, "IPV6_NDISC_NS_OTHERHOST" ANY]
        "{source} sends broken or forbidden ICMP. Look at some: `evenkeel ledger --details`.";
    "tcp-unread" "tcp" Receive Local Lost "connections closed with data unread (answered with RST, at least one packet each)" ["TcpExt.TCPAbortOnClose"] []
        "The program closed connections before it read all that had come: it did not read to the end, or it crashed.";
    "tcp-abort" "tcp" Receive Local Lost "data for a connection that its program had closed (answered with RST)" [] ["TCP_ABORT_ON_DATA" ANY]
        "The program closes {target} while {source} still sends: it should read to the end, or shut down the connection in order.";
    "closed" "sockets" Receive Local Lost "unread when its socket was closed: the program did not read it" [] ["SOCKET_CLOSE" ANY, "QUEUE_PURGE" ANY]
        "The program closed its socket or ended before it read them. If that repeats while it runs, it stops reading too early.";
    "socket-filter" "sockets" Receive Local Intended "refused by the socket's filter" [] ["SOCKET_FILTER" ANY]
        "The program's own socket filter refused them: meant.";
    "raw-buffer" "sockets" Receive Local Lost "buffer of a raw socket full" [] ["SOCKET_RCVBUFF" ANY]
        "{process} reads its raw socket too slowly. Give it a larger SO_RCVBUF, or a filter.";
    "out-no-route" "ip" Transmit Out Lost "no route out" [] ["IP_OUTNOROUTES" ANY]
        "`ip route get {destination}` tells what is missing.";
    "cgroup" "ip" Transmit Out Intended "refused by a cgroup's BPF program" [] ["BPF_CGROUP_EGRESS" ANY]
        "A BPF program of a cgroup decided so: `bpftool cgroup tree` shows it.";
    "neighbour-failed" "neighbour" Transmit Out Lost "no answer to ARP or neighbour discovery" [] ["NEIGH_FAILED" ANY, "NEIGH_DEAD" ANY, "NEIGH_HH_FILLFAIL" ANY]
        "The next hop is down or not on this link: `ip neigh show nud failed` (for {destination}: `ip route get {destination}` names it).";
    "neighbour-queue" "neighbour" Transmit Out Lost "too many wait for ARP or neighbour discovery" [] ["NEIGH_QUEUEFULL" ANY]
        "The next hop does not answer (fast enough): `ip neigh show nud incomplete`. If it does answer, only late: raise net.ipv4.neigh.{iface}.unres_qlen_bytes.";
    "neighbour-table" "neighbour" Transmit Out Lost "neighbour table full" [] ["NEIGH_CREATEFAIL" ANY]
        "Raise net.ipv4.neigh.default.gc_thresh3 (IPv6: net.ipv6.neigh.default.gc_thresh3).";
    "tc-egress" "tc" Transmit Out Intended "dropped by a tc filter on egress" [] ["TC_EGRESS" ANY]
        "A tc filter decided so: `tc -s filter show dev {iface} egress`.";
    "qdisc" "qdisc" Transmit Device Lost "queue full" [] ["QDISC_DROP" ANY, "QDISC_OVERLIMIT" ANY, "QDISC_CONGESTED" ANY, "CAKE_FLOOD" ANY, "FQ_BAND_LIMIT" ANY,
            "FQ_HORIZON_LIMIT" ANY, "FQ_FLOW_LIMIT" ANY, "DUALPI2_STEP_DROP" ANY]
        "More is sent than the rate or the link allows: `tc -s qdisc show dev {iface}`. A longer queue only helps against bursts.";
    "device" "transmit" Transmit Device Lost "not sent by the device" [] ["DEV_HDR" ANY, "DEV_READY" ANY, "FULL_RING" ANY, "SKB_GSO_SEG" ANY, "SKB_CSUM" ANY, "SKB_UCOPY_FAULT" ANY,
            "TAP_FILTER" ANY, "TAP_TXFILTER" ANY, "RECURSION_LIMIT" ANY, "NOMEM" ANY]
        "The device or its other end does not take them: `ip -s -d link show {iface}`, and on the other end `ip link set PEER up`. A tun device: its program reads too slowly.";
}

/// Counters that hold the losses of other places as well: the place, and those that are taken out of its number.
pub const HOLDS: &[(&str, &[&str])] = &[
    ("otherhost", &["vlan"]),
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
    kind: Lost,
    words: "dropped for a reason that has no counter and no place in this table",
    counters: &[],
    reasons: &[],
    advice: "The function named as its cause says where; `evenkeel ledger --details` shows a packet and the kernel's way to the drop.",
};

pub fn place(id: &str) -> &'static Place {
    PLACES.iter().find(|p| p.id == id).unwrap_or(UNNAMED)
}
