//! `spread watch` sees what a NAPI thread costs, in namespaces of our own.

use std::{
    fs,
    net::UdpSocket,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;
use testbed::{Ends, Running, Wire, ended, json, printed};

/// A wire whose receiver runs threaded NAPI.
fn wire(tag: &str) -> Option<Wire> {
    let wire = Wire::with_napi(tag)?;
    wire.sender.address("198.18.0.1/24");
    wire.receiver.address("198.18.0.2/24");
    // veth polls only if the receiver does GRO and the sender leaves segmentation to the stack.
    wire.sender.output(&format!("ethtool -K {} tso off", wire.sender.interface()));
    let threaded = format!("/sys/class/net/{}/threaded", wire.receiver.interface());
    wire.receiver.run(|| fs::write(threaded, "1").expect("threaded NAPI"));
    Some(wire)
}

fn watch(wire: &Wire, arguments: &[&str]) -> Command {
    let mut watch = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    watch.args(["spread", "watch", wire.receiver.interface()]).args(arguments);
    watch
}

/// Does `work` while datagrams come; how many were sent.
fn receiving<T>(wire: &Wire, work: impl FnOnce() -> T) -> (T, u64) {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let socket = wire.sender.run(|| UdpSocket::bind("198.18.0.1:0").unwrap());
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if socket.send_to(&[0; 18], "198.18.0.2:9").is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let _ends = Ends(&stop);
        work()
    });
    (done, sent.into_inner())
}

#[test]
fn the_cost_of_a_napi_thread_is_measured_and_what_moves_it_is_known() {
    let Some(wire) = wire("watcha") else { return };
    let mut watch = watch(&wire, &["--once", "--interval", "2", "--json"]);
    let (output, sent) = receiving(&wire, || wire.receiver.run(|| watch.output().unwrap()));
    ended(&output, 0);
    let report = json(&output);
    assert_eq!(report["schema"], "evenkeel.spread.watch/1");
    let work = report["sample"]["work"].as_array().unwrap();
    let of = format!("{} ", wire.receiver.interface());
    let ours: Vec<&Value> = work.iter().filter(|w| w["name"].as_str().unwrap().starts_with(&of)).collect();
    let thread = ours.iter().find(|w| w["knob"]["kind"] == "napi_thread_affinity");
    let thread = thread.unwrap_or_else(|| panic!("no thread among {work:?}"));
    let (seen, sent) = (thread["pps"].as_f64().unwrap() * 2.0, sent as f64);
    assert!(sent > 20.0, "{sent} datagrams sent");
    assert!(seen > sent / 10.0, "{seen} packets seen of {sent}: {thread}");
    let percent: f64 = thread["percent"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).sum();
    assert!(percent > 0.0 && percent <= 200.0, "{thread}");
    assert!(!thread["written"].as_str().unwrap().is_empty(), "{thread}");
    assert!(!report["sample"]["cores"].as_array().unwrap().is_empty());
}

#[test]
fn a_reader_that_went_away_ends_the_watch_quietly() {
    let Some(wire) = wire("watchb") else { return };
    let mut watch = watch(&wire, &["--dry-run", "--interval", "0.2", "--json"]);
    let mut child = wire.receiver.run(|| Running::piped(&mut watch));
    drop(child.child().stdout.take());
    let output = child.output();
    let printed = printed(&output);
    assert!(output.status.success() && !printed.contains("panicked"), "{printed}");
}
