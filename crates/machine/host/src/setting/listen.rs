//! Listening sockets: what their queues lost.

use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved, text};
use crate::{
    root::Root,
    stack::{self, Socket},
};

const NETSTAT: &str = "proc/net/netstat";

/// Counters of listening TCP sockets of this network namespace, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenCounters {
    /// Finished connections that found the accept queue full.
    pub overflows: u64,
    /// Connection attempts dropped at a listening socket, for whatever reason.
    pub drops: u64,
    /// Attempts dropped because the queue of half-open ones was full.
    pub request_queue_full_drop: u64,
    /// Attempts answered with a SYN cookie because it was full.
    pub cookies_sent: u64,
}

/// Reads the counters; none when the kernel has no such file.
pub fn read(root: &Root) -> Result<Option<ListenCounters>, Missing> {
    Ok(text(root, NETSTAT)?.map(|text| {
        let field = |name| field(&text, "TcpExt:", name).unwrap_or(0);
        ListenCounters {
            overflows: field("ListenOverflows"),
            drops: field("ListenDrops"),
            request_queue_full_drop: field("TCPReqQFullDrop"),
            cookies_sent: field("TCPReqQFullDoCookies"),
        }
    }))
}

/// Packets that the reverse path filter dropped in this network namespace; none when the kernel does not count them.
pub fn reverse_path_drops(root: &Root) -> Result<Option<u64>, Missing> {
    Ok(text(root, NETSTAT)?.and_then(|text| field(&text, "TcpExt:", "IPReversePathFilter")))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptQueue {
    pub port: u16,
    /// Finished connections that its program has not taken up.
    pub waiting: u32,
    /// The number that may wait: what the program asked for, and no more than net.core.somaxconn was then.
    pub most: u32,
}

/// The accept queues of this network namespace, the fullest first.
pub fn accept_queues(root: &Root) -> Result<Vec<AcceptQueue>, Missing> {
    live_or_saved(root, "accept-queues", || {
        let listeners = stack::listeners()
            .map_err(|e| Missing(format!("listening sockets cannot be listed (sock_diag; CONFIG_INET_DIAG): {e}")))?;
        let queue = |s: Socket| AcceptQueue {
            port: s.local.map_or(0, |address| address.port()),
            waiting: s.receive_queue,
            most: s.send_queue,
        };
        let mut queues: Vec<AcceptQueue> = listeners.into_iter().map(queue).collect();
        queues.sort_by_key(|q| std::cmp::Reverse((u64::from(q.waiting) * 1000 / u64::from(q.most.max(1)), q.port)));
        Ok(queues)
    })
}

/// A field of a pair of lines as /proc/net/netstat and /proc/net/snmp have them: names, then values.
fn field(text: &str, prefix: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(prefix));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

pub(super) fn record(root: &Root) {
    let _ = read(root);
    let _ = accept_queues(root);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn values_stand_below_their_names() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDoCookies\nTcpExt: 1 12 14 3\nIpExt: InOctets\nIpExt: 5\n";
        let counters = read(&machine(&[(NETSTAT, text)])).unwrap().unwrap();
        assert_eq!((counters.overflows, counters.drops, counters.cookies_sent), (12, 14, 3));
        assert_eq!(counters.request_queue_full_drop, 0);
        assert_eq!(field("TcpExt: A\n", "TcpExt:", "A"), None);
    }
}
