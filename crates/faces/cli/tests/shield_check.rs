//! `evenkeel shield check`, `explain` and `unit` from outside: what they print and how they end.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use testbed::{ended, json, refused, text};

fn shield(arguments: &[&str], session: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("shield").args(arguments).env("SSH_CONNECTION", session);
    command.output().expect("the program starts")
}

fn example() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/examples/shield.toml")
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.toml");
    std::fs::write(&path, text).expect("a file");
    let name = path.display().to_string();
    (folder, name)
}

#[test]
fn the_documented_example_has_nothing_wrong() {
    ended(&shield(&["check", &example().display().to_string()], ""), 0);
}

#[test]
fn what_is_wrong_is_reported_by_line_and_column() {
    let (_folder, name) = file("[[rule]]\nname = \"a\"\naction = \"drop\"\nsource = \"10.0.0.1/8\"\n");
    refused(&shield(&["check", &name], ""), 2, &["rules.toml:4:10: ", "write 10.0.0.0/8"]);
}

/// Errors are findings too, all at once: also the second rule of a name that has another fault.
#[test]
fn errors_are_a_document() {
    let text = "[[rule]]\nname = \"a\"\naction = \"drop\"\n[[rule]]\nname = \"a\"\naction = \"dorp\"\n";
    let (_folder, path) = file(text);
    let output = shield(&["check", &path, "--json"], "");
    assert_eq!(output.status.code(), Some(2));
    let document = json(&output);
    assert_eq!((&document["schema"], &document["rules"]), (&"evenkeel.shield.check/1".into(), &Value::Null));
    let findings = document["findings"].as_array().expect("findings");
    let lines: Vec<_> = findings.iter().map(|f| (f["kind"].as_str(), f["line"].as_u64())).collect();
    assert_eq!(lines, [(Some("error"), Some(5)), (Some("error"), Some(6))], "{document}");
}

#[test]
fn a_rule_that_cuts_off_the_session_is_a_finding() {
    let text = "[management]\nsession = false\n[[rule]]\nname = \"a\"\naction = \"drop\"\nsource = \"10.0.0.0/8\"\n";
    let (_folder, name) = file(text);
    let session = "10.1.2.3 50000 192.0.2.1 22";
    let output = shield(&["check", &name, "--json"], session);
    ended(&output, 1);
    let document = json(&output);
    assert_eq!(document["schema"], "evenkeel.shield.check/1");
    let harm = document["findings"].as_array().expect("findings").iter().find(|finding| finding["severity"] == "harm");
    let harm = harm.expect("a finding");
    assert_eq!((&harm["line"], &harm["kind"]), (&3.into(), &"cuts-off".into()), "{document}");
    refused(&shield(&["run", "lo", "--rules", &name], session), 2, &["--force"]);
}

#[test]
fn options_that_would_mean_nothing_are_refused() {
    let (_folder, name) = file("");
    let ring = ["--between", "a,b", "--backend", "ring"];
    for (more, says) in [
        (&["lo", "--threads", "4"][..], "--threads"),
        (&[&ring[..], &["--xdp-mode", "generic"]].concat(), "--xdp-mode"),
        (&[&ring[..], &["--leave"]].concat(), "--leave"),
    ] {
        refused(&shield(&[&["run", "--rules", &name], more].concat(), ""), 2, &[says]);
    }
}

#[test]
fn what_a_file_says_does_not_reach_the_terminal_as_orders() {
    let rules = "[sets.\"a\\u001b[2J\"]\nprefixes = []\n[sets.b]\nprefixes = []\n[[rule]]\nname = \"x\\u001b[2J\"\naction = \"drop\"\nsource = \"@b\"\n";
    let (_folder, name) = file(rules);
    let output = shield(&["check", &name], "");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(!message.contains('\u{1b}') && message.matches("it has control characters").count() == 2, "{message}");
    assert!(message.contains("an empty list says nothing") && !message.contains("there is no set"), "{message}");
}

#[test]
fn a_unit_names_the_file_by_its_whole_path() {
    let (folder, name) = file("");
    let output = shield(&["unit", "lo", "--rules", &name, "--fail", "closed"], "");
    ended(&output, 0);
    let unit = text(&output.stdout);
    let rules = folder.path().join("rules.toml");
    assert!(unit.contains(&format!("shield run lo --quiet --rules {} --fail closed", rules.display())), "{unit}");
    // A unit has no folder that other paths could go by.
    let (_folder, name) = file("protect = [\"192.0.2.1\"]\n[detection]\nevents = \"here.log\"\n");
    let output = shield(&["unit", "lo", "--rules", &name], "");
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn the_plan_is_a_script_that_nft_takes() {
    let (folder, name) = file(
        "default = \"drop\"\n[management]\nfrom = [\"192.0.2.0/24\"]\n[[rule]]\nname = \"dns\"\naction = \"drop\"\nprotocol = \"udp\"\nsource-port = 53\nexpires = 2099-12-31T00:00:00Z\n",
    );
    let output = shield(&["plan", "lo", "--rules", &name], "198.51.100.7 5555 198.51.100.1 2222");
    ended(&output, 0);
    let script = text(&output.stdout);
    assert!(script.contains("table netdev ek_shield_lo {") && script.contains("meta time < 4102358400 "), "{script}");
    for (who, port) in [("198.51.100.7", "2222"), ("192.0.2.0/24", "22")] {
        assert!(script.lines().any(|line| line.contains(who)), "{who}: {script}");
        assert!(script.lines().any(|line| line.contains(port) && line.contains(" accept ")), "{port}: {script}");
    }
    let solicited = script.lines().filter(|line| line.contains("management:neighbours")).count();
    assert!(solicited >= 1, "IPv6 goes on: {script}");
    let path = folder.path().join("rules.nft");
    std::fs::write(&path, &output.stdout).expect("a file");
    // In a namespace of its own, which ends with the program: nothing of it is on this machine.
    let checked = Command::new("unshare").args(["-n", "nft", "-c", "-f"]).arg(&path).output().expect("unshare");
    let message = text(&checked.stderr);
    assert!(checked.status.success() || message.contains("not permitted"), "{message}");
    assert!(!(std::env::var_os("CI").is_some() && message.contains("not permitted")), "CI runs as root: {message}");

    let (_folder, name) = file("[[rule]]\nname = \"syn\"\naction = \"challenge\"\nprotocol = \"tcp\"\n");
    refused(&shield(&["plan", "lo", "--rules", &name], ""), 2, &["\"syn\""]);
    refused(&shield(&["plan", "ek-none", "--rule", "drop protocol=udp"], ""), 3, &["ek-none"]);
}

/// A pcap file with an IPv6 neighbour solicitation and a UDP packet to port 9.
fn capture() -> Vec<u8> {
    let mut solicitation = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]].concat();
    solicitation.extend([[0x20; 16], [0x30; 16]].concat());
    solicitation.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    solicitation.extend([0x30; 16]);
    let mut udp = vec![2; 12];
    udp.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 18, 0, 2, 0, 53, 0, 9, 0, 8, 0, 0]);
    let mut file: Vec<u8> = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1].into_iter().flat_map(u32::to_le_bytes).collect();
    for frame in [solicitation, udp] {
        let len = frame.len() as u32;
        file.extend([1_800_000_000, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

#[test]
fn explain_has_the_management_rules_and_reads_pipes_and_files_that_break_off() {
    let (folder, name) = file("[[rule]]\nname = \"all\"\naction = \"drop\"\n");
    let path = folder.path().join("x.pcap");
    let whole = capture();
    std::fs::write(&path, &whole).expect("a file");
    let path = path.display().to_string();
    let output = shield(&["explain", &path, "--rules", &name, "--json"], "");
    ended(&output, 0);
    let lines: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout).into_iter().flatten().collect();
    let decided = |line: &Value| (line["outcome"].clone(), line["rule"].clone());
    let [solicitation, udp, sums] = &lines[..] else { panic!("{lines:?}") };
    let as_shield_run_would = ("pass".into(), "management:neighbours".into());
    assert_eq!([decided(solicitation), decided(udp)], [as_shield_run_would, ("drop".into(), "all".into())]);
    assert_eq!(counted(sums), [2, 1, 1]);
    assert!(text(&shield(&["explain", &path, "--rules", &name], "").stdout).contains("icmpv6 nd-neighbor-solicit"));

    let piped = within("20", &["explain", "-", "--summary", "--json", "--rules", &name], &path);
    assert_eq!(counted(&json(&piped)), [2, 1, 1]);

    std::fs::write(&path, &whole[..whole.len() - 1]).expect("a file");
    let output = shield(&["explain", &path, "--summary", "--json", "--rules", &name], "");
    refused(&output, 2, &["after packet 1"]);
    assert_eq!(counted(&json(&output)), [1, 1, 0], "what came before");
}

/// All packets that were explained, those that passed and those that were dropped.
fn counted(sums: &Value) -> [u64; 3] {
    ["all", "passed", "dropped"].map(|of| sums["summary"][of]["packets"].as_u64().unwrap_or_else(|| panic!("{sums}")))
}

#[test]
fn an_interface_that_is_not_there_is_distinguished_from_one_without_a_shield() {
    for (interface, code) in [("ek-no-such", 3), ("lo", 1)] {
        for verb in ["status", "reload", "stop"] {
            let output = shield(&[verb, interface], "");
            assert_eq!(output.status.code(), Some(code), "{verb}: {output:?}");
            let printed = text(&output.stderr);
            assert!(printed.contains(interface), "{verb}: {output:?}");
            // Who stops one does not want to start one.
            assert_eq!(printed.contains("shield run"), verb != "stop" && code == 1, "{verb}: {printed}");
        }
    }
}

#[test]
fn a_hundred_thousand_rules_and_as_many_errors_are_read_in_time() {
    let rule = |n: usize| format!("[[rule]]\nname = \"r{n}\"\naction = \"drop\"\nsource = \"@none{n}\"\n");
    let (_folder, name) = file(&(0..100_000).map(rule).collect::<String>());
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_evenkeel"), "shield", "check", &name, "--json"]);
    let output = command.output().expect("timeout");
    assert_eq!(output.status.code(), Some(2));
    let document = json(&output);
    let findings = document["findings"].as_array().expect("findings");
    // Each rule names a set that is not there; and the rule behind the last one that has room.
    assert_eq!(findings.iter().filter(|found| found["kind"] == "error").count(), 100_001);
    assert!(
        findings.iter().any(|found| found["line"] == 4 * 4032 + 1 && found["column"] == 1),
        "the first rule too many"
    );
}

#[test]
fn a_unit_warns_of_rules_that_it_cannot_see() {
    let warned = |folder: &str| {
        let folder = tempfile::Builder::new().prefix("ek-unit").tempdir_in(folder).expect("a folder");
        let path = folder.path().join("rules.toml");
        std::fs::write(&path, "").expect("a file");
        let output = shield(&["unit", "lo", "--rules", &path.display().to_string()], "");
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
        let warned = |hidden: &str| {
            text(&output.stderr).lines().any(|line| line.contains("PrivateTmp") && line.contains(hidden))
        };
        // The repository, and with it the program, may be in such a folder.
        let program = env!("CARGO_BIN_EXE_evenkeel");
        assert_eq!(warned(program), ["/tmp/", "/var/tmp/"].iter().any(|hidden| program.starts_with(hidden)));
        warned(&path.display().to_string())
    };
    assert!(warned("/tmp"));
    // The tree of this program may lie in a private folder itself.
    if testbed::privileged().is_some() {
        assert!(!warned("/run"));
    }
}

#[test]
fn who_may_not_look_is_notified() {
    let Some(()) = testbed::privileged() else { return };
    // As after the first shield: nobody else may look there.
    let script = "mount -t tmpfs -o mode=755 tmpfs /run && mkdir -m 700 /run/evenkeel && \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \"$@\"";
    let program = tempfile::Builder::new().prefix("ek-see").tempdir_in("/tmp").expect("a folder");
    let copy = program.path().join("evenkeel");
    std::fs::copy(env!("CARGO_BIN_EXE_evenkeel"), &copy).expect("a copy");
    std::fs::set_permissions(program.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    for verb in [&["status", "lo"][..], &["reload", "lo"], &["stop", "lo"], &["list"], &["status"]] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&copy).arg("shield").args(verb);
        refused(&command.output().expect("unshare"), 3, &["root"]);
    }
    // What is in a file is checked for everybody; of the machine nothing wrong is said.
    let rules = program.path().join("rules.toml");
    let text = "[[rule]]\nname = \"syn\"\naction = \"challenge\"\nprotocol = \"tcp\"\n[[rule]]\nname = \"stray\"\naction = \"drop\"\nprotocol = \"udp\"\nconnection = \"none\"\n";
    std::fs::write(&rules, text).expect("written");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&copy).args(["shield", "check"]).arg(&rules);
    let checked = command.output().expect("unshare");
    let printed = String::from_utf8_lossy(&checked.stdout);
    assert!(
        checked.status.success() && printed.contains("run it as root") && !printed.contains("netfilter"),
        "{checked:?}"
    );
}

/// `shield` with these arguments, given up after a while, with a file as standard input.
fn within(seconds: &str, arguments: &[&str], input: &str) -> std::process::Output {
    let mut command = Command::new("timeout");
    command.args([seconds, env!("CARGO_BIN_EXE_evenkeel"), "shield"]).args(arguments);
    command.stdin(std::fs::File::open(input).expect("the input")).output().expect("timeout")
}

#[test]
fn rules_are_not_read_from_what_has_no_end() {
    let (folder, name) = file("[sets.bad]\nfile = \"/dev/zero\"\n");
    for path in ["/dev/zero", "/dev/full", "/proc/kmsg", &name] {
        for arguments in [&["check", path][..], &["plan", "lo", "--rules", path], &["run", "lo", "--rules", path]] {
            refused(&within("20", arguments, "/dev/null"), 2, &[path]);
        }
    }
    refused(&within("60", &["check", "-"], "/dev/zero"), 2, &["256 MiB"]);
    // A pipe that nobody writes is waited for, and that is said.
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    refused(&within("1", &["check", &pipe.display().to_string()], "/dev/null"), 124, &["waiting for "]);
}

#[test]
fn a_dash_is_the_standard_input() {
    let (folder, name) = file("[[rule]]\nname = \"all\"\naction = \"drop\"\n");
    let path = folder.path().join("x.pcap");
    std::fs::write(&path, capture()).expect("a file");
    let path = path.display().to_string();
    for arguments in [&["check", "-"][..], &["plan", "lo", "--rules", "-"], &["explain", &path, "--rules", "-"]] {
        let output = within("20", arguments, &name);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        assert!(output.stderr.is_empty(), "nobody is waited for: {output:?}");
    }
    let sums = json(&within("20", &["explain", &path, "--summary", "--json", "--rules", "-"], &name));
    assert_eq!(counted(&sums), [2, 1, 1]);
    ended(&within("20", &["explain", "-", "--rules", "-"], &name), 2);
}

#[test]
fn a_pipe_as_the_file_of_metrics_is_refused_before_the_shield_is_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let (_rules, name) =
        file(&format!("protect = [\"203.0.113.0/24\"]\n[detection]\nmetrics = {{ file = \"{}\" }}\n", pipe.display()));
    let output = shield(&["check", "--json", &name], "");
    let json = json(&output);
    let found = json["findings"].as_array().expect("findings");
    assert!(found.iter().any(|finding| finding["kind"] == "no-file"), "{json}");
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-n", "timeout", "20", env!("CARGO_BIN_EXE_evenkeel"), "shield", "run", "lo", "--quiet"]);
    let output = command.args(["--xdp-mode", "generic", "--rules", &name]).output().expect("unshare");
    ended(&output, 2);
    let message = text(&output.stderr);
    assert!(message.contains(&pipe.display().to_string()) && !message.contains("shield up"), "{message}");
}
