//! Counters of a protocol's program.

use std::mem::offset_of;

use crate::{counters::per_cpu, skel::link::types::link_count};

/// Defines the counters of a protocol: those that all have (struct link_count), and its own reasons by number.
macro_rules! link_counts {
    ($(#[$meta:meta])* pub struct $struct:ident { $($(#[$doc:meta])* $own:ident = $reason:literal,)* }) => {
        per_cpu! {
            $(#[$meta])*
            pub struct $struct of link_count {
                /// Frames copied into their endpoint's ring.
                delivered,
                /// Frames sent back as answers.
                answered,
                /// Frames for endpoints that nobody has, passed to the stack.
                no_endpoint,
                /// Frames for the address of another node, passed to the stack.
                elsewhere,
                /// Frames passed to the stack because the protocol says so.
                passed,
                /// Dropped: the endpoint's ring had no room.
                full,
                /// Dropped: shorter than header or payload.
                too_short,
                /// Dropped: header and payload are longer than 9,032 bytes.
                too_long,
                /// Dropped: changed on its way.
                checksum,
                $($(#[$doc])* $own at offset_of!(link_count, reasons) + 8 * $reason,)*
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
        /// Frames of a group, epoch or node that nobody waits for.
        foreign = 0,
        /// Sent before, or of a round that is over.
        again = 1,
        /// Counted; others are waited for.
        counted = 2,
        /// The last ones of their rounds.
        complete = 3,
    }
}
