//! The queueing disciplines of the interfaces: what stands between the stack and the transmit queues.

use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved};
use crate::{
    netlink::{Netlink, attributes},
    root::Root,
};

/// RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC
const QDISC: [u16; 3] = [36, 37, 38];
const TCA_KIND: u16 = 1;
/// `struct tcmsg`: family and padding, ifindex, handle, parent, info.
const TCMSG_BYTES: usize = 20;
/// TC_H_ROOT and TC_H_INGRESS of include/uapi/linux/pkt_sched.h.
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    pub ifindex: u32,
    /// Kind of the discipline, such as `fq_codel`.
    pub kind: String,
    /// True for the root of an interface's transmit side.
    pub is_root: bool,
    /// True for the receive side.
    pub is_ingress: bool,
}

/// The queueing disciplines of this network namespace. Those without an object of their own (`noqueue`) may be missing.
pub fn read(root: &Root) -> Result<Vec<Qdisc>, Missing> {
    live_or_saved(root, "qdiscs", || {
        let failed = |e: std::io::Error| Missing(format!("cannot list the queueing disciplines: {e}"));
        let mut netlink = Netlink::open(SockProtocol::NetlinkRoute).map_err(failed)?;
        netlink.dump(QDISC, TCMSG_BYTES, parse).map_err(failed)
    })
}

fn parse(message: &[u8]) -> Option<Qdisc> {
    let word = |at: usize| Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let (ifindex, parent) = (word(4)?, word(12)?);
    let kind = attributes(message.get(TCMSG_BYTES..)?).find(|a| a.kind() == TCA_KIND)?;
    let kind = String::from_utf8_lossy(kind.value()).trim_end_matches('\0').to_owned();
    Some(Qdisc { ifindex, kind, is_root: parent == ROOT, is_ingress: parent == INGRESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_kernel() {
        let mut message = vec![0u8; TCMSG_BYTES];
        message[4..8].copy_from_slice(&4u32.to_ne_bytes());
        message[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        message.extend([7, 0, 1, 0, b'm', b'q', 0, 0]);
        let qdisc = Qdisc { ifindex: 4, kind: "mq".to_owned(), is_root: true, is_ingress: false };
        assert_eq!(parse(&message), Some(qdisc));
        assert_eq!(parse(&message[..TCMSG_BYTES]), None);
    }

    #[test]
    fn the_kernel_lists_them() {
        assert!(read(&Root::live()).is_ok());
    }
}
