//! Trials of verbs that end by themselves and print JSON.

use serde_json::Value;

use super::child::ask;
use crate::{
    Place,
    asked::{arguments, ledger_closes},
    bed::Bed,
    trial::{LAB_FIX, NO_LAB, Tried, words},
};

/// Frames that may move while the ledger reads its counters.
const UNDERWAY_MAX: f64 = 2.0;

/// The trial of a verb.
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// The arguments, in which `NEAR` and `FAR` stand for the box's interfaces.
    line: &'static str,
    /// The arguments on this machine, for verbs that any user may run; none: the verb is not tried without a lab.
    without_lab: Option<&'static str>,
    /// Judges the JSON of a run while frames passed from `NEAR` to `FAR`.
    judge: fn(&Value, &Bed) -> Result<Tried, String>,
}

pub(super) const VERBS: [Verb; 11] = [
    Verb {
        name: "ledger",
        line: "ledger NEAR --once --interval 0.5 --json",
        without_lab: Some("ledger --once --interval 0.5 --json"),
        judge: ledger,
    },
    Verb {
        name: "top",
        line: "top --once --interval 0.3 --json",
        without_lab: Some("top --once --interval 0.3 --json"),
        judge: top,
    },
    Verb { name: "doctor", line: "doctor --json", without_lab: Some("doctor --json"), judge: doctor },
    Verb { name: "profile", line: "profile --duration 500ms --json", without_lab: None, judge: profile },
    Verb {
        name: "spread plan",
        line: "spread plan NEAR --json",
        without_lab: None,
        judge: |_, _| Ok(Tried::works("")),
    },
    Verb {
        name: "capture, packet",
        line: "capture NEAR --duration 0.3 --backend packet --quiet --json",
        without_lab: None,
        judge: captured,
    },
    Verb {
        name: "capture, ring",
        line: "capture NEAR --duration 0.3 --backend ring --quiet --json",
        without_lab: None,
        judge: captured,
    },
    Verb {
        name: "capture, tap",
        line: "capture NEAR --duration 0.3 --backend tap --quiet --json",
        without_lab: None,
        judge: captured,
    },
    Verb {
        name: "capture, xdp",
        line: "capture NEAR --duration 0.3 --backend xdp --quiet --json",
        without_lab: None,
        judge: captured,
    },
    Verb { name: "gen", line: "gen NEAR --udp --rate 1000 --duration 200ms --json", without_lab: None, judge: sent },
    Verb { name: "route check", line: "route check NEAR FAR --json", without_lab: None, judge: obstacles },
];

impl Verb {
    pub(super) fn run(&self, place: &Place<'_>, bed: &Bed) -> Result<Tried, String> {
        let arguments = arguments(self.line.split(' '), [&bed.near.name, &bed.far.name]);
        let answer = bed.while_forwarding(|| ask(place, Some(&bed.middle), &arguments)).map_err(words)??;
        (self.judge)(&answer, bed)
    }

    /// Tries the verb on this machine, where no frames are sent.
    pub(super) fn run_without_lab(&self, place: &Place<'_>) -> Result<Tried, String> {
        let Some(line) = self.without_lab else {
            return Ok(Tried::untried(NO_LAB, LAB_FIX));
        };
        ask(place, None, &line.split(' ').collect::<Vec<_>>())?;
        Ok(Tried::limited("it answers; without a lab no frame was sent", LAB_FIX))
    }
}

fn number(answer: &Value, key: &str) -> f64 {
    answer[key].as_f64().unwrap_or(f64::NAN)
}

fn ledger(answer: &Value, _: &Bed) -> Result<Tried, String> {
    let [offered, unexplained] = ["offered", "unexplained"].map(|key| number(answer, key));
    let found = format!("{offered:.0} frames, {unexplained:.0} unexplained");
    let saw_some = offered > 0.0;
    match ledger_closes(offered, unexplained, UNDERWAY_MAX) {
        _ if !saw_some => Err(format!("it missed the frames that were forwarded: {found}")),
        _ if answer["trace"].is_null() => {
            Ok(Tried::limited(format!("{found}; no cause is named"), "see `tracepoint skb:kfree_skb`"))
        }
        true => Ok(Tried::works(found)),
        false => Ok(Tried::limited(found, "measure again with `evenkeel ledger --interval 10`")),
    }
}

fn top(answer: &Value, bed: &Bed) -> Result<Tried, String> {
    let interfaces = answer["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let near = interfaces.iter().find(|interface| interface["name"] == bed.near.name.as_str());
    match near.map(|near| number(near, "rx_pps")) {
        Some(pps) if pps > 0.0 => Ok(Tried::works(format!("{pps:.0} frames/s"))),
        _ => Err("it missed the frames that were forwarded".into()),
    }
}

fn doctor(answer: &Value, _: &Bed) -> Result<Tried, String> {
    let findings = answer["findings"].as_array().map_or(0, Vec::len);
    let unreadable = answer["unreadable"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sources: Vec<&str> = unreadable.iter().filter_map(|entry| entry["source"].as_str()).collect();
    Ok(match sources[..] {
        [] => Tried::works(format!("{findings} objects examined")),
        _ => Tried::limited(format!("it could not read {}", sources.join(", ")), "see `evenkeel doctor`"),
    })
}

fn profile(answer: &Value, _: &Bed) -> Result<Tried, String> {
    match number(answer, "samples") {
        count if count > 0.0 => Ok(Tried::works(format!("{count:.0} samples"))),
        _ => Err("no sample was taken".into()),
    }
}

fn captured(answer: &Value, _: &Bed) -> Result<Tried, String> {
    match number(answer, "packets") {
        count if count > 0.0 => Ok(Tried::works(format!("{count:.0} packets"))),
        _ => Err("none of the frames that were forwarded was captured".into()),
    }
}

fn sent(answer: &Value, _: &Bed) -> Result<Tried, String> {
    let [submitted, sent] = ["submitted", "device_sent"].map(|key| number(answer, key));
    let backend = answer["backend"].as_str().unwrap_or_default();
    let found = format!("{sent:.0} of {submitted:.0} frames by {backend}");
    match (sent >= submitted && sent > 0.0, backend) {
        (false, _) => Err(found),
        (true, "xdp-live") => Ok(Tried::works(found)),
        (true, _) => {
            let reason = answer["backend_reason"].as_str().unwrap_or_default();
            Ok(Tried::limited(format!("{found}: {reason}"), "expect lower rates from gen"))
        }
    }
}

fn obstacles(answer: &Value, _: &Bed) -> Result<Tried, String> {
    let obstacles = answer["obstacles"].as_array().ok_or("it answers without obstacles")?;
    let codes: Vec<&str> = obstacles.iter().filter_map(|obstacle| obstacle["code"].as_str()).collect();
    Ok(match codes[..] {
        [] => Tried::works(""),
        _ => Tried::limited(format!("obstacles: {}", codes.join(", ")), "see `evenkeel route check` for remedies"),
    })
}
