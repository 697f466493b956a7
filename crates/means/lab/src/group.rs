//! Control groups of a run, of version 1 and 2: a limit on CPU time, a set of CPUs, a limit on memory, and whether the first was reached.
//!
//! The version is decided controller by controller: a machine may have some of each.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use model::CpuSet;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{LabError, owner};

/// The length of a period of a limit on CPU time, in microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;
/// The shortest quota of a period that the kernel takes, in microseconds.
const QUOTA_MIN_US: u64 = 1_000;
/// Processes that were killed are gone within this time.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two looks for them.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// Resource that a group can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Cpu,
    Cpuset,
    Memory,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Cpu, Self::Cpuset, Self::Memory];

    fn key(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Memory => "memory",
        }
    }
}

/// Mount point and version of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    is_v2: bool,
}

/// Time in which a group was held back, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which it wanted to run.
    pub periods: u64,
    /// Periods in which it was held back.
    pub held_back: u64,
    /// Time for which it was, in nanoseconds, all CPUs together.
    pub ns: u64,
}

/// A group of a run. Its processes are killed, and it goes, when it is dropped.
#[derive(Debug)]
pub struct Group {
    /// The folder of each controller that the machine has; those of version 2 share one.
    folders: Vec<(Controller, PathBuf, bool)>,
    /// Controllers of version 2 that the root did not hand on, and that it does until the group goes: its file, and their names.
    handed_on: Vec<(PathBuf, &'static str)>,
}

impl Group {
    /// Makes a group for `role` of a run.
    ///
    /// # Errors
    /// The machine has no control groups for CPU time, or does not let this process make one.
    pub fn new(tag: &str, role: &str) -> Result<Self, LabError> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Self::below(&mounts, &owner::name(tag, role))
    }

    fn below(mounts: &str, name: &str) -> Result<Self, LabError> {
        let mut group = Self { folders: Vec::new(), handed_on: Vec::new() };
        for controller in Controller::ALL {
            let Some(Hierarchy { mount, is_v2 }) = hierarchy(mounts, controller) else { continue };
            if is_v2 {
                group.hand_on(&mount, controller)?;
            }
            let folder = mount.join(name);
            match fs::create_dir(&folder) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(failed("make", &folder))?,
            }
            if controller == Controller::Cpuset && !is_v2 {
                // Version 1 takes no process before both are set.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let of_parent = fs::read_to_string(mount.join(file)).unwrap_or_default();
                    write(&folder.join(file), of_parent.trim())?;
                }
            }
            group.folders.push((controller, folder, is_v2));
        }
        if group.folder(Controller::Cpu).is_none() {
            return Err(LabError::NoGroups { controller: "cpu" });
        }
        Ok(group)
    }

    /// Has the root of version 2 hand a controller on to its groups.
    fn hand_on(&mut self, mount: &Path, controller: Controller) -> Result<(), LabError> {
        let file = mount.join("cgroup.subtree_control");
        let now = fs::read_to_string(&file).unwrap_or_default();
        if !now.split_whitespace().any(|word| word == controller.key()) {
            write(&file, &format!("+{}", controller.key()))?;
            self.handed_on.push((file, controller.key()));
        }
        Ok(())
    }

    fn folder(&self, controller: Controller) -> Option<(&Path, bool)> {
        let found = self.folders.iter().find(|(one, ..)| *one == controller);
        found.map(|(_, folder, is_v2)| (folder.as_path(), *is_v2))
    }

    fn needed(&self, controller: Controller) -> Result<(&Path, bool), LabError> {
        self.folder(controller).ok_or(LabError::NoGroups { controller: controller.key() })
    }

    /// The shell command that puts the shell itself into the group: what it starts then is in it from its first instruction.
    pub fn enter(&self) -> String {
        let mut folders: Vec<String> =
            self.folders.iter().map(|(_, folder, _)| format!("echo 0 > '{}/cgroup.procs'", folder.display())).collect();
        folders.dedup();
        folders.join(" && ")
    }

    /// Limits its CPU time to that of so many CPUs, such as 0.5; at least a hundredth of one.
    pub fn limit_cpus(&self, cpus: f64) -> Result<(), LabError> {
        let (folder, is_v2) = self.needed(Controller::Cpu)?;
        let quota = ((cpus * PERIOD_US as f64) as u64).max(QUOTA_MIN_US);
        if is_v2 {
            return write(&folder.join("cpu.max"), &format!("{quota} {PERIOD_US}"));
        }
        write(&folder.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        write(&folder.join("cpu.cfs_quota_us"), &quota.to_string())
    }

    /// Lets it run on these CPUs alone.
    pub fn confine(&self, cpus: &CpuSet) -> Result<(), LabError> {
        let (folder, _) = self.needed(Controller::Cpuset)?;
        write(&folder.join("cpuset.cpus"), &cpus.to_string())
    }

    /// Limits its memory to so many bytes: beyond, the kernel ends its processes, and no others.
    pub fn limit_memory(&self, bytes: u64) -> Result<(), LabError> {
        let (folder, is_v2) = self.needed(Controller::Memory)?;
        let file = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        write(&folder.join(file), &bytes.to_string())
    }

    /// Use of its limit on CPU time.
    pub fn throttled(&self) -> Throttled {
        let Some((folder, is_v2)) = self.folder(Controller::Cpu) else { return Throttled::default() };
        throttled(&fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default(), is_v2)
    }

    /// Ends its processes; they may still be there for a moment.
    pub fn kill(&self) {
        self.folders.iter().for_each(|(_, folder, _)| kill_all(folder));
    }

    pub fn processes(&self) -> Vec<u32> {
        let all = self.folders.iter().flat_map(|(_, folder, _)| processes(folder));
        let mut all: Vec<u32> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, folder, _) in &self.folders {
            // What stays is found by the next run, and by `evenkeel clean`.
            let _ = remove(folder);
        }
        for (file, controller) in &self.handed_on {
            let _ = fs::write(file, format!("-{controller}"));
        }
    }
}

/// The hierarchy of a controller: of version 1 where it has one of its own, else of version 2.
fn hierarchy(mounts: &str, controller: Controller) -> Option<Hierarchy> {
    let lines = mounts.lines().filter_map(|line| {
        let [_, mount, kind, options, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        Some((PathBuf::from(mount.replace("\\040", " ")), kind, options))
    });
    let lines: Vec<_> = lines.collect();
    let v1 =
        lines.iter().find(|(_, kind, options)| *kind == "cgroup" && options.split(',').any(|o| o == controller.key()));
    if let Some((mount, ..)) = v1 {
        return Some(Hierarchy { mount: mount.clone(), is_v2: false });
    }
    let has = |mount: &Path| {
        let all = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
        all.split_whitespace().any(|word| word == controller.key())
    };
    let v2 = lines.iter().find(|(mount, kind, _)| *kind == "cgroup2" && has(mount));
    v2.map(|(mount, ..)| Hierarchy { mount: mount.clone(), is_v2: true })
}

fn throttled(stat: &str, is_v2: bool) -> Throttled {
    let field = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        value.unwrap_or(0)
    };
    let ns = if is_v2 { 1_000 * field("throttled_usec") } else { field("throttled_time") };
    Throttled { periods: field("nr_periods"), held_back: field("nr_throttled"), ns }
}

fn processes(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn kill_all(folder: &Path) {
    for pid in processes(folder) {
        // One that has ended meanwhile is what is wanted.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// Kills what is in a group, and removes it.
fn remove(folder: &Path) -> Result<(), LabError> {
    let began = Instant::now();
    loop {
        kill_all(folder);
        match fs::remove_dir(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.raw_os_error() == Some(nix::libc::EBUSY) && began.elapsed() < REMOVAL_TIMEOUT => {
                sleep(POLL_PERIOD);
            }
            done => return done.map_err(failed("remove", folder)),
        }
    }
}

/// The groups of this program whose owner is no longer alive.
pub fn dead_groups() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found = Vec::new();
    for Hierarchy { mount, .. } in Controller::ALL.into_iter().filter_map(|one| hierarchy(&mounts, one)) {
        let names =
            fs::read_dir(&mount).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
        found.extend(names.filter(|name| owner::is_dead(name)).map(|name| mount.join(name)));
    }
    found.sort();
    found.dedup();
    found
}

/// Kills the processes of those groups, and removes them; returns their folders.
///
/// # Errors
/// The first that cannot be removed.
pub fn clear_dead_groups() -> Result<Vec<PathBuf>, LabError> {
    let dead = dead_groups();
    dead.iter().try_for_each(|folder| remove(folder))?;
    Ok(dead)
}

fn write(path: &Path, value: &str) -> Result<(), LabError> {
    fs::write(path, value).map_err(|source| LabError::Setting {
        path: path.display().to_string(),
        value: value.to_owned(),
        source,
    })
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let path = path.display().to_string();
    move |source| LabError::Group { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_is_found_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "memory pids\n").unwrap();
        let mounts = format!(
            "cgroup /sys/fs/cgroup/cpu cgroup rw,nosuid,cpu,cpuacct 0 0\n\
             cgroup /sys/fs/cgroup/cpuacct cgroup rw,cpuacct 0 0\ncgroup2 {} cgroup2 rw 0 0\n",
            folder.path().display()
        );
        let of = |controller| hierarchy(&mounts, controller).map(|h| (h.mount, h.is_v2));
        assert_eq!(of(Controller::Cpu), Some((PathBuf::from("/sys/fs/cgroup/cpu"), false)));
        assert_eq!(of(Controller::Memory), Some((folder.path().to_owned(), true)));
        assert_eq!(of(Controller::Cpuset), None);
    }

    #[test]
    fn version_2_hands_on_what_a_group_needs_and_takes_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("cgroup.controllers"), "cpu pids\n").unwrap();
        fs::write(at("cgroup.subtree_control"), "pids\n").unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", folder.path().display());
        let group = Group::below(&mounts, "ek-test").unwrap();
        assert_eq!(fs::read_to_string(at("cgroup.subtree_control")).unwrap(), "+cpu");
        group.limit_cpus(0.5).unwrap();
        assert_eq!(fs::read_to_string(at("ek-test/cpu.max")).unwrap(), "50000 100000");
        assert!(matches!(group.confine(&"0".parse().unwrap()), Err(LabError::NoGroups { controller: "cpuset" })));
        assert_eq!(group.enter(), format!("echo 0 > '{}/cgroup.procs'", at("ek-test").display()));
        fs::remove_file(at("ek-test/cpu.max")).unwrap();
        drop(group);
        assert!(!at("ek-test").exists());
        assert_eq!(fs::read_to_string(at("cgroup.subtree_control")).unwrap(), "-cpu");
    }

    #[test]
    fn time_held_back_has_a_name_of_each_version() {
        let v1 = "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\n";
        let v2 = "usage_usec 7\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n";
        let expected = Throttled { periods: 10, held_back: 4, ns: 5000 };
        assert_eq!([throttled(v1, false), throttled(v2, true)], [expected; 2]);
    }
}
