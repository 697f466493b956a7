//! The tables of the shield's kernel program, as plain data.
//!
//! A packet has ten fields ([`Field`]). Each field's value has a class; each class has a row: a bit for every rule whose
//! condition on that field the value fulfils. The AND of the ten rows is the set of rules that apply, the lowest bit the first.

use std::{ops::AddAssign, sync::Arc};

pub mod prefixes;

pub use prefixes::{V4Prefixes, V6Kind, V6Prefixes, V6Slot};

/// Words of 64 rules that a row may have.
pub const WORDS_MAX: usize = 64;
/// A VLAN id for frames without a tag.
pub const VLAN_NONE: usize = 4096;

/// Fields, in the order of the kernel's `enum shield_field`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Source address: by [`V4Prefixes`] and [`V6Prefixes`].
    Source,
    Destination,
    /// Source port, 65,536 values; packets without ports have [`FieldTable::absent`].
    SourcePort,
    DestinationPort,
    /// Family and protocol: protocol for IPv4, 256 + protocol for IPv6; 512 values.
    Kind,
    /// TCP flags; 256 + type for ICMP; 512 + type for ICMPv6; 768 for all else; 769 values.
    Detail,
    /// DSCP + 64 times 0 for whole packets, 1 for first fragments, 2 for later ones; 192 values.
    Header,
    /// VLAN id of the outermost tag, [`VLAN_NONE`] without; 4097 values.
    Vlan,
    /// Length of the IP packet; 65,536 values.
    Length,
    /// Facts from the machine ([`Known::number`](crate::known::Known::number)); 27 values. The program looks them up only where a rule that tests
    /// them would apply otherwise.
    Known,
}

/// A field whose values index a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldTable {
    pub class_of: Vec<u16>,
    /// The class of packets that do not have the field.
    pub absent: u16,
    /// A row of `words` words for each class, one behind the other.
    pub rows: Vec<u64>,
}

/// A field of addresses: classes from prefixes of both families, sharing one set of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressTable {
    /// IPv4; none: no prefix of that family is named, all addresses have class 0.
    pub v4: Option<Arc<V4Prefixes>>,
    pub v6: Option<Arc<V6Prefixes>>,
    /// A row of `words` words for each class; class 0 is that of addresses in no prefix.
    pub rows: Vec<u64>,
}

/// The action of a rule, as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleEntry {
    /// Pass, drop, limit, challenge.
    pub action: RuleAction,
    pub shadow: bool,
    /// True if it also holds while failed closed.
    pub management: bool,
    /// True for a challenge that applies only to packets that the rules behind it let pass.
    pub yields: bool,
    /// The number of its counter: stays the same for a rule's name across reloads.
    pub counter: u16,
    /// CLOCK_MONOTONIC at which it ends, 0 for never.
    pub expires_ns: u64,
    /// Packets per second and burst of a limit.
    pub pps: u64,
    pub burst: u64,
    /// Prefix lengths (IPv4, IPv6) by which a limit tells sources apart.
    pub per_source: Option<(u8, u8)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleAction {
    #[default]
    Pass,
    Drop,
    /// Drops what exceeds a rate.
    Limit,
    Challenge,
}

/// Everything the kernel program needs for one set of rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleTables {
    /// Words of a row: ceil(rules / 64), 1 to [`WORDS_MAX`].
    pub words: usize,
    /// Source and destination addresses; none: no rule has a condition on the field.
    pub source: Option<AddressTable>,
    pub destination: Option<AddressTable>,
    /// The other fields in the order of [`Field`], from [`Field::SourcePort`] on; none: no rule has a condition on it.
    pub fields: [Option<FieldTable>; 8],
    pub rules: Vec<RuleEntry>,
    /// True: packets that no rule decides about are dropped.
    pub default_drop: bool,
    /// Malformed packets are dropped.
    pub malformed_drop: bool,
    /// Protected prefixes: destination to number + 1 of what is watched; none: nothing is.
    pub protected: Option<AddressTable>,
    /// All protected prefixes of IPv4 again, the longest first, if they are [`FEW_MAX`] at most: comparing is faster than looking up.
    pub protected_few: Vec<FewPrefix>,
}

/// Prefixes that are compared one by one.
pub const FEW_MAX: usize = 4;

/// A prefix of IPv4 among [`RuleTables::protected_few`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FewPrefix {
    pub address: u32,
    /// Length of the prefix in bits.
    pub len: u8,
    /// Number + 1 of what is watched.
    pub number: u16,
}

/// Counters that a kernel program has for rules (SHIELD_COUNTERS of its `rules.h`).
pub const COUNTERS: usize = 8192;

/// The packets that one rule applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleCount {
    /// Packets that the rule was reached by and applied to.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
    /// Packets that exceeded the rule's limit; of a shadow rule, that would have been dropped by it.
    pub limited: u64,
}

impl AddAssign for RuleCount {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.limited += other.limited;
    }
}
