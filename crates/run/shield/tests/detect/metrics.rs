//! Metrics as others read them: Prometheus' own checker, and a parser that is not ours.

use std::{
    collections::BTreeSet,
    io::Write,
    process::{Command, Stdio},
};

use model::shield::Totals;
use model::shield_event::Measure;
use rules::detect::DetectConfig;
use rules::tables::RuleCount;
use serde_json::Value;
use serve::metrics::{Metrics, Notation};
use shield::{detect::Detector, metrics};

use crate::mixes::{Stream, World, syn_flood, web};

const CALM: Stream = Stream { pps: 20_000, make: web };

fn world() -> World {
    let mut config = DetectConfig { quiet_s: 3.0, ..DetectConfig::default() };
    config.threshold = [(Measure::Packets, 100_000.0), (Measure::Bits, 1e9), (Measure::Syn, 10_000.0)].into();
    World::new(config)
}

fn of(detector: &Detector) -> Metrics {
    let count = RuleCount { packets: 3, bytes: 180, limited: 1 };
    let totals = Totals { passed: 10, dropped: 4, ..Totals::default() };
    metrics::metrics("eth\"0", &totals, &[("a \\ rule\n".into(), count), ("b".into(), count)], Some(detector))
}

/// Output of a program that reads `text`, and its success.
fn read_by(mut command: Command, text: &str) -> (bool, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; run tools/setup test"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Series with their values, as the parsers of Debian's python3-prometheus-client find them: name, labels, value; and families with kinds.
fn parsed(notation: Notation, text: &str) -> (Value, Value) {
    let module = match notation {
        Notation::Text => "prometheus_client.parser",
        Notation::OpenMetrics => "prometheus_client.openmetrics.parser",
    };
    let script = format!(
        "import json, sys\nfrom {module} import text_string_to_metric_families as parse\n\
         families = list(parse(sys.stdin.read()))\n\
         samples = sorted([s.name, sorted(s.labels.items()), float(s.value)] for f in families for s in f.samples)\n\
         print(json.dumps([samples, [[f.name, f.type, f.unit] for f in families]]))"
    );
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", &script]);
    let (done, printed) = read_by(command, text);
    assert!(done, "{printed}\n{text}");
    let mut both: Vec<Value> = serde_json::from_str(&printed).unwrap();
    let families = both.pop().unwrap();
    (both.pop().unwrap(), families)
}

#[test]
fn prometheus_finds_nothing_to_say() {
    let mut world = world();
    world.run(20, &[CALM]);
    let text = of(&world.detector).text(Notation::Text);
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]);
    let (content, printed) = read_by(command, &text);
    assert!(content && printed.is_empty(), "{printed}\n{text}");
}

#[test]
fn both_notations_say_the_same_to_another_parser() {
    let mut world = world();
    world.run(20, &[CALM]);
    let all = of(&world.detector);
    let [(text, _), (open, families)] =
        [Notation::Text, Notation::OpenMetrics].map(|notation| parsed(notation, &all.text(notation)));
    assert_eq!(text, open);
    let sample = |name: &str, labels: Value, value: f64| {
        assert!(text.as_array().unwrap().contains(&serde_json::json!([name, labels, value])), "{name}: {text:#}");
    };
    let interface = serde_json::json!(["interface", "eth\"0"]);
    sample("evenkeel_shield_frames_total", serde_json::json!([interface, ["verdict", "dropped"]]), 4.0);
    sample("evenkeel_shield_rule_bytes_total", serde_json::json!([interface, ["rule", "a \\ rule\n"]]), 180.0);
    sample("evenkeel_build_info", serde_json::json!([["version", env!("CARGO_PKG_VERSION")]]), 1.0);
    let family = |family: Value| assert!(families.as_array().unwrap().contains(&family), "{family}: {families}");
    family(serde_json::json!(["evenkeel_shield_frame_bytes", "counter", "bytes"]));
    family(serde_json::json!(["evenkeel_build", "info", ""]));
}

#[test]
fn an_attack_changes_values_and_no_labels() {
    let series = |detector: &Detector| -> BTreeSet<String> {
        let (samples, _) = parsed(Notation::OpenMetrics, &of(detector).text(Notation::OpenMetrics));
        samples.as_array().unwrap().iter().map(|sample| format!("{} {}", sample[0], sample[1])).collect()
    };
    let mut world = world();
    world.run(20, &[CALM]);
    let before = series(&world.detector);
    world.run(10, &[CALM, Stream { pps: 500_000, make: syn_flood }]);
    assert_eq!(world.detector.attacks(), 1);
    assert_eq!(series(&world.detector), before);
    let text = of(&world.detector).text(Notation::OpenMetrics);
    let attacks: Vec<&str> =
        text.lines().filter(|line| line.starts_with("evenkeel_shield_under_attack{") && line.ends_with(" 1")).collect();
    assert!(matches!(attacks[..], [one] if one.contains("class=\"syn-flood\"")), "{attacks:?}");
}
