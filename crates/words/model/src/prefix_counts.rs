//! The traffic of a protected prefix, as the shield counts it.

use crate::shield_event::Measure;

/// Each counter stands in one list, from which sums and differences come.
macro_rules! prefix_counts {
    ($($(#[$doc:meta])* $field:ident,)+) => {
        /// The traffic of one protected prefix.
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub struct PrefixCounts {
            $($(#[$doc])* pub $field: u64,)+
            /// Distinct sources since the reading before, estimated (standard error 4.4 %). IPv6 by /64.
            pub sources: f64,
        }

        impl PrefixCounts {
            /// Adds a later reading's difference; of the sources the larger number stays.
            pub fn add(&mut self, later: &Self) {
                $(self.$field += later.$field;)+
                self.sources = self.sources.max(later.sources);
            }

            /// The difference to the reading `before`.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($field: self.$field.saturating_sub(before.$field),)+ sources: self.sources }
            }
        }
    };
}

prefix_counts! {
    packets,
    /// Bytes of their frames without FCS.
    bytes,
    /// TCP SYN without ACK.
    syn,
    /// TCP SYN with ACK.
    syn_ack,
    /// Other TCP.
    tcp,
    udp,
    /// ICMP and ICMPv6.
    icmp,
    /// Other protocols.
    other,
    /// Fragments, each also counted in its protocol.
    fragments,
    /// Packets of a flow that is not among the 4,096 or so that its CPU saw last.
    new_flows,
}

impl PrefixCounts {
    /// The counter that a limit is about, in packets or bits.
    pub fn measure(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Packets => self.packets,
            Measure::Bits => self.bytes * 8,
            Measure::Syn => self.syn,
            Measure::SynAck => self.syn_ack,
            Measure::Udp => self.udp,
            Measure::Icmp => self.icmp,
            Measure::Fragments => self.fragments,
            Measure::NewFlows => self.new_flows,
        }
    }
}
