//! Rules for both routers: in the language of evenkeel, and for nftables, where they stand before anything that the kernel decides.
//! Written apart from each other: neither is made of the other.

use rules::packet::{Packet, Parsed};

/// Of what packets have: addresses, prefixes, ports, protocol, flags, types, length, DSCP, fragments, and exceptions before them.
pub(crate) const RULES: &str = r#"
default = "pass"
sets.far.prefixes = ["198.18.30.0/24", "2001:2:0:30::/64"]
rule = [
    { name = "exception", action = "pass", protocol = "udp", source = "198.18.1.99", source-port = "0-8191" },
    { name = "sources", action = "drop", source = "198.18.10.4/31" },
    { name = "a-set", action = "drop", destination = "@far" },
    { name = "ports", action = "drop", protocol = "udp", destination-port = ["100-199", "32768-49151"] },
    { name = "any-ports", action = "drop", protocol = ["tcp", 132], source-port = "10000-20000" },
    { name = "opening", action = "drop", protocol = "tcp", tcp-flags = "syn !ack" },
    { name = "gre", action = "drop", protocol = 47 },
    { name = "later", action = "drop", family = "ipv4", protocol = "udp", fragment = "later" },
    { name = "first-of-v6", action = "drop", family = "ipv6", fragment = "first", destination = "2001:2:0:2::/64" },
    { name = "ef", action = "drop", family = "ipv4", dscp = "ef", length = "60-400" },
    { name = "long-v6", action = "drop", family = "ipv6", length = "1300-1400" },
    { name = "echo", action = "drop", protocol = "icmp", icmp-type = "echo-request", length = "20-99" },
    { name = "counts-only", action = "shadow", family = "ipv4" },
]
"#;

/// nftables takes the data of later fragments for ports and types: these have a chain without such rules.
pub(crate) const NFT: &str = "table inet ekrules {
    set far4 { type ipv4_addr; flags interval; elements = { 198.18.30.0/24 }; }
    set far6 { type ipv6_addr; flags interval; elements = { 2001:2:0:30::/64 }; }
    chain later {
        ip saddr 198.18.10.4/31 drop
        ip daddr @far4 drop
        meta l4proto 47 drop
        ip protocol udp drop
        ip dscp ef ip length 60-400 drop
        accept
    }
    chain first {
        type filter hook prerouting priority -300; policy accept;
        ip frag-off & 0x1fff != 0 jump later
        icmpv6 type { 133, 134, 135, 136 } accept
        ip saddr 198.18.1.99 udp sport 0-8191 accept
        ip saddr 198.18.10.4/31 drop
        ip daddr @far4 drop
        ip6 daddr @far6 drop
        udp dport { 100-199, 32768-49151 } drop
        meta l4proto { tcp, sctp } th sport 10000-20000 drop
        tcp flags & (syn | ack) == syn drop
        meta l4proto 47 drop
        ip6 daddr 2001:2:0:2::/64 exthdr frag exists frag frag-off 0 frag more-fragments 1 drop
        ip dscp ef ip length 60-400 drop
        meta nfproto ipv6 ip6 length 1260-1360 drop
        icmp type echo-request ip length 20-99 drop
    }
}";

/// True if rules judge the frame. They drop malformed frames whatever their destination; the kernel forwards some of these, such
/// as TCP without a whole header.
pub(crate) fn is_whole(frame: &[u8]) -> bool {
    !matches!(Packet::parse(frame), Parsed::Malformed(_))
}
