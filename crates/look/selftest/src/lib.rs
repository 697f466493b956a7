//! What of evenkeel works on a machine: needs are tried, and verbs run, in a lab that goes with the run.

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
    time::{Duration, Instant},
};

use bed::Bed;
use model::selftest::SelfTest;
pub use share::anonymous;

/// All trials together take at most this long.
pub const TIME_MAX: Duration = Duration::from_secs(55);

/// Place of the trials.
pub struct Place<'a> {
    /// The program, whose verbs are run.
    evenkeel: &'a Path,
    /// The lab, or why there is none.
    bed: Result<Bed, String>,
    end: Instant,
    /// The capabilities are those of a user namespace.
    user_namespace: bool,
}

impl Place<'_> {
    fn time_is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The lab.
    ///
    /// # Errors
    /// Why there is none.
    fn bed(&self) -> Result<&Bed, String> {
        self.bed.as_ref().map_err(Clone::clone)
    }
}

/// Tries everything; of `interface` only properties are read.
pub fn run(evenkeel: &Path, interface: Option<&str>) -> SelfTest {
    let began = Instant::now();
    let user_namespace = is_user_namespace(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default());
    let bed = Bed::make().map_err(|e| trial::words(&e));
    let place = Place { evenkeel, bed, end: began + TIME_MAX, user_namespace };
    let mut rows = needs::rows(&place);
    rows.extend(interface.into_iter().flat_map(driver::rows));
    rows.extend(verbs::rows(&place));
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

/// PRETTY_NAME of os-release(5).
fn distribution(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// The first user namespace maps all users to themselves.
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
        assert!(!is_user_namespace("         0          0 4294967295\n"));
        assert!(is_user_namespace("         0       1000          1\n"));
    }
}
