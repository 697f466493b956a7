//! Two nodes with brokers of one cluster, and programs under `evenkeel link run`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use testbed::{Bed, End, Running, ended, printed, wait, wait_reporting};

pub(crate) const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
pub(crate) const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/programs.py");

/// The cluster, the node that connects and the one that listens.
pub(crate) const PREFIX: &str = "10.77.0.0/24";
pub(crate) const OWN: &str = "10.77.0.1";
pub(crate) const PEER: &str = "10.77.0.2";

/// What the nodes of a cluster have addresses of, and what their brokers are told more.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    pub(crate) prefix: &'static str,
    /// The addresses of both, with the length of the prefix.
    pub(crate) addresses: [&'static str; 2],
    pub(crate) more: &'static [&'static str],
    /// Brokers are started with the rights of their `link unit`.
    pub(crate) in_unit: bool,
}

pub(crate) const PLAIN: Network =
    Network { prefix: PREFIX, addresses: ["10.77.0.1/24", "10.77.0.2/24"], more: &[], in_unit: false };

/// Two nodes with brokers of one cluster.
pub(crate) struct Cluster {
    network: Network,
    pub(crate) brokers: [Option<Running>; 2],
    /// Calls after which a program takes a connection over; none: as it is.
    pub(crate) after: Option<u32>,
    pub(crate) ends: [End; 2],
    bed: Bed,
}

impl Cluster {
    pub(crate) fn start(tag: &str) -> Option<Self> {
        Self::on(PLAIN, tag)
    }

    pub(crate) fn on(network: Network, tag: &str) -> Option<Self> {
        let (bed, ends) = Bed::pair(tag)?;
        // Cargo builds it with the workspace, and not with this crate alone.
        let library = Path::new(EVENKEEL).with_file_name("libevenkeel_sockets.so");
        assert!(library.exists(), "build {} first: cargo build --workspace", library.display());
        ends.iter().zip(network.addresses).for_each(|(end, address)| end.address(address));
        let mut cluster = Self { network, brokers: [None, None], after: None, ends, bed };
        cluster.serve(0);
        cluster.serve(1);
        for (from, name) in [(0, "right"), (1, "left")] {
            wait("the nodes see each other", || cluster.status(from)["nodes"][0]["name"] == name);
        }
        Some(cluster)
    }

    pub(crate) fn serve(&mut self, at: usize) {
        let (end, name) = (&self.ends[at], ["left", "right"][at]);
        let args = [&[end.interface(), "--name", name, "--cluster", self.network.prefix], self.network.more].concat();
        let mut command = match self.network.in_unit {
            true => in_unit(&ended(&self.link(at, &[&["unit"], &args[..]].concat()), 0)),
            false => Command::new(EVENKEEL),
        };
        if !self.network.in_unit {
            command.args(["link", "serve"]).args(args);
        }
        let log = self.path(&format!("{name}.log"));
        self.brokers[at] = Some(end.run(|| Running::logged(&mut command, &log)));
        wait("the broker serves", || self.link(at, &["status"]).status.success());
    }

    pub(crate) fn broker(&self, at: usize) -> &Running {
        self.brokers[at].as_ref().expect("it runs")
    }

    /// A place for a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.bed.path(name)
    }

    /// Output of a program so far.
    pub(crate) fn log(&self, of: &str) -> String {
        testbed::log(&self.path(&format!("{of}.log")))
    }

    /// Waits until a program has said `word`.
    #[track_caller]
    pub(crate) fn wait_for_word(&self, of: &str, word: &str) {
        wait_reporting(&format!("{of} says {word}"), || self.log(of).contains(word), || self.log(of));
    }

    pub(crate) fn link(&self, at: usize, args: &[&str]) -> Output {
        self.ends[at].run(|| Command::new(EVENKEEL).arg("link").args(args).output().unwrap())
    }

    pub(crate) fn status(&self, at: usize) -> Value {
        testbed::json(&self.link(at, &["status", "--json"]))
    }

    /// Fails if a connection went by TCP.
    #[track_caller]
    pub(crate) fn all_by_link(&self) {
        assert_eq!(self.status(0)["tcp_fallbacks"], json!([]));
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(EVENKEEL);
        command.args(["link", "run", "--"]).args(words);
        command.envs(self.after.map(|after| ("EVENKEEL_LINK_AFTER", after.to_string())));
        command
    }

    /// Starts a program under `link run`.
    pub(crate) fn run(&self, at: usize, words: &[&str], log: &str) -> Running {
        self.spoken(at, &mut self.command(words), log)
    }

    /// Starts a program whose output and errors go to a log.
    pub(crate) fn spoken(&self, at: usize, command: &mut Command, log: &str) -> Running {
        let file = fs::File::create(self.path(&format!("{log}.log"))).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        self.ends[at].run(|| Running::start(command))
    }

    /// Runs a program without link to its end.
    pub(crate) fn plain(&self, at: usize, command: &mut Command) -> Output {
        self.ends[at].run(|| command.output().unwrap())
    }

    /// Does something on a node.
    pub(crate) fn inside<T: Send>(&self, at: usize, work: impl FnOnce() -> T + Send) -> T {
        self.ends[at].run(work)
    }

    /// Runs one to its end.
    pub(crate) fn result(&self, at: usize, words: &[&str]) -> Output {
        self.ends[at].run(|| self.command(words).output().unwrap())
    }

    /// Runs a script of Python, which succeeds; what it said.
    #[track_caller]
    pub(crate) fn script_output(&self, at: usize, script: &[&str]) -> String {
        let used = self.result(at, &[&["python3"], script].concat());
        ended(&used, 0);
        printed(&used)
    }

    /// A server in Python, once it listens.
    #[track_caller]
    pub(crate) fn serves(&self, at: usize, script: &[&str], log: &str) -> Running {
        let server = self.run(at, &[&["python3", "-u"], script].concat(), log);
        self.wait_for_word(log, "ready");
        server
    }

    /// The server of the script, once it listens.
    pub(crate) fn server(&self, address: &str, log: &str) -> Running {
        self.serves(1, &[PROGRAMS, "serve", address], log)
    }
}

/// The command of a unit, with its bounding set of capabilities, no_new_privs and its umask.
fn in_unit(unit: &str) -> Command {
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).expect("a line of the unit");
    let words = |key: &str| value(key).split(' ').map(str::to_lowercase).collect::<Vec<_>>();
    let kept: Vec<String> = words("CapabilityBoundingSet=").iter().map(|it| it.replace("cap_", ",+")).collect();
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", value("UMask="), "setpriv"]);
    command.args(["--no-new-privs", &format!("--bounding-set=-all{}", kept.concat()), "--"]);
    command.args(value("ExecStart=").split(' '));
    command
}
