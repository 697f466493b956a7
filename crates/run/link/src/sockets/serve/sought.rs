//! Addresses of the cluster that nobody is known to have yet: they are looked for once, however many programs want to be connected there.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// How often the kernel is asked for one, and how long.
const ASKED_AGAIN: Duration = Duration::from_millis(10);
const LOOKED: Duration = Duration::from_millis(100);
/// One that was not found is not looked for again within this time.
const ABSENT: Duration = Duration::from_secs(1);
/// The most addresses that are remembered, and that one user other than root has looked for at a time.
const SOUGHT_MAX: usize = 512;
const OF_USER: usize = 16;

/// What is to be done for an address that is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seek {
    /// The kernel is to be asked.
    Ask,
    /// It was asked already.
    Wait,
    /// Nobody has it.
    Absent,
    /// The user has too many looked for.
    TooMany,
}

#[derive(Debug)]
struct Address {
    uid: u32,
    since: Instant,
    asked: Instant,
}

/// Those that are looked for, and those that were not found of late.
#[derive(Debug, Default)]
pub(super) struct Sought(HashMap<IpAddr, Address>);

impl Sought {
    /// A program of a user wants an address that is not found.
    pub(super) fn seek(&mut self, address: IpAddr, uid: u32, now: Instant) -> Seek {
        if let Some(one) = self.0.get_mut(&address) {
            let age = now.duration_since(one.since);
            if age <= LOOKED {
                return match now.duration_since(one.asked) >= ASKED_AGAIN {
                    true => {
                        one.asked = now;
                        Seek::Ask
                    }
                    false => Seek::Wait,
                };
            }
            if age <= LOOKED + ABSENT {
                return Seek::Absent;
            }
        }
        self.0.retain(|_, one| now.duration_since(one.since) <= LOOKED + ABSENT);
        let of_user = self.0.values().filter(|one| one.uid == uid).count();
        if self.0.len() >= SOUGHT_MAX || (uid != 0 && of_user >= OF_USER) {
            return Seek::TooMany;
        }
        self.0.insert(address, Address { uid, since: now, asked: now });
        Seek::Ask
    }

    /// It is found.
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
    fn an_address_is_asked_for_now_and_then_and_given_up() {
        let (mut sought, start) = (Sought::default(), Instant::now());
        let mut seek = |ms: u64| sought.seek(address(1), 7, start + Duration::from_millis(ms));
        assert_eq!(
            [seek(0), seek(1), seek(9), seek(10), seek(11)],
            [Seek::Ask, Seek::Wait, Seek::Wait, Seek::Ask, Seek::Wait]
        );
        assert_eq!([seek(101), seek(1_100), seek(1_101)], [Seek::Absent, Seek::Absent, Seek::Ask]);
    }

    #[test]
    fn one_user_has_a_few_looked_for_and_all_have_a_bound() {
        let (mut sought, start) = (Sought::default(), Instant::now());
        let asked = |sought: &mut Sought, uid: u32, from: u32| {
            (from..from + 100).filter(|&at| sought.seek(address(at), uid, start) == Seek::Ask).count()
        };
        assert_eq!([asked(&mut sought, 7, 0), asked(&mut sought, 0, 1000), asked(&mut sought, 8, 2000)], [16, 100, 16]);
        (9..60).for_each(|uid| assert!(asked(&mut sought, uid, uid * 10_000) <= OF_USER));
        assert_eq!(sought.0.len(), SOUGHT_MAX);
        // What is found makes room, and so does time.
        sought.found(address(0));
        assert_eq!(asked(&mut sought, 7, 100), 1);
        assert_eq!(sought.seek(address(500), 7, start + Duration::from_secs(2)), Seek::Ask);
        assert_eq!(sought.0.len(), 1);
    }
}
