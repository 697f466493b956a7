//! Counters of a protocol's program.

/// Defines the counters of a protocol: those that all have (struct link_count), and its own reasons by number.
macro_rules! link_counts {
    ($(#[$meta:meta])* pub struct $struct:ident { $($(#[$doc:meta])* $own:ident = $reason:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $struct {
            /// Frames copied into their endpoint's ring.
            pub delivered: u64,
            /// Frames sent back as answers.
            pub answered: u64,
            /// To the stack: of endpoints that nobody has.
            pub no_endpoint: u64,
            /// To the stack: to the address of another node.
            pub elsewhere: u64,
            /// To the stack: because the protocol says so.
            pub passed: u64,
            /// Dropped: the endpoint's ring had no room.
            pub full: u64,
            /// Dropped: shorter than header or payload.
            pub too_short: u64,
            /// Dropped: header and payload are longer than 9,032 bytes.
            pub too_long: u64,
            /// Dropped: changed on its way.
            pub checksum: u64,
            $($(#[$doc])* pub $own: u64,)*
        }

        impl $crate::counters::PerCpu for $struct {
            fn add(&mut self, raw: &[u8]) {
                use std::mem::offset_of;
                use $crate::{bytes::word64, skel::link::types::link_count};
                self.delivered += word64(raw, offset_of!(link_count, delivered));
                self.answered += word64(raw, offset_of!(link_count, answered));
                self.no_endpoint += word64(raw, offset_of!(link_count, no_endpoint));
                self.elsewhere += word64(raw, offset_of!(link_count, elsewhere));
                self.passed += word64(raw, offset_of!(link_count, passed));
                self.full += word64(raw, offset_of!(link_count, full));
                self.too_short += word64(raw, offset_of!(link_count, too_short));
                self.too_long += word64(raw, offset_of!(link_count, too_long));
                self.checksum += word64(raw, offset_of!(link_count, checksum));
                $(self.$own += word64(raw, offset_of!(link_count, reasons) + 8 * $reason);)*
            }
        }
    };
}

link_counts! {
    /// Counters of the program of a [`crate::LinkPort`] so far, over all CPUs.
    pub struct LinkCounts {
        /// Dropped: of a kind that this version does not know.
        kind = 0,
    }
}

link_counts! {
    /// Counters of the program of a [`crate::LinkBarrier`] so far, over all CPUs.
    pub struct BarrierCounts {
        /// Of a group, epoch or node that nobody waits for.
        foreign = 0,
        /// Sent before, or of a round that is over.
        again = 1,
        /// Counted; others are waited for.
        counted = 2,
        /// The last ones of their rounds.
        complete = 3,
    }
}
