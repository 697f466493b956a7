//! The counters of the protocols: `/proc/net/snmp`, `/proc/net/snmp6` and `/proc/net/netstat`.
//!
//! All belong to a network namespace. The names are the kernel's (Documentation/networking/snmp_counter.rst).

use std::collections::BTreeMap;

use crate::root::{Root, RootError};

/// Numbers among the counters that are settings or levels: a difference of two readings keeps the later one.
const LEVELS: [&str; 7] = [
    "Ip.Forwarding",
    "Ip.DefaultTTL",
    "Tcp.RtoAlgorithm",
    "Tcp.RtoMin",
    "Tcp.RtoMax",
    "Tcp.CurrEstab",
    "MPTcpExt.MPCurrEstab",
];

macro_rules! named_counters {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $key:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name { $(pub $field: u64),+ }

        impl $name {
            /// Each counter from the first of the groups that has it; 0 where none has.
            fn of(all: &BTreeMap<String, u64>, groups: &[&str]) -> Self {
                let get = |name: &str| {
                    groups.iter().find_map(|group| all.get(&format!("{group}.{name}")).copied()).unwrap_or(0)
                };
                Self { $($field: get($key)),+ }
            }
        }
    };
}

named_counters! {
    /// IPv4 or IPv6, in packets. Everything received ends in `in_delivers`, `forw_datagrams`, a loss, or is reassembled.
    IpCounters {
        in_receives = "InReceives",
        in_hdr_errors = "InHdrErrors",
        in_too_big_errors = "InTooBigErrors",
        in_addr_errors = "InAddrErrors",
        in_no_routes = "InNoRoutes",
        in_unknown_protos = "InUnknownProtos",
        in_truncated = "InTruncatedPkts",
        in_csum_errors = "InCsumErrors",
        in_discards = "InDiscards",
        in_delivers = "InDelivers",
        forw_datagrams = "ForwDatagrams",
        out_requests = "OutRequests",
        out_transmits = "OutTransmits",
        out_discards = "OutDiscards",
        out_no_routes = "OutNoRoutes",
        reasm_reqds = "ReasmReqds",
        reasm_oks = "ReasmOKs",
        reasm_fails = "ReasmFails",
        reasm_timeout = "ReasmTimeout",
        reasm_overlaps = "ReasmOverlaps",
        frag_oks = "FragOKs",
        frag_fails = "FragFails",
        frag_creates = "FragCreates",
        in_mcast_pkts = "InMcastPkts",
        in_bcast_pkts = "InBcastPkts",
        reverse_path_filter = "IPReversePathFilter",
    }
}

named_counters! {
    /// ICMP or ICMPv6, in messages.
    IcmpCounters {
        in_msgs = "InMsgs",
        in_errors = "InErrors",
        in_csum_errors = "InCsumErrors",
        in_dest_unreachs = "InDestUnreachs",
        in_time_excds = "InTimeExcds",
        in_echos = "InEchos",
        out_msgs = "OutMsgs",
        out_errors = "OutErrors",
        out_rate_limit_global = "OutRateLimitGlobal",
        out_rate_limit_host = "OutRateLimitHost",
        out_dest_unreachs = "OutDestUnreachs",
        out_time_excds = "OutTimeExcds",
    }
}

named_counters! {
    /// UDP, in datagrams. `in_errors` holds `rcvbuf_errors`, `in_csum_errors` and `mem_errors` as well.
    UdpCounters {
        in_datagrams = "InDatagrams",
        no_ports = "NoPorts",
        in_errors = "InErrors",
        out_datagrams = "OutDatagrams",
        rcvbuf_errors = "RcvbufErrors",
        sndbuf_errors = "SndbufErrors",
        in_csum_errors = "InCsumErrors",
        ignored_multi = "IgnoredMulti",
        mem_errors = "MemErrors",
    }
}

named_counters! {
    /// TCP over IPv4 and IPv6 together, in segments unless the name says connections.
    TcpCounters {
        in_segs = "InSegs",
        out_segs = "OutSegs",
        retrans_segs = "RetransSegs",
        in_errs = "InErrs",
        in_csum_errors = "InCsumErrors",
        out_rsts = "OutRsts",
        active_opens = "ActiveOpens",
        passive_opens = "PassiveOpens",
        attempt_fails = "AttemptFails",
        listen_overflows = "ListenOverflows",
        listen_drops = "ListenDrops",
        backlog_drop = "TCPBacklogDrop",
        rcv_q_drop = "TCPRcvQDrop",
        rcv_pruned = "RcvPruned",
        ofo_pruned = "OfoPruned",
        ofo_drop = "TCPOFODrop",
        zero_window_drop = "TCPZeroWindowDrop",
        min_ttl_drop = "TCPMinTTLDrop",
        pf_memalloc_drop = "PFMemallocDrop",
        defer_accept_drop = "TCPDeferAcceptDrop",
        req_q_full_drop = "TCPReqQFullDrop",
        req_q_full_do_cookies = "TCPReqQFullDoCookies",
        syncookies_sent = "SyncookiesSent",
        syncookies_recv = "SyncookiesRecv",
        syncookies_failed = "SyncookiesFailed",
        embryonic_rsts = "EmbryonicRsts",
        time_wait_overflow = "TCPTimeWaitOverflow",
        paws_estab = "PAWSEstab",
        beyond_window = "BeyondWindow",
        md5_failure = "TCPMD5Failure",
        abort_on_memory = "TCPAbortOnMemory",
        memory_pressures = "TCPMemoryPressures",
        lock_dropped_icmps = "LockDroppedIcmps",
    }
}

/// The counters of all protocols of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Protocols {
    /// Every counter as `Group.Name`, such as `TcpExt.ListenDrops`; those of IPv6 are `Ip6.`, `Icmp6.`, `Udp6.`.
    pub all: BTreeMap<String, u64>,
    pub ip: IpCounters,
    pub ip6: IpCounters,
    pub icmp: IcmpCounters,
    pub icmp6: IcmpCounters,
    pub udp: UdpCounters,
    pub udp6: UdpCounters,
    pub tcp: TcpCounters,
}

impl Protocols {
    /// Reads the files of the calling thread's network namespace, or of a copy.
    ///
    /// # Errors
    /// When `/proc/net/snmp` is missing or unreadable; without IPv6 or `netstat` the rest is read.
    pub fn read(root: &Root) -> Result<Self, RootError> {
        let snmp = root.read("proc/net/snmp")?;
        let netstat = root.read_opt("proc/net/netstat")?.unwrap_or_default();
        let snmp6 = root.read_opt("proc/net/snmp6")?.unwrap_or_default();
        Ok(Self::parse(&snmp, &netstat, &snmp6))
    }

    /// Reads the texts of the three files.
    pub fn parse(snmp: &str, netstat: &str, snmp6: &str) -> Self {
        let mut all = BTreeMap::new();
        two_lines(snmp, &mut all);
        two_lines(netstat, &mut all);
        one_line(snmp6, &mut all);
        Self::of(all)
    }

    fn of(all: BTreeMap<String, u64>) -> Self {
        Self {
            ip: IpCounters::of(&all, &["Ip", "IpExt", "TcpExt"]),
            ip6: IpCounters::of(&all, &["Ip6"]),
            icmp: IcmpCounters::of(&all, &["Icmp"]),
            icmp6: IcmpCounters::of(&all, &["Icmp6"]),
            udp: UdpCounters::of(&all, &["Udp"]),
            udp6: UdpCounters::of(&all, &["Udp6"]),
            tcp: TcpCounters::of(&all, &["Tcp", "TcpExt"]),
            all,
        }
    }

    /// A counter by its name, such as `TcpExt.TCPTimeouts`; 0 when the kernel has none of that name.
    pub fn get(&self, name: &str) -> u64 {
        self.all.get(name).copied().unwrap_or(0)
    }

    /// The counts between `earlier` and now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |(name, now): (&String, &u64)| {
            let before = if LEVELS.contains(&name.as_str()) { 0 } else { earlier.get(name) };
            (name.clone(), now.saturating_sub(before))
        };
        Self::of(self.all.iter().map(difference).collect())
    }
}

/// `Group: Name Name` followed by `Group: 1 2`. A negative value (no limit) is left out.
fn two_lines(text: &str, all: &mut BTreeMap<String, u64>) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':')) else {
            continue;
        };
        if group != same {
            continue;
        }
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            if let Ok(value) = value.parse() {
                all.insert(format!("{group}.{name}"), value);
            }
        }
    }
}

/// `Ip6InReceives 2`. A name without a known group (none today) is kept as it is.
fn one_line(text: &str, all: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) else { continue };
        let group = ["Ip6", "Icmp6", "UdpLite6", "Udp6"].into_iter().find(|group| name.starts_with(group));
        let key = match group {
            Some(group) => format!("{group}.{}", &name[group.len()..]),
            None => name.to_owned(),
        };
        all.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL InReceives InHdrErrors InDelivers\nIp: 1 64 100 7 90\n\
        Tcp: MaxConn InSegs InErrs\nTcp: -1 50 3\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 30 4 2\n";
    const NETSTAT: &str =
        "TcpExt: ListenDrops IPReversePathFilter\nTcpExt: 5 6\nIpExt: InNoRoutes InCsumErrors\nIpExt: 8 9\n";
    const SNMP6: &str = "Ip6InReceives                   \t12\nUdp6NoPorts \t3\nUdpLite6NoPorts\t1\n";

    #[test]
    fn counters_are_found_by_their_names() {
        let p = Protocols::parse(SNMP, NETSTAT, SNMP6);
        assert_eq!((p.ip.in_receives, p.ip.in_hdr_errors, p.ip.in_delivers), (100, 7, 90));
        assert_eq!((p.ip.in_no_routes, p.ip.in_csum_errors, p.ip.reverse_path_filter), (8, 9, 6));
        assert_eq!((p.tcp.in_segs, p.tcp.in_errs, p.tcp.listen_drops), (50, 3, 5));
        assert_eq!((p.udp.in_datagrams, p.udp.no_ports, p.udp.rcvbuf_errors), (30, 4, 2));
        assert_eq!((p.ip6.in_receives, p.udp6.no_ports, p.get("UdpLite6.NoPorts")), (12, 3, 1));
        assert!(!p.all.contains_key("Tcp.MaxConn"), "no limit is no counter");
    }

    #[test]
    fn a_difference_keeps_levels() {
        let earlier = Protocols::parse(SNMP, NETSTAT, SNMP6);
        let later = Protocols::parse(&SNMP.replace("1 64 100 7 90", "1 64 150 7 95"), NETSTAT, SNMP6);
        let d = later.since(&earlier);
        assert_eq!((d.ip.in_receives, d.ip.in_hdr_errors, d.ip.in_delivers), (50, 0, 5));
        assert_eq!((d.get("Ip.Forwarding"), d.get("Ip.DefaultTTL")), (1, 64));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(a in "(\\PC{0,20}[:\\n]){0,6}", b in "\\PC{0,60}") {
            let _ = Protocols::parse(&a, &b, &b).since(&Protocols::parse(&b, &a, &a));
        }
    }
}
