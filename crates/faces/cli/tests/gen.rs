//! `evenkeel gen` from outside: what arrives, how fast, and what it refuses.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::MutexGuard,
    time::Duration,
};

use testbed::{Running, Tcpdump, Wire, alone, ended, json, matching, pcap, refused, skip, text, tshark, wait};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
const BACKENDS: [&str; 3] = ["xdp-live", "xdp", "tx-ring"];

/// A wire, and the turn: each frame is counted, and another test's flood on the same cores would have some find a full queue.
fn wire(tag: &str) -> Option<(MutexGuard<'static, ()>, Wire)> {
    Some((alone(), Wire::with_napi(tag)?))
}

fn send(wire: &Wire, args: &[&str]) -> Output {
    let mut command = Command::new(EVENKEEL);
    wire.sender.run(|| command.args(["gen", wire.sender.interface()]).args(args).output().unwrap())
}

/// tcpdump on the receiving end, which writes a file until told to stop.
fn tcpdump(wire: &Wire) -> Tcpdump {
    Tcpdump::start(&wire.receiver, wire.receiver.interface(), &wire.bed.path("seen.pcap"), &[])
}

fn sent(wire: &Wire, args: &[&str]) -> serde_json::Value {
    let output = send(wire, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    json(&output)
}

#[test]
fn a_thousand_frames_arrive_as_a_thousand_with_valid_checksums() {
    let Some((_alone, wire)) = wire("count") else { return };
    for backend in BACKENDS {
        for (what, checksum) in [("--udp", "udp.checksum.status==1"), ("--syn-flood", "tcp.checksum.status==1")] {
            let tcpdump = tcpdump(&wire);
            let before = wire.receiver.received();
            let report = sent(&wire, &[what, "--backend", backend, "--count", "1000", "--rate", "20k"]);
            let file = tcpdump.stop();
            assert_eq!(wire.receiver.received() - before, 1000, "{backend} {what}");
            assert_eq!(matching(&file, "frame.len==60"), 1000, "{backend} {what}");
            assert_eq!(matching(&file, &format!("ip.checksum.status==1 && {checksum}")), 1000, "{backend} {what}");
            assert_eq!((&report["submitted"], &report["device_sent"]), (&1000.into(), &1000.into()));
        }
    }
}

#[test]
fn drawn_sources_differ_from_frame_to_frame_and_take_live_frames() {
    let Some((_alone, wire)) = wire("drawn") else { return };
    let tcpdump = tcpdump(&wire);
    let args = ["--syn-flood", "--random-sources", "--src", "198.18.128.0/17", "--count", "500", "--rate", "20k"];
    let report = sent(&wire, &args);
    let file = tcpdump.stop();
    assert_eq!((&report["random_sources"], &report["cycle_frames"]), (&true.into(), &1.into()));
    let right = "ip.checksum.status==1 && tcp.checksum.status==1 && ip.src==198.18.128.0/17 && tcp.srcport>=1024";
    assert_eq!(matching(&file, right), 500);
    let sources: std::collections::BTreeSet<_> = tshark(&file, &["ip.src"], 'f').into_iter().collect();
    assert!(sources.len() > 450, "500 draws of 32,768: {}", sources.len());
    let refusal = send(&wire, &["--udp", "--random-sources", "--backend", "tx-ring", "--count", "1", "--rate", "1k"]);
    refused(&refusal, 3, &["tx-ring", "drawn anew", "xdp-live"]);
}

#[test]
fn the_rate_and_its_error_are_those_of_the_interfaces_own_count() {
    let Some((_alone, wire)) = wire("rate") else { return };
    for backend in BACKENDS {
        let before = wire.receiver.received();
        let report = sent(&wire, &["--udp", "--backend", backend, "--duration", "500ms", "--rate", "5k"]);
        let arrived = (wire.receiver.received() - before) as f64;
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
    let Some((_alone, wire)) = wire("json") else { return };
    let report = sent(&wire, &["--udp", "--backend", "tx-ring", "--count", "10", "--rate", "1k"]);
    assert_eq!(report["schema"], "evenkeel.gen/1");
    assert_eq!((&report["interface"], &report["backend"]), (&wire.sender.interface().into(), &"tx-ring".into()));
    assert_eq!((&report["destination"], &report["destination_port"]), (&"198.19.0.1".into(), &"9".into()), "{report}");
    let manual =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/measure/gen.md")).unwrap();
    let (_, json) = manual.split_once("## JSON").unwrap();
    let fields = report.as_object().unwrap().keys().chain(report["senders"][0].as_object().unwrap().keys());
    for field in fields.filter(|f| *f != "schema") {
        assert!(json.contains(&format!("`{field}`")), "{field} is not in docs/measure/gen.md");
    }
}

#[test]
fn a_backend_that_the_interface_cannot_do_is_no_other_one() {
    let Some((_alone, wire)) = wire("none") else { return };
    wire.receiver.feature("rx-gro", false);
    let before = wire.receiver.received();
    let output = send(&wire, &["--udp", "--backend", "xdp-live", "--count", "10", "--rate", "1k"]);
    refused(&output, 3, &["xdp-live cannot send on", wire.sender.interface(), "gro on"]);
    assert_eq!(wire.receiver.received(), before);
    let report = sent(&wire, &["--udp", "--count", "10", "--rate", "1k"]);
    assert_eq!(report["backend"], "tx-ring");
    assert!(report["backend_reason"].as_str().unwrap().contains("takes no redirected frames"), "{report}");
}

#[test]
fn an_unknown_interface_and_a_missing_capability_are_named() {
    let Some((_alone, wire)) = wire("known") else { return };
    let gen_on = |interface: &str| Command::new(EVENKEEL).args(["gen", interface, "--udp", "--rate", "1k"]).output();
    refused(&wire.sender.run(|| gen_on("ek-none")).unwrap(), 3, &["no interface `ek-none`", "there are: "]);
    for (backend, lost, word) in
        [("tx-ring", "net_raw", "CAP_NET_RAW"), ("xdp", "net_raw", "CAP_NET_RAW"), ("xdp-live", "bpf", "CAP_BPF")]
    {
        let output = wire.sender.run(|| {
            let drop = format!("-{lost}");
            Command::new("setpriv")
                .args([format!("--bounding-set={drop}"), format!("--inh-caps={drop}"), EVENKEEL.into()])
                .args(["gen", wire.sender.interface(), "--udp", "--rate", "1k", "--count", "1", "--backend", backend])
                .output()
                .expect("setpriv")
        });
        refused(&output, 3, &[word, "gen with", backend]);
    }
    assert_eq!(wire.receiver.received(), 0);
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
    ended(&output, 0);
    ended(&outside_of_a_lab(&["--udp"]).unwrap(), 0);
}

#[test]
fn a_truncated_file_is_refused_before_anything_is_sent() {
    let Some((_alone, wire)) = wire("trunc") else { return };
    let tcpdump = tcpdump(&wire);
    sent(&wire, &["--udp", "--backend", "tx-ring", "--count", "20", "--rate", "10k"]);
    let whole = tcpdump.stop();
    let bytes = fs::read(&whole).unwrap();
    assert_eq!(bytes.len(), 24 + 20 * 76, "a pcap of 20 frames of 60 bytes");
    let cut = wire.bed.path("cut.pcap");
    fs::write(&cut, &bytes[..24 + 7 * 76 + 30]).unwrap();
    let before = wire.receiver.received();
    let replay = |path: &Path| send(&wire, &["--pcap", path.to_str().unwrap(), "--rate", "10k", "--count", "40"]);
    refused(&replay(&cut), 2, &["cut.pcap is damaged after packet 7"]);
    fs::write(&cut, "no capture").unwrap();
    refused(&replay(&cut), 2, &["cannot read", "cut.pcap"]);
    refused(&replay(Path::new("/no/such.pcap")), 2, &["cannot read /no/such.pcap", "No such file"]);
    assert_eq!(wire.receiver.received(), before);
    let output = replay(&whole);
    assert_eq!((output.status.code(), wire.receiver.received() - before), (Some(0), 40), "{}", text(&output.stderr));
}

#[test]
fn nothing_is_left_of_root_once_frames_are_sent() {
    let Some((_alone, wire)) = wire("priv") else { return };
    for backend in BACKENDS {
        let args = ["--udp", "--backend", backend, "--rate", "1k", "--duration", "60s"];
        let mut command = Command::new(EVENKEEL);
        command.args(["gen", wire.sender.interface()]).args(args);
        let before = wire.receiver.received();
        let mut running = wire.sender.run(|| Running::silent(&mut command));
        wait("frames are sent", || {
            assert_eq!(running.ended(), None, "{backend} ended");
            wire.receiver.received() >= before + 10
        });
        for task in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
            for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapInh:", "CapAmb:"] {
                assert_eq!(field(set), "0000000000000000", "{backend}: {set}");
            }
            assert_eq!((field("NoNewPrivs:"), field("Uid:")), ("1".into(), "65534\t65534\t65534\t65534".into()));
        }
    }
}

#[test]
fn frames_that_would_not_arrive_are_reported_before_they_are_sent() {
    let Some(Wire { sender, receiver, bed }) = Wire::new("gentold") else { return };
    let gen_with = |args: &[&str]| sender.run(|| Running::piped(Command::new(EVENKEEL).arg("gen").args(args))).output();
    // A device of IP packets.
    sender.output("ip tuntap add dev ektun mode tun");
    refused(&gen_with(&["ektun", "--udp", "--rate", "10", "--count", "1"]), 3, &["ektun has no Ethernet addresses"]);
    // A neighbour whose MAC address the kernel knows.
    let mac = receiver.output("cat /sys/class/net/NAME/address".replace("NAME", receiver.interface()).as_str());
    let mac = mac.trim();
    sender.output(&format!("ip neigh add 198.19.0.9 lladdr {mac} dev {}", sender.interface()));
    let to = |more: &[&str]| {
        let args =
            [&[sender.interface(), "--udp", "--rate", "100", "--count", "2", "--dst", "198.19.0.9"], more].concat();
        let output = gen_with(&args);
        ended(&output, 0);
        text(&output.stderr)
    };
    assert!(to(&[]).contains(&format!("--dst-mac {mac} reaches it")), "{}", to(&[]));
    assert!(!to(&["--dst-mac", mac]).contains("reaches it"));
    // A file with 18 hours between two packets.
    let path =
        bed.file("gap.pcap", pcap(1, [1000, 66_800].map(|seconds| (Duration::from_secs(seconds), [0xffu8; 60], 60))));
    let args = [sender.interface(), "--pcap", &path, "--allow-non-ip", "--duration", "1s"];
    let output = gen_with(&args);
    let message = text(&output.stderr);
    assert!(message.contains("65800 s without a packet before its packet 2"), "{message}");
    // The mean of the whole file is no rate that its first second could keep.
    let shown = text(&output.stdout);
    assert!(shown.contains("the first 1 of 2 packets") && !shown.contains("error"), "{shown}");
    let report = json(&gen_with(&[&args[..], &["--json"]].concat()));
    assert_eq!((&report["submitted"], &report["pacing_error"]), (&1.into(), &serde_json::Value::Null), "{report}");
}
