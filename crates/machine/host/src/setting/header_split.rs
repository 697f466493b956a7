//! Header split: whether a NIC puts headers and data of TCP into different buffers (`ethtool -g`, "TCP data split").

use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved};
use crate::{
    interface,
    netlink::{GENL_HEADER_BYTES, Netlink, ONE, attributes, push_attribute},
    root::Root,
};

/// Commands and attributes of include/uapi/linux/ethtool_netlink.h.
const RINGS_GET: u8 = 15;
const RINGS_HEADER: u16 = 1;
const HEADER_DEV_INDEX: u16 = 1;
const TCP_DATA_SPLIT: u16 = 11;
const NESTED: u16 = 0x8000;

/// The driver's answer about header split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderSplit {
    /// The driver does not say; most have none.
    None,
    Off,
    On,
}

/// Asks about the interface `nic`.
pub fn read(root: &Root, nic: &str) -> Result<HeaderSplit, Missing> {
    live_or_saved(root, &format!("header-split/{nic}"), || {
        let failed = |e: std::io::Error| Missing(format!("cannot ask {nic} for header split: {e}"));
        let index = interface::index(nic).map_err(|e| Missing(e.to_string()))?;
        let mut netlink = Netlink::open(SockProtocol::NetlinkGeneric).map_err(failed)?;
        // Before 5.6 there is no such family: no driver had the setting either.
        let Some(family) = netlink.family("ethtool").map_err(failed)? else { return Ok(HeaderSplit::None) };
        let mut header = Vec::new();
        push_attribute(&mut header, HEADER_DEV_INDEX, &index.to_ne_bytes());
        let mut body = vec![RINGS_GET, 1, 0, 0];
        push_attribute(&mut body, RINGS_HEADER | NESTED, &header);
        let mut split = HeaderSplit::None;
        let answered = netlink.ask(family, ONE, &body, |_, payload| {
            let found = attributes(payload.get(GENL_HEADER_BYTES..).unwrap_or_default())
                .find(|a| a.kind() == TCP_DATA_SPLIT)
                .and_then(|a| a.value().first().copied());
            split = match found {
                Some(1) => HeaderSplit::Off,
                Some(2) => HeaderSplit::On,
                _ => split,
            };
        });
        match answered {
            // A driver without rings to set has nothing to split.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(HeaderSplit::None),
            Err(e) => Err(failed(e)),
            Ok(()) => Ok(split),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_splits_nothing() {
        assert_eq!(read(&Root::live(), "lo"), Ok(HeaderSplit::None));
        assert!(read(&Root::live(), "ek-no-such").is_err());
    }
}
