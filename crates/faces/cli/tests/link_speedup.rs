//! `evenkeel link speedup`: a short run on namespaces, and what is refused.

use std::process::{Command, Output};

use serde_json::Value;
use testbed::{ended, json, privileged, refused};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

fn speedup(args: &[&str]) -> Output {
    Command::new(EVENKEEL).args(["link", "speedup"]).args(args).output().unwrap()
}

#[test]
fn a_short_run_measures_each_number_of_nodes_and_writes_a_page() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let ran = speedup(&["--quick", "--repeats", "3", "--json", "--html", page.to_str().unwrap()]);
    let run = json(&ran);
    assert_eq!(run["schema"], "evenkeel.link.speedup/1");
    let series = run["series"].as_array().unwrap();
    let which: Vec<(&str, &str)> =
        series.iter().map(|s| (s["transport"].as_str().unwrap(), s["exchange"].as_str().unwrap())).collect();
    assert_eq!(which, [("link", "all_reduce"), ("tcp", "all_reduce"), ("link", "neighbour"), ("tcp", "neighbour")]);
    for series in series {
        check(series);
    }
    // Whatever the load of this machine: 1 where the model fits none of them.
    let fits = series.iter().any(|series| !series["fitting"]["law"].is_null());
    ended(&ran, i32::from(!fits));
    assert!(run["notes"].to_string().contains("computing is emulated by waiting"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("network namespaces of this machine") && page.contains("</html>"));
}

/// Waits are waited for, time is what the rounds say, and the residuals are those of the fit.
fn check(series: &Value) {
    let points = series["points"].as_array().unwrap();
    let nodes: Vec<u64> = points.iter().map(|point| point["nodes"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [1, 2, 4, 8]);
    let of = |value: &Value| value.as_f64().unwrap();
    for point in points {
        let rounds: Vec<f64> = point["rounds_s"].as_array().unwrap().iter().map(of).collect();
        let least = 0.02 * (0.05 + 0.95 / of(&point["nodes"]));
        assert!(rounds.len() == 3 && rounds.iter().all(|&seconds| seconds >= least), "{point}");
        assert!(rounds.contains(&of(&point["seconds"])), "{point}");
        let residual = of(&point["seconds"]) / of(&point["fitted_s"]) - 1.0;
        assert!((of(&point["residual"]) - residual).abs() < 1e-9, "{point}");
        let beside_tcp = series["transport"] == "link" && of(&point["nodes"]) > 1.0;
        assert_eq!(point["exchange_ratio_to_tcp"].is_f64(), beside_tcp, "{point}");
    }
    let fitting = &series["fitting"];
    assert_eq!(fitting["law"].is_null(), fitting["misfit"].is_string(), "{fitting}");
    assert_eq!(fitting["estimate"]["draws"], 1000);
}

#[test]
fn numbers_of_nodes_that_give_no_fit_are_refused() {
    refused(&speedup(&["--nodes", "1,8"]), 2, &["at least 3", "not 2", "--nodes"]);
    refused(&speedup(&["--nodes", "1,2,9"]), 2, &["9", "from 1 to 8"]);
    refused(&speedup(&["--nodes", "0,1,2"]), 2, &["0", "from 1 to 8"]);
    refused(&speedup(&["--nodes", "4,1,2,4"]), 2, &["--nodes has 4 twice"]);
    refused(&speedup(&["--serial", "1"]), 2, &["below 1"]);
}
