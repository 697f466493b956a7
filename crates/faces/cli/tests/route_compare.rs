//! `evenkeel route compare` from outside, in its smallest form, on real packets.

mod busy;

use std::{
    fs,
    process::{Command, Output},
};

use busy::unless_busy;
use testbed::{json, text, turn};

fn compare(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["route", "compare"]).args(args).output().unwrap()
}

#[test]
fn each_mode_has_its_figures_and_they_hold_together() {
    let Some(_alone) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    // A loss of 50 % is fine, so that a busy machine makes no difference to what is shown here.
    let args = ["--quick", "--loads", "2", "--duration", "200ms", "--loss-ratio", "50%", "--json", "--html"];
    let run = || compare(&[&args[..], &[page.to_str().unwrap()]].concat());
    let Some(output) = unless_busy(run) else { return };
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let json = json(&output);
    assert_eq!(json["schema"], "evenkeel.route.compare/1");
    let ways = json["configurations"].as_array().unwrap();
    let of_one: Vec<&str> = ways.iter().filter(|w| w["cores"] == 1).map(|w| w["mode"].as_str().unwrap()).collect();
    let skipped = json["skipped"].as_array().unwrap();
    for mode in ["none", "standard", "routed", "stateful"] {
        // A kernel without connection tracking, or a machine without nft, cannot build the last one.
        let is_left_out = skipped.iter().any(|l| l["what"].as_str().unwrap().starts_with(mode));
        assert!(of_one.contains(&mode) || is_left_out, "{mode}: {skipped:?}");
    }
    // With fewer than three CPUs there is no second core, and the reason is told.
    let second = ways.iter().any(|w| w["cores"] == 2);
    assert_ne!(second, skipped.iter().any(|l| l["what"] == "with the second core"), "{skipped:?}");
    assert_eq!(json["beds"].as_array().unwrap().len(), 1 + usize::from(second));
    for way in ways {
        let steps = ["steps", "at_ceiling"].iter().flat_map(|part| way[part].as_array().unwrap());
        for step in steps {
            let shares: f64 = step["classes"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
            let all = shares + step["receiver_percent"].as_f64().unwrap();
            assert!((all - 100.0).abs() < 1e-6, "{}: {all} % of {step}", way["key"]);
        }
        assert_eq!(way["rounds"].as_array().unwrap().len(), 1);
        assert_ne!(way["gain"]["significant"], true, "one round bears no verdict");
    }
    memory_distinguishes_the_kernel_from_the_fast_path(ways);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("sweep-none-1") && html.contains("</html>") && !html.contains("<script"));
    let left = fs::read_dir("/run/netns")
        .map_or(0, |all| all.flatten().filter(|e| e.file_name().to_string_lossy().contains("-bench-")).count());
    assert_eq!(left, 0, "namespaces stay behind");
}

/// The kernel makes a socket buffer of each packet that it forwards, the fast path of none.
fn memory_distinguishes_the_kernel_from_the_fast_path(ways: &[serde_json::Value]) {
    for way in ways {
        let Some(buffers) = way["allocations"]["socket_buffers"].as_f64() else { continue };
        match way["mode"].as_str().unwrap() {
            "none" | "standard" => assert!(buffers > 0.9, "{}: {buffers}", way["key"]),
            _ => assert!(buffers < 0.1, "{}: {buffers}", way["key"]),
        }
    }
}

#[test]
fn the_plan_says_what_is_left_out_and_makes_nothing() {
    let output = compare(&["--dry-run", "--cpus", "0", "--modes", "routed,none", "--repeats", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan = json(&output);
    assert_eq!(plan["schema"], "evenkeel.route.compare.plan/1");
    let names: Vec<&str> = plan["steps"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names[1..3], ["no program, one core, round 1 of 2", "routed, one core, round 1 of 2"]);
    assert_eq!(plan["skipped"][0]["what"], "with the second core");
    assert!(plan["seconds"].as_f64().unwrap() > 1.0);
}
