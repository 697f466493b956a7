//! Packet sockets (AF_PACKET) and the processes that hold them.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved};
use crate::root::Root;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSocket {
    pub inode: u64,
    /// The ethertype that it takes, in host order: 3 for every packet, 0 for none.
    pub protocol: u16,
    /// The index of its interface; 0 for every one.
    pub ifindex: u32,
    /// The process that holds it, with its name; none when it could not be found (another privilege).
    pub owner: Option<(u32, String)>,
    /// True if that process has mapped a ring of it; none when this could not be seen.
    pub ring: Option<bool>,
}

/// The packet sockets of this network namespace.
pub fn read(root: &Root) -> Result<Vec<PacketSocket>, Missing> {
    live_or_saved(root, "packet-sockets", || {
        let mut sockets = parse(&Root::live().read("proc/net/packet")?);
        if !sockets.is_empty() {
            find_owners(&mut sockets);
        }
        Ok(sockets)
    })
}

/// `sk RefCnt Type Proto Iface R Rmem User Inode`
fn parse(text: &str) -> Vec<PacketSocket> {
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(PacketSocket {
            protocol: u16::from_str_radix(words.get(3)?, 16).ok()?,
            ifindex: words.get(4)?.parse().ok()?,
            inode: words.get(8)?.parse().ok()?,
            owner: None,
            ring: None,
        })
    };
    text.lines().skip(1).filter_map(socket).collect()
}

/// Looks through the descriptors of every process for the sockets; the first that holds one counts as its owner.
fn find_owners(sockets: &mut [PacketSocket]) {
    let wanted: BTreeMap<String, usize> =
        sockets.iter().enumerate().map(|(at, socket)| (format!("socket:[{}]", socket.inode), at)).collect();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let held: Vec<usize> = descriptors
            .flatten()
            .filter_map(|fd| wanted.get(fs::read_link(fd.path()).ok()?.to_str()?).copied())
            .filter(|&at| sockets[at].owner.is_none())
            .collect();
        if held.is_empty() {
            continue;
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        // A mapped ring shows as a mapping of the socket.
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok();
        for at in held {
            let socket = &mut sockets[at];
            let mapped = format!("socket:[{}]", socket.inode);
            socket.owner = Some((pid, name.clone()));
            socket.ring = maps.as_ref().map(|maps| maps.lines().any(|line| line.ends_with(&mapped)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table() {
        let text = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                    ffff9c0a4e5d3000 3      3    0003   2     1 0      0      48213\n\
                    ffff9c0a4e5d3800 3      2    888e   0     1 0      998    48300\nbroken\n";
        let sockets = parse(text);
        assert_eq!(sockets.len(), 2);
        assert_eq!((sockets[0].protocol, sockets[0].ifindex, sockets[0].inode), (3, 2, 48_213));
        assert_eq!(sockets[1].protocol, 0x888e);
    }
}
