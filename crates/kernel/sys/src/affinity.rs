//! On which CPU a thread runs, and before whom.

use std::{fs, io};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

/// Lets the calling thread run on `cpu` only.
///
/// # Errors
/// EINVAL for a CPU that is not online or not allowed to this process.
pub fn pin_current_thread(cpu: u32) -> io::Result<()> {
    set_cpus(0, [cpu])
}

/// Lets the thread `tid`, which may be one of the kernel's, run on `cpus` only; 0 is the calling one.
///
/// # Errors
/// ESRCH when it is gone; EINVAL when none of `cpus` is online and allowed, and for a thread that the kernel binds to its CPU.
pub fn set_cpus(tid: u32, cpus: impl IntoIterator<Item = u32>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().try_for_each(|cpu| set.set(cpu as usize))?;
    Ok(sched_setaffinity(Pid::from_raw(tid.cast_signed()), &set)?)
}

/// Lets the calling thread run before others: `nice` from -20 (first) to 19 (setpriority(2)).
///
/// # Errors
/// EACCES without CAP_SYS_NICE, when it is less than now.
pub fn set_nice_of_current_thread(nice: i32) -> io::Result<()> {
    set_nice(0, nice)
}

/// The same for the thread `tid`, which may be one of the kernel's; 0 is the calling one.
///
/// # Errors
/// ESRCH when it is gone; EACCES or EPERM without CAP_SYS_NICE.
pub fn set_nice(tid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: setpriority(2) takes numbers only.
    let code = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, nice) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the thread `tid` run before all that have no real-time priority (SCHED_FIFO with `priority` from 1), or with 0 like others again (SCHED_OTHER).
///
/// # Errors
/// ESRCH when it is gone; EPERM without CAP_SYS_NICE, or where its control group has no real-time share.
pub fn set_fifo(tid: u32, priority: i32) -> io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    // SAFETY: all zeros are a valid sched_param.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: sched_setscheduler(2) reads the sched_param, which outlives the call.
    let code = unsafe { libc::sched_setscheduler(tid.cast_signed(), policy, &raw const param) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True for a thread of the kernel. Its name alone is no proof: any user can give it to a process.
pub fn is_kernel_thread(pid: u32) -> bool {
    /// PF_KTHREAD of include/linux/sched.h, in the seventh word after the name (proc_pid_stat(5)).
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in parentheses and may hold others.
    let flags = stat.rsplit_once(')').and_then(|(_, words)| words.split_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_kernel_is_told_from_a_process() {
        let own = std::process::id();
        assert!(!is_kernel_thread(own) && !is_kernel_thread(u32::MAX));
        // kthreadd, but for containers with numbers of their own.
        let is_kthreadd = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
        assert_eq!(is_kernel_thread(2), is_kthreadd);
    }

    #[test]
    fn a_nice_thread_is_nice_alone() {
        let nice = || -> i32 {
            // The 19th field (proc_pid_stat(5)); the name before it has no blanks here.
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
        };
        let before = nice();
        let within = std::thread::spawn(move || {
            set_nice_of_current_thread(19).unwrap();
            nice()
        });
        assert_eq!((within.join().unwrap(), nice()), (19, before));
    }

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        let allowed = |set: &CpuSet| (0..CpuSet::count()).filter(|&c| set.is_set(c).unwrap()).collect::<Vec<_>>();
        let now = move || nix::sched::sched_getaffinity(Pid::from_raw(0)).map(|set| allowed(&set)).unwrap();
        let cpu = *now().last().unwrap();
        std::thread::spawn(move || {
            pin_current_thread(cpu as u32).unwrap();
            assert_eq!(now(), [cpu]);
            for none in [CpuSet::count() as u32 - 1, u32::MAX] {
                assert_eq!(pin_current_thread(none).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{none}");
            }
        })
        .join()
        .unwrap();
    }
}
