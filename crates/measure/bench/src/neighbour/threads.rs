//! The threads that do a box's work, those of the kernel and of a guest: their time, and what comes before them.

use std::collections::{BTreeMap, BTreeSet};

use host::{
    Root,
    counters::{TaskTime, task_times},
};
use model::CpuSet;
use sys::affinity::{set_cpus, set_fifo, set_nice};

use super::kind::Remedy;
use crate::BenchError;

/// Names of the threads of receive rings, which have their core for good, and of those of NAPI, which can be moved.
const RING: &str = "cpumap/";
const NAPI: &str = "napi/";
/// Names of a process of QEMU (the kernel cuts it to 15 bytes), and of a thread of the kernel that carries a guest's frames, before the guest's pid.
const QEMU: &str = "qemu-system";
const VHOST: &str = "vhost-";
/// The real-time priority of [`Remedy::Fifo`]: the least.
const FIFO_PRIORITY: i32 = 1;
const NICE_MIN: i32 = -20;

/// The threads of a box: looked for anew each time, since the tester makes others when what it sends changes.
#[derive(Debug)]
pub(super) struct BoxThreads {
    before: BTreeSet<u32>,
    /// The processes that are guests and were not there before the box. Those that come later are neighbours.
    guests: BTreeSet<u32>,
    cores: Vec<u32>,
    /// The CPUs for threads that leave the box's cores.
    aside: CpuSet,
}

/// Time of threads so far, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) ran_ns: u64,
    /// Time in which they could have run, and had no CPU.
    pub(super) waited_ns: u64,
}

/// Threads that are there, of the kinds that a box may have.
pub(super) fn present() -> BTreeSet<u32> {
    task_times(&Root::live()).into_iter().filter(|(_, task)| of_box(task)).map(|(tid, _)| tid).collect()
}

fn of_box(task: &TaskTime) -> bool {
    let kinds: &[&str] = if task.kernel { &[RING, NAPI, VHOST] } else { &[QEMU] };
    kinds.iter().any(|name| task.process.starts_with(name))
}

/// Time between two readings, of the threads that are in the later one: those of what was sent before may have gone meanwhile. Waiting is the mean of the
/// threads.
pub(super) fn between(before: &BTreeMap<u32, Times>, after: &BTreeMap<u32, Times>) -> Times {
    let mut sum = Times::default();
    for (tid, now) in after {
        let then = before.get(tid).copied().unwrap_or_default();
        sum.ran_ns += now.ran_ns.saturating_sub(then.ran_ns);
        sum.waited_ns += now.waited_ns.saturating_sub(then.waited_ns);
    }
    Times { waited_ns: sum.waited_ns / after.len().max(1) as u64, ..sum }
}

impl BoxThreads {
    /// The threads on `cores`, or moved `aside`, that were not there `before`. The box is there, and no neighbour yet.
    pub(super) fn new(before: BTreeSet<u32>, cores: &[u32], aside: &CpuSet) -> Self {
        let is_guest = |(tid, task): &(&u32, &TaskTime)| !task.kernel && of_box(task) && !before.contains(tid);
        let guests = task_times(&Root::live()).iter().filter(is_guest).map(|(_, task)| task.pid).collect();
        Self { before, guests, cores: cores.to_vec(), aside: aside.clone() }
    }

    fn is_ours(&self, tid: u32, task: &TaskTime) -> bool {
        if self.before.contains(&tid) || !of_box(task) {
            return false;
        }
        if !task.kernel {
            return self.guests.contains(&task.pid);
        }
        match task.process.strip_prefix(VHOST) {
            Some(pid) => pid.parse().is_ok_and(|pid| self.guests.contains(&pid)),
            None => task.process.starts_with(NAPI) || self.cores.contains(&task.cpu),
        }
    }

    fn find(&self) -> Result<BTreeMap<u32, TaskTime>, BenchError> {
        let mut tasks = task_times(&Root::live());
        tasks.retain(|&tid, task| self.is_ours(tid, task));
        if tasks.is_empty() {
            return Err(BenchError::Machine(
                "the box has no receive thread of its own: a neighbour needs a box apart from the sender, that is two CPUs".into(),
            ));
        }
        Ok(tasks)
    }

    /// The time of each so far, by its number.
    pub(super) fn times(&self) -> Result<BTreeMap<u32, Times>, BenchError> {
        let times = |task: TaskTime| Times { ran_ns: task.ran_ns, waited_ns: task.waited_ns };
        Ok(self.find()?.into_iter().map(|(tid, task)| (tid, times(task))).collect())
    }

    /// Schedules them as a remedy has it: like a neighbour's, unless it says otherwise.
    pub(super) fn schedule(&self, remedy: Remedy) -> Result<(), BenchError> {
        let nice = if remedy == Remedy::Nice { NICE_MIN } else { 0 };
        let priority = if remedy == Remedy::Fifo { FIFO_PRIORITY } else { 0 };
        let mut movable = 0;
        for (tid, task) in self.find()? {
            let mut set = set_fifo(tid, priority).and_then(|()| set_nice(tid, nice));
            if task.process.starts_with(NAPI) {
                // As the lab has them: that of the second direction on the second core, if there is one.
                let own = CpuSet::single(self.cores[movable % self.cores.len()]);
                movable += 1;
                let cpus = if remedy == Remedy::ThreadedNapi { &self.aside } else { &own };
                set = set.and_then(|()| set_cpus(tid, cpus.iter()));
            }
            set.map_err(|e| {
                BenchError::Machine(format!("cannot schedule the box's thread {tid} ({}): {e}", remedy.key()))
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_box_that_is_a_guest_are_distinguished_from_those_of_neighbours() {
        let task = |pid, process: &str, kernel, cpu| {
            let process = process.to_owned();
            (pid, TaskTime { pid, process, ran_ns: 0, waited_ns: 0, cpu, parent: 1, kernel })
        };
        let threads = BoxThreads { before: [5].into(), guests: [10].into(), cores: vec![1], aside: CpuSet::single(0) };
        let ours = |(tid, task): (u32, TaskTime)| threads.is_ours(tid, &task);
        assert!(ours(task(10, "qemu-system-x86", false, 0)) && ours(task(11, "vhost-10", true, 0)));
        assert!(!ours(task(20, "qemu-system-x86", false, 1)) && !ours(task(21, "vhost-20", true, 1)));
        assert!(ours(task(30, "cpumap/1/map:4", true, 1)) && !ours(task(31, "cpumap/0/map:4", true, 0)));
        assert!(ours(task(32, "napi/ek-1", true, 0)) && !ours(task(5, "napi/eth0-1", true, 1)), "one of before");
        assert!(!ours(task(33, "bash", false, 1)) && !ours(task(34, "ksoftirqd/1", true, 1)));
    }

    #[test]
    fn threads_that_have_gone_take_nothing_away() {
        let times = |all: &[(u32, u64, u64)]| -> BTreeMap<u32, Times> {
            all.iter().map(|&(tid, ran_ns, waited_ns)| (tid, Times { ran_ns, waited_ns })).collect()
        };
        let before = times(&[(1, 1_000_000, 500_000), (2, 100, 10)]);
        let after = times(&[(2, 150, 30), (3, 70, 40)]);
        let found = between(&before, &after);
        assert_eq!((found.ran_ns, found.waited_ns), (120, 30));
    }
}
