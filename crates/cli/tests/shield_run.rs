//! `evenkeel shield` in front of an interface of a lab: real packets, reloads, a control process that is killed.

use std::{
    fs,
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabError, Namespace};
use serde_json::Value;

const CLIENT: &str = "198.18.0.1";
const HOST: &str = "198.18.0.2";
/// What is not there after so long will not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client and the host with the shield.
struct Bed {
    client: Namespace,
    host: Namespace,
    interface: String,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Whatever a failed test has left pinned.
        let _ = self.shield(&["stop", &self.interface]);
    }
}

fn skip(why: impl std::fmt::Display) {
    assert!(std::env::var_os("CI").is_none(), "skipped, which CI must not: {why}");
    eprintln!("skipped: {why}");
}

fn bed(tag: &str) -> Option<Bed> {
    if !nix::unistd::geteuid().is_root() {
        skip("root is needed");
        return None;
    }
    build(tag).map_err(skip).ok()
}

fn build(tag: &str) -> Result<Bed, LabError> {
    let lab = Lab::new(tag)?;
    let (client, host) = (lab.namespace("c")?, lab.namespace("h")?);
    let (near, far) = (lab.interface("shc"), lab.interface("shh"));
    let (near, far) = lab.veth((&client, &near), (&host, &far), 1)?;
    let address = |text: &str| text.parse().expect("an address");
    client.handle().add_address(&near.name, address(CLIENT), 24)?;
    host.handle().add_address(&far.name, address(HOST), 24)?;
    client.handle().add_neighbour(&near.name, address(HOST), far.mac)?;
    host.handle().add_neighbour(&far.name, address(CLIENT), near.mac)?;
    let folder = tempfile::tempdir().expect("a folder");
    Ok(Bed { client, host, interface: far.name, folder, child: None })
}

impl Bed {
    /// The program inside the host, which shares /sys with everybody else: there is the BPF file system.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.host.name())).arg(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("shield").args(arguments).env_remove("SSH_CONNECTION");
        command
    }

    fn shield(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    fn rules(&self, text: &str) -> String {
        let path = self.folder.path().join("rules.toml");
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Starts the shield and waits until its rules hold.
    fn run(&mut self, rules: &str, more: &[&str]) {
        let log = fs::File::create(self.folder.path().join("log")).expect("a file");
        let mut command = self.command(&["run", &self.interface, "--quiet", "--rules", rules]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("the program starts"));
        let log = self.folder.path().join("log");
        self.wait("the rules hold", || read(&log).contains("rules hold"));
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: not yet; {}", read(&self.folder.path().join("log")));
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(&self) -> Value {
        let output = self.shield(&["status", &self.interface, "--json", "--interval", "0.1"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Packets that a rule applied to.
    fn count(&self, rule: &str) -> u64 {
        let status = self.status();
        let rules = status["rules"].as_array().expect("rules");
        let found = rules.iter().find(|entry| entry["name"] == rule).unwrap_or_else(|| panic!("no {rule}: {status}"));
        found["packets"].as_u64().expect("a number")
    }

    /// Which of `count` datagrams to `port` come through.
    fn come_through(&self, port: u16, count: usize) -> usize {
        let receiver = self.host.run(|| UdpSocket::bind((HOST, port)).expect("a socket")).expect("a namespace");
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        let sender = self.client.run(|| UdpSocket::bind((CLIENT, 0)).expect("a socket")).expect("a namespace");
        for _ in 0..count {
            sender.send_to(b"ek", (HOST, port)).expect("sent");
        }
        (0..count).take_while(|_| receiver.recv(&mut [0; 8]).is_ok()).count()
    }

    fn killed(&mut self) {
        let mut child = self.child.take().expect("a running shield");
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const DROP_9: &str = "[[rule]]\nname = \"nine\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 9\n";
const DROP_9_AND_10: &str = "[[rule]]\nname = \"ten\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 10\n[[rule]]\nname = \"nine\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 9\n";

#[test]
fn rules_hold_are_reloaded_and_go() {
    let Some(mut bed) = bed("eksha") else { return };
    let rules = bed.rules(DROP_9);
    bed.run(&rules, &[]);
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5));
    assert_eq!(bed.count("nine"), 5);

    let second = bed.shield(&["run", &bed.interface, "--quiet", "--rules", &rules]);
    assert_eq!(second.status.code(), Some(2), "{}", said(&second));
    assert!(said(&second).contains("has a shield already"), "{}", said(&second));

    bed.rules(DROP_9_AND_10);
    let reloaded = bed.shield(&["reload", &bed.interface]);
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 0));
    assert_eq!((bed.count("nine"), bed.count("ten")), (10, 5), "the counters of a name go on");

    bed.rules("[[rule]]\nname = \"nine\"\naction = \"dorp\"\n");
    let refused = bed.shield(&["reload", &bed.interface]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("rules.toml:3:10"), "{}", said(&refused));
    assert_eq!(bed.come_through(10, 5), 0, "the old rules hold");
    assert!(bed.status()["refused"].as_str().is_some_and(|why| why.contains("dorp")));

    let stopped = bed.shield(&["stop", &bed.interface]);
    assert!(stopped.status.success(), "{}", said(&stopped));
    assert_eq!(bed.child.take().expect("the shield").wait().expect("its end").code(), Some(0));
    assert_eq!(bed.come_through(9, 5), 5, "the shield is gone");
    assert_eq!(bed.shield(&["status", &bed.interface]).status.code(), Some(2));
}

#[test]
fn a_killed_control_process_leaves_the_filter_as_told_and_another_takes_it_over() {
    for (fail, through) in [("open", 5), ("closed", 0)] {
        let Some(mut bed) = bed("ekshb") else { return };
        let rules = bed.rules(DROP_9);
        bed.run(&rules, &["--fail", fail]);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5), "{fail}");
        let before = bed.status();
        bed.killed();
        let failed = || bed.shield(&["status", &bed.interface, "--interval", "0.1"]).status.code() == Some(1);
        bed.wait("the shield has failed", failed);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (through, through), "failed {fail}");
        let status = bed.status();
        assert!(status["pid"].is_null() && status["program_id"] == before["program_id"], "{status}");
        let counter = if fail == "open" { "failed_open" } else { "failed_closed" };
        assert!(status["totals"][counter].as_u64().is_some_and(|frames| frames >= 10), "{status}");

        bed.run(&rules, &["--fail", fail]);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5), "{fail}");
        assert_eq!(bed.count("nine"), 10, "counters go on");
        let stopped = bed.shield(&["stop", &bed.interface]);
        assert!(stopped.status.success(), "{}", said(&stopped));
    }
}

#[test]
fn what_cannot_be_is_said() {
    let Some(bed) = bed("ekshc") else { return };
    let rules = bed.rules(DROP_9);
    for (arguments, code, says) in [
        (&["run", "ek-no-such", "--rules", &rules][..], 2, "ek-no-such"),
        (&["run", &bed.interface], 2, "no rules"),
        (&["status", &bed.interface], 2, "has no shield"),
        (&["reload", &bed.interface], 2, "has no shield"),
        (&["stop", &bed.interface], 2, "has no shield"),
        (&["run", &bed.interface, "--rule", "drop prot=udp"], 2, "no key `prot`"),
    ] {
        let output = bed.shield(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
}
