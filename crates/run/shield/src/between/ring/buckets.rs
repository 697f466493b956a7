//! Limits, taken from by all threads without a lock: what `limit.h` of the kernel programs does, over again.
//!
//! A bucket is one number, the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371). Only packets within the
//! limit write to it: what a flood exceeds is decided by reading.

use std::{
    hash::Hasher,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicU64, Ordering},
};

use rules::compile::COUNTERS_MAX;
use rules::tables::RuleEntry;
use siphasher::sip::SipHasher13;

/// Times are in units of 1/64 ns, so that an interval of a rate of millions is right.
const TICKS_PER_NS: u64 = 64;
/// Sets of sources, a power of two.
const SET_COUNT: usize = 1 << 16;
/// Sources of a set, a cache line.
const SET_BUCKETS: usize = 4;

/// The time at which a bucket is full again.
#[derive(Debug, Default)]
#[repr(align(64))]
struct RuleBucket(AtomicU64);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([Bucket; SET_BUCKETS]);

#[derive(Debug, Default)]
struct Bucket {
    /// Hash of the rule and the prefix; 0: none.
    key: AtomicU64,
    full_at: AtomicU64,
}

/// The answer of a limit to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Within the limit: taken out of its bucket.
    Within,
    /// Within the limit, and its source evicted another whose limit was in use.
    Evicting,
    /// Over the limit: nothing was taken.
    Not,
}

/// The buckets of rules by their counters, and 262,144 of sources in 4 MB. Rules that follow each other go on with them.
#[derive(Debug)]
pub(super) struct Buckets {
    rules: Box<[RuleBucket]>,
    sources: Box<[Set]>,
    hasher: SipHasher13,
}

impl Buckets {
    /// All buckets are full.
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self {
            rules: (0..COUNTERS_MAX).map(|_| RuleBucket::default()).collect(),
            sources: (0..SET_COUNT).map(|_| Set::default()).collect(),
            hasher: SipHasher13::new_with_key(key),
        }
    }

    /// Takes a packet of this source out of the limit's bucket at CLOCK_MONOTONIC `now_ns`.
    pub(super) fn take(&self, limit: &RuleEntry, source: IpAddr, now_ns: u64) -> Taken {
        let now = now_ns.wrapping_mul(TICKS_PER_NS);
        let interval = 1_000_000_000 * TICKS_PER_NS / limit.pps.max(1);
        let tolerance = interval.saturating_mul(limit.burst.max(1) - 1);
        let Some(lens) = limit.per_source else {
            return take(&self.rules[usize::from(limit.counter)].0, interval, tolerance, now);
        };
        let key = self.key(limit.counter, prefix(source, lens));
        let Set(buckets) = &self.sources[(key >> 32) as usize % SET_COUNT];
        if let Some(bucket) = buckets.iter().find(|bucket| bucket.key.load(Ordering::Relaxed) == key) {
            return take(&bucket.full_at, interval, tolerance, now);
        }
        // A new source takes the place of one whose bucket has been full the longest, or will be the soonest.
        let until_full = |bucket: &&Bucket| {
            let is_free = bucket.key.load(Ordering::Relaxed) == 0;
            if is_free { i64::MIN } else { bucket.full_at.load(Ordering::Relaxed).wrapping_sub(now).cast_signed() }
        };
        let Some((until, bucket)) =
            buckets.iter().map(|bucket| (until_full(&bucket), bucket)).min_by_key(|(until, _)| *until)
        else {
            return Taken::Within;
        };
        bucket.key.store(key, Ordering::Relaxed);
        bucket.full_at.store(now.wrapping_add(interval), Ordering::Relaxed);
        if until > 0 { Taken::Evicting } else { Taken::Within }
    }

    /// Never 0.
    fn key(&self, counter: u16, prefix: IpAddr) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u16(counter);
        match prefix {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.finish() | 1
    }
}

/// The address without what is behind the prefix; lengths for IPv4 and IPv6.
fn prefix(address: IpAddr, (v4, v6): (u8, u8)) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(v4.into())).unwrap_or(0);
            Ipv4Addr::from_bits(a.to_bits() & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(v6.into())).unwrap_or(0);
            Ipv6Addr::from_bits(a.to_bits() & mask).into()
        }
    }
}

fn take(full_at: &AtomicU64, interval: u64, tolerance: u64, now: u64) -> Taken {
    let mut was = full_at.load(Ordering::Relaxed);
    loop {
        let next = if was.wrapping_sub(now).cast_signed() > 0 { was } else { now };
        let ahead = next.wrapping_sub(now);
        if ahead > tolerance {
            if ahead - tolerance > interval {
                // Further away than this limit can bring it: left by a slower one, and no reason to wait for longer than an emptied
                // bucket takes. Another thread that came first has said the same.
                let emptied = now.wrapping_add(tolerance).wrapping_add(interval);
                let _ = full_at.compare_exchange(was, emptied, Ordering::Relaxed, Ordering::Relaxed);
            }
            return Taken::Not;
        }
        let then = next.wrapping_add(interval);
        match full_at.compare_exchange_weak(was, then, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Taken::Within,
            Err(is) => was = is,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limit(pps: u64, burst: u64, per_source: Option<(u8, u8)>) -> RuleEntry {
        RuleEntry { counter: 7, pps, burst, per_source, ..RuleEntry::default() }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    impl Buckets {
        fn exceeds(&self, limit: &RuleEntry, source: IpAddr, now_ns: u64) -> bool {
            self.take(limit, source, now_ns) == Taken::Not
        }
    }

    #[test]
    fn a_source_that_evicts_another_is_counted() {
        let (buckets, limit) = (Buckets::new(&[1; 16]), limit(1, 3, Some((32, 64))));
        let places = (SET_COUNT * SET_BUCKETS) as u32;
        let evicting = |sources: std::ops::Range<u32>, ns| {
            let taken = |n: u32| buckets.take(&limit, IpAddr::V4(n.into()), ns);
            sources.filter(|n| taken(*n) == Taken::Evicting).count()
        };
        assert!(evicting(0..places / 16, SECOND_NS) < 10);
        let evictions = evicting(places..2 * places, SECOND_NS);
        assert!((places as usize / 8..places as usize / 2).contains(&evictions), "{evictions}");
        assert_eq!(evicting(2 * places..2 * places + 100, 60 * SECOND_NS), 0, "all are idle by then");
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (buckets, limit) = (Buckets::new(&[1; 16]), limit(100, 5, None));
        let within = |ns| (0..20).filter(|_| !buckets.exceeds(&limit, address("192.0.2.1"), ns)).count();
        assert_eq!(
            (within(SECOND_NS), within(SECOND_NS), within(SECOND_NS + 30_000_000), within(9 * SECOND_NS)),
            (5, 0, 3, 5)
        );
        let other = RuleEntry { counter: 8, ..limit };
        assert!(!buckets.exceeds(&other, address("192.0.2.1"), 9 * SECOND_NS), "another rule has its own");
    }

    #[test]
    fn a_faster_limit_does_not_wait_for_what_a_slower_one_took() {
        for per_source in [None, Some((32, 128))] {
            let (buckets, slow, fast) =
                (Buckets::new(&[1; 16]), limit(1, 1000, per_source), limit(1000, 10, per_source));
            let within =
                |limit: &RuleEntry, ns| (0..2000).filter(|_| !buckets.exceeds(limit, address("192.0.2.1"), ns)).count();
            assert_eq!(within(&slow, SECOND_NS), 1000);
            assert_eq!((within(&fast, SECOND_NS), within(&fast, SECOND_NS + 5_000_000)), (0, 5));
            assert_eq!(within(&fast, 2 * SECOND_NS), 10);
        }
    }

    #[test]
    fn each_source_prefix_by_itself() {
        let (buckets, limit) = (Buckets::new(&[1; 16]), limit(1, 1, Some((24, 64))));
        for (source, exceeds) in [
            ("192.0.2.1", false),
            ("192.0.2.255", true),
            ("192.0.3.1", false),
            ("2001:2::1", false),
            ("2001:2::ffff:0:0:1", true),
            ("2001:2:0:1::1", false),
        ] {
            assert_eq!(buckets.exceeds(&limit, address(source), 5), exceeds, "{source}");
        }
        assert!(!buckets.exceeds(&RuleEntry { counter: 8, ..limit }, address("192.0.2.1"), 5), "another rule");
    }

    #[test]
    fn sources_that_are_limited_now_stay_when_others_come() {
        let (buckets, limit) = (Buckets::new(&[1; 16]), limit(1, 3, Some((32, 64))));
        let source = |n: u32| IpAddr::V4(n.into());
        let heavy: Vec<_> = (0..1000).map(source).collect();
        for source in &heavy {
            (0..3).for_each(|_| assert!(!buckets.exceeds(&limit, *source, SECOND_NS)));
        }
        // Half as many strangers as there are places, a packet each.
        let strangers = (1 << 20..(1 << 20) + (SET_COUNT * SET_BUCKETS / 2) as u32).map(source);
        assert!(strangers.filter(|source| buckets.exceeds(&limit, *source, SECOND_NS)).count() < 10);
        let kept = heavy.iter().filter(|source| buckets.exceeds(&limit, **source, SECOND_NS)).count();
        assert!(kept > 900, "{kept}");
    }

    #[test]
    fn threads_share_what_a_bucket_holds() {
        let (buckets, limits) = (Buckets::new(&[1; 16]), [limit(1, 1000, None), limit(1, 1000, Some((24, 64)))]);
        for limit in &limits {
            let through = |_| (0..1000).filter(|_| !buckets.exceeds(limit, address("192.0.2.1"), SECOND_NS)).count();
            // The first of a source makes its bucket.
            let first = through(());
            assert_eq!(first, 1000);
            let later = |n: u64| (0..1000).filter(|_| !buckets.exceeds(limit, address("192.0.2.1"), n)).count();
            let all: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| later(501 * SECOND_NS))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(all, 500);
        }
    }
}
