//! OpenMetrics text (openmetrics.io, version 1.0.0): to a file, or answered over HTTP on the loopback address.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bpf::shield::RuleCount;
use model::shield::Totals;
use model::shield_event::Measure;

use super::EventError;
use crate::{
    detect::Detector,
    serving::{Desk, Within},
};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A request's head is short; one that is longer or slower is not answered.
const HEAD_MAX: u64 = 8192;
const PATIENCE: Duration = Duration::from_secs(1);

/// All metrics of one moment as text.
pub fn text(interface: &str, totals: &Totals, rules: &[(String, RuleCount)], detector: Option<&Detector>) -> String {
    let mut out = String::new();
    let interface = escape(interface);
    family(&mut out, "frames", "counter", "Frames by what became of them.");
    for (what, value) in [("passed", totals.passed), ("dropped", totals.dropped)] {
        let _ = writeln!(out, "evenkeel_shield_frames_total{{interface=\"{interface}\",verdict=\"{what}\"}} {value}");
    }
    family(&mut out, "bytes", "counter", "Bytes of frames without FCS by what became of them.");
    for (what, value) in [("passed", totals.passed_bytes), ("dropped", totals.dropped_bytes)] {
        let _ = writeln!(out, "evenkeel_shield_bytes_total{{interface=\"{interface}\",verdict=\"{what}\"}} {value}");
    }
    family(&mut out, "reasons", "counter", "Frames by reason, apart from rules.");
    let reasons = [
        ("by-default", totals.by_default),
        ("malformed", totals.malformed),
        ("not-ip", totals.not_ip),
        ("limited", totals.limited),
        ("challenged", totals.challenged),
        ("unanswered", totals.unanswered),
        ("ring-full", totals.missed),
        ("failed-open", totals.failed_open),
        ("failed-closed", totals.failed_closed),
    ];
    for (reason, value) in reasons {
        let _ = writeln!(out, "evenkeel_shield_reasons_total{{interface=\"{interface}\",reason=\"{reason}\"}} {value}");
    }
    let help = "Sources that took the place of another whose limit was in use, for want of room.";
    family(&mut out, "crowded_sources", "counter", help);
    let _ = writeln!(out, "evenkeel_shield_crowded_sources_total{{interface=\"{interface}\"}} {}", totals.crowded);
    rule_families(&mut out, &interface, rules);
    if let Some(detector) = detector {
        prefix_families(&mut out, &interface, detector);
    }
    out.push_str("# EOF\n");
    out
}

fn rule_families(out: &mut String, interface: &str, rules: &[(String, RuleCount)]) {
    type Of = fn(&RuleCount) -> u64;
    let families: [(&str, &str, Of); 3] = [
        ("rule_packets", "Packets that a rule applied to.", |c| c.packets),
        ("rule_bytes", "Bytes of their frames.", |c| c.bytes),
        ("rule_limited", "Those of the packets that exceeded the rule's limit.", |c| c.limited),
    ];
    for (name, help, of) in families {
        family(out, name, "counter", help);
        for (rule, count) in rules {
            let (rule, value) = (escape(rule), of(count));
            let _ = writeln!(out, "evenkeel_shield_{name}_total{{interface=\"{interface}\",rule=\"{rule}\"}} {value}");
        }
    }
}

fn prefix_families(out: &mut String, interface: &str, detector: &Detector) {
    family(out, "rate", "gauge", "Rate to a protected prefix per second in the last look; packets, of bits bits.");
    for state in detector.states() {
        let prefix = format!("{}/{}", state.prefix.address, state.prefix.len);
        for measure in Measure::ALL {
            let value = state.rates.get(measure);
            let _ = writeln!(
                out,
                "evenkeel_shield_rate{{interface=\"{interface}\",prefix=\"{prefix}\",measure=\"{measure}\"}} {value}"
            );
        }
    }
    family(out, "limit", "gauge", "The limit of that rate, if there is one.");
    for state in detector.states() {
        let prefix = format!("{}/{}", state.prefix.address, state.prefix.len);
        for (measure, limit) in Measure::ALL.into_iter().zip(state.limits) {
            if let Some((value, learned)) = limit {
                let _ = writeln!(
                    out,
                    "evenkeel_shield_limit{{interface=\"{interface}\",prefix=\"{prefix}\",measure=\"{measure}\",\
                     learned=\"{learned}\"}} {value}"
                );
            }
        }
    }
    family(out, "under_attack", "gauge", "1 while a protected prefix is under attack.");
    for state in detector.states() {
        let prefix = format!("{}/{}", state.prefix.address, state.prefix.len);
        let (class, value) = state.attack.map_or(("", 0), |a| (a.class().word(), 1));
        let _ = writeln!(
            out,
            "evenkeel_shield_under_attack{{interface=\"{interface}\",prefix=\"{prefix}\",class=\"{class}\"}} {value}"
        );
    }
    family(out, "attacks", "counter", "Attacks seen since the start.");
    let _ = writeln!(out, "evenkeel_shield_attacks_total{{interface=\"{interface}\"}} {}", detector.attacks());
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# TYPE evenkeel_shield_{name} {kind}\n# HELP evenkeel_shield_{name} {help}");
}

/// A label's value.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes `text` to a file beside `path`, which then takes its place: a reader sees the old text or the new one.
///
/// # Errors
/// [`EventError::MetricsFile`].
pub fn write_file(path: &Path, text: &str) -> Result<(), EventError> {
    let failed = |source| EventError::MetricsFile { path: path.to_owned(), source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = Path::new(&beside);
    fs::write(beside, text).and_then(|()| fs::rename(beside, path)).map_err(|e| {
        let _ = fs::remove_file(beside);
        failed(e)
    })
}

/// Answers GET /metrics on 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    text: Arc<Mutex<String>>,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on `port`; 0 lets the kernel choose one.
    ///
    /// # Errors
    /// [`EventError::MetricsPort`].
    pub fn start(port: u16) -> Result<Self, EventError> {
        let failed = |source| EventError::MetricsPort { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (text, stop) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicBool::new(false)));
        let (shared, asked_to_stop) = (Arc::clone(&text), Arc::clone(&stop));
        let serve = move || {
            let mut desk = Desk::default();
            while !asked_to_stop.load(Ordering::Relaxed) {
                if !desk.has_room() {
                    continue;
                }
                match listener.accept() {
                    Ok(_) if asked_to_stop.load(Ordering::Relaxed) => return,
                    Ok((stream, _)) => {
                        let text = Arc::clone(&shared);
                        // Who asks and goes away before the answer is no failure of ours.
                        desk.serve("shield-answer", move || drop(answer(&stream, &text)));
                    }
                    // Out of descriptors, most likely: not at once again.
                    Err(_) => thread::sleep(Duration::from_millis(50)),
                }
            }
        };
        let thread = thread::Builder::new().name("shield-metrics".into()).spawn(serve).map_err(failed)?;
        Ok(Self { text, address, stop, thread: Some(thread) })
    }

    /// What is answered from now on.
    pub fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread out of its wait for a connection.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn answer(stream: &TcpStream, text: &Mutex<String>) -> io::Result<()> {
    let mut head = BufReader::new(Within::new(stream, PATIENCE).take(HEAD_MAX)).lines();
    let request = head.next().transpose()?.unwrap_or_default();
    for line in head {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/metrics" | "/")) => {
            ("200 OK", CONTENT_TYPE, text.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".to_owned()),
    };
    let mut stream = Within::new(stream, PATIENCE);
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n")?;
    if !request.starts_with("HEAD") {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}
