//! `evenkeel bench --ports A,B` on real packets, from a namespace that has the ports and nothing else: a box of known rate, IPv4 and IPv6.

use std::{fs, path::Path, process::Command};

use bench::outside::Addressing;
use lab::boxes::Family;
use serde_json::Value;
use testbed::{PortsBed, Running, alone, wait_for};

/// The box lets so many packets through, of both directions together, and so many at once.
const RATE: f64 = 20_000.0;
const AT_ONCE: f64 = 0.004 * RATE;
const TRIAL_S: f64 = 0.3;
/// Runs until one is not kept from its work by somebody else on this machine.
const RUNS_MAX: u32 = 4;

/// How XDP programs are attached to the tester's ports now, in the words of the program ip: `xdp` in the driver, `xdpgeneric` in the stack.
fn attached(bed: &PortsBed) -> Vec<String> {
    let links: Value = serde_json::from_str(&bed.tester.output("ip -json link show")).expect("JSON");
    let of_ports = links.as_array().expect("links").iter().filter(|l| bed.names().iter().any(|&n| l["ifname"] == n));
    of_ports.filter(|l| l["xdp"].is_object()).map(|l| l["xdp"]["mode"].to_string()).collect()
}

/// A short run from inside of the tester's namespace: its exit code, what it said, and the modes in which the ports had XDP programs.
fn bench(bed: &PortsBed, family: Family, file: &Path) -> (i32, String, Vec<String>) {
    let (errors, ports) = (file.with_extension("err"), bed.names().join(","));
    // With real-time priority: other tests of this machine do not make the trials void.
    let mut command = Command::new("chrt");
    command.args(["--fifo", "1", env!("CARGO_BIN_EXE_evenkeel")]);
    command.args(["bench", "--ports", &ports, "--sizes", "128", "--tests", "throughput", "--repeats", "1"]);
    command.args(["--duration", &TRIAL_S.to_string(), "--save"]).arg(file);
    if family == Family::V6 {
        command.arg("--ipv6");
    }
    let mut running = bed.tester.run(|| Running::logged(&mut command, &errors));
    let mut modes = Vec::new();
    let status = wait_for("the end of the run", || {
        let now = attached(bed);
        if now.len() == 2 {
            modes = now;
        }
        running.ended()
    });
    let printed = fs::read_to_string(&errors).expect("what it printed");
    (status.code().expect("an exit code"), printed, modes)
}

fn measured(tag: &str, family: Family) {
    let _cores = alone();
    let Some(bed) = PortsBed::new(tag) else { return };
    bed.send(&Addressing::routed(family).set_up());
    bed.inside.nft("add table inet ekknown");
    bed.inside.nft("add chain inet ekknown forward { type filter hook forward priority 10 ; }");
    bed.inside
        .nft(&format!("add rule inet ekknown forward limit rate over {RATE}/second burst {AT_ONCE} packets drop"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut seen = Vec::new();
    for run in 0..RUNS_MAX {
        let file = folder.path().join(format!("{run}.json"));
        let (code, printed, modes) = bench(&bed, family, &file);
        assert_eq!((bed.addresses(), attached(&bed)), (String::new(), Vec::new()), "left behind");
        if code == 3 {
            seen.push(printed);
            continue;
        }
        let saved: Value = serde_json::from_slice(&fs::read(&file).expect("a run")).expect("JSON");
        let point = &saved["modes"][0]["points"][0];
        let lower = point["throughput"]["results"][0]["lower_pps"].as_f64().unwrap_or(0.0);
        // More than the rule lets through can never be found.
        let most = (RATE + AT_ONCE / TRIAL_S) * 1.002;
        assert!(lower <= most, "{lower} came through, past {RATE}: {point}");
        if code != 0 || lower < 0.95 * RATE {
            seen.push(format!("{code}, {lower}: {printed}"));
            continue;
        }
        assert_eq!((&saved["status"]["status"], &saved["modes"][0]["key"]), (&"complete".into(), &"ports".into()));
        assert!(point["ceiling_pps"].as_f64().is_some_and(|c| c > RATE), "{point}");
        // What the run says of the receiver, and what the kernel says.
        let setup = &saved["setup"];
        let port_notes = setup["ports"].as_array().expect("ports").iter().map(|p| p.as_str().expect("words"));
        let port_notes: Vec<&str> = port_notes.collect();
        assert!(
            port_notes.len() == 2 && port_notes.iter().all(|p| p.ends_with("by XDP in native mode")),
            "{port_notes:?}"
        );
        assert_eq!(modes, ["1", "1"], "XDP in the driver (IFLA_XDP_ATTACHED, linux/if_link.h)");
        assert_eq!(setup["ip_version"], if family == Family::V6 { 6 } else { 4 });
        assert!(setup["addressing"].as_str().is_some_and(|a| a.contains("asked for by")), "{setup}");
        return;
    }
    panic!("{RATE} packets per second were not found: {seen:#?}");
}

#[test]
fn a_box_between_two_ports_is_measured() {
    measured("four", Family::V4);
}

#[test]
fn a_box_between_two_ports_is_measured_by_ipv6() {
    measured("six", Family::V6);
}

#[test]
fn a_port_that_cannot_be_used_is_named_before_anything_is_reported_or_made() {
    let Some(bed) = PortsBed::new("down") else { return };
    let [a, b] = bed.names();
    bed.ports[1].link_set("down");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["bench", "--ports", &format!("{a},{b}"), "--save"]).arg(folder.path().join("run.json"));
    let out = bed.tester.run(|| command.output()).expect("the program");
    let printed = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{printed}");
    assert!(printed.contains(&format!("{b} is down")), "{printed}");
    assert!(out.stdout.is_empty() && folder.path().read_dir().expect("a folder").count() == 0);
    assert_eq!(bed.addresses(), "");
}
