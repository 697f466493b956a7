//! NAPI in kernel threads, each on a CPU of its choice: how a lab gives a queue "its" core.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use sys::affinity::is_kernel_thread;

use crate::LabError;

/// The nice value of who comes first.
const NICE_MIN: i32 = -20;
/// The kernel's time to start the threads.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Switches `interface` to threaded NAPI and pins the thread of its `i`-th NAPI instance to `cpus[i % cpus.len()]`.
///
/// NAPI must be running (an XDP program on a veth, or GRO): without it there is no thread to pin. A later change that
/// stops and starts NAPI (GRO off, an XDP program while GRO is off) makes new, unpinned threads.
pub(crate) fn thread(interface: &str, cpus: &[u32]) -> Result<(), LabError> {
    let failed = |why: String| LabError::Napi { interface: interface.to_owned(), why };
    if cpus.is_empty() {
        return Err(failed("no CPU given".into()));
    }
    let path = format!("/sys/class/net/{interface}/threaded");
    fs::write(&path, "1").map_err(|source| LabError::Setting { path, value: "1".into(), source })?;
    let started = Instant::now();
    loop {
        let pids = threads_of(interface);
        // Threads of before a restart of NAPI may still be there, and gone the next moment.
        if !pids.is_empty() && pin(&pids, cpus).map_err(failed)? && threads_of(interface) == pids {
            return Ok(());
        }
        if started.elapsed() > START_TIMEOUT {
            return Err(failed(format!(
                "no lasting thread called napi/{interface}-… appeared; is NAPI on (GRO, or XDP)?"
            )));
        }
        sleep(Duration::from_millis(5));
    }
}

/// Pins each thread to its CPU; false if one of them has ended meanwhile.
fn pin(pids: &[i32], cpus: &[u32]) -> Result<bool, String> {
    for (i, pid) in pids.iter().enumerate() {
        let cpu = cpus[i % cpus.len()];
        let mut set = CpuSet::new();
        match set.set(cpu as usize).and_then(|()| sched_setaffinity(Pid::from_raw(*pid), &set)) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(false),
            Err(e) => return Err(format!("thread {pid} to CPU {cpu}: {e}")),
        }
    }
    Ok(true)
}

/// Lets the NAPI threads of `interface` run before other work on their CPUs.
pub(crate) fn prefer(interface: &str) -> Result<(), LabError> {
    let started = Instant::now();
    loop {
        let pids = threads_of(interface);
        let mut lasting = true;
        for pid in &pids {
            match sys::affinity::set_nice(pid.cast_unsigned(), NICE_MIN) {
                // As above: of before a restart.
                Err(e) if e.raw_os_error() == Some(Errno::ESRCH as i32) && started.elapsed() < START_TIMEOUT => {
                    lasting = false;
                }
                set => set.map_err(|e| LabError::Napi {
                    interface: interface.to_owned(),
                    why: format!("thread {pid} to nice {NICE_MIN}: {e}"),
                })?,
            }
        }
        if lasting && threads_of(interface) == pids {
            return Ok(());
        }
        sleep(Duration::from_millis(5));
    }
}

/// The pids of the NAPI threads of `interface`, by NAPI id, which for a veth is the order of its queues.
///
/// The threads are known by their names alone (`napi/<interface>-<id>`, net/core/dev.c), so the interface's name must
/// be unique on the machine: see [`Lab::interface`](crate::Lab::interface).
fn threads_of(interface: &str) -> Vec<i32> {
    let prefix = format!("napi/{interface}-");
    let mut found: Vec<(u32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let comm = fs::read_to_string(Path::new("/proc").join(entry.file_name()).join("comm")).ok()?;
            let id = comm.trim_end().strip_prefix(&prefix)?.parse().ok()?;
            is_kernel_thread(pid).then_some((id, pid.cast_signed()))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, pid)| pid).collect()
}
