//! A neighbour that runs: processes or a guest in a control group, on its CPUs.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use host::owner::{TemporaryFolder, temporary_folder};
use lab::{Group, Throttled};
use model::CpuSet;

use super::{
    guests::{Guests, Neighbouring},
    kind::{Form, Kind, Neighbour, Remedy},
    plan::Placed,
    traffic::Traffic,
};
use crate::BenchError;

/// From its start to the first trial.
const WARM_UP_TIME: Duration = Duration::from_millis(500);
/// Memory is written within this time.
const FILL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two looks at it.
const CHECK_PERIOD: Duration = Duration::from_millis(50);
/// Written is what has this share of the dose.
const FILLED_SHARE_MIN: f64 = 0.9;
/// The CPUs of [`Remedy::Quota`].
const QUOTA_CPUS: f64 = 0.1;
const MEGABYTE_BYTES: f64 = 1e6;

/// A neighbour under way. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Stress {
    // In the order in which they are to go.
    traffic: Option<Traffic>,
    work: Work,
    group: Group,
    is_limited: bool,
    /// Memory that it had before its work, in MB.
    idle_mb: f64,
    before: (Instant, u64, Throttled),
}

#[derive(Debug)]
enum Work {
    Processes(Processes),
    Guest(Box<Neighbouring>),
}

/// Resource use since the last reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Had {
    pub(super) cpus: f64,
    /// The share of the periods in which its limit held it back.
    pub(super) throttled: Option<f64>,
}

impl Stress {
    /// Starts it; `others` are the CPUs besides the box's, `guests` what a guest is made of.
    pub(super) fn start(
        placed: &Placed,
        remedy: Remedy,
        others: &CpuSet,
        guests: Option<&Guests>,
    ) -> Result<Self, BenchError> {
        let neighbour = placed.neighbour;
        let group = Group::new("bench", "neighbour")?;
        let cpus = if remedy == Remedy::Cpuset { others } else { &placed.cpus };
        if remedy == Remedy::Cpuset {
            group.confine(others)?;
        }
        let enter = format!("{} && exec \"$@\"", group.enter());
        let cpu_list = cpus.to_string();
        // A neighbour of a tester that has a real-time policy has none: groups of version 1 take no such process.
        let enter = format!("chrt --other --pid 0 $$ >/dev/null 2>&1; {enter}");
        let within = ["sh", "-c", &enter, "sh", "taskset", "-c", &cpu_list].map(str::to_owned);
        let quota =
            if remedy == Remedy::Quota { Some(QUOTA_CPUS) } else { neighbour.cpus().filter(|cpus| *cpus > 0.0) };
        let limit = |group: &Group| quota.map_or(Ok(()), |cpus| group.limit_cpus(cpus));
        let mut traffic = None;
        let sends = neighbour.kind == Kind::Traffic && neighbour.dose > 0.0;
        let (work, idle_mb) = match (placed.form, guests) {
            (Form::Process, _) => {
                limit(&group)?;
                if neighbour.memory_mb() > 0.0 {
                    group.limit_memory((neighbour.memory_most_mb() * MEGABYTE_BYTES) as u64)?;
                }
                let work = Work::Processes(Processes::start(neighbour, &within)?);
                if sends {
                    traffic = Some(Traffic::start(neighbour.dose, cpus)?);
                }
                (work, 0.0)
            }
            (Form::Guest, Some(guests)) => {
                let mut guest = Neighbouring::start(guests, neighbour, within.into())?;
                let idle_mb = resident_mb(&group);
                // Only now: its boot is no part of the dose.
                limit(&group)?;
                if let Some(ends) = guest.begin(neighbour)? {
                    traffic = Some(Traffic::send(neighbour.dose, ends, cpus)?);
                }
                (Work::Guest(Box::new(guest)), idle_mb)
            }
            (Form::Guest, None) => return Err(BenchError::Panicked("guests of the neighbours")),
        };
        let before = (Instant::now(), 0, Throttled::default());
        let mut stress = Self { traffic, work, group, is_limited: quota.is_some(), idle_mb, before };
        stress.settle(neighbour)?;
        stress.mark();
        Ok(stress)
    }

    /// Waits until it does what it is to do.
    fn settle(&mut self, neighbour: Neighbour) -> Result<(), BenchError> {
        sleep(WARM_UP_TIME);
        self.check()?;
        let began = Instant::now();
        while self.resident_mb() < FILLED_SHARE_MIN * neighbour.memory_mb() {
            if began.elapsed() > FILL_TIMEOUT {
                return Err(BenchError::Machine(format!(
                    "the neighbour {neighbour} has written {:.0} MB after {} s: the machine has not that much free memory",
                    self.resident_mb(),
                    FILL_TIMEOUT.as_secs()
                )));
            }
            sleep(CHECK_PERIOD);
            self.check()?;
        }
        Ok(())
    }

    /// Memory that its work has, in MB.
    fn resident_mb(&self) -> f64 {
        resident_mb(&self.group) - self.idle_mb
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        match &mut self.work {
            Work::Processes(processes) => processes.check(),
            Work::Guest(guest) => guest.check(),
        }
    }

    /// Processor time of its threads so far, in nanoseconds.
    fn ran_ns(&self) -> u64 {
        let of_thread = |path: PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0)
        };
        let of = |pid: &u32| -> u64 {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            threads.map(|thread| of_thread(thread.path().join("schedstat"))).sum()
        };
        self.group.processes().iter().map(of).sum::<u64>() + self.traffic.as_ref().map_or(0, Traffic::ran_ns)
    }

    fn mark(&mut self) {
        self.before = (Instant::now(), self.ran_ns(), self.group.throttled());
    }

    /// Resource use since the start, or since the last call.
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
    }
}

/// stress-ng, or what is there and does nothing.
#[derive(Debug)]
struct Processes {
    child: Child,
    folder: TemporaryFolder,
}

impl Processes {
    /// Starts it by the words `within`, which put it into its group.
    fn start(neighbour: Neighbour, within: &[String]) -> Result<Self, BenchError> {
        let failed = |what: &'static str| move |e: std::io::Error| BenchError::Machine(format!("cannot {what}: {e}"));
        let folder = temporary_folder("bench", "neighbour").map_err(failed("make a folder for a neighbour"))?;
        // It dies with this process, and its workers with it.
        let mut command = sys::program::command("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(within);
        match neighbour.stress(folder.path()) {
            Some(words) => command.arg("stress-ng").args(words),
            None => command.args(["sleep", "infinity"]),
        };
        let output = File::create(folder.path().join("said")).map_err(failed("make a file for a neighbour"))?;
        let errors = output.try_clone().map_err(failed("make a file for a neighbour"))?;
        // Ctrl-C is for this process, which ends it.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(output).stderr(errors).current_dir(folder.path());
        let child = command.spawn().map_err(failed("start setpriv"))?;
        Ok(Self { child, folder })
    }

    fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => {
                let how = ended
                    .ok()
                    .flatten()
                    .map_or_else(|| "in an unknown way".to_owned(), |status| format!("with {status}"));
                let output = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
                let output = host::ssh::last_words(&output);
                Err(BenchError::Machine(format!("the neighbour ended {how}: {output}")))
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory that the processes of a group have, in MB.
fn resident_mb(group: &Group) -> f64 {
    let of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0)
    };
    group.processes().iter().map(of).sum::<f64>() * 1024.0 / MEGABYTE_BYTES
}
