//! `spread watch` sees what a NAPI thread costs, in namespaces of our own.

use std::{
    net::UdpSocket,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;
use testbed::{Bed, End, Running, ended, json, printed};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// Two namespaces joined by a veth pair whose second end runs threaded NAPI, and a stream of datagrams.
struct Lab {
    near: End,
    far: End,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: Option<JoinHandle<()>>,
    _bed: Bed,
}

impl Lab {
    fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["near", "far"])?;
        let [near, far] = bed.join_named(["near", "far"], ["ekw0", "ekw1"], 1);
        near.address("198.18.0.1/24");
        far.address("198.18.0.2/24");
        // veth polls only if the receiver does GRO and the sender leaves segmentation to the stack.
        far.output("ethtool -K ekw1 gro on");
        near.output("ethtool -K ekw0 tso off");
        far.run(|| std::fs::write("/sys/class/net/ekw1/threaded", "1").expect("threaded NAPI"));
        Some(Self { near, far, stop: Arc::default(), sent: Arc::default(), sender: None, _bed: bed })
    }

    /// Sends from the near namespace.
    fn start_sender(&mut self) {
        let (stop, sent) = (Arc::clone(&self.stop), Arc::clone(&self.sent));
        let socket = self.near.run(|| UdpSocket::bind("198.18.0.1:0").unwrap());
        self.sender = Some(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if socket.send_to(&[0; 18], "198.18.0.2:9").is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            }
        }));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

#[test]
fn the_cost_of_a_napi_thread_is_measured_and_what_moves_it_is_known() {
    let Some(mut lab) = Lab::new("watcha") else { return };
    lab.start_sender();
    let mut watch = Command::new(EVENKEEL);
    watch.args(["spread", "watch", "ekw1", "--once", "--interval", "2", "--json"]);
    let output = lab.far.run(|| watch.output().unwrap());
    ended(&output, 0);
    let report = json(&output);
    assert_eq!(report["schema"], "evenkeel.spread.watch/1");
    let work = report["sample"]["work"].as_array().unwrap();
    let ours: Vec<&Value> = work.iter().filter(|w| w["name"].as_str().unwrap().starts_with("ekw1 ")).collect();
    let thread = ours.iter().find(|w| w["knob"]["kind"] == "napi_thread_affinity");
    let thread = thread.unwrap_or_else(|| panic!("no thread among {work:?}"));
    let (seen, sent) = (thread["pps"].as_f64().unwrap() * 2.0, lab.sent.load(Ordering::Relaxed) as f64);
    assert!(sent > 20.0, "{sent} datagrams sent");
    assert!(seen > sent / 10.0, "{seen} packets seen of {sent}: {thread}");
    let percent: f64 = thread["percent"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).sum();
    assert!(percent > 0.0 && percent <= 200.0, "{thread}");
    assert!(!thread["written"].as_str().unwrap().is_empty(), "{thread}");
    assert!(!report["sample"]["cores"].as_array().unwrap().is_empty());
}

#[test]
fn a_reader_that_went_away_ends_the_watch_quietly() {
    let Some(lab) = Lab::new("watchb") else { return };
    let mut watch = Command::new(EVENKEEL);
    watch.args(["spread", "watch", "ekw1", "--dry-run", "--interval", "0.2", "--json"]);
    let mut child = lab.far.run(|| Running::piped(&mut watch));
    drop(child.child().stdout.take());
    let output = child.output();
    let printed = printed(&output);
    assert!(output.status.success() && !printed.contains("panicked"), "{printed}");
}
