//! The sessions that the administrator is typing in, and this machine's TCP connections.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use nix::ifaddrs::getifaddrs;
use rules::management::Session;

/// Ancestors that are looked at.
const ANCESTORS_MAX: usize = 64;
/// `TCP_ESTABLISHED` (include/net/tcp_states.h) as /proc/net/tcp writes it.
const ESTABLISHED: &str = "01";
/// `TCP_LISTEN`, likewise.
const LISTEN: &str = "0A";

/// The ssh sessions that this process runs in: by `SSH_CONNECTION`, of its own or of an ancestor (sudo takes it away), and by
/// the TCP connections that an ancestor holds open (sshd). Empty on a console.
pub fn sessions() -> Vec<Session> {
    let mut found = BTreeSet::new();
    found.extend(std::env::var("SSH_CONNECTION").ok().and_then(|text| from_ssh_connection(&text)));
    let connections = established();
    let mut pid = std::process::id();
    for _ in 0..ANCESTORS_MAX {
        let Some((name, parent)) = name_and_parent(pid) else { break };
        found.extend(from_environment(pid));
        if name.starts_with("sshd") {
            let inodes = socket_inodes(pid);
            found.extend(connections.iter().filter(|(inode, _)| inodes.contains(inode)).map(|(_, session)| *session));
        }
        if parent <= 1 {
            break;
        }
        pid = parent;
    }
    found.into_iter().collect()
}

/// Addresses of this machine, without those of the loopback.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|address| {
        let storage = address.address?;
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    let distinct: BTreeSet<_> = addresses.filter(|address| !address.is_loopback()).collect();
    Ok(distinct.into_iter().collect())
}

/// `PEER PORT LOCAL PORT`, as sshd sets it (sshd(8)).
fn from_ssh_connection(text: &str) -> Option<Session> {
    let [peer, peer_port, local, local_port] = text.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    // A link-local address comes with its zone.
    let address = |word: &str| word.split('%').next()?.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let (peer, local) = (address(peer)?, address(local)?);
    let (peer_port, local_port) = (peer_port.parse().ok()?, local_port.parse().ok()?);
    Some(Session { peer, peer_port, local, local_port })
}

fn from_environment(pid: u32) -> Option<Session> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variable = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"SSH_CONNECTION="))?;
    from_ssh_connection(str::from_utf8(variable).ok()?)
}

/// Name and parent of a process (proc_pid_stat(5)); the name may have spaces and parentheses.
fn name_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = (stat.find('(')? + 1, stat.rfind(')')?);
    let parent = stat[rest + 1..].split_whitespace().nth(1)?.parse().ok()?;
    Some((stat.get(name..rest)?.to_owned(), parent))
}

fn socket_inodes(pid: u32) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |target: std::path::PathBuf| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    targets.filter_map(inode).collect()
}

/// Established TCP connections with their sockets' inodes.
fn established() -> Vec<(u64, Session)> {
    // Without them nobody is told that rules would cut a session off.
    tcp(|state| state == ESTABLISHED).unwrap_or_default()
}

/// All TCP connections of this thread's network namespace, from the first SYN to the end of TIME_WAIT: local and peer.
pub fn connections() -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    let all = tcp(|state| state != LISTEN)?.into_iter();
    Ok(all.map(|(_, s)| (SocketAddr::new(s.local, s.local_port), SocketAddr::new(s.peer, s.peer_port))).collect())
}

/// Sockets in such states.
fn tcp(wanted: impl Fn(&str) -> bool) -> io::Result<Vec<(u64, Session)>> {
    let mut found = Vec::new();
    for name in ["tcp", "tcp6"] {
        let path = PathBuf::from(format!("/proc/thread-self/net/{name}"));
        let text = match fs::read_to_string(&path) {
            // A kernel without IPv6.
            Err(error) if error.kind() == ErrorKind::NotFound && name == "tcp6" => continue,
            text => text.map_err(|e| io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display())))?,
        };
        found.extend(text.lines().skip(1).filter_map(|line| connection(line, &wanted)));
    }
    Ok(found)
}

/// A line of /proc/net/tcp or tcp6 (proc_net_tcp(5)).
fn connection(line: &str, wanted: impl Fn(&str) -> bool) -> Option<(u64, Session)> {
    let words: Vec<_> = line.split_whitespace().collect();
    if !wanted(words.get(3)?) {
        return None;
    }
    let (local, peer) = (endpoint(words[1])?, endpoint(words[2])?);
    let session = Session { peer: peer.ip(), peer_port: peer.port(), local: local.ip(), local_port: local.port() };
    Some((words.get(9)?.parse().ok()?, session))
}

/// `0100007F:0016`: each 32-bit word of the address in the machine's byte order.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<u32>> =
        (0..address.len() / 8).map(|n| u32::from_str_radix(address.get(n * 8..n * 8 + 8)?, 16).ok()).collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let ip: IpAddr = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sshd_says_is_read() {
        let session = from_ssh_connection("192.0.2.9 50123 203.0.113.1 22").unwrap();
        assert_eq!((session.peer.to_string(), session.peer_port, session.local_port), ("192.0.2.9".into(), 50123, 22));
        let session = from_ssh_connection("fe80::1%eth0 50123 ::ffff:203.0.113.1 22").unwrap();
        assert_eq!((session.peer.to_string(), session.local.to_string()), ("fe80::1".into(), "203.0.113.1".into()));
        assert_eq!(from_ssh_connection("192.0.2.9 50123"), None);
    }

    #[test]
    fn a_line_of_proc_net_tcp_is_a_connection() {
        let line = "   1: 017100CB:0016 090200C0:C3CB 01 00000000:00000000 02:000A 00000000     0        0 4242 2 0";
        let (inode, session) = connection(line, |state| state == ESTABLISHED).unwrap();
        assert_eq!((inode, session.peer_port, session.local_port), (4242, 50123, 22));
        #[cfg(target_endian = "little")]
        assert_eq!(session.local.to_string(), "203.0.113.1");
        let listener = line.replace(" 01 ", " 0A ");
        assert_eq!(connection(&listener, |state| state == ESTABLISHED), None, "only established ones");
    }

    #[test]
    fn the_ancestors_of_this_process_are_found() {
        let (_, parent) = name_and_parent(std::process::id()).unwrap();
        assert_eq!(parent, std::os::unix::process::parent_id());
    }
}
