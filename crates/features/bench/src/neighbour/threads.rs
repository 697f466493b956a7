//! The kernel threads that do a box's work: their time, and what comes before them.

use std::collections::{BTreeMap, BTreeSet};

use host::{
    Root,
    counters::{TaskTime, task_times},
};
use model::CpuSet;
use sys::affinity::{set_cpus, set_fifo, set_nice};

use super::kind::Remedy;
use crate::BenchError;

/// What threads of receive rings are called, which have their core for good, and those of NAPI, which can be moved.
const RING: &str = "cpumap/";
const NAPI: &str = "napi/";
/// The real-time priority of [`Remedy::Fifo`]: the least.
const FIFO: i32 = 1;
const FIRST: i32 = -20;

/// The threads of a box: looked for anew each time, since the tester makes others when what it sends changes.
#[derive(Debug)]
pub(super) struct BoxThreads {
    /// Those that were there before the box.
    before: BTreeSet<u32>,
    cores: Vec<u32>,
    /// Where they go when they leave the box's cores.
    aside: CpuSet,
}

/// Time of threads so far, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) ran_ns: u64,
    /// They could have run, and had no CPU.
    pub(super) waited_ns: u64,
}

/// Threads of this kind that are there.
pub(super) fn present() -> BTreeSet<u32> {
    of_boxes(&task_times(&Root::live())).collect()
}

fn of_boxes(tasks: &BTreeMap<u32, TaskTime>) -> impl Iterator<Item = u32> {
    let named = |task: &TaskTime| [RING, NAPI].iter().any(|name| task.process.starts_with(name));
    tasks.iter().filter(move |(_, task)| task.kernel && named(task)).map(|(&tid, _)| tid)
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
    /// Those on `cores`, or moved `aside`, that were not there `before`.
    pub(super) fn new(before: BTreeSet<u32>, cores: &[u32], aside: &CpuSet) -> Self {
        Self { before, cores: cores.to_vec(), aside: aside.clone() }
    }

    fn find(&self) -> Result<BTreeMap<u32, TaskTime>, BenchError> {
        let mut tasks = task_times(&Root::live());
        let ours: BTreeSet<u32> = of_boxes(&tasks).filter(|tid| !self.before.contains(tid)).collect();
        tasks.retain(|tid, task| {
            ours.contains(tid) && (task.process.starts_with(NAPI) || self.cores.contains(&task.cpu))
        });
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
        let nice = if remedy == Remedy::Nice { FIRST } else { 0 };
        let priority = if remedy == Remedy::Fifo { FIFO } else { 0 };
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
