//! Verbs, run by this program itself in the box of the lab.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use model::selftest::{Group, Row};

use crate::{
    Place, process,
    trial::{LAB_FIX, NO_LAB, Tried, no_time, row, words},
};

/// A verb ends within this time.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Verbs that end by themselves and print JSON; `NEAR` is the box's interface.
const VERBS: [(&str, &str); 11] = [
    ("ledger", "ledger NEAR --once --interval 0.5 --json"),
    ("top", "top --once --interval 0.2 --json"),
    ("doctor", "doctor --json"),
    ("profile", "profile --duration 500ms --json"),
    ("spread plan", "spread plan NEAR --json"),
    ("capture, packet", "capture NEAR --duration 0.3 --backend packet --quiet --json"),
    ("capture, ring", "capture NEAR --duration 0.3 --backend ring --quiet --json"),
    ("capture, tap", "capture NEAR --duration 0.3 --backend tap --quiet --json"),
    ("capture, xdp", "capture NEAR --duration 0.3 --backend xdp --quiet --json"),
    ("gen", "gen NEAR --udp --rate 1000 --duration 200ms --json"),
    ("route check", "route check NEAR FAR --json"),
];

/// Runs each of them.
pub(crate) fn rows(place: &Place<'_>) -> Vec<Row> {
    let one = |(name, line): &(&str, &str)| {
        let began = Instant::now();
        let tried = verb(place, line).unwrap_or_else(|why| Tried::fails(why, "see the needs that do not work above"));
        row(Group::Verbs, name, &[], tried, began)
    };
    VERBS.iter().map(one).collect()
}

fn verb(place: &Place<'_>, line: &str) -> Result<Tried, String> {
    if place.time_is_over() {
        return Ok(no_time());
    }
    let Ok(bed) = place.bed() else { return Ok(Tried::untried(NO_LAB, LAB_FIX)) };
    let arguments = line.split(' ').map(|word| match word {
        "NEAR" => bed.near.name.as_str(),
        "FAR" => bed.far.name.as_str(),
        word => word,
    });
    let mut command = Command::new(place.evenkeel);
    command.args(arguments);
    let ran = bed.middle.run(|| process::run(&mut command, TIMEOUT)).map_err(words)?.map_err(words)?;
    let is_json =
        serde_json::from_str::<serde_json::Value>(&ran.stdout).is_ok_and(|answer| answer["schema"].is_string());
    match ran.code {
        // A finding, or a verdict, is an answer.
        Some(0 | 1) if is_json => Ok(Tried::works("")),
        Some(_) => Err(ran.last_words()),
        None => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}
