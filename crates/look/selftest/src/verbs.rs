//! Trials of verbs in the lab.

mod answers;
mod child;
mod link;
mod route;
mod shield;

use model::selftest::Group;

use crate::{
    Place,
    bed::Bed,
    trial::{LAB_FIX, NO_LAB, Trial, Tried, no_time},
};

const FIX: &str = "see the needs above that do not work";

type Service = fn(&Place<'_>, &Bed) -> Result<Tried, String>;

/// Trials of verbs that run until a signal.
const SERVICES: [(&str, Service); 5] = [
    ("shield, native", |place, bed| shield::filters(place, bed, "native")),
    ("shield, generic", |place, bed| shield::filters(place, bed, "generic")),
    ("shield, challenge", shield::challenges),
    ("route", route::forwards),
    ("link", link::carries),
];

pub(crate) fn trials<'a>(place: &'a Place<'_>) -> impl Iterator<Item = Trial<'a>> {
    let answers = answers::VERBS.iter().map(move |verb| {
        let without_lab = move || verb.run_without_lab(place);
        one(place, verb.name, move |bed| verb.run(place, bed), without_lab)
    });
    let untried = || Ok(Tried::untried(NO_LAB, LAB_FIX));
    let services = SERVICES.iter().map(move |(name, run)| one(place, name, move |bed| run(place, bed), untried));
    answers.chain(services)
}

fn one<'a>(
    place: &'a Place<'_>,
    name: &str,
    run: impl FnOnce(&Bed) -> Result<Tried, String> + 'a,
    without_lab: impl FnOnce() -> Result<Tried, String> + 'a,
) -> Trial<'a> {
    let tries = move || {
        let tried = match place.bed() {
            _ if place.time_is_over() => Ok(no_time()),
            Ok(bed) => run(bed),
            Err(_) => without_lab(),
        };
        tried.unwrap_or_else(|why| Tried::fails(why, FIX))
    };
    Trial::new(Group::Verbs, name, &[], tries)
}
