//! XDP programs on interfaces.

use model::xdp::XdpMode;
use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved};
use crate::{interface::links, netlink::Netlink, root::Root};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpProgram {
    pub nic: String,
    /// The program's id, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name (at most 15 characters), where the privilege to ask for it is there.
    pub name: Option<String>,
    /// The mode in which it is attached.
    pub mode: XdpMode,
}

/// The XDP programs on the interfaces of this network namespace.
pub fn read(root: &Root) -> Result<Vec<XdpProgram>, Missing> {
    live_or_saved(root, "xdp", || {
        let failed = |e| Missing(format!("the kernel does not list the interfaces' XDP programs: {e}"));
        let links = links(&mut Netlink::open(SockProtocol::NetlinkRoute).map_err(failed)?).map_err(failed)?;
        let all = links.into_values().flat_map(|link| link.xdp.into_iter().map(move |at| (link.name.clone(), at)));
        let program = |(nic, (mode, id))| {
            let name = sys::bpf_program::name(id).ok().filter(|name| !name.is_empty());
            XdpProgram { nic, id, name, mode }
        };
        Ok(all.map(program).collect())
    })
}
