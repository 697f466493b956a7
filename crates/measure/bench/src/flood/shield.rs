//! The shield as a protection of the bench: this program's own `shield run`, in the namespace of the host or of a gateway, as it would
//! run anywhere.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use host::owner::{TemporaryFolder, temporary_folder};
use model::shield::ShieldStatus;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sys::{affinity::pin_current_thread, program};

use super::protection::{About, Counter, Layout, Place, Protecting, Protection};
use crate::BenchError;

/// The time that the shield has to start, and to end.
const TIMEOUT: Duration = Duration::from_secs(20);
/// `shield run` prints this line once it works.
const READY: &str = "shield up";
const CHALLENGE: &str = "default = \"pass\"\n\n[[rule]]\nname = \"service\"\naction = \"challenge\"\nprotocol = \"tcp\"\ndestination-port = PORT\n";
/// Does what `ip netns exec` does, and mounts the BPF file system that it hides; the program becomes the command that follows.
const MOUNT: &str = r#"mount -t sysfs sysfs /sys && mount -t bpf bpf /sys/fs/bpf && exec "$0" "$@""#;

/// The shield's position, and the way in which frames cross it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shield {
    /// On the host: SYN cookies at XDP.
    Host,
    /// On a gateway, by XDP.
    Between,
    /// On a gateway, through packet rings.
    BetweenRings,
}

pub(super) const SHIELDS: [Shield; 3] = [Shield::Host, Shield::Between, Shield::BetweenRings];

fn rules(port: u16) -> String {
    CHALLENGE.replace("PORT", &port.to_string())
}

impl Shield {
    /// The arguments behind `shield run` that say where.
    fn at(self, outer: &str, inner: Option<&str>) -> Vec<String> {
        let mut arguments = match inner {
            None => vec![outer.to_owned()],
            Some(inner) => vec!["--between".to_owned(), format!("{outer},{inner}")],
        };
        if self == Self::BetweenRings {
            arguments.extend(["--backend", "ring"].map(str::to_owned));
        }
        arguments
    }
}

fn failed(why: impl std::fmt::Display) -> BenchError {
    BenchError::Machine(format!("the shield does not work in the lab: {why}"))
}

impl Protection for Shield {
    fn about(&self) -> About {
        match self {
            Self::Host => About::new(
                "shield",
                "shield",
                "evenkeel shield answers SYNs by cookies in XDP, before a socket buffer exists",
            ),
            Self::Between => About::new(
                "gateway",
                "shield, gateway",
                "evenkeel shield on a gateway in front of the plain kernel: a source that is not known gets a wrong SYN-ACK in XDP, \
                 and passes once it has answered by a reset, in whose place its SYN goes on",
            ),
            Self::BetweenRings => About::new(
                "gateway-ring",
                "shield, gateway of rings",
                "evenkeel shield on a gateway without XDP in front of the plain kernel: packet rings bring each SYN to the process, \
                 which answers that of a source that is not known by a wrong SYN-ACK; once it has answered by a reset, it passes",
            ),
        }
    }

    fn settings(&self, _ipv6: bool) -> Vec<String> {
        let rules = rules(80);
        let inner = (*self != Self::Host).then_some("OUT");
        let run = format!("evenkeel shield run {} --rules rules.toml", self.at("IN", inner).join(" "));
        let lines = [run.as_str()].into_iter().chain(rules.lines());
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn layout(&self) -> Layout {
        match self {
            Self::Host => Layout::Host,
            Self::Between => Layout::Between,
            Self::BetweenRings => Layout::BetweenRings,
        }
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Protecting>, BenchError> {
        let program = env::current_exe().map_err(failed)?;
        let folder = temporary_folder("bench", "shield").map_err(failed)?;
        let file = folder.path().join("rules.toml");
        fs::write(&file, rules(place.server.port())).map_err(failed)?;
        let mut command = run_inside(&program, place.host.name());
        command.arg("run").args(self.at(place.interface, place.inner)).args(["--quiet", "--rules"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let cpu = place.cpus.last().copied();
        // A process inherits the cores of the thread that starts it.
        let started = thread::scope(|scope| {
            let start = || {
                cpu.map_or(Ok(()), pin_current_thread)?;
                command.spawn()
            };
            scope.spawn(start).join()
        });
        let mut child = started.map_err(|_| BenchError::Panicked("start of the shield"))?.map_err(failed)?;
        let output = listen(&mut child);
        let interface = place.interface.to_owned();
        let working = Working { shield: *self, program, interface, child, _folder: folder };
        wait_until_ready(&output)?;
        Ok(Box::new(working))
    }
}

/// The shield in a namespace, with that namespace's own /sys, and a BPF file system that goes with the process and its pins.
fn run_inside(this: &Path, namespace: &str) -> Command {
    let mut command = program::command("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).args(["unshare", "--mount", "sh", "-c", MOUNT]);
    command.arg(this).arg("shield");
    // The session of the user is not one of the lab's host.
    command.env_remove("SSH_CONNECTION");
    command
}

/// A command where a shield runs already.
fn shield_inside(this: &Path, child: &Child) -> Command {
    let mut command = program::command("nsenter");
    command.args(["--target", &child.id().to_string(), "--net", "--mount"]).arg(this).arg("shield");
    command
}

/// The lines that a process says on stderr, until it ends.
fn listen(child: &mut Child) -> Receiver<String> {
    let (lines, output) = channel();
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Read on though nobody listens any more: a full pipe would stop the shield.
                let _ = lines.send(line);
            }
        });
    }
    output
}

fn wait_until_ready(output: &Receiver<String>) -> Result<(), BenchError> {
    let begun = Instant::now();
    let mut lines = Vec::new();
    loop {
        match output.recv_timeout(TIMEOUT.saturating_sub(begun.elapsed())) {
            Ok(line) if line.contains(READY) => return Ok(()),
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Timeout) => {
                return Err(failed(format!("after {TIMEOUT:?} it has said only: {}", lines.join("; "))));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(failed(lines.join("; "))),
        }
    }
}

struct Working {
    shield: Shield,
    program: PathBuf,
    interface: String,
    child: Child,
    _folder: TemporaryFolder,
}

impl Working {
    fn end(&mut self) -> Result<(), BenchError> {
        if self.child.try_wait().map_err(failed)?.is_some() {
            return Ok(());
        }
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).map_err(failed)?;
        let begun = Instant::now();
        while self.child.try_wait().map_err(failed)?.is_none() {
            if begun.elapsed() > TIMEOUT {
                return Err(failed(format!("it does not end within {TIMEOUT:?}")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Protecting for Working {
    fn counters(&mut self) -> Result<Vec<Counter>, BenchError> {
        let mut command = shield_inside(&self.program, &self.child);
        let output =
            command.args(["status", &self.interface, "--json", "--interval", "0.1"]).output().map_err(failed)?;
        let status: ShieldStatus = serde_json::from_slice(&output.stdout)
            .map_err(|e| failed(format!("{e}: {}", String::from_utf8_lossy(&output.stderr).trim())))?;
        let totals = status.totals;
        let counter = |what: &str, packets, ended| Counter { what: what.to_owned(), packets, ended };
        let mut counters = vec![
            counter(
                "shield, dropped", // Read one after the other, while both grow.
                totals.dropped.saturating_sub(totals.unanswered),
                true,
            ),
            counter("shield, challenged", totals.challenged, false),
            counter("shield, passed", totals.passed, false),
            counter("shield, failed open", totals.failed_open, false),
        ];
        if self.shield == Shield::BetweenRings {
            counters.push(counter("shield, SYNs answered only when they come again", totals.unanswered, true));
            counters.push(counter("rings of the gateway, full", totals.missed, true));
        }
        Ok(counters)
    }

    fn stop(mut self: Box<Self>) -> Result<(), BenchError> {
        self.end()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.end().is_ok() {
            return;
        }
        // Its pins go with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_name_one_interface_or_two() {
        assert_eq!(Shield::Host.at("a", None), ["a"]);
        assert_eq!(Shield::Between.at("a", Some("b")), ["--between", "a,b"]);
        assert_eq!(Shield::BetweenRings.at("a", Some("b")), ["--between", "a,b", "--backend", "ring"]);
        assert!(rules(80).contains("destination-port = 80"));
    }
}
