//! The needs of verbs: capabilities, parts of the kernel, programs.

mod kernel;
mod packets;
mod programs;
mod xdp;

use std::time::Instant;

use model::selftest::{Group, Row};
use sys::privilege::{Capability, require};

use crate::{
    Place,
    trial::{BE_ROOT, Need, Tried, row},
};

/// The capabilities, with the verbs that need them.
const CAPABILITIES: [(Capability, &[&str]); 6] = [
    (Capability::CAP_NET_ADMIN, &["spread", "doctor", "capture", "shield", "route", "link", "gen"]),
    (Capability::CAP_NET_RAW, &["capture", "gen", "link"]),
    (Capability::CAP_BPF, &["ledger", "profile", "capture", "shield", "route", "link", "gen"]),
    (Capability::CAP_PERFMON, &["ledger", "profile", "route"]),
    (Capability::CAP_SYS_ADMIN, &["bench", "demo", "clean", "shield", "route"]),
    (Capability::CAP_DAC_OVERRIDE, &["capture", "spread"]),
];

/// Tries all needs, in the order of the table.
pub(crate) fn rows(place: &Place<'_>) -> Vec<Row> {
    let capability = |(capability, verbs): &(Capability, &[&str])| {
        let began = Instant::now();
        let name = capability.to_string();
        let tried = match require(name.as_str(), &[*capability]) {
            Ok(()) => Tried::works(""),
            Err(_) => Tried::fails("this process does not have it", BE_ROOT),
        };
        row(Group::Needs, &name, verbs, tried, began)
    };
    let needs = [kernel::NEEDS, xdp::NEEDS, packets::NEEDS, programs::NEEDS];
    let needs = needs.iter().copied().flatten().map(|need: &Need| need.row(place));
    CAPABILITIES.iter().map(capability).chain(needs).collect()
}
