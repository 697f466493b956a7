//! A neighbour that runs: stress-ng in a control group, on its CPUs.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use lab::{Group, Throttled};
use model::CpuSet;
use tempfile::TempDir;

use super::kind::{Kind, Neighbour, Remedy};
use super::traffic::Traffic;
use crate::BenchError;

/// From its start to the first trial.
const WARM_UP: Duration = Duration::from_millis(500);
/// Memory is written within this time.
const FILL: Duration = Duration::from_secs(60);
/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(50);
/// Written is what has this share of the dose.
const FILLED: f64 = 0.9;
/// The CPUs of [`Remedy::Quota`].
const QUOTA_CPUS: f64 = 0.1;
const MEGABYTE: f64 = 1e6;

/// A neighbour under way. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Stress {
    // In the order in which they are to go.
    child: Child,
    traffic: Option<Traffic>,
    group: Group,
    is_limited: bool,
    folder: TempDir,
    before: (Instant, u64, Throttled),
}

/// What it had since it was looked at last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Had {
    pub(super) cpus: f64,
    /// The share of the periods in which its limit held it back.
    pub(super) throttled: Option<f64>,
}

impl Stress {
    /// Starts it on `cpus`; `others` are the CPUs besides the box's.
    pub(super) fn start(
        neighbour: Neighbour,
        cpus: &CpuSet,
        remedy: Remedy,
        others: &CpuSet,
    ) -> Result<Self, BenchError> {
        let failed = |what: &'static str| move |e: std::io::Error| BenchError::Machine(format!("cannot {what}: {e}"));
        let group = Group::new("bench", "neighbour")?;
        let folder = tempfile::Builder::new()
            .prefix(&format!("{}-", host::owner::name("bench", "neighbour")))
            .tempdir()
            .map_err(failed("make a folder for a neighbour"))?;
        let quota =
            if remedy == Remedy::Quota { Some(QUOTA_CPUS) } else { neighbour.cpus().filter(|cpus| *cpus > 0.0) };
        quota.map_or(Ok(()), |cpus| group.limit_cpus(cpus))?;
        if neighbour.memory_mb() > 0.0 {
            group.limit_memory((neighbour.memory_most_mb() * MEGABYTE) as u64)?;
        }
        let cpus = if remedy == Remedy::Cpuset { others } else { cpus };
        if remedy == Remedy::Cpuset {
            group.confine(others)?;
        }
        let words = neighbour.stress(folder.path());
        let mut command = sys::program::command("sh");
        // It dies with this process, and its workers with it.
        let enter = format!("{} && exec setpriv --pdeathsig KILL taskset -c {cpus} \"$@\"", group.enter());
        command.args(["-c", &enter, "sh"]);
        match &words {
            Some(words) => command.arg("stress-ng").args(words),
            None => command.args(["sleep", "infinity"]),
        };
        let said = File::create(folder.path().join("said")).map_err(failed("make a file for a neighbour"))?;
        let errors = said.try_clone().map_err(failed("make a file for a neighbour"))?;
        // Ctrl-C is for this process, which ends it.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(said).stderr(errors).current_dir(folder.path());
        let child = command.spawn().map_err(failed("start sh"))?;
        let before = (Instant::now(), 0, Throttled::default());
        let mut stress = Self { child, traffic: None, group, is_limited: quota.is_some(), folder, before };
        if neighbour.kind == Kind::Traffic && neighbour.dose > 0.0 {
            stress.traffic = Some(Traffic::start(neighbour.dose, cpus)?);
        }
        stress.settle(neighbour)?;
        stress.mark();
        Ok(stress)
    }

    /// Waits until it does what it is to do.
    fn settle(&mut self, neighbour: Neighbour) -> Result<(), BenchError> {
        sleep(WARM_UP);
        self.check()?;
        let began = Instant::now();
        while self.resident_mb() < FILLED * neighbour.memory_mb() {
            if began.elapsed() > FILL {
                return Err(BenchError::Machine(format!(
                    "the neighbour {neighbour} has written {:.0} MB after {} s: the machine has not that much free memory",
                    self.resident_mb(),
                    FILL.as_secs()
                )));
            }
            sleep(LOOK);
            self.check()?;
        }
        Ok(())
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => {
                let how = ended
                    .ok()
                    .flatten()
                    .map_or_else(|| "in an unknown way".to_owned(), |status| format!("with {status}"));
                let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
                let said = host::ssh::last_words(&said);
                Err(BenchError::Machine(format!("the neighbour ended {how}: {said}")))
            }
        }
    }

    fn resident_mb(&self) -> f64 {
        let of = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0)
        };
        self.group.processes().iter().map(of).sum::<f64>() * 1024.0 / MEGABYTE
    }

    /// Processor time of its processes so far, in nanoseconds. Each has one thread.
    fn ran_ns(&self) -> u64 {
        let of = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0)
        };
        self.group.processes().iter().map(of).sum::<u64>() + self.traffic.as_ref().map_or(0, Traffic::ran_ns)
    }

    fn mark(&mut self) {
        self.before = (Instant::now(), self.ran_ns(), self.group.throttled());
    }

    /// What it had since it was started, or since this was asked last.
    pub(super) fn had(&mut self) -> Had {
        let (at, ran_ns, throttled) = self.before;
        self.mark();
        let (now, ran_now, throttled_now) = self.before;
        let periods = throttled_now.periods.saturating_sub(throttled.periods);
        let held_back = throttled_now.held_back.saturating_sub(throttled.held_back);
        Had {
            cpus: ran_now.saturating_sub(ran_ns) as f64 / now.duration_since(at).as_nanos().max(1) as f64,
            throttled: self.is_limited.then(|| if periods == 0 { 0.0 } else { held_back as f64 / periods as f64 }),
        }
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        // All at once: a worker whose parent is gone starts no other.
        self.group.kill();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
