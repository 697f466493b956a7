//! `evenkeel profile sweep` from outside: a tiny sweep, its JSON, its page, and what it refuses.

use std::{
    fs,
    process::{Command, Output},
};

use testbed::{json, privileged, text};

fn sweep(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["profile", "sweep"]).args(args).output().unwrap()
}

#[test]
fn two_steps_of_each_box_end_with_figures_that_hold_together() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("sweep.html");
    let boxes = [("router", "ip"), ("capture-ring", "taps")];
    for (name, class) in boxes {
        let html = page.to_str().unwrap();
        // Each search takes its time: one of the boxes is searched twice.
        let repeats = if name == "router" { 2 } else { 1 };
        let again = repeats.to_string();
        let output =
            sweep(&["--dut", name, "--loads", "2", "--duration", "0.2", "--repeats", &again, "--json", "--html", html]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        let json = json(&output);
        assert_eq!((&json["schema"], &json["box"]), (&"evenkeel.sweep/1".into(), &name.into()));
        let setups = json["setups"].as_array().unwrap();
        assert_eq!(setups.iter().map(|s| s["key"].as_str().unwrap()).collect::<Vec<_>>(), ["standard", "optimised"]);
        let mut seen = false;
        for step in setups.iter().flat_map(|s| s["steps"].as_array().unwrap()) {
            let number = |key: &str| step[key].as_f64().unwrap_or_else(|| panic!("{key} of {step}"));
            assert!(number("offered_pps") > 0.0 && number("samples") > 0.0, "{name}: {step}");
            // Counters of two interfaces are read a moment apart.
            assert!(number("forwarded_pps") <= 1.5 * number("offered_pps") + 1000.0, "{name}: {step}");
            let classes = step["classes"].as_object().unwrap();
            let shares: f64 = classes.values().map(|v| v.as_f64().unwrap()).sum();
            let all = shares + number("generator_percent") + number("receiver_percent") + number("others_percent");
            assert!((all - 100.0).abs() < 1e-6, "{name}: {all} %");
            seen |= classes.contains_key(class);
        }
        let length = |setup: &serde_json::Value, key: &str| setup[key].as_array().unwrap().len();
        for setup in setups {
            // Two loads and the ceiling.
            assert_eq!(
                (length(setup, "steps"), length(setup, "ceilings_pps"), length(setup, "at_ceiling")),
                (3, repeats, repeats)
            );
            let ceiling = setup["ceiling_pps"].as_f64().unwrap();
            let is_ceiling = |s: &serde_json::Value| (s["intended_pps"].as_f64().unwrap() / ceiling - 1.0).abs() < 0.05;
            assert!(setup["steps"].as_array().unwrap().iter().any(is_ceiling), "{name}: the table lacks {ceiling}");
        }
        // Two searches bear no verdict.
        assert_eq!(json["gain"]["significant"], false, "{name}");
        let gain = ["lowest", "ratio", "highest"].map(|key| json["gain"][key].as_f64().unwrap());
        assert!(gain.is_sorted(), "{name}: {gain:?}");
        assert!(seen, "{name}: no step has {class}: {json}");
        assert_eq!(json["sources"].as_array().unwrap().is_empty(), name != "router");
        let html = fs::read_to_string(&page).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the page alone, no part of it");
        assert!(html.contains("sweep-standard") && html.contains("sweep-optimised") && !html.contains("<script src"));
    }
    let left = fs::read_dir("/run/netns")
        .map_or(0, |all| all.flatten().filter(|e| e.file_name().to_string_lossy().contains("-sweep-")).count());
    assert_eq!(left, 0, "namespaces stay behind");
}
