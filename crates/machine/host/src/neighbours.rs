//! Neighbours that were asked for and have not answered (RTM_GETNEIGH): packets wait for them, seen by no counter.

use std::{collections::BTreeMap, io};

use nix::sys::socket::SockProtocol;

use crate::counters::netlink::{DUMP, Netlink};

const RTM_GETNEIGH: u16 = 30;
const RTM_NEWNEIGH: u16 = 28;
/// `struct ndmsg`: family, padding, ifindex, state, flags, type.
const NDMSG_BYTES: usize = 12;
const NUD_INCOMPLETE: u16 = 0x01;
const AF_INET6: u8 = 10;

/// Where unanswered neighbours are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// The interface's index.
    pub ifindex: u32,
    /// By neighbour discovery (IPv6), not by ARP.
    pub v6: bool,
}

/// How many neighbours of the caller's network namespace are asked for and have not answered, by interface and protocol.
///
/// # Errors
/// When the kernel refuses the list.
pub fn unanswered() -> io::Result<BTreeMap<Asked, u64>> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute)?;
    let mut found = BTreeMap::new();
    netlink.ask(RTM_GETNEIGH, DUMP, &[0; NDMSG_BYTES], |kind, payload| {
        if let Some(asked) = (kind == RTM_NEWNEIGH).then(|| parse(payload)).flatten() {
            *found.entry(asked).or_default() += 1;
        }
    })?;
    Ok(found)
}

fn parse(message: &[u8]) -> Option<Asked> {
    let ifindex = u32::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let state = u16::from_ne_bytes(*message.get(8..)?.first_chunk()?);
    (state & NUD_INCOMPLETE != 0).then_some(Asked { ifindex, v6: message[0] == AF_INET6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_have_not_answered() {
        let mut message = [0u8; NDMSG_BYTES];
        message[0] = AF_INET6;
        message[4..8].copy_from_slice(&7u32.to_ne_bytes());
        message[8..10].copy_from_slice(&NUD_INCOMPLETE.to_ne_bytes());
        assert_eq!(parse(&message), Some(Asked { ifindex: 7, v6: true }));
        message[8..10].copy_from_slice(&0x02u16.to_ne_bytes()); // NUD_REACHABLE
        assert_eq!(parse(&message), None);
        assert_eq!(parse(&message[..9]), None);
    }
}
