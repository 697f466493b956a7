//! The processes that own the sockets through which packets reach users: priority, CPUs, and the nodes of their memory.
//!
//! Asked on the live machine only, and never kept in a copy: processes are nobody else's business.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use model::CpuSet;

use super::Missing;
use crate::root::Root;

/// A process that owns sockets that receive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    pub pid: u32,
    pub name: String,
    /// The kind of its socket: `tcp`, `udp`, `packet`, `xdp`.
    pub kinds: BTreeSet<&'static str>,
    pub sockets: usize,
    /// Nice value of the process, -20 (first) to 19.
    pub nice: i32,
    /// Its scheduling policy: 0 other, 1 FIFO, 2 round robin, 3 batch, 5 idle, 6 deadline.
    pub policy: u32,
    /// CPU time so far in ticks of USER_HZ.
    pub ticks: u64,
    /// The CPUs it may run on.
    pub cpus: CpuSet,
    /// Pages of memory on each node; empty where the kernel has no NUMA or does not tell.
    pub pages: BTreeMap<u32, u64>,
}

/// The processes with listening TCP sockets, UDP sockets, packet sockets and AF_XDP sockets that are not on the loopback,
/// those with the most CPU time first, `most` at most.
///
/// # Errors
/// For a copy: it holds no processes; and without /proc/net.
pub fn read(root: &Root, most: usize) -> Result<Vec<Owner>, Missing> {
    if !root.is_live() {
        return Err(Missing("a saved copy holds no processes".to_owned()));
    }
    let sockets = sockets(&Root::live())?;
    let mut owners = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let inode = |link: std::path::PathBuf| -> Option<u64> {
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        let held: BTreeSet<u64> =
            descriptors.flatten().filter_map(|fd| inode(fs::read_link(fd.path()).ok()?)).collect();
        let mine: Vec<&'static str> = held.iter().filter_map(|inode| sockets.get(inode).copied()).collect();
        if !mine.is_empty() {
            let owner = Owner { pid, sockets: mine.len(), kinds: mine.into_iter().collect(), ..Owner::default() };
            owners.extend(described(owner));
        }
    }
    owners.sort_by_key(|o| (std::cmp::Reverse(o.ticks), o.pid));
    owners.truncate(most);
    for owner in &mut owners {
        owner.pages = pages(&fs::read_to_string(format!("/proc/{}/numa_maps", owner.pid)).unwrap_or_default());
    }
    Ok(owners)
}

fn sockets(root: &Root) -> Result<BTreeMap<u64, &'static str>, Missing> {
    let mut found = BTreeMap::new();
    for (file, kind) in [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")] {
        let Some(text) = root.read_opt(&format!("proc/net/{file}"))? else { continue };
        found.extend(text.lines().skip(1).filter_map(|line| internet(line, kind == "tcp")).map(|inode| (inode, kind)));
    }
    for (file, kind) in [("packet", "packet"), ("xdp", "xdp")] {
        let text = root.read_opt(&format!("proc/net/{file}"))?.unwrap_or_default();
        let inode = |line: &str| line.split_whitespace().nth(8)?.parse().ok();
        found.extend(text.lines().skip(1).filter_map(inode).map(|inode: u64| (inode, kind)));
    }
    Ok(found)
}

/// The inode of a line of /proc/net/tcp or udp, when the socket listens beyond the loopback.
fn internet(line: &str, tcp: bool) -> Option<u64> {
    const LISTEN: &str = "0A";
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = words.get(1)?.split(':').next()?;
    // 127.0.0.0/8 and ::1, in the byte order of a little-endian machine.
    let loopback = address.len() == 8 && address.ends_with("7F") || address == "00000000000000000000000001000000";
    (!loopback && (!tcp || *words.get(3)? == LISTEN)).then_some(())?;
    words.get(9)?.parse().ok().filter(|&inode| inode != 0)
}

fn described(owner: Owner) -> Option<Owner> {
    let text = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", owner.pid)).ok();
    let (stat, status) = (text("stat")?, text("status")?);
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let (nice, policy, ticks) = parse_stat(&stat)?;
    let cpus = CpuSet::parse_list(allowed).ok()?;
    Some(Owner { name: text("comm")?.trim().to_owned(), nice, policy, ticks, cpus, ..owner })
}

/// Nice value, policy and CPU time out of /proc/PID/stat; the name within may hold anything.
fn parse_stat(text: &str) -> Option<(i32, u32, u64)> {
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?;
    Some((words.get(16)?.parse().ok()?, words.get(38)?.parse().ok()?, ticks))
}

/// The pages on each node, over all mappings: `… N0=3 N1=17 …`.
fn pages(text: &str) -> BTreeMap<u32, u64> {
    let mut sum = BTreeMap::new();
    for word in text.split_whitespace() {
        let counted = word.strip_prefix('N').and_then(|w| w.split_once('='));
        if let Some((node, count)) = counted.and_then(|(n, c)| Some((n.parse().ok()?, c.parse::<u64>().ok()?))) {
            *sum.entry(node).or_default() += count;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let listening = "0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1 0";
        assert_eq!(internet(listening, true), Some(4242));
        assert_eq!(internet(&listening.replace(" 0A ", " 01 "), true), None, "connected");
        assert_eq!(internet(&listening.replace("00000000:0016", "0100007F:0016"), true), None, "loopback");
        // Fields 14, 15, 19 and 41 of proc(5): user and system time, nice value, policy.
        let mut fields = vec!["0"; 50];
        (fields[11], fields[12], fields[16], fields[38]) = ("30", "12", "5", "3");
        let stat = format!("7 (a ) b) {}", fields.join(" "));
        assert_eq!(parse_stat(&stat), Some((5, 3, 42)));
        assert_eq!(pages("7f00 default anon=2 N0=3 N1=17 kernelpagesize_kB=4\n8f00 N1=1"), [(0, 3), (1, 18)].into());
    }

    #[test]
    fn a_udp_socket_is_found_with_its_process() {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let owners = read(&Root::live(), 1000).unwrap();
        let own = owners.iter().find(|o| o.pid == std::process::id()).unwrap();
        assert!(own.kinds.contains("udp") && own.sockets >= 1, "{own:?}");
        drop(socket);
    }
}
