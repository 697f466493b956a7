//! Lookups of addresses without a known node: one for each address, however many programs connect to it.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Time between two neighbour solicitations of a lookup, and its end.
const PROBE_PERIOD: Duration = Duration::from_millis(10);
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);
/// Time for which a failed lookup is remembered.
const ABSENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Lookups at once, and those of one user other than root.
const LOOKUPS_MAX: usize = 512;
const LOOKUPS_OF_USER_MAX: usize = 16;

/// Next step of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The kernel has to solicit the neighbour.
    Probe,
    /// A solicitation was sent just now.
    Wait,
    /// No node has the address.
    Absent,
    TooMany,
}

#[derive(Debug)]
struct Attempt {
    uid: u32,
    since: Instant,
    probed: Instant,
}

/// Lookups that run or failed lately.
#[derive(Debug, Default)]
pub(super) struct Lookups(HashMap<IpAddr, Attempt>);

impl Lookups {
    /// Starts or continues the lookup of an address for a program of a user.
    pub(super) fn seek(&mut self, address: IpAddr, uid: u32, now: Instant) -> Lookup {
        if let Some(one) = self.0.get_mut(&address) {
            let age = now.duration_since(one.since);
            if age <= LOOKUP_TIMEOUT {
                return match now.duration_since(one.probed) >= PROBE_PERIOD {
                    true => {
                        one.probed = now;
                        Lookup::Probe
                    }
                    false => Lookup::Wait,
                };
            }
            if age <= LOOKUP_TIMEOUT + ABSENT_TIMEOUT {
                return Lookup::Absent;
            }
        }
        self.0.retain(|_, one| now.duration_since(one.since) <= LOOKUP_TIMEOUT + ABSENT_TIMEOUT);
        let of_user = self.0.values().filter(|one| one.uid == uid).count();
        if self.0.len() >= LOOKUPS_MAX || (uid != 0 && of_user >= LOOKUPS_OF_USER_MAX) {
            return Lookup::TooMany;
        }
        self.0.insert(address, Attempt { uid, since: now, probed: now });
        Lookup::Probe
    }

    /// Removes a lookup: the address is found.
    pub(super) fn found(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_address_is_requested_now_and_then_and_given_up() {
        let (mut lookups, start) = (Lookups::default(), Instant::now());
        let mut seek = |ms: u64| lookups.seek(address(1), 7, start + Duration::from_millis(ms));
        assert_eq!(
            [seek(0), seek(1), seek(9), seek(10), seek(11)],
            [Lookup::Probe, Lookup::Wait, Lookup::Wait, Lookup::Probe, Lookup::Wait]
        );
        assert_eq!([seek(101), seek(1_100), seek(1_101)], [Lookup::Absent, Lookup::Absent, Lookup::Probe]);
    }

    #[test]
    fn one_user_has_a_few_looked_for_and_all_have_a_bound() {
        let (mut lookups, start) = (Lookups::default(), Instant::now());
        let probed = |lookups: &mut Lookups, uid: u32, from: u32| {
            (from..from + 100).filter(|&at| lookups.seek(address(at), uid, start) == Lookup::Probe).count()
        };
        assert_eq!(
            [probed(&mut lookups, 7, 0), probed(&mut lookups, 0, 1000), probed(&mut lookups, 8, 2000)],
            [16, 100, 16]
        );
        (9..60).for_each(|uid| assert!(probed(&mut lookups, uid, uid * 10_000) <= LOOKUPS_OF_USER_MAX));
        assert_eq!(lookups.0.len(), LOOKUPS_MAX);
        // What is found makes room, and so does time.
        lookups.found(address(0));
        assert_eq!(probed(&mut lookups, 7, 100), 1);
        assert_eq!(lookups.seek(address(500), 7, start + Duration::from_secs(2)), Lookup::Probe);
        assert_eq!(lookups.0.len(), 1);
    }
}
