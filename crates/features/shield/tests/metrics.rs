//! Metrics as others read them: Prometheus' own checker, a parser that is not ours, and whoever asks over HTTP.

#[allow(dead_code, reason = "each test file uses part of it")]
mod mixes;

use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use mixes::{Stream, World, syn_flood, web};
use model::shield_event::Measure;
use model::{Classified, ErrorClass, shield::Totals};
use rules::detect::DetectConfig;
use rules::tables::RuleCount;
use serde_json::Value;
use shield::{
    detect::Detector,
    events::metrics::{self, Metrics, MetricsFile, MetricsServer, Notation},
};
use testbed::wait;

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

/// What a program says that reads `text`, and whether it is content.
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
    let (done, said) = read_by(command, text);
    assert!(done, "{said}\n{text}");
    let mut both: Vec<Value> = serde_json::from_str(&said).unwrap();
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
    let (content, said) = read_by(command, &text);
    assert!(content && said.is_empty(), "{said}\n{text}");
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

#[test]
fn the_file_is_replaced_whole_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shield.prom");
    let file = MetricsFile::start(&path).unwrap();
    let (world, all) = (world(), Metrics::default());
    file.set(all);
    wait("the file", || path.exists());
    let all = of(&world.detector);
    file.set(all.clone());
    wait("the newer text", || fs::read_to_string(&path).is_ok_and(|text| text == all.text(Notation::Text)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o444, 0);
    file.remove();
    assert!(!path.exists());
}

/// Whatever is in the way is told, once, and neither written to nor removed.
fn in_the_way(path: &Path) {
    let file = MetricsFile::start(path).unwrap();
    let told = || {
        file.set(of(&world().detector));
        file.failures().count()
    };
    wait("it is told", || told() > 0);
    assert_eq!((0..5).map(|_| (told(), thread::sleep(Duration::from_millis(20))).0).sum::<usize>(), 0, "once");
    file.remove();
}

#[test]
fn a_pipe_or_a_foreign_folder_is_no_metrics_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for special in [pipe.as_path(), Path::new("/dev/null")] {
        let refused = MetricsFile::start(special).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::Usage, "at the start: {refused}");
    }
    assert!(pipe.exists());
    in_the_way(&folder.path().join("no/such"));
    // What a name like PATH.PID would be written through.
    let target = folder.path().join("target");
    fs::write(&target, "kept").unwrap();
    let path = folder.path().join("shield.prom");
    std::os::unix::fs::symlink(&target, folder.path().join(format!("shield.prom.{}", std::process::id()))).unwrap();
    let file = MetricsFile::start(&path).unwrap();
    file.set(of(&world().detector));
    wait("the file", || path.exists());
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
}

fn ask(server: &MetricsServer, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_owned(), body.to_owned())
}

#[test]
fn the_port_answers_on_loopback_in_the_notation_that_is_asked_for() {
    let server = MetricsServer::start(0).unwrap();
    let all = of(&world().detector);
    server.set(all.clone());
    assert!(server.address().ip().is_loopback());
    let (head, body) = ask(&server, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert_eq!(body, all.text(Notation::Text));
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let (head, body) = ask(&server, &format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n{accept}\r\n\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("openmetrics-text; version=1.0.0"), "{head}");
    assert_eq!(body, all.text(Notation::OpenMetrics));
    assert!(body.ends_with("# EOF\n"));
    let status = |request: &str| ask(&server, request).0.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n"), "421", "a page from elsewhere");
    assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n"), "421");
    assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n"), "200");
    assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
    let (head, body) = ask(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    let taken = MetricsServer::start(server.address().port()).unwrap_err().to_string();
    assert!(taken.contains(&server.address().port().to_string()), "{taken}");
}

/// Whether the other end has closed it.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(0) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

#[test]
fn who_says_nothing_holds_up_nobody_and_makes_room_when_more_come() {
    let server = MetricsServer::start(0).unwrap();
    server.set(of(&world().detector));
    let connect = || TcpStream::connect(server.address()).unwrap();
    let mut silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    silent[0].write_all(&[0xff; 4096]).unwrap();
    silent[1].write_all(b"G").unwrap();
    let request = "GET / HTTP/1.1\r\n\r\n";
    assert!(ask(&server, request).0.starts_with("HTTP/1.1 200 "));
    assert!(!silent.iter().any(is_closed), "the answer did not wait for the end of any of them");
    // Far more than are served at a time.
    silent.extend((0..200).map(|_| connect()));
    assert!(ask(&server, request).0.starts_with("HTTP/1.1 200 "));
    wait("the oldest are gone", || silent[..100].iter().all(is_closed));
}
