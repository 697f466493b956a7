//! Knobs of the running machine.

use std::{fs, io, path::PathBuf};

use model::CpuSet;
use nix::{errno::Errno, sched, unistd::Pid};
use sys::ethtool::EthtoolError;

use super::{Knob, ethtool, mark_rules};

/// A knob that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    #[error("{knob}: {object} is not there; was the interface or its driver removed?")]
    Gone {
        knob: Knob,
        /// The file or object that is missing.
        object: String,
    },
    #[error("the setting is refused: {problem}")]
    Name {
        /// The name, and what is wrong with it.
        problem: String,
    },
    #[error("cannot read {knob} ({object}): {source}")]
    Read { knob: Knob, object: String, source: io::Error },
    #[error(
        "cannot set {knob} to {value}: the kernel manages this affinity itself (managed interrupts; the driver spreads \
         them when it is loaded), so that nobody can write it; `ethtool -L` changes how many there are"
    )]
    Managed { knob: Knob, value: String },
    #[error("cannot set {knob} to {value} ({object}): {source}; run as root, with /proc and /sys writable")]
    NotAllowed { knob: Knob, value: String, object: String, source: io::Error },
    #[error("cannot set {knob} to {value} ({object}): {source}; {hint}")]
    Write { knob: Knob, value: String, object: String, source: io::Error, hint: &'static str },
    #[error("cannot reach {knob}: {source}")]
    Ethtool { knob: Knob, source: EthtoolError },
    #[error("the driver does not have the setting {knob}; leave it out")]
    Unsupported { knob: Knob },
    #[error("`{value}` is not a value for {knob}: {expected} is")]
    Value { knob: Knob, value: String, expected: &'static str },
}

model::classified!(KnobError: Lacking, Usage: Value);

impl KnobError {
    /// True if this is an interrupt that cannot be directed: the kernel manages it, or its controller has no say in it. (EINVAL
    /// also says that no CPU of the mask is online; which is no reason to fail for the others either.)
    pub fn is_fixed_irq(&self) -> bool {
        match self {
            Self::Managed { .. } => true,
            Self::Write { knob: Knob::IrqAffinity { .. }, source, .. } => {
                source.raw_os_error().map(Errno::from_raw) == Some(Errno::EINVAL)
            }
            _ => false,
        }
    }
}

const FIXED_OR_OFFLINE: &str =
    "its interrupt controller cannot direct it (some MSI controllers cannot), or no CPU of this mask is online";

/// A store of knobs: the machine, or a model of it in a test.
pub trait Store {
    /// The value now, without white space around it.
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError>;

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError>;
}

impl<S: Store + ?Sized> Store for &mut S {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        (**self).read(knob)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        (**self).write(knob, value)
    }
}

#[derive(Debug, Default)]
pub struct Live;

impl Store for Live {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        knob.check().map_err(|problem| KnobError::Name { problem })?;
        match (knob.file(), knob) {
            (Some(file), _) => read_file(knob, &file),
            (None, Knob::NapiThreadAffinity { pid, .. }) => thread_affinity(knob, *pid),
            (None, Knob::ThreadNice { name, pid }) => thread_nice(knob, name, *pid),
            (None, Knob::MarkRules) => mark_rules::read(knob),
            (None, _) => ethtool::read(knob),
        }
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        knob.check().map_err(|problem| KnobError::Name { problem })?;
        match (knob.file(), knob) {
            (Some(file), _) => write_file(knob, &file, value),
            (None, Knob::NapiThreadAffinity { pid, .. }) => set_thread_affinity(knob, *pid, value),
            (None, Knob::ThreadNice { name, pid }) => set_thread_nice(knob, name, *pid, value),
            (None, Knob::MarkRules) => mark_rules::write(knob, value),
            (None, _) => ethtool::write(knob, value),
        }
    }
}

fn read_file(knob: &Knob, file: &str) -> Result<String, KnobError> {
    let path = PathBuf::from("/").join(file);
    fs::read_to_string(&path)
        .map(|text| text.trim().to_owned())
        .map_err(|source| read_error(knob, path.display().to_string(), source))
}

fn write_file(knob: &Knob, file: &str, value: &str) -> Result<(), KnobError> {
    let path = PathBuf::from("/").join(file);
    // Opened without O_CREAT: a missing knob must not become a file.
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut f| io::Write::write_all(&mut f, value.trim().as_bytes()))
        .map_err(|source| write_error(knob, value, path.display().to_string(), source))
}

fn thread_affinity(knob: &Knob, pid: u32) -> Result<String, KnobError> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|source| read_error(knob, path.clone(), source))?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|l| l.trim().to_owned())
        .ok_or_else(|| read_error(knob, path, io::Error::other("there is no line Cpus_allowed_list")))
}

fn set_thread_affinity(knob: &Knob, pid: u32, value: &str) -> Result<(), KnobError> {
    let bad = || KnobError::Value { knob: knob.clone(), value: value.to_owned(), expected: "a CPU list such as 0-3,8" };
    let list = CpuSet::parse_list(value).map_err(|_| bad())?;
    let mut set = sched::CpuSet::new();
    for cpu in list.iter() {
        set.set(cpu as usize).map_err(|_| bad())?;
    }
    sched::sched_setaffinity(Pid::from_raw(pid.cast_signed()), &set)
        .map_err(|errno| write_error(knob, value, format!("thread {pid}"), errno.into()))
}

/// A number may be another thread's by now, whose name differs.
fn thread_nice(knob: &Knob, name: &str, pid: u32) -> Result<String, KnobError> {
    let path = format!("/proc/{pid}/stat");
    let gone = || KnobError::Gone { knob: knob.clone(), object: format!("thread {pid} ({name})") };
    let text = fs::read_to_string(&path).map_err(|source| read_error(knob, path.clone(), source))?;
    let (head, rest) = text.rsplit_once(") ").ok_or_else(gone)?;
    if head.split_once('(').map(|(_, comm)| comm) != Some(name) {
        return Err(gone());
    }
    // Field 19 (proc_pid_stat(5)); the third stands first here.
    rest.split_whitespace().nth(16).map(str::to_owned).ok_or_else(gone)
}

fn set_thread_nice(knob: &Knob, name: &str, pid: u32, value: &str) -> Result<(), KnobError> {
    let nice = value.trim().parse().ok().filter(|nice| (-20..=19).contains(nice));
    let bad =
        || KnobError::Value { knob: knob.clone(), value: value.to_owned(), expected: "a nice value from -20 to 19" };
    let nice: i32 = nice.ok_or_else(bad)?;
    thread_nice(knob, name, pid)?;
    sys::affinity::set_nice(pid, nice)
        .map_err(|source| write_error(knob, value, format!("thread {pid} ({name})"), source))
}

/// The error of a failed read, by what the kernel said.
pub(super) fn read_error(knob: &Knob, object: String, source: io::Error) -> KnobError {
    let knob = knob.clone();
    if is_gone(&source) { KnobError::Gone { knob, object } } else { KnobError::Read { knob, object, source } }
}

/// The error of a failed write, by what the kernel said.
pub(super) fn write_error(knob: &Knob, value: &str, object: String, source: io::Error) -> KnobError {
    let errno = source.raw_os_error().map(Errno::from_raw);
    let (is_irq, gone) = (matches!(knob, Knob::IrqAffinity { .. }), is_gone(&source));
    let (knob, value) = (knob.clone(), value.trim().to_owned());
    match errno {
        _ if gone => KnobError::Gone { knob, object },
        Some(Errno::EIO | Errno::EPERM) if is_irq => KnobError::Managed { knob, value },
        Some(Errno::EPERM | Errno::EACCES | Errno::EROFS) => KnobError::NotAllowed { knob, value, object, source },
        Some(Errno::EINVAL) if is_irq => KnobError::Write { knob, value, object, source, hint: FIXED_OR_OFFLINE },
        Some(Errno::ENOSPC) if is_irq => {
            KnobError::Write { knob, value, object, source, hint: "that CPU has no interrupt vector left" }
        }
        Some(Errno::EOPNOTSUPP) => {
            KnobError::Write { knob, value, object, source, hint: "the driver does not support this setting" }
        }
        _ => KnobError::Write { knob, value, object, source, hint: "the kernel or the driver refused this value" },
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ESRCH | Errno::ENXIO)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_interrupt_is_called_managed() {
        let knob = Knob::IrqAffinity { irq: 36 };
        let error = write_error(&knob, "3", "/proc/irq/36/smp_affinity".into(), Errno::EIO.into());
        assert!(matches!(error, KnobError::Managed { .. }), "{error:?}");
        assert!(error.to_string().contains("kernel manages this affinity"), "{error}");
        let error = write_error(&Knob::RfsEntries, "3", "x".into(), Errno::EROFS.into());
        assert!(matches!(error, KnobError::NotAllowed { .. }), "{error:?}");
    }

    #[test]
    fn missing_objects_are_gone_and_not_created() {
        let knob = Knob::Mtu { nic: "ek-no-such".into() };
        assert!(matches!(Live.read(&knob), Err(KnobError::Gone { .. })));
        assert!(matches!(Live.write(&knob, "1500"), Err(KnobError::Gone { .. })));
        let thread = Knob::NapiThreadAffinity { nic: "x".into(), napi: 1, pid: u32::MAX >> 1 };
        assert!(matches!(Live.read(&thread), Err(KnobError::Gone { .. })));
    }

    #[test]
    fn the_affinity_of_this_thread_reads_as_a_list() {
        let knob = Knob::NapiThreadAffinity { nic: "x".into(), napi: 1, pid: std::process::id() };
        let list = Live.read(&knob).unwrap();
        assert!(!CpuSet::parse_list(&list).unwrap().is_empty());
        assert!(matches!(Live.write(&knob, "zero"), Err(KnobError::Value { .. })));
    }
}
