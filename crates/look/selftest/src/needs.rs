//! The needs of verbs: capabilities, parts of the kernel, programs.

mod kernel;
mod packets;
mod programs;
mod xdp;

use model::selftest::Group;
use sys::privilege::{Capability, require};

use crate::{
    Place,
    trial::{BE_ROOT, Need, Trial, Tried},
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

/// All needs, in the order of the table.
pub(crate) fn trials<'a>(place: &'a Place<'_>) -> impl Iterator<Item = Trial<'a>> {
    let capability = |(capability, verbs): &'static (Capability, &[&str])| {
        let tries = move || match require(capability.to_string(), &[*capability]) {
            Ok(()) => Tried::works(""),
            Err(_) => Tried::fails("this process does not have it", BE_ROOT),
        };
        Trial::new(Group::Needs, capability.to_string(), verbs, tries)
    };
    let needs = [kernel::NEEDS, xdp::NEEDS, packets::NEEDS, programs::NEEDS];
    let need = move |need: &'static Need| Trial::new(Group::Needs, need.name, need.verbs, move || need.tried(place));
    CAPABILITIES.iter().map(capability).chain(needs.into_iter().flatten().map(need))
}
