//! `keep` in namespaces of our own: settings that are made, kept over a rename, a new device and a foreign writer, and taken back.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use testbed::{Bed, Running, Space, ended, json, log, printed, refused, wait, wait_reporting, words};

struct Kept {
    space: Space,
    etc: String,
    state: String,
    log: PathBuf,
    _bed: Bed,
}

impl Kept {
    /// A namespace with a veth pair of two queues; none, with a word why, without root.
    fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["box"])?;
        let space = bed.space("box");
        let path = |name: &str| bed.path(name).display().to_string();
        let kept = Self { space, etc: path("etc"), state: path("state"), log: bed.path("log"), _bed: bed };
        kept.make("ekk0");
        Some(kept)
    }

    fn make(&self, name: &str) {
        self.space.output(&format!("ip link add {name} numrxqueues 2 numtxqueues 2 type veth peer name {name}p"));
        self.space.output(&format!("ip link set {name} up"));
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::cargo_bin("evenkeel").unwrap();
        command.args(words(line)).args(["--etc", &self.etc]);
        if !line.starts_with("keep add") {
            command.args(["--state", &self.state]);
        }
        command
    }

    fn run(&self, line: &str) -> Output {
        self.space.run(|| self.command(line).output().unwrap())
    }

    /// Starts the process that keeps, and waits until it answers.
    fn start(&self) -> Running {
        let keeper = self.space.run(|| Running::logged(&mut self.command("keep run"), &self.log));
        wait_reporting("the keeper", || self.status()["pid"].as_u64() == Some(keeper.pid().into()), || log(&self.log));
        keeper
    }

    fn status(&self) -> Value {
        json(&self.run("keep status --json"))
    }

    fn rps(&self, name: &str) -> String {
        let path = format!("/sys/class/net/{name}/queues/rx-0/rps_cpus");
        self.space.run(|| fs::read_to_string(path).unwrap_or_default().trim().trim_start_matches(['0', ',']).to_owned())
    }

    fn write(&self, name: &str, mask: &str) {
        let path = format!("/sys/class/net/{name}/queues/rx-0/rps_cpus");
        self.space.run(|| fs::write(path, mask).unwrap());
    }

    fn wait_kept(&self, name: &str, what: &str) {
        wait_reporting(what, || !self.rps(name).is_empty(), || log(&self.log));
    }
}

fn events(status: &Value, kind: &str) -> usize {
    status["events"].as_array().unwrap().iter().filter(|event| event["event"] == kind).count()
}

#[test]
fn once_makes_what_a_file_asks_for_and_off_takes_it_back() {
    let Some(kept) = Kept::new("keepo") else { return };
    assert!(printed(&kept.run("keep")).contains("Nothing is kept"));
    let before = kept.rps("ekk0");
    ended(&kept.run("keep add spread ekk0 --rps on"), 0);
    assert_eq!(kept.rps("ekk0"), before, "a file alone sets nothing");
    let status = kept.run("keep status --json");
    ended(&status, 1);
    assert_eq!(json(&status)["files"][0]["state"], "differs");
    ended(&kept.run("keep run --once"), 0);
    assert_ne!(kept.rps("ekk0"), before);
    assert_eq!(kept.status()["files"][0]["state"], "kept");
    assert_eq!(kept.status()["schema"], "evenkeel.keep.status/1");
    ended(&kept.run("keep off spread-ekk0"), 0);
    assert_eq!(kept.rps("ekk0"), before);
    refused(&kept.run("keep off spread-ekk0"), 2, &["spread-ekk0.toml"]);
}

#[test]
fn a_new_device_a_rename_and_a_foreign_writer_are_followed() {
    let Some(kept) = Kept::new("keepr") else { return };
    ended(&kept.run("keep add spread ekk* --rps on"), 0);
    let keeper = kept.start();
    kept.wait_kept("ekk0", "the start");
    kept.space.output("ip link del ekk0");
    kept.make("ekk0");
    kept.wait_kept("ekk0", "a device that was made anew");
    kept.space.output("ip link set ekk0 down");
    kept.space.output("ip link set ekk0 name ekk7");
    kept.space.output("ip link set ekk7 up");
    kept.wait_kept("ekk7", "a rename");
    // A second keeper of this namespace.
    refused(&kept.run("keep run"), 3, &["keeps already"]);
    let value = kept.rps("ekk7");
    wait("the end of what the driver may reset", || {
        kept.write("ekk7", "0");
        wait("it is set back", || kept.rps("ekk7") == value);
        events(&kept.status(), "restored") > 0
    });
    // Until it is left alone.
    wait_reporting(
        "another owner",
        || {
            kept.write("ekk7", "0");
            kept.status()["contested"].as_array().is_some_and(|all| !all.is_empty())
        },
        || log(&kept.log),
    );
    let ended_by = keeper.interrupt();
    assert!(ended_by.status.success());
    assert!(!kept.rps("ekk0p").is_empty(), "what was set stays");
    ended(&kept.run("keep off"), 0);
    assert_eq!(kept.rps("ekk0p"), "");
}

#[test]
fn bad_files_are_named_and_good_ones_carried_out() {
    let Some(kept) = Kept::new("keepb") else { return };
    ended(&kept.run("keep add spread ekk0 --rps on"), 0);
    ended(&kept.run("keep add spread ek-none --name later"), 0);
    let file = format!("{}/keep.d/bad.toml", kept.etc);
    fs::write(&file, "[[spread]]\ninterfaces = [\"ekk0\"]\nrsp = \"on\"\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let made = kept.run("keep run --once");
    let said = ended(&made, 1);
    assert!(said.contains("bad.toml, line 3: `rsp`") && said.contains("ek-none is not there"), "{said}");
    kept.wait_kept("ekk0", "the good one");
    refused(&kept.run("keep add spread ekk0 --rps off --name other"), 2, &["spread-ekk0.toml", "`rps`"]);
    refused(&kept.run("keep add doctor no-such-check"), 2, &["no-such-check"]);
    fs::remove_file(&file).unwrap();
    let files = kept.status()["files"].clone();
    assert_eq!((&files[0]["state"], &files[1]["state"]), (&"pending".into(), &"kept".into()), "{files}");
}

#[test]
fn a_unit_is_printed() {
    let unit = Command::cargo_bin("evenkeel").unwrap().args(["keep", "unit"]).output().unwrap();
    let said = ended(&unit, 0);
    for line in ["keep run", "StateDirectory=evenkeel", "CAP_NET_ADMIN CAP_SYS_NICE", "Type=notify"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("BindsTo"), "{said}");
}
