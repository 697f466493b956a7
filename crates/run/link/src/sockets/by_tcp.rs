//! Connections to the cluster that went by TCP, and the reasons.

use std::{collections::HashMap, net::SocketAddr, time::Instant};

use model::link::LinkTcpFallback;

const ENTRIES_MAX: usize = 64;

/// Counts by peer, reason and user. A full table drops the oldest entry of the user with most entries, so that no user hides those of others.
#[derive(Debug, Default)]
pub(crate) struct ByTcp(HashMap<(SocketAddr, String, u32), (u64, Option<Instant>)>);

impl ByTcp {
    pub(super) fn add(&mut self, to: SocketAddr, why: &str, uid: u32, now: Instant) {
        let key = (to, why.to_owned(), uid);
        if self.0.len() >= ENTRIES_MAX && !self.0.contains_key(&key) {
            let mut of: HashMap<u32, usize> = HashMap::new();
            self.0.keys().for_each(|(_, _, uid)| *of.entry(*uid).or_default() += 1);
            let most = of.into_iter().max_by_key(|&(uid, count)| (count, uid)).map(|(uid, _)| uid);
            let theirs = self.0.iter().filter(|((_, _, uid), _)| Some(*uid) == most);
            let oldest = theirs.min_by_key(|(_, (_, last))| *last).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        let (count, last) = self.0.entry(key).or_default();
        *count += 1;
        *last = Some(now);
    }

    /// Sums by peer and reason.
    pub(super) fn sums(&self) -> Vec<LinkTcpFallback> {
        let mut sums: HashMap<(SocketAddr, &str), u64> = HashMap::new();
        self.0.iter().for_each(|((peer, why, _), (count, _))| *sums.entry((*peer, why)).or_default() += count);
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_unstable();
        let one = |((peer, why), count): ((SocketAddr, &str), u64)| LinkTcpFallback {
            peer: peer.to_string(),
            reason: why.to_owned(),
            count,
        };
        all.into_iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_user_hides_nothing_of_others() {
        let (mut all, start) = (ByTcp::default(), Instant::now());
        let at = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        all.add(at(1), "a reason", 0, start);
        (0..1000u16).for_each(|n| all.add(at(2 + n), "another", 7, start + Duration::from_millis(n.into())));
        all.add(at(1), "a reason", 8, start);
        let sums = all.sums();
        assert_eq!(sums.len(), ENTRIES_MAX - 1);
        assert_eq!((sums[0].reason.as_str(), sums[0].count), ("a reason", 2));
        assert_eq!(sums[ENTRIES_MAX - 2].peer, "10.0.0.1:1001");
    }
}
