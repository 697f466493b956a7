//! What the kernel's drop reasons mean and what to do, by name: numbers change between kernels.

/// What a drop reason means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// What happened, in half a sentence.
    pub meaning: &'static str,
    /// What to look at or to set; empty when nothing is to be done.
    pub remedy: &'static str,
    /// Nothing was lost that anybody waited for: duplicates, frames for others, a queue emptied on purpose.
    pub harmless: bool,
}

/// The explanation of a reason by its name without `SKB_DROP_REASON_`; none for rare ones.
pub fn explain(name: &str) -> Option<Explanation> {
    let at = TABLE.binary_search_by_key(&name, |&(n, ..)| n).ok()?;
    let (_, harmless, meaning, remedy) = TABLE[at];
    Some(Explanation { meaning, remedy, harmless })
}

const LOSS: bool = false;
const HARMLESS: bool = true;

/// In alphabetical order.
const TABLE: &[(&str, bool, &str, &str)] = &[
    (
        "ARP_PVLAN_DISABLE",
        LOSS,
        "an ARP request within a private VLAN that does not proxy",
        "proxy_arp_pvlan, if it is wanted",
    ),
    (
        "BPF_CGROUP_EGRESS",
        LOSS,
        "a BPF program of the sender's cgroup refused it",
        "bpftool cgroup tree shows the program",
    ),
    (
        "BRIDGE_INGRESS_STP_STATE",
        LOSS,
        "the bridge port is not forwarding (spanning tree)",
        "bridge link shows the state; wait, or look for a loop",
    ),
    (
        "CAKE_FLOOD",
        LOSS,
        "cake dropped it from a flow that does not yield",
        "wanted queue management; raise cake's bandwidth if the link has more",
    ),
    (
        "CPU_BACKLOG",
        LOSS,
        "the CPU's receive backlog was full, or RPS limited its flow",
        "spread the load over more CPUs (RPS, RSS); raise net.core.netdev_max_backlog",
    ),
    (
        "DEV_HDR",
        LOSS,
        "the device could not make the link-layer header",
        "check the neighbour entry and the interface's type",
    ),
    ("DEV_READY", LOSS, "the device was down or not ready", "ip link set DEV up; check the carrier"),
    (
        "DUALPI2_STEP_DROP",
        LOSS,
        "dualpi2 dropped it above its step threshold",
        "wanted queue management; enable ECN at the end points",
    ),
    ("DUP_FRAG", HARMLESS, "an IP fragment that was there already", "look for a duplicating path"),
    ("FQ_BAND_LIMIT", LOSS, "fq's limit for this priority band was reached", "raise fq's limit, or send slower"),
    ("FQ_FLOW_LIMIT", LOSS, "one flow filled its share of fq", "raise fq's flow_limit, or the sender ignores pacing"),
    (
        "FQ_HORIZON_LIMIT",
        LOSS,
        "its departure time was beyond fq's horizon",
        "correct the sender's clock or raise fq's horizon",
    ),
    (
        "FRAG_REASM_TIMEOUT",
        LOSS,
        "the other fragments did not come in time",
        "fragments are lost on the way: avoid them (MTU, PMTU discovery); net.ipv4.ipfrag_time",
    ),
    (
        "FRAG_TOO_FAR",
        LOSS,
        "too many other fragments came between its parts",
        "raise net.ipv4.ipfrag_max_dist, or avoid fragments",
    ),
    (
        "FULL_RING",
        LOSS,
        "the ring to the reader of a tun or virtual device was full",
        "the reader (QEMU, VPN) is too slow: more queues, a longer txqueuelen",
    ),
    ("HDR_TRUNC", LOSS, "shorter than its own header says", "a broken sender, or a capture length cut by a tunnel"),
    (
        "ICMP_CSUM",
        LOSS,
        "wrong ICMP checksum",
        "damage on the way or a broken sender; try with receive checksum offload off",
    ),
    (
        "INVALID_PROTO",
        LOSS,
        "a protocol that does not belong into this device or tunnel",
        "check what the tunnel is to carry",
    ),
    ("IPV6DISABLED", LOSS, "IPv6 is off on this interface", "net.ipv6.conf.DEV.disable_ipv6=0, or stop the sender"),
    ("IPV6_BAD_EXTHDR", LOSS, "a bad IPv6 extension header", "a broken or hostile sender"),
    ("IPV6_NDISC_BAD_CODE", LOSS, "neighbour discovery with a wrong ICMP code", "a broken or hostile neighbour"),
    ("IPV6_NDISC_BAD_OPTIONS", LOSS, "neighbour discovery with bad options", "a broken or hostile neighbour"),
    ("IPV6_NDISC_FRAG", LOSS, "fragmented neighbour discovery", "forbidden (RFC 6980): a broken or hostile neighbour"),
    (
        "IPV6_NDISC_HOP_LIMIT",
        LOSS,
        "neighbour discovery that came through a router",
        "forbidden: look for who sends it",
    ),
    ("IPV6_NDISC_NS_OTHERHOST", HARMLESS, "a neighbour solicitation for another host", ""),
    ("IP_CSUM", LOSS, "wrong IP header checksum", "damage on the way or a broken sender; check cable and NIC errors"),
    ("IP_INADDRERRORS", LOSS, "IP address errors: no address fits", "check addresses and routes"),
    (
        "IP_INHDR",
        LOSS,
        "a bad IP header, or its TTL ran out",
        "TTL: look for a routing loop; otherwise a broken sender",
    ),
    ("IP_INNOROUTES", LOSS, "no route for a packet that came in", "ip route get DEST from SRC iif DEV"),
    ("IP_INVALID_DEST", LOSS, "a destination address that cannot be (0/8, broadcast of TCP, ...)", "a broken sender"),
    (
        "IP_INVALID_SOURCE",
        LOSS,
        "a source address that cannot be (multicast, zero, loopback)",
        "a forged or broken sender; log_martians shows it",
    ),
    ("IP_LOCALNET", LOSS, "127/8 came from outside", "net.ipv4.conf.DEV.route_localnet=1, if that is wanted"),
    (
        "IP_LOCAL_SOURCE",
        LOSS,
        "the source address is one of this machine's own",
        "an address given twice, or a loop; net.ipv4.conf.DEV.accept_local",
    ),
    (
        "IP_NOPROTO",
        LOSS,
        "nobody handles this IP protocol",
        "load the protocol's module (GRE, SCTP, ...), or stop the sender",
    ),
    ("IP_OUTNOROUTES", LOSS, "no route for a packet going out", "ip route get DEST"),
    (
        "IP_RPFILTER",
        LOSS,
        "the reverse path filter: the answer would leave elsewhere",
        "asymmetric routing: net.ipv4.conf.DEV.rp_filter=2 or 0",
    ),
    ("IP_TUNNEL_ECN", LOSS, "inner and outer ECN marks contradict each other", "a device on the way breaks ECN"),
    ("LOCAL_MAC", HARMLESS, "the source MAC is our own", "a loop on the link, or a tunnel to ourselves"),
    ("MAC_IEEE_MAC_CONTROL", HARMLESS, "a frame of the link's own control protocols", ""),
    ("MAC_INVALID_SOURCE", LOSS, "the source MAC is multicast or zero", "a broken sender"),
    (
        "NEIGH_CREATEFAIL",
        LOSS,
        "no neighbour entry could be made",
        "the table is full: net.ipv4.neigh.default.gc_thresh3",
    ),
    ("NEIGH_DEAD", LOSS, "the neighbour entry was being removed", "net.ipv4.neigh.default.gc_thresh2 and 3, if many"),
    ("NEIGH_FAILED", LOSS, "the neighbour did not answer ARP or ND", "is the next hop up, and on this link?"),
    ("NEIGH_HH_FILLFAIL", LOSS, "no link-layer address for it", "check the neighbour entry"),
    (
        "NEIGH_QUEUEFULL",
        LOSS,
        "too many packets waited for the neighbour's answer",
        "is the next hop up? net.ipv4.neigh.DEV.unres_qlen_bytes",
    ),
    (
        "NETFILTER_DROP",
        LOSS,
        "a netfilter rule dropped it",
        "nft list ruleset, with counters; nft monitor trace tells the rule",
    ),
    ("NOMEM", LOSS, "no memory for it", "free memory, vm.min_free_kbytes"),
    ("NOT_SPECIFIED", LOSS, "dropped where the kernel gives no reason", "the function's name tells where"),
    (
        "NO_SOCKET",
        LOSS,
        "no socket listens on that port",
        "start the service, or stop the sender; a firewall rule is cheaper than the answer",
    ),
    ("NO_TX_TARGET", LOSS, "a tunnel or bond has nobody to send to", "bridge fdb shows the destinations"),
    (
        "OTHERHOST",
        HARMLESS,
        "the destination MAC is another machine's",
        "usual with promiscuous mode, mirror ports and flooding switches",
    ),
    (
        "PACKET_SOCK_ERROR",
        LOSS,
        "a packet socket (capture) had no room or failed",
        "the reader is too slow: a larger ring, fanout, a filter",
    ),
    ("PFMEMALLOC", LOSS, "it took the emergency memory, and its socket may not", "memory is short: vm.min_free_kbytes"),
    (
        "PKT_TOO_BIG",
        LOSS,
        "larger than the MTU, and not to be fragmented",
        "MTU of the path; let ICMP too-big through; clamp the MSS",
    ),
    ("PKT_TOO_SMALL", LOSS, "shorter than its headers", "a broken sender"),
    ("PROTO_MEM", LOSS, "the protocol used up its memory", "net.ipv4.udp_mem or tcp_mem; readers that do not read"),
    ("PSP_INPUT", LOSS, "PSP: not encrypted as the connection demands", "check both ends' PSP settings"),
    ("PSP_OUTPUT", LOSS, "PSP: could not be encrypted", "check the device's PSP support"),
    (
        "QDISC_CONGESTED",
        LOSS,
        "the qdisc dropped it to signal congestion (CoDel, RED, ...)",
        "wanted queue management; enable ECN at the end points",
    ),
    (
        "QDISC_DROP",
        LOSS,
        "the qdisc dropped it: its queue was full",
        "tc -s qdisc; a longer limit, a faster link, a slower sender",
    ),
    ("QDISC_OVERLIMIT", LOSS, "the qdisc's limit was reached", "tc -s qdisc; raise the limit, or send slower"),
    ("QUEUE_PURGE", HARMLESS, "a queue was emptied when its owner went", ""),
    (
        "RECURSION_LIMIT",
        LOSS,
        "too many devices on top of each other, or a loop of redirects",
        "look for tc or tunnel rules that send in a circle",
    ),
    (
        "SECURITY_HOOK",
        LOSS,
        "a security module refused it (SELinux, AppArmor, BPF LSM)",
        "the audit log names the rule",
    ),
    ("SKB_CSUM", LOSS, "a checksum could not be computed", "try with checksum offload off (ethtool -K)"),
    (
        "SKB_GSO_SEG",
        LOSS,
        "a large packet could not be cut into segments",
        "try with gso and tso off (ethtool -K); no memory?",
    ),
    ("SKB_UCOPY_FAULT", LOSS, "it could not be copied from or to the program", "a program gave a bad buffer"),
    (
        "SOCKET_BACKLOG",
        LOSS,
        "its socket's backlog was full while a program held the socket",
        "the reader is too slow: net.core.rmem_max and SO_RCVBUF, more threads",
    ),
    ("SOCKET_CLOSE", HARMLESS, "its socket was closed", ""),
    ("SOCKET_FILTER", HARMLESS, "the socket's own filter did not want it", "usual with captures that filter"),
    (
        "SOCKET_RCVBUFF",
        LOSS,
        "the receive buffer of its socket was full",
        "the reader is too slow: a larger SO_RCVBUF (net.core.rmem_max), more readers (SO_REUSEPORT)",
    ),
    ("TAP_FILTER", LOSS, "a filter of the tap device refused it", "see the program that owns the tap"),
    ("TAP_TXFILTER", HARMLESS, "the tap's address filter did not want it", ""),
    (
        "TCP_ABORT_ON_DATA",
        LOSS,
        "data for a connection that the program had closed",
        "the peer still sends: the program closes too early",
    ),
    ("TCP_ACK_UNSENT_DATA", LOSS, "acknowledges what was never sent", "a forged or broken sender"),
    ("TCP_AOFAILURE", LOSS, "wrong TCP-AO signature", "keys differ, or a forged packet"),
    ("TCP_AOKEYNOTFOUND", LOSS, "no such TCP-AO key", "keys differ"),
    ("TCP_AONOTFOUND", LOSS, "no TCP-AO signature where one is demanded", "set the key on the peer"),
    ("TCP_AOUNEXPECTED", LOSS, "a TCP-AO signature where none is known", "set the key here"),
    ("TCP_AUTH_HDR", LOSS, "a bad TCP authentication header", "a broken or hostile sender"),
    ("TCP_CLOSE", LOSS, "for a TCP socket that is closed", "the peer still sends after the end"),
    (
        "TCP_CSUM",
        LOSS,
        "wrong TCP checksum",
        "damage on the way or a broken offload; try with receive checksum offload off",
    ),
    ("TCP_FASTOPEN", LOSS, "a bad TCP Fast Open request", "cookies differ; harmless if rare"),
    ("TCP_FLAGS", LOSS, "TCP flags that do not fit the state", "a scan, or a connection one side forgot"),
    (
        "TCP_INVALID_ACK_SEQUENCE",
        LOSS,
        "an acknowledgement outside of the window",
        "a forged packet, or a middlebox that rewrites",
    ),
    ("TCP_INVALID_END_SEQUENCE", LOSS, "its end is beyond the receive window", "a sender that ignores the window"),
    (
        "TCP_INVALID_SEQUENCE",
        LOSS,
        "outside of the receive window",
        "an old duplicate, a forged packet, or a middlebox that rewrites",
    ),
    ("TCP_INVALID_SYN", LOSS, "a SYN within a connection", "a restarted peer, or a forged packet"),
    (
        "TCP_LISTEN_OVERFLOW",
        LOSS,
        "the listener's accept queue was full",
        "accept faster; raise the backlog of listen() and net.core.somaxconn",
    ),
    ("TCP_MD5FAILURE", LOSS, "wrong TCP-MD5 signature", "passwords differ, or a forged packet"),
    ("TCP_MD5NOTFOUND", LOSS, "no TCP-MD5 signature where one is demanded", "set the password on the peer"),
    ("TCP_MD5UNEXPECTED", LOSS, "a TCP-MD5 signature where none is known", "set the password here"),
    (
        "TCP_MINTTL",
        LOSS,
        "its TTL is below what the socket demands",
        "the peer is further away than allowed (GTSM), or forged",
    ),
    (
        "TCP_OFOMERGE",
        HARMLESS,
        "its data was in the out-of-order queue already",
        "reordering or needless retransmits on the path",
    ),
    ("TCP_OFO_DROP", LOSS, "no room in the out-of-order queue", "the path reorders or loses; net.ipv4.tcp_rmem"),
    ("TCP_OFO_QUEUE_PRUNE", LOSS, "the out-of-order queue was cut to save memory", "net.ipv4.tcp_rmem and tcp_mem"),
    ("TCP_OLD_ACK", HARMLESS, "an acknowledgement that came late", ""),
    (
        "TCP_OLD_DATA",
        HARMLESS,
        "data that was there already",
        "needless retransmits: acknowledgements are lost or late",
    ),
    ("TCP_OLD_SEQUENCE", HARMLESS, "an old sequence number", ""),
    ("TCP_OVERWINDOW", LOSS, "beyond the receive window", "the reader is too slow: net.ipv4.tcp_rmem"),
    ("TCP_RESET", HARMLESS, "a reset, which ends the connection", "look for who resets"),
    (
        "TCP_RFC7323_PAWS",
        LOSS,
        "its timestamp is too old (PAWS)",
        "old duplicates, or several hosts behind one address",
    ),
    ("TCP_RFC7323_PAWS_ACK", HARMLESS, "an acknowledgement with an old timestamp", ""),
    ("TCP_RFC7323_TSECR", LOSS, "it echoes a timestamp that was never sent", "a forged or broken sender"),
    ("TCP_RFC7323_TW_PAWS", LOSS, "an old timestamp for a connection in TIME_WAIT", "several hosts behind one address"),
    ("TCP_TOO_OLD_ACK", LOSS, "an acknowledgement far too old", "a forged or broken sender"),
    (
        "TCP_ZEROWINDOW",
        LOSS,
        "data for a connection whose window is closed",
        "the reader is too slow: net.ipv4.tcp_rmem",
    ),
    ("TC_CHAIN_NOTFOUND", LOSS, "a tc rule points to a chain that is not there", "tc filter show"),
    ("TC_COOKIE_ERROR", LOSS, "tc lost track of its own chain", "tc filter show; offloaded chains?"),
    (
        "TC_EGRESS",
        LOSS,
        "a tc rule or program dropped it on its way out",
        "tc -s filter show dev DEV egress; bpftool net",
    ),
    (
        "TC_INGRESS",
        LOSS,
        "a tc rule or program dropped it on its way in",
        "tc -s filter show dev DEV ingress; bpftool net",
    ),
    ("TC_RECLASSIFY_LOOP", LOSS, "tc rules reclassify in a circle", "tc filter show"),
    (
        "TUNNEL_TXINFO",
        LOSS,
        "a tunnel was not told where to send",
        "an external-mode tunnel without metadata: check the route or program",
    ),
    (
        "UDP_CSUM",
        LOSS,
        "wrong UDP checksum",
        "damage on the way or a broken offload; try with receive checksum offload off",
    ),
    (
        "UNHANDLED_PROTO",
        LOSS,
        "nobody handles this EtherType",
        "usual for LLDP, STP, CDP; otherwise load the protocol's module",
    ),
    (
        "UNICAST_IN_L2_MULTICAST",
        LOSS,
        "a unicast IP address in a multicast or broadcast frame",
        "a broken sender or load balancer; net.ipv4.conf.DEV.drop_unicast_in_l2_multicast",
    ),
    ("UNIX_DISCONNECT", HARMLESS, "the UNIX socket was disconnected", ""),
    ("UNIX_SKIP_OOB", HARMLESS, "out-of-band data of a UNIX socket that nobody read", ""),
    ("VXLAN_ENTRY_EXISTS", LOSS, "the address belongs to a fixed entry elsewhere", "bridge fdb show: a MAC moved"),
    ("VXLAN_INVALID_HDR", LOSS, "a bad VXLAN header", "another tunnel type on that port?"),
    ("VXLAN_VNI_NOT_FOUND", LOSS, "no VXLAN device for this network id", "ip -d link show type vxlan"),
    ("XDP", LOSS, "an XDP program dropped it, or it failed in generic XDP", "bpftool net; its own counters"),
    ("XFRM_POLICY", LOSS, "an IPsec policy refused it", "ip xfrm policy; /proc/net/xfrm_stat"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_complete_in_itself() {
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        for &(name, harmless, meaning, remedy) in TABLE {
            assert!(!meaning.is_empty() && meaning.len() < 80, "{name}");
            assert!(harmless || !remedy.is_empty(), "{name}: a loss needs something to do");
        }
    }

    #[test]
    fn reasons_are_found_by_name() {
        let full = explain("SOCKET_RCVBUFF").expect("explained");
        assert!(full.remedy.contains("rmem_max") && !full.harmless);
        assert!(explain("OTHERHOST").is_some_and(|e| e.harmless));
        assert_eq!(explain("NO_SUCH_REASON"), None);
    }
}
