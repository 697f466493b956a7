//! XDP programs on interfaces.

use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::{Missing, asked};
use crate::{
    counters::netlink::{DUMP, Netlink, attributes},
    root::Root,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFINFOMSG_BYTES: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// How an XDP program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the socket buffer is made: works with every driver and saves nothing.
    Generic,
    /// In the card.
    Offloaded,
    /// More than one at once.
    Several,
}

/// An XDP program on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpProgram {
    /// The interface.
    pub nic: String,
    /// The program's id, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name (at most 15 characters), where the privilege to ask for it is there.
    pub name: Option<String>,
    /// How it is attached.
    pub mode: XdpMode,
}

/// The XDP programs on the interfaces of this network namespace.
///
/// # Errors
/// When the kernel refuses the list, or a copy does not tell.
pub fn read(root: &Root) -> Result<Vec<XdpProgram>, Missing> {
    asked(root, "xdp", || {
        let mut programs = Vec::new();
        let failed = |e| Missing(format!("the kernel does not list the interfaces' XDP programs: {e}"));
        let mut netlink = Netlink::open(SockProtocol::NetlinkRoute).map_err(failed)?;
        let asked = netlink.ask(RTM_GETLINK, DUMP, &[0; IFINFOMSG_BYTES], |kind, payload| {
            if kind == RTM_NEWLINK {
                programs.extend(parse(payload));
            }
        });
        asked.map_err(failed)?;
        for program in &mut programs {
            program.name = sys::bpf_program::name(program.id).ok().filter(|name| !name.is_empty());
        }
        Ok(programs)
    })
}

/// The program in one message of the kernel about a link.
fn parse(payload: &[u8]) -> Option<XdpProgram> {
    let rest = payload.get(IFINFOMSG_BYTES..)?;
    let find = |kind| attributes(rest).find(|a| a.kind() & 0x3fff == kind);
    let xdp = find(IFLA_XDP)?;
    let inner = |kind| attributes(xdp.value()).find(|a| a.kind() & 0x3fff == kind);
    let mode = match inner(IFLA_XDP_ATTACHED)?.value().first()? {
        1 => XdpMode::Native,
        2 => XdpMode::Generic,
        3 => XdpMode::Offloaded,
        4 => XdpMode::Several,
        _ => return None,
    };
    let id = inner(IFLA_XDP_PROG_ID).and_then(|a| a.value().first_chunk().map(|b| u32::from_ne_bytes(*b)));
    let name = find(IFLA_IFNAME)?;
    let nic = String::from_utf8_lossy(name.value()).trim_end_matches('\0').to_owned();
    Some(XdpProgram { nic, id: id.unwrap_or(0), name: None, mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::netlink::push_attribute;

    #[test]
    fn a_link_with_a_generic_program() {
        let mut xdp = Vec::new();
        push_attribute(&mut xdp, IFLA_XDP_ATTACHED, &[2]);
        push_attribute(&mut xdp, IFLA_XDP_PROG_ID, &77u32.to_ne_bytes());
        let mut payload = vec![0; IFINFOMSG_BYTES];
        push_attribute(&mut payload, IFLA_IFNAME, b"eth0\0");
        push_attribute(&mut payload, IFLA_XDP | 0x8000, &xdp);
        let program = parse(&payload).expect("a program");
        assert_eq!((program.nic.as_str(), program.id, program.mode), ("eth0", 77, XdpMode::Generic));
        assert_eq!(parse(&payload[..20]), None);
    }

    #[test]
    fn a_link_without() {
        let mut xdp = Vec::new();
        push_attribute(&mut xdp, IFLA_XDP_ATTACHED, &[0]);
        let mut payload = vec![0; IFINFOMSG_BYTES];
        push_attribute(&mut payload, IFLA_IFNAME, b"eth0\0");
        push_attribute(&mut payload, IFLA_XDP, &xdp);
        assert_eq!(parse(&payload), None);
    }
}
