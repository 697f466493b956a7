//! The counters of all packets of a shield.

use serde::{Deserialize, Serialize};

use crate::counters::Row::{Always, IfAny};

/// Hands the table of a shield's counters to the macro of that name: [`counters!`](crate::counters) makes [`Totals`](crate::shield::Totals) of it.
/// The kernel program counts each in the field of that name of `struct shield_total`, packet rings in one of their own.
#[macro_export]
macro_rules! shield_totals {
    ($then:ident $($with:ident)?) => {
        $then! {
            $($with)?
            /// Counters of all packets.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
            #[serde(default)]
            pub struct Totals {
                passed: Frames "evenkeel_shield_frames" "Frames, passed and dropped."
                    { label: Some(("verdict", "passed")), row: Always("passed") };
                passed_bytes: Bytes "evenkeel_shield_frame_bytes" "Bytes of the frames without FCS, passed and dropped."
                    { label: Some(("verdict", "passed")) };
                dropped: Frames "evenkeel_shield_frames" "Frames, passed and dropped."
                    { label: Some(("verdict", "dropped")), row: Always("dropped") };
                dropped_bytes: Bytes "evenkeel_shield_frame_bytes" "Bytes of the frames without FCS, passed and dropped."
                    { label: Some(("verdict", "dropped")) };
                by_default: Frames "evenkeel_shield_default_frames" "Frames that no rule decided about."
                    { row: Always("by default ({default})") };
                malformed: Frames "evenkeel_shield_malformed_frames" "Frames that are cut short or contradict themselves."
                    { row: Always("malformed") };
                not_ip: Frames "evenkeel_shield_not_ip_frames" "Frames that are not IP."
                    { row: Always("not IP") };
                limited: Frames "evenkeel_shield_limited_frames" "Frames that a limit dropped."
                    { row: Always("  by limits") };
                challenged: Frames "evenkeel_shield_challenged_frames" "Frames that were challenged."
                    { row: Always("challenged") };
                unanswered: Frames "evenkeel_shield_unanswered_frames" "SYNs that are answered only when they come again (packet rings)."
                    { row: IfAny("  SYNs to come again") };
                missed: Frames "evenkeel_shield_missed_frames" "Frames lost unjudged because a packet ring was full."
                    { row: IfAny("lost unjudged: ring full") };
                failed_open: Frames "evenkeel_shield_failed_open_frames" "Frames that passed while nobody ran the shield."
                    { row: IfAny("passed while failed open") };
                failed_closed: Frames "evenkeel_shield_failed_closed_frames" "Frames that were dropped while nobody ran the shield."
                    { row: IfAny("dropped while failed closed") };
                evicted_sources: Sources "evenkeel_shield_evicted_sources"
                    "Sources evicted from the table of limits while their limit was in use."
                    { row: IfAny("evicted sources") };
            }
        }
    };
}

shield_totals!(counters);
