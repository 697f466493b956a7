//! Trials of evenkeel on a machine: the needs of its verbs, and the verbs themselves, in a lab of network namespaces.

pub mod asked;
mod bed;
mod driver;
mod needs;
mod process;
mod share;
mod trial;
mod verbs;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bed::Bed;
use model::selftest::SelfTest;
pub use share::{Identity, anonymous};
use trial::Trial;

/// The timeout of one verb is this part of the timeout of all trials.
const VERB_SHARE: u32 = 4;

/// The parameters of a self-test.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The path of evenkeel.
    pub evenkeel: &'a Path,
    /// The interface whose driver's properties are read.
    pub interface: Option<&'a str>,
    /// The limit on the time of all trials together.
    pub timeout: Duration,
    /// Trials stop once this is set.
    pub stop: &'a AtomicBool,
}

/// The surroundings of the trials.
pub(crate) struct Place<'a> {
    /// The path of evenkeel.
    evenkeel: &'a Path,
    /// The lab, or the reason for which it could not be made.
    bed: Result<Bed, String>,
    /// The result of making a small map by bpf(2).
    bpf: Result<(), String>,
    end: Instant,
    /// The limit on the time of one verb.
    verb_timeout: Duration,
    stop: &'a AtomicBool,
    /// True in a user namespace other than the first.
    user_namespace: bool,
}

impl Place<'_> {
    fn time_is_over(&self) -> bool {
        Instant::now() >= self.end || self.stop.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The lab could not be made; the text is the reason.
    fn bed(&self) -> Result<&Bed, String> {
        self.bed.as_ref().map_err(Clone::clone)
    }
}

/// The next trial, and the number of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    pub name: &'a str,
    /// The number, from 1.
    pub number: usize,
    /// The number of trials.
    pub of: usize,
}

/// Runs all trials. Of the interface, properties are read and nothing is changed. `begin` is called before each trial.
pub fn run(settings: &Settings<'_>, mut begin: impl FnMut(Step<'_>)) -> SelfTest {
    let &Settings { evenkeel, interface, timeout, stop } = settings;
    let began = Instant::now();
    let user_namespace = is_user_namespace(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default());
    let bed = Bed::make().map_err(|e| trial::words(&e));
    let place = Place {
        evenkeel,
        bed,
        bpf: bpf_call(),
        end: began + timeout,
        verb_timeout: timeout / VERB_SHARE,
        stop,
        user_namespace,
    };
    let driver = interface.into_iter().flat_map(driver::trials);
    let trials: Vec<Trial<'_>> = needs::trials(&place).chain(driver).chain(verbs::trials(&place)).collect();
    let of = trials.len();
    let mut rows = Vec::new();
    for (at, trial) in trials.into_iter().enumerate() {
        begin(Step { name: &trial.name, number: at + 1, of });
        rows.push((trial.run)());
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    SelfTest {
        timestamp: host::machine::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel.trim().to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        distribution: distribution(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        is_root: nix::unistd::geteuid().is_root(),
        user_namespace,
        interface: interface.map(str::to_owned),
        duration_s: began.elapsed().as_secs_f64(),
        rows,
    }
}

fn bpf_call() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let filter = if has_seccomp_filter(&status) { " (this process has a seccomp filter)" } else { "" };
    bpf::probe::map(1).map_err(|e| format!("{}{filter}", trial::words(&e)))
}

/// True for mode 2 of `Seccomp` in proc_pid_status(5).
fn has_seccomp_filter(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// The value of PRETTY_NAME in os-release(5).
fn distribution(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// False for the uid_map of the first user namespace, which maps all users to themselves.
fn is_user_namespace(map: &str) -> bool {
    !map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_named_by_its_files() {
        let text = "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(distribution(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(distribution(""), None);
        assert!(
            has_seccomp_filter("Name:\ta\nSeccomp:\t2\n") && !has_seccomp_filter("Seccomp:\t0\nSeccomp_filters:\t2\n")
        );
        assert!(!is_user_namespace("         0          0 4294967295\n"));
        assert!(is_user_namespace("         0       1000          1\n"));
    }
}
