//! `[detection]`, key by key: what cannot be is told in the file's own words, all of it at once.

use std::collections::BTreeMap;

use model::shield_event::{AttackClass, Measure};

use super::{
    keys::{self, Fault},
    reader::{Reader, Value},
    words::{self, Wrong},
};
use crate::detect::{DetectConfig, HookConfig, StepConfig};

const TOP: &[&str] = &[
    "threshold",
    "baseline",
    "every-ms",
    "confirm",
    "leave",
    "quiet-s",
    "ladder",
    "patience-s",
    "shadow",
    "events",
    "hook",
    "metrics",
];
const BASELINE: &[&str] = &["learn", "factor", "memory-s", "after-s", "busy-max", "floor"];
const SHADOW: &[&str] = &["first-s", "only", "legitimate-max"];
const STEPS: &[&str] = &[
    "drop-unknown",
    "drop-strangers",
    "limit-per-source",
    "limit",
    "challenge",
    "drop-sources",
    "drop-ports",
    "drop-fragments",
    "drop",
];
const LADDER_INSTEAD: &str =
    "write steps as tables: [{ do = \"challenge\" }, { do = \"limit-per-source\", pps = 500 }]";
const BURST_MAX: f64 = 1e9;

/// The settings of the table; faults are noted.
pub(super) fn read(value: &Value<'_>, faults: &mut Vec<Fault>) -> DetectConfig {
    let mut reader = Reader { faults };
    let mut config = DetectConfig::default();
    let known = reader.faults.len();
    reader.each(
        value,
        "detection",
        TOP,
        "write [detection] with keys such as threshold = { packets = 100000 }",
        &mut |r, key, v| match key {
            "threshold" => config.threshold = r.limits(v, "threshold"),
            "every-ms" => config.every_ms = r.whole(v, key).unwrap_or(config.every_ms),
            "confirm" => {
                config.confirm = r.whole(v, key).map_or(config.confirm, |n| u32::try_from(n).unwrap_or(u32::MAX));
            }
            "leave" => config.leave = r.number(v, key).unwrap_or(config.leave),
            "quiet-s" => config.quiet_s = r.number(v, key).unwrap_or(config.quiet_s),
            "patience-s" => config.patience_s = r.number(v, key).unwrap_or(config.patience_s),
            "events" => config.events = r.path(v, key),
            "ladder" => config.ladder = r.ladder(v),
            "hook" => config.hook = r.hook(v),
            "baseline" => {
                let baseline = &mut config.baseline;
                r.each(v, "baseline", BASELINE, "write baseline = { factor = 5, after-s = 60 }", &mut |r, key, v| {
                    match key {
                        "learn" => baseline.learn = r.boolean(v, key).unwrap_or(baseline.learn),
                        "factor" => baseline.factor = r.number(v, key).unwrap_or(baseline.factor),
                        "memory-s" => baseline.memory_s = r.number(v, key).unwrap_or(baseline.memory_s),
                        "after-s" => baseline.after_s = r.number(v, key).unwrap_or(baseline.after_s),
                        "busy-max" => baseline.busy_max = r.number(v, key).unwrap_or(baseline.busy_max),
                        _ => baseline.floor = r.limits(v, "floor"),
                    }
                });
            }
            "shadow" => {
                let shadow = &mut config.shadow;
                r.each(
                    v,
                    "shadow",
                    SHADOW,
                    "write shadow = { first-s = 5 } or shadow = { only = true }",
                    &mut |r, key, v| match key {
                        "first-s" => shadow.first_s = r.number(v, key).unwrap_or(shadow.first_s),
                        "only" => shadow.only = r.boolean(v, key).unwrap_or(shadow.only),
                        _ => shadow.legitimate_max = r.number(v, key).unwrap_or(shadow.legitimate_max),
                    },
                );
            }
            _ => {
                let metrics = &mut config.metrics;
                r.each(
                    v,
                    "metrics",
                    &["file", "port"],
                    "write metrics = { file = \"…\" } or metrics = { port = 9464 }",
                    &mut |r, key, v| match key {
                        "file" => metrics.file = r.path(v, key),
                        _ => metrics.port = r.port(v),
                    },
                );
            }
        },
    );
    // What could not be read is at its default, and as such has nothing wrong.
    for (key, why) in config.faults() {
        let at = place_of(value, &key);
        if !reader.faults[known..].iter().any(|(other, _)| *other == at) {
            reader.faults.push((at, Wrong { what: format!("detection.{key}: {why}"), instead: None }));
        }
    }
    config
}

impl Reader<'_> {
    fn limits(&mut self, value: &Value<'_>, name: &str) -> BTreeMap<Measure, f64> {
        let known = Measure::ALL.map(Measure::word);
        let mut limits = BTreeMap::new();
        let instead = format!("write what is counted, as in {name} = {{ packets = 100000, syn = 10000 }}");
        self.each(value, name, &known, &instead, &mut |reader, key, value| {
            let measure = Measure::ALL.into_iter().find(|measure| measure.word() == key);
            if let (Some(measure), Some(limit)) = (measure, reader.rate(value, key)) {
                limits.insert(measure, limit);
            }
        });
        limits
    }

    fn ladder(&mut self, value: &Value<'_>) -> BTreeMap<AttackClass, Vec<StepConfig>> {
        let known = AttackClass::ALL.map(AttackClass::word);
        let mut ladder = BTreeMap::new();
        let instead = "write the steps of each class, as in ladder.syn-flood = [{ do = \"challenge\" }]";
        self.each(value, "ladder", &known, instead, &mut |reader, key, value| {
            let class = AttackClass::ALL.into_iter().find(|class| class.word() == key);
            let Some(steps) = value.get_ref().as_array() else {
                return reader.wrong(value, format!("the ladder of {key} is a list"), LADDER_INSTEAD);
            };
            let steps = steps.iter().filter_map(|step| reader.step(step)).collect();
            ladder.extend(class.map(|class| (class, steps)));
        });
        ladder
    }

    fn step(&mut self, value: &Value<'_>) -> Option<StepConfig> {
        let instead = match value.get_ref().as_str() {
            Some(word) if STEPS.contains(&word) && !word.starts_with("limit") => format!("write {{ do = \"{word}\" }}"),
            Some(word) if STEPS.contains(&word) => format!("write {{ do = \"{word}\", pps = 500 }}"),
            _ => LADDER_INSTEAD.to_owned(),
        };
        let table = self.table(value, &instead)?;
        let Some(kind) = table.get("do") else {
            self.wrong(
                value,
                "a step that does not say what it does",
                format!("write do = \"…\": {}", STEPS.join(", ")),
            );
            return None;
        };
        let word = kind.get_ref().as_str().unwrap_or_default().to_owned();
        if !STEPS.contains(&word.as_str()) {
            self.wrong(kind, format!("`{word}` is no step of a ladder"), keys::instead_of(&word, STEPS));
            return None;
        }
        let limits = word.starts_with("limit");
        let known: &[&str] = if limits { &["do", "pps", "burst"] } else { &["do"] };
        let (mut pps, mut burst, before) = (None, None, self.faults.len());
        for (key, _) in table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref().as_ref();
            let instead = match name {
                "pps" | "burst" => "only `limit` and `limit-per-source` have a rate: leave it out".to_owned(),
                "rate" if limits => "write `pps`".to_owned(),
                _ => keys::instead_of(name, known),
            };
            self.faults.push((key.span().start, Wrong::new(format!("the step `{word}` has no key `{name}`"), instead)));
        }
        if limits {
            pps = table.get("pps").and_then(|value| self.packets(value, "pps"));
            burst = table.get("burst").and_then(|value| self.packets(value, "burst"));
            if table.get("pps").is_none() && self.faults.len() == before {
                self.wrong(kind, format!("`{word}` without a rate"), format!("write {{ do = \"{word}\", pps = 500 }}"));
            }
        }
        Some(match (word.as_str(), pps.unwrap_or(1)) {
            ("limit-per-source", pps) => StepConfig::LimitPerSource { pps, burst },
            ("limit", pps) => StepConfig::Limit { pps, burst },
            ("challenge", _) => StepConfig::Challenge {},
            ("drop-sources", _) => StepConfig::DropSources {},
            ("drop-ports", _) => StepConfig::DropPorts {},
            ("drop-fragments", _) => StepConfig::DropFragments {},
            ("drop-unknown", _) => StepConfig::DropUnknown {},
            ("drop-strangers", _) => StepConfig::DropStrangers {},
            _ => StepConfig::Drop {},
        })
    }

    fn packets(&mut self, value: &Value<'_>, key: &str) -> Option<u64> {
        let number = self.rate(value, key)?;
        if number == 0.0 {
            self.wrong(value, "a limit of 0 packets", "write { do = \"drop\" }");
            return None;
        }
        let most = if key == "burst" { BURST_MAX } else { words::RATE_MAX };
        if !(1.0..=most).contains(&number) || number.fract() > 0.0 {
            self.wrong(value, format!("`{key}` is out of bounds"), format!("write whole packets, 1 to {most}"));
            return None;
        }
        Some(number as u64)
    }

    fn hook(&mut self, value: &Value<'_>) -> Option<HookConfig> {
        let (mut hook, mut reported, before) =
            (HookConfig { run: Vec::new(), timeout_s: 10.0 }, false, self.faults.len());
        let instead = "write hook = { run = [\"/path/to/program\", \"argument\"] }";
        self.each(value, "hook", &["run", "timeout-s"], instead, &mut |reader, key, value| match key {
            "timeout-s" => hook.timeout_s = reader.number(value, key).unwrap_or(hook.timeout_s),
            _ => {
                reported = true;
                let words = value.get_ref().as_array().map(|words| words.iter().map(|word| word.get_ref().as_str()));
                match words.and_then(|words| words.map(|word| word.map(ToOwned::to_owned)).collect()) {
                    Some(run) => hook.run = run,
                    None => reader.wrong(
                        value,
                        "`run` is no list of words",
                        "write the program and its arguments, as in run = [\"/path/to/program\", \"argument\"]",
                    ),
                }
            }
        });
        if !reported && self.faults.len() == before {
            self.wrong(value, "a hook without a program", instead);
        }
        (self.faults.len() == before).then_some(hook)
    }
}

/// Position of a dotted key's value, or of the part of the key that is there.
fn place_of(value: &Value<'_>, key: &str) -> usize {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let within = value.get_ref().as_table().and_then(|table| table.get(first));
    match within {
        Some(inner) if rest.is_empty() => inner.span().start,
        Some(inner) => place_of(inner, rest),
        None => value.span().start,
    }
}
