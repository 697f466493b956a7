//! The CPU time of every thread of the machine.

use std::collections::BTreeMap;

use crate::Root;

/// A thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTime {
    pub pid: u32,
    /// The name of its process.
    pub process: String,
    /// Time that it has run so far, in nanoseconds.
    pub ran_ns: u64,
    /// Time that it has waited so far for a CPU while it could have run, in nanoseconds.
    pub waited_ns: u64,
    /// The CPU that it ran on last.
    pub cpu: u32,
    /// The process that started its own.
    pub parent: u32,
    /// A thread of the kernel.
    pub kernel: bool,
}

/// The time that a process ran between two moments, all of its threads together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTime {
    pub pid: u32,
    pub name: String,
    /// The time that it ran, in nanoseconds.
    pub ran_ns: u64,
}

/// All threads by their numbers. Those that end meanwhile, and what may not be seen, are left out.
pub fn task_times(root: &Root) -> BTreeMap<u32, TaskTime> {
    let mut tasks = BTreeMap::new();
    for (pid, process) in root.processes(|_, _| true) {
        for tid in root.list(&format!("proc/{pid}/task")).unwrap_or_default() {
            let Ok(tid) = tid.parse::<u32>() else { continue };
            let read = |file: &str| root.read(&format!("proc/{pid}/task/{tid}/{file}")).ok();
            let Some((schedstat, stat)) = read("schedstat").zip(read("stat")) else { continue };
            let numbers = (ran(&schedstat), field(&stat, CPU), field(&stat, PARENT), field(&stat, FLAGS));
            let (Some(ran_ns), Some(cpu), Some(parent), Some(flags)) = numbers else { continue };
            let kernel = flags & KERNEL_THREAD != 0;
            let waited_ns = waited(&schedstat).unwrap_or(0);
            tasks.insert(tid, TaskTime { pid, process: process.clone(), ran_ns, waited_ns, cpu, parent, kernel });
        }
    }
    tasks
}

/// The threads that ran between two readings, the longest first: those whose last CPU `of` accepts.
pub fn ran_between(
    before: &BTreeMap<u32, TaskTime>,
    after: &BTreeMap<u32, TaskTime>,
    of: impl Fn(&TaskTime) -> bool,
) -> Vec<ProcessTime> {
    let mut processes: BTreeMap<u32, ProcessTime> = BTreeMap::new();
    for (tid, now) in after.iter().filter(|(_, task)| of(task)) {
        // A number that was given on, and a thread that began meanwhile, have run since then.
        let then = before.get(tid).filter(|b| b.pid == now.pid && b.ran_ns <= now.ran_ns).map_or(0, |b| b.ran_ns);
        let one = ProcessTime { pid: now.pid, name: now.process.clone(), ran_ns: 0 };
        processes.entry(now.pid).or_insert(one).ran_ns += now.ran_ns - then;
    }
    let mut all: Vec<ProcessTime> = processes.into_values().filter(|p| p.ran_ns > 0).collect();
    all.sort_by_key(|p| std::cmp::Reverse(p.ran_ns));
    all
}

/// The first number of a schedstat file.
fn ran(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// The second number.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Fields of a stat file, counted from 1 (proc_pid_stat(5)).
const PARENT: usize = 4;
const FLAGS: usize = 9;
const CPU: usize = 39;
/// PF_KTHREAD (include/linux/sched.h).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// A field behind the name, which stands in brackets and may have anything in it.
fn field(stat: &str, number: usize) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, process: &str, ran_ns: u64, cpu: u32) -> TaskTime {
        TaskTime { pid, process: process.to_owned(), ran_ns, waited_ns: 0, cpu, parent: 1, kernel: false }
    }

    #[test]
    fn threads_of_a_process_count_together_and_others_cpus_do_not() {
        let before =
            BTreeMap::from([(7, task(7, "old", 100, 0)), (8, task(7, "old", 50, 0)), (9, task(9, "far", 0, 1))]);
        let after = BTreeMap::from([
            (7, task(7, "old", 130, 0)),
            (8, task(7, "old", 60, 0)),
            (9, task(9, "far", 900, 1)),
            (20, task(20, "new", 70, 0)),
        ]);
        let found = ran_between(&before, &after, |t| t.cpu == 0);
        let found: Vec<_> = found.iter().map(|p| (p.pid, p.name.as_str(), p.ran_ns)).collect();
        assert_eq!(found, [(20, "new", 70), (7, "old", 40)]);
    }

    #[test]
    fn a_name_with_brackets_does_not_move_the_fields() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("12 (a) b) S {}", fields.join(" "));
        assert_eq!([PARENT, FLAGS, CPU].map(|n| field(&stat, n)), [Some(4), Some(9), Some(39)]);
        assert_eq!((field("", CPU), ran("123 4 5\n"), ran("")), (None, Some(123), None));
    }

    #[test]
    fn this_test_runs() {
        let before = task_times(&Root::live());
        let me = before.values().find(|t| t.pid == std::process::id()).expect("this process is seen");
        assert!(me.ran_ns > 0 && !me.kernel && me.parent > 0, "{me:?}");
        assert!(
            before.values().any(|t| t.kernel) || before.values().all(|t| t.pid != 2),
            "kthreadd is one of the kernel's"
        );
    }
}
