//! `spread watch` sees what a NAPI thread costs, in namespaces of our own.

use std::{
    fs::File,
    net::UdpSocket,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use assert_cmd::cargo::CommandCargoExt;
use nix::sched::{CloneFlags, setns};
use serde_json::Value;

/// Two namespaces joined by a veth pair whose second end runs threaded NAPI, and a stream of datagrams.
struct Lab {
    near: String,
    far: String,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: Option<JoinHandle<()>>,
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Lab {
    fn new() -> Self {
        static LABS: AtomicU64 = AtomicU64::new(0);
        let (pid, n) = (std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        let (near, far) = (format!("ekwn{pid}-{n}"), format!("ekwf{pid}-{n}"));
        let lab = Self { near, far, stop: Arc::default(), sent: Arc::default(), sender: None };
        let (near, far) = (lab.near.as_str(), lab.far.as_str());
        ip(&["netns", "add", near]);
        ip(&["netns", "add", far]);
        ip(&["-n", near, "link", "add", "ekw0", "type", "veth", "peer", "name", "ekw1", "netns", far]);
        for (namespace, link, address) in [(near, "ekw0", "198.18.0.1/24"), (far, "ekw1", "198.18.0.2/24")] {
            ip(&["-n", namespace, "address", "add", address, "dev", link]);
            ip(&["-n", namespace, "link", "set", link, "up"]);
        }
        // veth polls only if the receiver does GRO and the sender leaves segmentation to the stack.
        ip(&["netns", "exec", far, "ethtool", "-K", "ekw1", "gro", "on"]);
        ip(&["netns", "exec", near, "ethtool", "-K", "ekw0", "tso", "off"]);
        ip(&["netns", "exec", far, "sh", "-c", "echo 1 > /sys/class/net/ekw1/threaded"]);
        lab
    }

    /// Sends from the near namespace: a thread has a network namespace of its own if it wants one.
    fn start_sender(&mut self) {
        let (stop, sent) = (Arc::clone(&self.stop), Arc::clone(&self.sent));
        let namespace = File::open(format!("/run/netns/{}", self.near)).unwrap();
        self.sender = Some(thread::spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
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
        for namespace in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

#[test]
fn the_cost_of_a_napi_thread_is_measured_and_what_moves_it_is_known() {
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test takes root, and CI must not skip it");
        return eprintln!("skipped: this test takes root");
    }
    let mut lab = Lab::new();
    lab.start_sender();
    let program = Command::cargo_bin("evenkeel").unwrap();
    let output = Command::new("ip")
        .args(["netns", "exec", &lab.far])
        .arg(program.get_program())
        .args(["spread", "watch", "ekw1", "--once", "--interval", "2", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
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
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test takes root, and CI must not skip it");
        return eprintln!("skipped: this test takes root");
    }
    let lab = Lab::new();
    let program = Command::cargo_bin("evenkeel").unwrap();
    let mut child = Command::new("ip")
        .args(["netns", "exec", &lab.far])
        .arg(program.get_program())
        .args(["spread", "watch", "ekw1", "--dry-run", "--interval", "0.2", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("panicked"), "{said}");
}
