//! A clock that ticks on one CPU and on which a BPF program can hang: `perf_event_open(2)` with PERF_COUNT_SW_CPU_CLOCK.
//!
//! The clock is a timer of the kernel, not a counter of the processor, so that it works in virtual machines. Its interrupt waits while interrupts are
//! off: see `bpf::profile` for what that means for a profile.

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    time::Duration,
};

use perf_event_open_sys::{self as perf_sys, bindings};

/// The kernel makes a shorter period this long (kernel/events/core.c, perf_swevent_start_hrtimer).
const PERIOD_MIN: Duration = Duration::from_micros(10);

/// A clock that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    #[error("a clock cannot tick every {period:?}: the kernel takes 10 us (100000 Hz) to 1 h")]
    Period { period: Duration },
    #[error(
        "the kernel refuses the sampling clock of CPU {cpu} ({source}; kernel.perf_event_paranoid = {paranoid}): run as root, \
         or with CAP_PERFMON; if root is refused too, a container's seccomp filter or security module forbids \
         perf_event_open"
    )]
    Denied { cpu: u32, paranoid: String, source: io::Error },
    #[error(
        "no file descriptor left for the sampling clock of CPU {cpu} ({source}): one is needed per CPU; raise the limit \
         (`ulimit -n`, or fs.file-max for the whole machine), or name fewer CPUs"
    )]
    Descriptors { cpu: u32, source: io::Error },
    #[error("CPU {cpu} has no sampling clock: there is no such CPU, or it is offline ({source}); {online}")]
    NoCpu {
        cpu: u32,
        /// The CPUs that are online, as a sentence.
        online: String,
        source: io::Error,
    },
    #[error("this kernel has no sampling clock ({source}): it takes CONFIG_PERF_EVENTS")]
    Unsupported { source: io::Error },
    #[error("cannot open the sampling clock of CPU {cpu}: {source}")]
    Other { cpu: u32, source: io::Error },
}

model::classified!(PerfError: Lacking, Usage: Period NoCpu, Internal: Other);

/// A clock of one CPU; it stands still until a program is hung on it, and goes when dropped.
#[derive(Debug)]
pub struct CpuClock {
    fd: OwnedFd,
    cpu: u32,
}

impl CpuClock {
    /// Opens the clock of `cpu`, to tick every `period` of that CPU's time, whatever runs there, idle or not.
    pub fn open(cpu: u32, period: Duration) -> Result<Self, PerfError> {
        if !(PERIOD_MIN..=Duration::from_secs(3600)).contains(&period) {
            return Err(PerfError::Period { period });
        }
        let Ok(cpu_arg) = i32::try_from(cpu) else {
            let source = io::Error::from_raw_os_error(libc::ENODEV);
            return Err(PerfError::NoCpu { cpu, online: online(), source });
        };
        let mut attr = bindings::perf_event_attr {
            type_: bindings::PERF_TYPE_SOFTWARE,
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: u64::from(bindings::PERF_COUNT_SW_CPU_CLOCK),
            ..Default::default()
        };
        // A period and not a frequency: the kernel turns one into the other anyway, but checks a frequency against
        // kernel.perf_event_max_sample_rate, which is made for interrupts that cannot be masked.
        attr.__bindgen_anon_1.sample_period = period.as_nanos() as u64;
        attr.set_disabled(1);
        // SAFETY: `attr` is a whole perf_event_attr that says its own size and outlives the call; -1 is every process,
        // and there is no group.
        let fd =
            unsafe { perf_sys::perf_event_open(&raw mut attr, -1, cpu_arg, -1, bindings::PERF_FLAG_FD_CLOEXEC.into()) };
        if fd < 0 {
            return Err(refused(cpu, io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just returned this descriptor, and nobody else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, cpu })
    }

    pub fn cpu(&self) -> u32 {
        self.cpu
    }
}

impl AsFd for CpuClock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl IntoRawFd for CpuClock {
    /// Gives the descriptor away: to libbpf, whose links close it.
    fn into_raw_fd(self) -> RawFd {
        self.fd.into_raw_fd()
    }
}

fn refused(cpu: u32, source: io::Error) -> PerfError {
    let proc = |path: &str| fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |t| t.trim().to_owned());
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            PerfError::Denied { cpu, paranoid: proc("/proc/sys/kernel/perf_event_paranoid"), source }
        }
        Some(libc::EMFILE | libc::ENFILE) => PerfError::Descriptors { cpu, source },
        // EINVAL: a number beyond those the kernel was built for.
        Some(libc::ENODEV | libc::EINVAL) => PerfError::NoCpu { cpu, online: online(), source },
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => PerfError::Unsupported { source },
        _ => PerfError::Other { cpu, source },
    }
}

fn online() -> String {
    match fs::read_to_string("/sys/devices/system/cpu/online") {
        Ok(list) => format!("online are {}", list.trim()),
        Err(_) => "see /sys/devices/system/cpu/online".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use model::{Classified, ErrorClass};

    use super::*;

    const PERIOD: Duration = Duration::from_millis(1);

    /// None if no clock may be opened here; says why, and fails in CI.
    fn privileged() -> Option<()> {
        match CpuClock::open(0, PERIOD) {
            Err(e @ PerfError::Denied { .. }) => {
                assert!(std::env::var_os("CI").is_none(), "CI must not skip it: {e}");
                eprintln!("skipped: {e}");
                None
            }
            _ => Some(()),
        }
    }

    #[test]
    fn a_clock_stands_still_at_first() {
        let Some(()) = privileged() else { return };
        let clock = CpuClock::open(0, PERIOD).unwrap();
        assert_eq!(clock.cpu(), 0);
        let mut ticks = [0; 8];
        let mut counter = fs::File::from(clock.fd);
        io::Read::read_exact(&mut counter, &mut ticks).unwrap();
        assert_eq!(ticks, [0; 8]);
    }

    #[test]
    fn an_absent_cpu_is_named_with_those_that_are_there() {
        let Some(()) = privileged() else { return };
        for cpu in [4095, 1 << 20, u32::MAX] {
            let error = CpuClock::open(cpu, PERIOD).unwrap_err();
            assert!(matches!(error, PerfError::NoCpu { cpu: c, .. } if c == cpu), "{error:?}");
            assert_eq!(error.class(), ErrorClass::Usage);
            assert!(error.to_string().contains("online are 0"), "{error}");
        }
    }

    #[test]
    fn a_period_must_be_one() {
        for period in [Duration::ZERO, Duration::from_nanos(9_999), Duration::from_secs(4000)] {
            assert!(matches!(CpuClock::open(0, period), Err(PerfError::Period { .. })), "{period:?}");
        }
    }

    #[test]
    fn each_refusal_has_its_name() {
        let of = |errno| refused(3, io::Error::from_raw_os_error(errno));
        assert!(of(libc::EACCES).to_string().contains("kernel.perf_event_paranoid = "));
        assert!(of(libc::EMFILE).to_string().contains("ulimit -n"));
        assert!(of(libc::ENOSYS).to_string().contains("CONFIG_PERF_EVENTS"));
        assert_eq!(of(libc::EIO).class(), ErrorClass::Internal);
    }

    /// The limit is this process's alone: a run of the test of its own, as the child of this one.
    #[test]
    fn without_a_descriptor_left_the_limit_is_named() {
        const CHILD: &str = "EK_PERF_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let Some(()) = privileged() else { return };
            let test = "perf::tests::without_a_descriptor_left_the_limit_is_named";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output().unwrap();
            let output_text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}{output:?}");
            return;
        }
        // Descriptors are given out from the lowest: this one and all below it are in use.
        let lowest = CpuClock::open(0, PERIOD).unwrap();
        let limit = std::os::fd::AsRawFd::as_raw_fd(&lowest.fd) as libc::rlim_t + 1;
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit, limit).unwrap();
        let error = CpuClock::open(0, PERIOD).unwrap_err();
        assert!(matches!(error, PerfError::Descriptors { cpu: 0, .. }), "{error}");
    }
}
