//! Errors of a router's fast path.

use std::{io, path::PathBuf, time::Duration};

use bpf::{ProgramError, XdpError};
use host::interface::NoInterface;
use model::{Classified, CpuSet, ErrorClass, route::Obstacle};
use port::PortError;
use rules::RulesError;

/// The fast path could not be started, or failed. The kernel forwards then.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error(transparent)]
    Xdp(#[from] XdpError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("cannot {operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error("a router needs two interfaces, or one with VLAN devices: name them")]
    OnePort,
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error(
        "process {pid} runs a router in this network namespace already; `evenkeel route status` shows it, `evenkeel route stop` ends it"
    )]
    AlreadyRunning { pid: String },
    #[error("no router runs in this network namespace; `evenkeel route run IFACE IFACE` starts one")]
    NotRunning,
    #[error(
        "a router has been starting in this network namespace for {:.1} s: process {pid} {does}; `kill {pid}` ends it",
        since.as_secs_f64()
    )]
    Starting { pid: String, since: Duration, does: String },
    #[error("this router has no rules: start it with `evenkeel route run … --rules FILE`")]
    NoRules,
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("{what}; {instead}. To load them anyway: --force")]
    LocksOut { what: String, instead: String },
    #[error("{} is no regular file and cannot be read again: to reload, start the router with a file", path.display())]
    NotReloadable { path: PathBuf },
    #[error("cannot {operation} {}, where rules are kept: {source}", path.display())]
    Pin { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("no BPF file system at {path}, where rules are kept: mount -t bpf -o mode=700 bpf {path} (inside `ip netns exec`: use `nsenter --net=/run/netns/NAME` instead)", path = path.display())]
    NoBpfFileSystem { path: PathBuf },
    #[error(
        "rules of an earlier router are still active on {}: start this one with --rules, or remove them with `evenkeel route stop`",
        interfaces.join(", ")
    )]
    Pinned { interfaces: Vec<String> },
    #[error(
        "the rules of an earlier router on {interface} run in {mode} mode: use --xdp-mode {mode}, or remove them with `evenkeel route stop`"
    )]
    PinnedInMode { interface: String, mode: bpf::XdpMode },
    #[error("{} ports, but a router has at most {}", ports, bpf::ROUTE_PORTS_MAX)]
    TooMany { ports: usize },
    #[error("{} named twice", interface)]
    Twice { interface: String },
    #[error("{} has no Ethernet address: the fast path forwards Ethernet frames only", interface)]
    NoEthernet { interface: String },
    #[error(
        "other CPUs forward in native mode only: in generic mode the kernel drops the packets that they leave to it. Leave --cpus out, or `evenkeel route cpus none`"
    )]
    CpusInGeneric,
    #[error("there is no CPU {cpu}: this machine has {present}")]
    NoSuchCpu { cpu: u32, present: CpuSet },
    #[error(
        "CPU {cpu} is offline: online are {online}; name one of these, or bring it up (echo 1 > /sys/devices/system/cpu/cpu{cpu}/online)"
    )]
    OfflineCpu { cpu: u32, online: CpuSet },
    #[error("the fast path cannot start: {}", words(obstacles))]
    Obstacles { obstacles: Vec<Obstacle> },
}

fn words(obstacles: &[Obstacle]) -> String {
    let each: Vec<String> = obstacles.iter().map(|o| format!("{} ({}): {}", o.what, o.code, o.remedy)).collect();
    each.join("; ")
}

impl RouteError {
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

impl Classified for RouteError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoInterface(e) => e.class(),
            Self::Xdp(e) => e.class(),
            Self::Program(e) => e.class(),
            Self::Serve(e) => e.class(),
            Self::NotRunning | Self::Starting { .. } => ErrorClass::Lacking,
            Self::Rules(e) => e.class(),
            Self::Port(e) => e.class(),
            Self::Pin { .. } | Self::NoBpfFileSystem { .. } => ErrorClass::Lacking,
            Self::Pinned { .. }
            | Self::PinnedInMode { .. }
            | Self::NoRules
            | Self::LocksOut { .. }
            | Self::NotReloadable { .. } => ErrorClass::Usage,
            Self::AlreadyRunning { .. } => ErrorClass::Lacking,
            Self::OnePort
            | Self::TooMany { .. }
            | Self::Twice { .. }
            | Self::CpusInGeneric
            | Self::NoSuchCpu { .. } => ErrorClass::Usage,
            Self::NoEthernet { .. } | Self::Obstacles { .. } | Self::OfflineCpu { .. } => ErrorClass::Lacking,
            Self::System { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorClass::Lacking,
                _ => ErrorClass::Internal,
            },
        }
    }
}
