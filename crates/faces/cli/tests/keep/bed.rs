//! A namespace with a veth pair, a folder of intents and a journal.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use testbed::{Bed, Running, Space, json, log, wait_reporting, words};

pub(crate) struct Kept {
    pub(crate) space: Space,
    pub(crate) etc: String,
    pub(crate) state: String,
    pub(crate) log: PathBuf,
    _bed: Bed,
}

impl Kept {
    /// A namespace with a veth pair of two queues; none, with a message, without root.
    pub(crate) fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["box"])?;
        let space = bed.space("box");
        let path = |name: &str| bed.path(name).display().to_string();
        let kept = Self { space, etc: path("etc"), state: path("state"), log: bed.path("log"), _bed: bed };
        kept.make("ekk0");
        Some(kept)
    }

    pub(crate) fn make(&self, name: &str) {
        self.space.output(&format!("ip link add {name} numrxqueues 2 numtxqueues 2 type veth peer name {name}p"));
        self.space.output(&format!("ip link set {name} up"));
    }

    /// The path of the file `name`.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/keep.d/{name}.toml", self.etc)
    }

    fn arguments<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        let mut arguments = words(line);
        arguments.extend(["--etc", &self.etc]);
        if !line.starts_with("keep add") {
            arguments.extend(["--state", &self.state]);
        }
        arguments
    }

    pub(crate) fn verb(&self, line: &str) -> Command {
        let mut command = Command::cargo_bin("evenkeel").unwrap();
        command.args(self.arguments(line));
        command
    }

    /// Runs the command with a read-only folder of files.
    pub(crate) fn run_read_only(&self, line: &str) -> Output {
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, &self.etc, env!("CARGO_BIN_EXE_evenkeel")]).args(self.arguments(line));
        self.space.run(|| command.output().unwrap())
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        self.space.run(|| self.verb(line).output().unwrap())
    }

    /// Starts `keep run`, and waits until it answers.
    pub(crate) fn start(&self) -> Running {
        let keeper = self.space.run(|| Running::logged(&mut self.verb("keep run"), &self.log));
        wait_reporting("the keeper", || self.status()["pid"].as_u64() == Some(keeper.pid().into()), || log(&self.log));
        keeper
    }

    pub(crate) fn status(&self) -> Value {
        json(&self.run("keep status --json"))
    }

    pub(crate) fn rps(&self, name: &str) -> String {
        let path = format!("/sys/class/net/{name}/queues/rx-0/rps_cpus");
        self.space.run(|| fs::read_to_string(path).unwrap_or_default().trim().trim_start_matches(['0', ',']).to_owned())
    }

    pub(crate) fn write(&self, name: &str, mask: &str) {
        let path = format!("/sys/class/net/{name}/queues/rx-0/rps_cpus");
        self.space.run(|| fs::write(path, mask).unwrap());
    }

    pub(crate) fn wait_kept(&self, name: &str, what: &str) {
        wait_reporting(what, || !self.rps(name).is_empty(), || log(&self.log));
    }
}

/// The number of events of a kind.
pub(crate) fn events(status: &Value, kind: &str) -> usize {
    status["events"].as_array().unwrap().iter().filter(|event| event["event"] == kind).count()
}
