//! Loading kernel programs: one way to open and load each, and to say what failed.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    time::Duration,
};

use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, OpenObject,
    btf::{Btf, types},
    libbpf_sys,
    skel::{OpenSkel, SkelBuilder},
};
use model::{Classified, ErrorClass};
use sys::{
    map_mmap::SharedMemory,
    privilege::{Capability, require},
};

use crate::counters::PerCpu;

/// A kernel program that could not be loaded, or one of its maps not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot load the kernel program `{program}`: {source}{help}{}", of_verifier(log))]
    Load {
        program: &'static str,
        /// The last lines of the verifier's log; empty if it said nothing.
        log: String,
        /// Advice by the thread on which it failed.
        help: &'static str,
        source: libbpf_rs::Error,
    },
    #[error(
        "this kernel (Linux {}) has no type information (BTF, /sys/kernel/btf/vmlinux), without which `{program}` cannot be loaded: boot one that was \
         built with CONFIG_DEBUG_INFO_BTF, as those of distributions are",
        release()
    )]
    NoTypes { program: &'static str },
    /// The kernel is older than [`OLDEST`], and no privilege is missing.
    #[error(
        "cannot load the kernel program `{program}`: {source}; it is for Linux {}.{} and later, and this kernel is older ({})",
        OLDEST.0, OLDEST.1, release()
    )]
    Old { program: &'static str, source: libbpf_rs::Error },
    /// No privilege is missing: the program as it was compiled is not one that this kernel takes.
    #[error(
        "the kernel's verifier (Linux {}) refused the kernel program `{program}`, compiled by {COMPILER}: {log}. Compile it by a clang that \
         docs/kernels.md says was tried: `CLANG=clang-16 make build`",
        release()
    )]
    Verifier {
        program: &'static str,
        /// The last lines of its log.
        log: String,
    },
    #[error(
        "{feature} needs {function} of Linux {since} and later, which this kernel ({}) does not have: {instead}",
        release()
    )]
    Kernel { feature: &'static str, function: &'static str, since: &'static str, instead: &'static str },
    #[error("cannot {operation} of the kernel program `{program}`: {source}")]
    Map {
        program: &'static str,
        /// The attempt, and the map.
        operation: &'static str,
        source: io::Error,
    },
    #[error("{0}")]
    Setting(String),
}

impl ProgramError {
    /// A privilege was missing (EPERM).
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Load { source, .. } => source.kind() == ErrorKind::PermissionDenied,
            Self::Map { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::NoTypes { .. }
            | Self::Old { .. }
            | Self::Verifier { .. }
            | Self::Kernel { .. }
            | Self::Setting(_) => false,
        }
    }
}

impl Classified for ProgramError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Setting(_) => ErrorClass::Usage,
            Self::Kernel { .. } | Self::NoTypes { .. } | Self::Old { .. } => ErrorClass::Lacking,
            Self::Load { .. } if self.is_denied() => ErrorClass::Lacking,
            Self::Load { .. } | Self::Verifier { .. } => ErrorClass::Internal,
            Self::Map { source, .. } => class_of(source),
        }
    }
}

/// The class of a refusal: the kernel lacks something, or it is our own fault.
pub(crate) fn class_of(refused: &io::Error) -> ErrorClass {
    match refused.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM | libc::ENODEV) => ErrorClass::Lacking,
        _ => ErrorClass::Internal,
    }
}

/// The compiler of the kernel programs, as it names itself.
const COMPILER: &str = env!("EVENKEEL_CLANG");

/// The oldest kernel for which the programs are written.
const OLDEST: (u32, u32) = (6, 1);

const NEEDED: [Capability; 3] = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON];

/// The error of a load that failed just now on this thread.
pub(crate) fn refusal(program: &'static str, source: libbpf_rs::Error) -> ProgramError {
    let log = VERIFIER_LOG.take();
    if log.is_empty() && source.kind() != ErrorKind::PermissionDenied && Btf::from_vmlinux().is_err() {
        return ProgramError::NoTypes { program };
    }
    let is_denied = require(program, &NEEDED).is_err() || source.kind() == ErrorKind::PermissionDenied;
    if !is_denied && is_old(&release()) {
        return ProgramError::Old { program, source };
    }
    // The verifier takes less of those who lack a capability: that is then what helps.
    if log.is_empty() || require(program, &NEEDED).is_err() {
        let help = privilege_hint(&source);
        return ProgramError::Load { program, log, help, source };
    }
    ProgramError::Verifier { program, log }
}

fn of_verifier(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; the kernel's verifier: {log}") }
}

/// The privilege that this thread lacks, if the load failed for it.
fn privilege_hint(e: &libbpf_rs::Error) -> &'static str {
    if e.kind() == ErrorKind::PermissionDenied {
        if require("a kernel program", &NEEDED).is_ok() {
            return ". No capability is missing: this kernel takes no program of this kind, as under lockdown or behind a seccomp filter";
        }
        ". It needs CAP_BPF, CAP_NET_ADMIN and for some programs CAP_PERFMON: run as root"
    } else {
        ""
    }
}

/// True for the release of a kernel before [`OLDEST`].
fn is_old(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < OLDEST)
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "?".into(), |text| text.trim().to_owned())
}

/// Opens a program's skeleton, whose constants and maps can then be set.
pub(crate) fn open<'o, B>(object: &'o mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<B::Output>
where
    B: SkelBuilder<'o> + Default,
{
    quiet_libbpf();
    B::default().open(object)
}

/// A struct of libbpf's options, each of which carries its own size.
macro_rules! opts {
    ($struct:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        libbpf_rs::libbpf_sys::$struct {
            sz: size_of::<libbpf_rs::libbpf_sys::$struct>() as libbpf_rs::libbpf_sys::size_t,
            $($field $(: $value)?,)*
            ..Default::default()
        }
    };
}
pub(crate) use opts;

pub(crate) struct Ran {
    pub(crate) verdict: u32,
    /// The frame as the program left it.
    pub(crate) frame: Vec<u8>,
    /// The mean of all runs.
    pub(crate) time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program(pub(crate) &'static str);

impl Program {
    pub(crate) fn open<'o, B>(self, object: &'o mut MaybeUninit<OpenObject>) -> Result<B::Output, ProgramError>
    where
        B: SkelBuilder<'o> + Default,
    {
        open::<B>(object).map_err(|e| self.refused(e))
    }

    pub(crate) fn load<'o, O: OpenSkel<'o>>(self, open: O) -> Result<O::Output, ProgramError> {
        open.load().map_err(|e| self.refused(e))
    }

    /// A map that outlives the skeleton.
    pub(crate) fn map<M>(self, map: M) -> Result<MapHandle, ProgramError>
    where
        MapHandle: TryFrom<M, Error = libbpf_rs::Error>,
    {
        MapHandle::try_from(map).map_err(|e| self.refused(e))
    }

    /// The first `bytes` of a map that can be mapped, as memory.
    pub(crate) fn memory<M>(self, map: M, bytes: usize, operation: &'static str) -> Result<SharedMemory, ProgramError>
    where
        MapHandle: TryFrom<M, Error = libbpf_rs::Error>,
    {
        SharedMemory::of(self.map(map)?.as_fd(), bytes, 0).map_err(|e| self.failed(operation, e))
    }

    /// A descriptor of the program that outlives the skeleton.
    pub(crate) fn descriptor(self, program: impl AsFd) -> Result<OwnedFd, ProgramError> {
        program.as_fd().try_clone_to_owned().map_err(|e| self.failed("duplicate the descriptor", e))
    }

    /// The values that all CPUs have under key 0 of a per-CPU array.
    pub(crate) fn per_cpu(self, map: &MapHandle, operation: &'static str) -> Result<Vec<Vec<u8>>, ProgramError> {
        let read = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        read.map(Option::unwrap_or_default).map_err(|e| self.failed(operation, to_io(&e)))
    }

    /// The counters of a per-CPU array, over all CPUs.
    pub(crate) fn sum<C: PerCpu>(self, map: &MapHandle, operation: &'static str) -> Result<C, ProgramError> {
        let mut sum = C::default();
        self.per_cpu(map, operation)?.iter().for_each(|raw| sum.add(raw));
        Ok(sum)
    }

    /// Runs the loaded program once on `frame`, and gives its verdict and the frame as it left it.
    pub(crate) fn test(self, program: impl AsFd, frame: &[u8]) -> Result<(u32, Vec<u8>), ProgramError> {
        let ran = self.run(program, frame, frame.len(), frame.len(), 1)?;
        Ok((ran.verdict, ran.frame))
    }

    /// Runs the loaded program `repeat` times on `frame`, of which the first `first` bytes are in its first buffer. There is room for `room` bytes
    /// of what it makes of the frame.
    pub(crate) fn run(
        self,
        program: impl AsFd,
        frame: &[u8],
        first: usize,
        room: usize,
        repeat: i32,
    ) -> Result<Ran, ProgramError> {
        let mut out = vec![0u8; room];
        let mut opts = opts!(bpf_test_run_opts {
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat,
        });
        // Where the first buffer ends is said only if it is not the whole frame: kernels before 6.18 know no other.
        let split = (first < frame.len()).then(|| libbpf_sys::xdp_md { data_end: first as u32, ..Default::default() });
        if let Some(context) = &split {
            opts.ctx_in = std::ptr::from_ref(context).cast();
            opts.ctx_size_in = size_of_val(context) as u32;
        }
        // SAFETY: the descriptor is alive; `opts` carries its own size, and the buffers and the context are alive and of the stated lengths.
        let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut opts) };
        if code < 0 {
            return Err(self.failed("make a test run", io::Error::from_raw_os_error(-code)));
        }
        out.truncate(opts.data_size_out as usize);
        Ok(Ran { verdict: opts.retval, frame: out, time: Duration::from_nanos(opts.duration.into()) })
    }

    /// A load that failed just now on this thread.
    pub(crate) fn refused(self, source: libbpf_rs::Error) -> ProgramError {
        refusal(self.0, source)
    }

    /// Something that could not be done with a map.
    pub(crate) fn failed(self, operation: &'static str, source: io::Error) -> ProgramError {
        ProgramError::Map { program: self.0, operation, source }
    }
}

/// A libbpf error as an I/O error, with its number where that decides what class of error it is: libbpf-rs keeps the number to itself.
pub(crate) fn to_io(e: &libbpf_rs::Error) -> io::Error {
    match e.kind() {
        ErrorKind::PermissionDenied => io::Error::from_raw_os_error(libc::EPERM),
        ErrorKind::OutOfMemory => io::Error::from_raw_os_error(libc::ENOMEM),
        _ => io::Error::other(e.to_string()),
    }
}

/// The kernel function that attaches links at tc. The older programs at tc (clsact) stay when their process is killed, and would keep a host's
/// stack away for good.
const TCX: &str = "tcx_link_attach";

/// Refuses `feature` where the kernel has no tcx (below 6.6).
pub(crate) fn needs_tcx(feature: &'static str, instead: &'static str) -> Result<(), ProgramError> {
    let lacking = ProgramError::Kernel { feature, function: TCX, since: "6.6", instead };
    if kernel_has(TCX) { Ok(()) } else { Err(lacking) }
}

/// True if the running kernel has a function of that name, which its type information tells; where that cannot be read, it may have it.
pub(crate) fn kernel_has(function: &str) -> bool {
    Btf::from_vmlinux().map_or(true, |btf| btf.type_by_name::<types::Func<'_>>(function).is_some())
}

/// True if a module has a function of that name which programs may call, if the module is there and has type information.
pub(crate) fn module_has(module: &str, function: &str) -> bool {
    // Its types lean on those of the kernel; what it has names of its own for stands whole in its table of strings.
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let types = std::fs::read(Path::new("/sys/kernel/btf").join(module));
    types.is_ok_and(|types| types.windows(name.len()).any(|at| at == name))
}

/// True if the running kernel has a tracepoint of that name that programs of the kind tp_btf can be attached to.
pub(crate) fn kernel_traces(tracepoint: &str) -> bool {
    let name = format!("btf_trace_{tracepoint}");
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<types::Typedef<'_>>(&name).is_some())
}

/// The offset of a member in a structure of the running kernel, in bytes; none: it has none, or its type information cannot be read.
pub(crate) fn kernel_offset(structure: &str, member: &str) -> Option<u16> {
    let btf = Btf::from_vmlinux().ok()?;
    let of = btf.type_by_name::<types::Struct<'_>>(structure)?;
    let found = of.iter().find(|m| m.name.is_some_and(|name| name == member))?;
    match found.attr {
        types::MemberAttr::Normal { offset } => u16::try_from(offset / 8).ok(),
        types::MemberAttr::BitField { .. } => None,
    }
}

thread_local! {
    /// The verifier's words on the last program that it refused on this thread.
    static VERIFIER_LOG: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Sends libbpf's own messages to nowhere, as what matters comes back as an error; the end of a verifier's log is kept for that error.
pub(crate) fn quiet_libbpf() {
    #[allow(clippy::needless_pass_by_value, reason = "libbpf-rs wants this signature")]
    fn keep(_: libbpf_rs::PrintLevel, message: String) {
        if let Some(log) = verifier_log(&message) {
            VERIFIER_LOG.set(log);
        }
    }
    VERIFIER_LOG.take();
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Warn, keep)));
}

/// The last three lines of the verifier's log in a message of libbpf, without its statistics.
fn verifier_log(message: &str) -> Option<String> {
    let (_, log) = message.split_once("BEGIN PROG LOAD LOG --")?;
    let log = log.split("-- END PROG LOAD LOG").next().unwrap_or(log);
    let lines: Vec<&str> =
        log.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("processed ")).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    (!last.is_empty()).then(|| last.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_verifiers_log_is_reported() {
        let message = "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n0: a\n1: b\n2: c\nR1 invalid mem access\n\
             processed 3 insns (limit 1000000)\n-- END PROG LOAD LOG --\n";
        assert_eq!(verifier_log(message).as_deref(), Some("1: b / 2: c / R1 invalid mem access"));
        assert_eq!(verifier_log("libbpf: prog 'x': BPF program load failed: -EPERM\n"), None);
    }

    /// A program of XDP loaded as one for sockets, which may not call what it calls.
    #[test]
    fn a_refusal_by_the_verifier_names_it_and_not_privileges() {
        let Some(()) = testbed::privileged() else { return };
        let program = Program("xsk_redirect");
        let mut object = MaybeUninit::uninit();
        let mut open = program.open::<crate::skel::xsk_redirect::XskRedirectSkelBuilder>(&mut object).unwrap();
        open.progs.xsk_redirect.set_prog_type(libbpf_rs::ProgramType::SocketFilter);
        let Err(error) = program.load(open) else { panic!("it loads") };
        let message = error.to_string();
        assert!(!error.is_denied() && error.class() == ErrorClass::Internal, "{error:?}");
        assert!(message.starts_with("the kernel's verifier (Linux "), "{message}");
        for word in [
            ") refused the kernel program `xsk_redirect`, compiled by ",
            "clang",
            "cannot use helper",
            "docs/kernels.md",
        ] {
            assert!(message.contains(word), "{message}");
        }
        assert!(!message.contains("CAP_") && !message.contains('\n'), "{message}");
    }

    #[test]
    fn kernels_before_the_oldest_are_known_by_their_release() {
        for old in ["5.10.0-32-amd64", "5.15.0-204-generic", "6.0.1", "4.19"] {
            assert!(is_old(old), "{old}");
        }
        for new in ["6.1.0-57-amd64", "6.12.117+deb12-amd64", "10.0", "", "?"] {
            assert!(!is_old(new), "{new}");
        }
    }

    #[test]
    fn a_refusal_by_privilege_stays_one() {
        let error = |code| Program("x").failed("test", to_io(&libbpf_rs::Error::from_raw_os_error(code)));
        assert_eq!(error(libc::EPERM).class(), ErrorClass::Lacking);
        assert!(error(libc::EPERM).is_denied());
        assert_eq!(error(libc::ENOMEM).class(), ErrorClass::Lacking);
        assert_eq!(error(libc::EINVAL).class(), ErrorClass::Internal);
    }
}
