//! Trials of verbs in the lab.

mod answers;
mod child;
mod link;
mod route;
mod shield;

use std::time::Instant;

use model::selftest::{Group, Row};

use crate::{
    Place,
    bed::Bed,
    trial::{LAB_FIX, NO_LAB, Tried, no_time, row},
};

const FIX: &str = "see the needs above that do not work";

type Trial = fn(&Place<'_>, &Bed) -> Result<Tried, String>;

/// Trials of verbs that run until a signal.
const SERVICES: [(&str, Trial); 5] = [
    ("shield, native", |place, bed| shield::filters(place, bed, "native")),
    ("shield, generic", |place, bed| shield::filters(place, bed, "generic")),
    ("shield, challenge", shield::challenges),
    ("route", route::forwards),
    ("link", link::carries),
];

/// Runs the trial of each verb.
pub(crate) fn rows(place: &Place<'_>) -> Vec<Row> {
    let answers = answers::VERBS.iter().map(|verb| {
        let without_lab = || verb.run_without_lab(place);
        one(place, verb.name, |bed| verb.run(place, bed), without_lab)
    });
    let untried = || Ok(Tried::untried(NO_LAB, LAB_FIX));
    let services = SERVICES.iter().map(|(name, trial)| one(place, name, |bed| trial(place, bed), untried));
    answers.chain(services).collect()
}

fn one(
    place: &Place<'_>,
    name: &str,
    trial: impl FnOnce(&Bed) -> Result<Tried, String>,
    without_lab: impl FnOnce() -> Result<Tried, String>,
) -> Row {
    let began = Instant::now();
    let tried = match place.bed() {
        _ if place.time_is_over() => Ok(no_time()),
        Ok(bed) => trial(bed),
        Err(_) => without_lab(),
    };
    row(Group::Verbs, name, &[], tried.unwrap_or_else(|why| Tried::fails(why, FIX)), began)
}
