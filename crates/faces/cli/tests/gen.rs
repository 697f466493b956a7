//! `evenkeel gen` from outside: what arrives, how fast, and what it refuses.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use lab::{Lab, Namespace};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
const BACKENDS: [&str; 3] = ["xdp-live", "xdp", "tx-ring"];

/// Says why a test does not run; in CI that is a failure.
fn skip(why: impl std::fmt::Display) {
    assert!(std::env::var_os("CI").is_none(), "skipped, which CI must not: {why}");
    eprintln!("skipped: {why}");
}

struct Wire {
    sender: Namespace,
    receiver: Namespace,
    out: String,
    into: String,
    folder: tempfile::TempDir,
}

fn wire(tag: &str) -> Option<Wire> {
    let made = (|| {
        let lab = Lab::new(tag)?;
        let (sender, receiver) = (lab.namespace("a")?, lab.namespace("b")?);
        let (out, into) = (lab.interface(&format!("{}a", &tag[..2])), lab.interface(&format!("{}b", &tag[..2])));
        lab.veth((&sender, &out), (&receiver, &into), 1)?;
        receiver.set_feature(&into, "rx-gro", true)?;
        Ok::<_, lab::LabError>(Wire { sender, receiver, out, into, folder: tempfile::tempdir().unwrap() })
    })();
    made.map_err(skip).ok()
}

impl Wire {
    fn send(&self, args: &[&str]) -> Output {
        let run = || Command::new(EVENKEEL).args(["gen", &self.out]).args(args).output().unwrap();
        self.sender.run(run).unwrap()
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let output = self.send(&[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Frames that the receiving end's own counter has seen (/proc/net/dev of its namespace).
    fn arrived(&self) -> u64 {
        let table = self.receiver.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        let (_, numbers) =
            table.lines().filter_map(|l| l.split_once(':')).find(|(n, _)| n.trim() == self.into).unwrap();
        numbers.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One message of one line on stderr with every word of `words`, and the exit code.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().filter(|l| l.starts_with("evenkeel: ")).count(), 1, "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "`{word}` is missing: {stderr}"));
    assert!(output.stdout.is_empty() && !stderr.contains("panicked"), "{stderr}");
}

/// tcpdump on the receiving end, which writes a file until told to stop.
struct Tcpdump {
    child: Child,
    file: PathBuf,
}

impl Tcpdump {
    fn start(wire: &Wire) -> Self {
        let file = wire.folder.path().join("seen.pcap");
        let run = || {
            Command::new("tcpdump")
                .args(["-i", &wire.into, "-n", "-p", "-U", "--immediate-mode", "-Z", "root", "-B", "16384", "-w"])
                .arg(&file)
                .stderr(Stdio::piped())
                .spawn()
                .expect("tcpdump is installed")
        };
        let mut child = wire.receiver.run(run).unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "tcpdump does not start");
        }
        std::thread::spawn(move || stderr.lines().count());
        Self { child, file }
    }

    /// The file, once tcpdump has had time to write what is still on its way.
    fn finish(mut self) -> PathBuf {
        std::thread::sleep(Duration::from_millis(300));
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.child.id().cast_signed()),
            nix::sys::signal::Signal::SIGINT,
        )
        .unwrap();
        self.child.wait().unwrap();
        self.file.clone()
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many frames of `file` match a display filter of Wireshark, all checksums verified.
fn matching(file: &Path, filter: &str) -> usize {
    let mut command = Command::new("tshark");
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output = command.args(["-n", "-r"]).arg(file).args(["-Y", filter]).output().expect("tshark is installed");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().count()
}

#[test]
fn a_thousand_frames_arrive_as_a_thousand_with_valid_checksums() {
    let Some(wire) = wire("count") else { return };
    for backend in BACKENDS {
        for (what, checksum) in [("--udp", "udp.checksum.status==1"), ("--syn-flood", "tcp.checksum.status==1")] {
            let tcpdump = Tcpdump::start(&wire);
            let before = wire.arrived();
            let report = wire.json(&[what, "--backend", backend, "--count", "1000", "--rate", "20k"]);
            let file = tcpdump.finish();
            assert_eq!(wire.arrived() - before, 1000, "{backend} {what}");
            assert_eq!(matching(&file, "frame.len==60"), 1000, "{backend} {what}");
            assert_eq!(matching(&file, &format!("ip.checksum.status==1 && {checksum}")), 1000, "{backend} {what}");
            assert_eq!((&report["handed"], &report["device_sent"]), (&1000.into(), &1000.into()));
        }
    }
}

#[test]
fn drawn_sources_differ_from_frame_to_frame_and_take_live_frames() {
    let Some(wire) = wire("drawn") else { return };
    let tcpdump = Tcpdump::start(&wire);
    let args = ["--syn-flood", "--random-sources", "--src", "198.18.128.0/17", "--count", "500", "--rate", "20k"];
    let report = wire.json(&args);
    let file = tcpdump.finish();
    assert_eq!((&report["random_sources"], &report["cycle_frames"]), (&true.into(), &1.into()));
    let right = "ip.checksum.status==1 && tcp.checksum.status==1 && ip.src==198.18.128.0/17 && tcp.srcport>=1024";
    assert_eq!(matching(&file, right), 500);
    let output = Command::new("tshark").args(["-n", "-r"]).arg(&file).args(["-T", "fields", "-e", "ip.src"]).output();
    let sources: std::collections::BTreeSet<_> = text(&output.unwrap().stdout).lines().map(str::to_owned).collect();
    assert!(sources.len() > 450, "500 draws of 32,768: {}", sources.len());
    let refusal = wire.send(&["--udp", "--random-sources", "--backend", "tx-ring", "--count", "1", "--rate", "1k"]);
    refused(&refusal, 3, &["tx-ring", "drawn anew", "xdp-live"]);
}

#[test]
fn the_rate_and_its_error_are_those_of_the_interfaces_own_count() {
    let Some(wire) = wire("rate") else { return };
    for backend in BACKENDS {
        let before = wire.arrived();
        let report = wire.json(&["--udp", "--backend", backend, "--duration", "500ms", "--rate", "5k"]);
        let arrived = (wire.arrived() - before) as f64;
        let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} of {report}"));
        let achieved = arrived / number("elapsed_s");
        // What it says of itself must be what the other side counted: how near that is to 5 kpps is the machine's affair.
        assert!((achieved / number("achieved_pps") - 1.0).abs() < 0.001, "{backend}: {achieved}, and {report}");
        let error = number("achieved_pps") / 5_000.0 - 1.0;
        assert!((error - number("pacing_error")).abs() < 1e-6, "{backend}: {error}, and {report}");
    }
}

#[test]
fn json_has_the_documented_fields() {
    let Some(wire) = wire("json") else { return };
    let report = wire.json(&["--udp", "--backend", "tx-ring", "--count", "10", "--rate", "1k"]);
    assert_eq!(report["schema"], "evenkeel.gen/1");
    assert_eq!((&report["interface"], &report["backend"]), (&wire.out.as_str().into(), &"tx-ring".into()));
    assert_eq!((&report["destination"], &report["destination_port"]), (&"198.19.0.1".into(), &"9".into()), "{report}");
    let manual = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/gen.md")).unwrap();
    let (_, json) = manual.split_once("## JSON").unwrap();
    let fields = report.as_object().unwrap().keys().chain(report["senders"][0].as_object().unwrap().keys());
    for field in fields.filter(|f| *f != "schema") {
        assert!(json.contains(&format!("`{field}`")), "{field} is not in docs/gen.md");
    }
}

#[test]
fn a_backend_that_the_interface_cannot_do_is_no_other_one() {
    let Some(wire) = wire("none") else { return };
    wire.receiver.set_feature(&wire.into, "rx-gro", false).unwrap();
    let before = wire.arrived();
    let output = wire.send(&["--udp", "--backend", "xdp-live", "--count", "10", "--rate", "1k"]);
    refused(&output, 3, &["xdp-live cannot send on", &wire.out, "gro on"]);
    assert_eq!(wire.arrived(), before);
    let report = wire.json(&["--udp", "--count", "10", "--rate", "1k"]);
    assert_eq!(report["backend"], "tx-ring");
    assert!(report["backend_reason"].as_str().unwrap().contains("takes no redirected frames"), "{report}");
}

#[test]
fn an_unknown_interface_and_a_missing_capability_are_named() {
    let Some(wire) = wire("known") else { return };
    let gen_on = |interface: &str| Command::new(EVENKEEL).args(["gen", interface, "--udp", "--rate", "1k"]).output();
    refused(&wire.sender.run(|| gen_on("ek-none")).unwrap().unwrap(), 3, &["no interface `ek-none`", "there are: "]);
    for (backend, lost, word) in
        [("tx-ring", "net_raw", "CAP_NET_RAW"), ("xdp", "net_raw", "CAP_NET_RAW"), ("xdp-live", "bpf", "CAP_BPF")]
    {
        let output = wire.sender.run(|| {
            let drop = format!("-{lost}");
            Command::new("setpriv")
                .args([format!("--bounding-set={drop}"), format!("--inh-caps={drop}"), EVENKEEL.into()])
                .args(["gen", &wire.out, "--udp", "--rate", "1k", "--count", "1", "--backend", backend])
                .output()
                .expect("setpriv")
        });
        refused(&output.unwrap(), 3, &[word, "gen with", backend]);
    }
    assert_eq!(wire.arrived(), 0);
}

/// A namespace that is no lab of this program, so that the rules of destinations count; it goes with the process.
fn outside_of_a_lab(args: &[&str]) -> Option<Output> {
    let script = "ip link add ekout type veth peer name ekin && ip link set ekout up && ip link set ekin up &&
        exec \"$0\" gen ekout --backend tx-ring --rate 1k --count 5 --json \"$@\"";
    let output = Command::new("unshare").args(["-n", "sh", "-c", script, EVENKEEL]).args(args).output().unwrap();
    if output.status.code() == Some(1) {
        skip(text(&output.stderr));
        return None;
    }
    Some(output)
}

#[test]
fn a_destination_outside_of_the_test_networks_is_refused_unless_named() {
    for args in
        [&["--udp", "--dst", "10.0.0.1"][..], &["--udp", "--dst", "2001:db8::1"], &["--udp", "--dst", "198.0.0.0/8"]]
    {
        let Some(output) = outside_of_a_lab(args) else { return };
        let destination = args[2].trim_end_matches("/8");
        refused(&output, 2, &[destination, "198.18.0.0/15", "--allow-destination"]);
    }
    let output = outside_of_a_lab(&["--udp", "--dst", "10.0.0.1", "--allow-destination", "10.0.0.0/24"]).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = outside_of_a_lab(&["--udp"]).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_truncated_file_is_refused_before_anything_is_sent() {
    let Some(wire) = wire("trunc") else { return };
    let tcpdump = Tcpdump::start(&wire);
    wire.json(&["--udp", "--backend", "tx-ring", "--count", "20", "--rate", "10k"]);
    let whole = tcpdump.finish();
    let bytes = fs::read(&whole).unwrap();
    assert_eq!(bytes.len(), 24 + 20 * 76, "a pcap of 20 frames of 60 bytes");
    let cut = wire.folder.path().join("cut.pcap");
    fs::write(&cut, &bytes[..24 + 7 * 76 + 30]).unwrap();
    let before = wire.arrived();
    let replay = |path: &Path| wire.send(&["--pcap", path.to_str().unwrap(), "--rate", "10k", "--count", "40"]);
    refused(&replay(&cut), 2, &["cut.pcap is damaged behind packet 7"]);
    fs::write(&cut, "no capture").unwrap();
    refused(&replay(&cut), 2, &["cannot read", "cut.pcap"]);
    refused(&replay(Path::new("/no/such.pcap")), 2, &["cannot read /no/such.pcap", "No such file"]);
    assert_eq!(wire.arrived(), before);
    let output = replay(&whole);
    assert_eq!((output.status.code(), wire.arrived() - before), (Some(0), 40), "{}", text(&output.stderr));
}

#[test]
fn nothing_is_left_of_root_once_frames_are_sent() {
    let Some(wire) = wire("priv") else { return };
    for backend in BACKENDS {
        let spawn = || {
            let args = ["--udp", "--backend", backend, "--rate", "1k", "--duration", "60s"];
            let mut command = Command::new(EVENKEEL);
            command.args(["gen", &wire.out]).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let before = wire.arrived();
        let mut child = wire.sender.run(spawn).unwrap();
        while wire.arrived() < before + 10 {
            assert_eq!(child.try_wait().unwrap(), None, "{backend} ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        for task in fs::read_dir(format!("/proc/{}/task", child.id())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
            for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapInh:", "CapAmb:"] {
                assert_eq!(field(set), "0000000000000000", "{backend}: {set}");
            }
            assert_eq!((field("NoNewPrivs:"), field("Uid:")), ("1".into(), "65534\t65534\t65534\t65534".into()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
