//! Failures of a lab.

use std::io;

/// A lab that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("`{0}` cannot name a lab: use letters and digits")]
    BadTag(String),
    #[error("cannot {what} the network namespace {name}: {source}{}", hint(.source))]
    Namespace { what: &'static str, name: String, source: io::Error },
    #[error(transparent)]
    NoInterface(#[from] host::interface::NoInterface),
    #[error("cannot {what} {object}: {source}{}", hint(.source))]
    Link { what: &'static str, object: String, source: io::Error },
    #[error("cannot set {path} to {value}: {source}{}", hint(.source))]
    Setting { path: String, value: String, source: io::Error },
    #[error(
        "cannot {what} the control group {path}: {source} (it needs root, and a control group file system that is mounted writable)"
    )]
    Group { what: &'static str, path: String, source: io::Error },
    #[error(
        "this machine has no control group with the controller `{controller}`: mount one (cgroups(7)), or boot with systemd.unified_cgroup_hierarchy=1"
    )]
    NoGroups { controller: &'static str },
    #[error("cannot pin the NAPI threads of {interface}: {why}")]
    Napi { interface: String, why: String },
    #[error(transparent)]
    Ethtool(#[from] sys::ethtool::EthtoolError),
    #[error(transparent)]
    Xdp(#[from] bpf::XdpError),
    #[error("cannot run `nft {what}`, which a firewall of the lab needs: {message}")]
    Nft { what: String, message: String },
    #[error("a thread in the network namespace {0} panicked")]
    Panicked(String),
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc_eperm) if libc_eperm == nix::errno::Errno::EPERM as i32 => {
            " (a lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root)"
        }
        Some(e) if e == nix::errno::Errno::EOPNOTSUPP as i32 => " (this kernel lacks veth or network namespaces)",
        _ => "",
    }
}

model::classified!(LabError: Lacking, Usage: BadTag, Internal: Panicked);
