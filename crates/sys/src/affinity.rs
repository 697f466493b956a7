//! On which CPU a thread runs.

use std::io;

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

/// Lets the calling thread run on `cpu` only.
///
/// # Errors
/// EINVAL for a CPU that is not online or not allowed to this process.
pub fn pin_current_thread(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
