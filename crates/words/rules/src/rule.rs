//! A rule. All of its conditions are joined by AND; the values of one condition by OR.
//!
//! Rules are tried in the order of the file. The first that decides (pass, drop, challenge) ends the search; a limit
//! decides only about what exceeds it (drop), a shadow rule counts and never decides. Before all of them come the rules of the
//! management allow-list; behind all of them the default.

use std::{collections::BTreeMap, net::IpAddr, ops::RangeInclusive, sync::Arc};

use crate::known::Known;

/// Rules that the kernel's tables have room for, those of the management allow-list included.
pub const RULES_MAX: usize = 4096;
/// Room for rules of the management allow-list, within [`RULES_MAX`].
pub const MANAGEMENT_MAX: usize = 64;

/// All that is to hold at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    /// Rules in the order in which they are tried, the management allow-list's first.
    pub rules: Vec<Rule>,
    /// The verdict on what no rule decides about.
    pub default: Verdict,
    /// The verdict on frames that claim to be IP and are cut short or contradict themselves.
    pub malformed: Verdict,
    pub sets: BTreeMap<String, Arc<PrefixSet>>,
    /// The prefixes that are watched for attacks, each counted by itself; a packet belongs to the longest that holds its destination.
    pub protected: Vec<Prefix>,
}

/// A prefix of IPv4 or IPv6; no bit behind its length is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    pub address: IpAddr,
    /// Bits: 0 to 32, or 0 to 128.
    pub len: u8,
}

/// Prefixes under a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrefixSet {
    /// Sorted, without duplicates.
    pub prefixes: Vec<Prefix>,
}

/// The packets that end in a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// The packet goes on to the stack, or through the gateway.
    #[default]
    Pass,
    Drop,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rule {
    /// Unique; its counters go on under this name when rules are reloaded.
    pub name: String,
    /// The conditions on a packet for the rule to apply.
    pub when: Match,
    pub action: Action,
    /// Counted only: nothing is dropped, limited or challenged, and the search goes on.
    pub shadow: bool,
    /// The time from which it no longer applies.
    pub expires: Option<jiff::Timestamp>,
    /// True for the management allow-list, which also holds while the gateway is failed closed.
    pub management: bool,
    /// True for a challenge that applies only to packets that the rules behind it let pass; packets that they drop are dropped, cookie or not.
    pub yields: bool,
    /// Line of the file, 1 for the first; none for rules that come from flags or from the program itself.
    pub line: Option<usize>,
}

/// The action of a rule on packets that it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Action {
    #[default]
    Pass,
    Drop,
    /// Drops packets beyond the rate; later rules decide about the rest.
    Limit(Limit),
    /// A TCP SYN is answered by a SYN cookie; other packets pass when their source or connection is known or their cookie right.
    Challenge,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub pps: u64,
    /// Packets that may come at once, 1 or more.
    pub burst: u64,
    /// Each source prefix of this length (IPv4, IPv6) by itself; none: all packets of the rule together.
    pub per_source: Option<(u8, u8)>,
}

/// Conditions. An empty list, or none, says nothing about the packet. A condition about something that a packet does not have is false:
/// ports of a later fragment, TCP flags of UDP, the ICMP type of TCP.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Match {
    /// 4 or 6.
    pub family: Option<u8>,
    /// Source within one of these prefixes or sets.
    pub source: Vec<Place>,
    /// Destination within one of these.
    pub destination: Vec<Place>,
    /// Source port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub source_port: Vec<RangeInclusive<u16>>,
    pub destination_port: Vec<RangeInclusive<u16>>,
    /// Protocol behind all IPv6 extension headers, by number.
    pub protocol: Vec<u8>,
    /// TCP flags: what is looked at, and what of that is set.
    pub tcp_flags: Option<TcpFlags>,
    /// ICMP types (protocol 1 over IPv4, 58 over IPv6).
    pub icmp_type: Vec<u8>,
    /// Length of the IP packet in bytes: IPv4's total length, IPv6's payload length plus 40.
    pub length: Vec<RangeInclusive<u16>>,
    pub fragment: Option<Fragment>,
    /// Differentiated services code point, 0 to 63.
    pub dscp: Vec<u8>,
    /// VLAN id of the outermost tag; 0 to 4095.
    pub vlan: Vec<u16>,
    /// Facts from the machine.
    pub known: Known,
}

/// The place of an address in a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    Prefix(Prefix),
    Set(String),
}

/// `(flags & mask) == value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFlags {
    /// Bits that are looked at: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub mask: u8,
    /// Flags of `mask` that are set.
    pub value: u8,
}

/// The packets, as to fragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// Whole packets.
    No,
    Any,
    /// Fragments that begin a packet.
    First,
    /// Fragments behind the first.
    Later,
}
