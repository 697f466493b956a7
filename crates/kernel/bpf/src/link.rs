//! Programs on an interface: attached by a link that ends with its owner, in the mode that was asked for and no other.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use libbpf_rs::{TC_INGRESS, TcHookBuilder, libbpf_sys};
use model::{Classified, ErrorClass};
use sys::interface::{NoInterface, index};

use crate::program::{Program, ProgramError, class_of, opts, to_io};

pub use model::xdp::XdpMode;

/// Prefix of the names of chains' resident programs, in all versions.
pub(crate) const CHAIN: &str = "ek_chain";

/// The XDP program that an interface runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The program's id, as `bpftool prog` shows it.
    pub id: u32,
    /// The program's name; empty if it may not be read.
    pub name: String,
    pub mode: XdpMode,
}

impl Attached {
    /// The way to get rid of it, for messages.
    pub fn way_out(&self, interface: &str) -> String {
        match self.name.as_str() {
            "xdp_dispatcher" => format!(
                "libxdp's dispatcher runs other tools' programs there; list them with `xdp-loader status {interface}`, and unload them with \
                 `xdp-loader unload {interface} --all`"
            ),
            chain if chain.starts_with(CHAIN) && crate::chain::users(self.id).is_empty() => {
                format!("it is of another version of evenkeel: end what that version runs on {interface} first")
            }
            chain if chain.starts_with(CHAIN) => {
                format!(
                    "it is evenkeel's own, for {}: end that first (`evenkeel shield stop {interface}`, `evenkeel route stop`, or Ctrl-C where a \
                     capture runs)",
                    crate::chain::users_in_words(self.id)
                )
            }
            bench if bench.starts_with("ek_bench") => {
                "it is evenkeel's own, of a `bench` that runs: wait for its end, or end it by Ctrl-C".to_owned()
            }
            "" => format!(
                "detach it first (`ip link set dev {interface} xdp off`, or end the process that holds its link); its name takes CAP_SYS_ADMIN: \
                 if it is evenkeel's own chain, joining it takes that too"
            ),
            _ => format!(
                "detach it first (`ip link set dev {interface} xdp off`, or end the process that holds its link)"
            ),
        }
    }
}

/// An XDP program that could not be loaded, attached or asked; one at tc likewise.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error(
        "{interface} already runs the XDP program `{}` (id {}, {} mode), which is left alone: {}",
        attached.name, attached.id, attached.mode, attached.way_out(interface)
    )]
    Occupied { interface: String, attached: Attached },
    #[error("{interface} has {place} already (program {id}): end that one first")]
    Taken { interface: String, place: &'static str, id: u32 },
    #[error(
        "the kernel has not emptied the place of {place} on {interface} within {waited_s} s, though its owner has left it (program {id}): \
         another process holds its map, or the machine is too busy; start this one again"
    )]
    Leaving { interface: String, place: &'static str, id: u32, waited_s: u64 },
    #[error("another of evenkeel's features came to {interface} at the same moment; start this one again")]
    Raced { interface: String },
    #[error(
        "{interface} runs evenkeel's chain in {runs} mode, for {users}: join it in that mode, not in {requested} mode"
    )]
    OtherMode { interface: String, runs: XdpMode, requested: XdpMode, users: String },
    #[error(
        "{interface} runs the chain `{}` (program {}) of another version of evenkeel, which this one cannot join: end what that version runs \
         on {interface} first", attached.name, attached.id
    )]
    OtherChain { interface: String, attached: Attached },
    #[error(
        "the driver of {interface} cannot run the XDP program `{program}` in native mode; generic mode needs no driver, and is slower"
    )]
    NoNative { interface: String, program: &'static str },
    #[error("{interface} cannot run the XDP program `{program}` in {mode} mode: {reason}")]
    Unsupported { interface: String, program: &'static str, mode: XdpMode, reason: String },
    #[error("cannot {operation} on {interface}: {source}")]
    System { interface: String, operation: &'static str, source: io::Error },
    #[error("cannot {operation} {}: {source}", path.display())]
    Pin {
        operation: &'static str,
        path: std::path::PathBuf,
        /// The kernel's answer, or the reason of a refusal.
        source: io::Error,
    },
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl XdpError {
    pub(crate) fn pin(operation: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Pin { operation, path: path.to_owned(), source }
    }

    /// The error of an operation on an interface.
    pub(crate) fn on(interface: &str, operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        let interface = interface.to_owned();
        move |source| Self::System { interface, operation, source }
    }

    pub(crate) fn system(interface: &str, operation: &'static str, errno: i32) -> Self {
        Self::on(interface, operation)(io::Error::from_raw_os_error(errno))
    }

    pub(crate) fn setting(text: String) -> Self {
        ProgramError::Setting(text).into()
    }

    /// Another feature's chain came at the same moment ([`crate::chain::retry_if_raced`]).
    pub fn is_raced(&self) -> bool {
        matches!(self, Self::Raced { .. })
    }

    /// A privilege was missing (EPERM).
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Program(e) => e.is_denied(),
            Self::System { source, .. } | Self::Pin { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

impl Classified for XdpError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoInterface(_)
            | Self::Occupied { .. }
            | Self::Taken { .. }
            | Self::Leaving { .. }
            | Self::Raced { .. }
            | Self::OtherMode { .. }
            | Self::OtherChain { .. }
            | Self::NoNative { .. }
            | Self::Unsupported { .. }
            | Self::Pin { .. } => ErrorClass::Lacking,
            Self::System { source, .. } => class_of(source),
            Self::Program(e) => e.class(),
        }
    }
}

/// Attaches a program to what arrives on `interface` (tc, clsact). It stays as long as the interface.
pub(crate) fn attach_at_tc(program: BorrowedFd<'_>, interface: &str, operation: &'static str) -> Result<(), XdpError> {
    let on = index(interface)?.cast_signed();
    let made = TcHookBuilder::new(program).ifindex(on).replace(true).handle(1).priority(1).hook(TC_INGRESS).create();
    made.and_then(|mut hook| hook.attach()).map(drop).map_err(|e| XdpError::on(interface, operation)(to_io(&e)))
}

/// The kernel's answer about XDP on `interface`.
pub(crate) fn query(interface: &str, operation: &'static str) -> Result<libbpf_sys::bpf_xdp_query_opts, XdpError> {
    let index = index(interface)?.cast_signed();
    let mut opts = opts!(bpf_xdp_query_opts {});
    // SAFETY: `opts` is initialised, carries its own size and outlives the call, which only writes into it.
    match unsafe { libbpf_sys::bpf_xdp_query(index, 0, &raw mut opts) } {
        code if code < 0 => Err(XdpError::system(interface, operation, -code)),
        _ => Ok(opts),
    }
}

/// The XDP program that `interface` runs, if it runs one.
pub fn attached(interface: &str) -> Result<Option<Attached>, XdpError> {
    let opts = query(interface, "ask for the XDP program")?;
    let found = [
        (opts.drv_prog_id, XdpMode::Native),
        (opts.skb_prog_id, XdpMode::Generic),
        (opts.hw_prog_id, XdpMode::Offload),
    ];
    Ok(found.into_iter().find(|&(id, _)| id != 0).map(|(id, mode)| Attached { id, name: program_name(id), mode }))
}

/// The programs at tc ingress and egress of `interface` by id and name. A kernel without tcx (below 6.6) has none.
///
/// # Errors
/// [`XdpError::NoInterface`]; what else the kernel refuses.
pub fn tcx_programs(interface: &str) -> Result<Vec<(u32, String)>, XdpError> {
    const PROGRAMS_MAX: usize = 64;
    let index = index(interface)?.cast_signed();
    let mut found = Vec::new();
    for hook in [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS] {
        let mut ids = [0u32; PROGRAMS_MAX];
        let mut opts = opts!(bpf_prog_query_opts {});
        opts.prog_ids = ids.as_mut_ptr();
        opts.__bindgen_anon_1.count = PROGRAMS_MAX as u32;
        // SAFETY: `opts` is initialised and carries its own size; it and the array that it points to, of as many places as it says, outlive the
        // call, which writes into them alone.
        match unsafe { libbpf_sys::bpf_prog_query_opts(index, hook, &raw mut opts) } {
            // Nobody asks for it: the kernel knows no such hook.
            code if code == -libc::EINVAL => {}
            code if code < 0 => return Err(XdpError::system(interface, "ask for the programs at tc", -code)),
            _ => {
                // SAFETY: the kernel has written the count into the one field of the union.
                let count = unsafe { opts.__bindgen_anon_1.count } as usize;
                found.extend(ids[..count.min(PROGRAMS_MAX)].iter().map(|&id| (id, program_name(id))));
            }
        }
    }
    Ok(found)
}

/// The name of the loaded program with that id; empty if there is none, it has no name, or it may not be read.
pub fn program_name(id: u32) -> String {
    libbpf_rs::Program::fd_from_id(id).map(|fd| program_info(fd.as_fd()).1).unwrap_or_default()
}

/// The id and the name of a loaded program; 0 and nothing if they may not be read.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> (u32, String) {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is a plain struct of the given length without pointers set, so that the kernel writes into it alone.
    let code = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) };
    if code < 0 {
        return (0, String::new());
    }
    let name: Vec<u8> = info.name.iter().take_while(|&&c| c != 0).map(|&c| c.cast_unsigned()).collect();
    (info.id, String::from_utf8_lossy(&name).into_owned())
}

/// A program on an interface. Dropping it takes the program off again; so does the end of the process, however it ends.
#[derive(Debug)]
pub struct XdpLink {
    link: OwnedFd,
    mode: XdpMode,
    program_id: u32,
}

impl XdpLink {
    /// Puts the loaded `program` on `interface`.
    ///
    /// # Errors
    /// [`XdpError::Occupied`] if any XDP program runs there, [`XdpError::Unsupported`] if the driver cannot do `mode`.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        name: Program,
        interface: &str,
        mode: XdpMode,
    ) -> Result<Self, XdpError> {
        let index = index(interface)?.cast_signed();
        if let Some(attached) = attached(interface)? {
            return Err(XdpError::Occupied { interface: interface.to_owned(), attached });
        }
        let flags = match mode {
            XdpMode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            XdpMode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
            XdpMode::Offload => libbpf_sys::XDP_FLAGS_HW_MODE,
        };
        let link = create_link(program, index, libbpf_sys::BPF_XDP, flags)
            .map_err(|errno| attach_error(errno, name, interface, mode))?;
        let (program_id, _) = program_info(program);
        let mode = match attached(interface)? {
            Some(now) if now.id == program_id => now.mode,
            Some(attached) => return Err(XdpError::Occupied { interface: interface.to_owned(), attached }),
            None => mode,
        };
        Ok(Self { link, mode, program_id })
    }

    /// A link that somebody else made, and the name of its interface.
    pub(crate) fn adopt(link: OwnedFd) -> io::Result<(Self, String)> {
        let info = link_info(link.as_fd())?;
        if info.type_ != libbpf_sys::BPF_LINK_TYPE_XDP {
            return Err(io::Error::other("it is not an XDP program on an interface"));
        }
        // SAFETY: the kernel fills this member of the union for an XDP link, and zeros are valid too.
        let index = unsafe { info.__bindgen_anon_1.xdp.ifindex };
        if index == 0 {
            return Err(io::Error::other("its interface is gone"));
        }
        let name = sys::link::name_of(index)
            .ok_or_else(|| io::Error::other(format!("its interface {index} is in another network namespace")))?;
        match attached(&name).map_err(io::Error::other)? {
            Some(now) if now.id == info.prog_id => Ok((Self { link, mode: now.mode, program_id: info.prog_id }, name)),
            _ => Err(io::Error::other(format!("{name} runs another XDP program"))),
        }
    }

    /// The mode in which the kernel says that it runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// True if the interface still exists.
    pub fn is_alive(&self) -> bool {
        self.interface_index().is_some()
    }

    /// The name that the interface has now; none: it is gone, or in another network namespace.
    pub(crate) fn interface_name(&self) -> Option<String> {
        sys::link::name_of(self.interface_index()?)
    }

    fn interface_index(&self) -> Option<u32> {
        let info = link_info(self.link.as_fd()).ok()?;
        // SAFETY: for an XDP link the kernel fills this member of the union; it is 0 once the device is gone.
        Some(unsafe { info.__bindgen_anon_1.xdp.ifindex }).filter(|&index| index != 0)
    }

    /// The id of the attached program.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }
}

/// Attaches a program at tc (tcx) of `interface`, in front of all others or behind them; it goes with the link.
pub(crate) fn attach_at_tcx(
    program: BorrowedFd<'_>,
    interface: &str,
    (at, flags): (libbpf_sys::bpf_attach_type, u32),
    operation: &'static str,
) -> Result<OwnedFd, XdpError> {
    let index = index(interface)?.cast_signed();
    create_link(program, index, at, flags).map_err(|errno| XdpError::system(interface, operation, errno))
}

/// Attaches a program by a link, or gives the kernel's error number.
fn create_link(
    program: BorrowedFd<'_>,
    index: i32,
    at: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> Result<OwnedFd, i32> {
    let opts = opts!(bpf_link_create_opts { flags });
    // SAFETY: the program's descriptor is borrowed for the call, and `opts` is initialised and outlives it.
    match unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, at, &raw const opts) } {
        fd if fd < 0 => Err(-fd),
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is a plain struct of the given length without pointers set, so that the kernel writes into it alone.
    match unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) } {
        code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
        _ => Ok(info),
    }
}

impl AsFd for XdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

fn attach_error(errno: i32, program: Program, interface: &str, mode: XdpMode) -> XdpError {
    let interface = interface.to_owned();
    let reason = match errno {
        libc::EOPNOTSUPP if mode == XdpMode::Native => return XdpError::NoNative { interface, program: program.0 },
        libc::EOPNOTSUPP => "its driver has no such mode".to_owned(),
        libc::ERANGE | libc::EINVAL | libc::EMSGSIZE | libc::E2BIG | libc::ENOSPC => format!(
            "its driver refused its present settings ({}), mostly an MTU above about 3500 bytes, LRO, or too few \
             queues: lower the MTU or change them, or use generic mode",
            io::Error::from_raw_os_error(errno)
        ),
        libc::EBUSY | libc::EEXIST => "another XDP program came first".to_owned(),
        _ => return XdpError::system(&interface, "attach an XDP program", errno),
    };
    XdpError::Unsupported { interface, program: program.0, mode, reason }
}
