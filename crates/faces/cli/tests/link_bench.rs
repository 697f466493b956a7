//! `evenkeel link bench`: a short run, and what is refused.

use std::process::Command;

use testbed::{ended, json, refused};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

#[test]
fn a_short_run_measures_each_row_and_writes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut command = Command::new(EVENKEEL);
    command.args(["link", "bench", "--quick", "--messages", "20", "--megabytes", "1", "--json", "--html"]).arg(&page);
    let ran = command.output().unwrap();
    ended(&ran, 0);
    let run = json(&ran);
    assert_eq!(run["schema"], "evenkeel.link.bench/1");
    for by in ["link", "link-sockets", "packet", "udp", "tcp", "broker"] {
        let rows = run["pings"].as_array().unwrap().iter().filter(|row| row["transport"] == by);
        let rows: Vec<_> = rows.collect();
        assert!(!rows.is_empty(), "{by}");
        for row in rows {
            let [least, median] = ["min_ns", "p50_ns"].map(|name| row["rounds"][0][name].as_f64().unwrap());
            assert!(0.0 < least && least <= median, "{by}: {row}");
        }
    }
    for by in ["link", "tcp"] {
        let moved = run["transfers"].as_array().unwrap().iter().find(|row| row["transport"] == by).unwrap();
        assert_eq!(moved["bytes"], 1_000_000, "{by}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("link-sockets") && page.contains("</html>"));
}

#[test]
fn one_cpu_is_too_few() {
    let ran = Command::new(EVENKEEL).args(["link", "bench", "--quick", "--cpus", "0"]).output().unwrap();
    refused(&ran, 3, &["CPU"]);
}
