//! The schedule of a user-space sender's packets, and the loop that sends them by it.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{
    TrafficError,
    pacing::until_last_look,
    plan::{Frames, Plan},
    replay::{Recording, Timing},
};

/// A sender that is further behind its schedule gives the rest up instead of sending a longer burst, as gen.bpf.c of the crate bpf does.
const LAG_MAX_NS: u64 = (1 << 27) - 1;
/// Packets between two system calls when all are due.
const BATCH_MAX: usize = 64;
/// The rest of a wait when the sleep ends and spinning begins: more than a timer is late.
const SPIN_TIME: Duration = Duration::from_micros(150);
/// The longest sleep, so that a stop is seen soon.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A place where frames leave one by one.
pub(crate) trait Out: Send {
    /// Takes a frame; false when there is no room before the next [`Out::kick`].
    fn push(&mut self, frame: &[u8]) -> Result<bool, TrafficError>;
    /// Makes the kernel send what was taken.
    fn kick(&mut self) -> Result<(), TrafficError>;
    /// Returns once the kernel is through with all.
    fn finish(&mut self) -> Result<(), TrafficError>;
}

/// The counts of a running sender. Written by one thread; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) sent: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) skipped_ns: AtomicU64,
    pub(crate) elapsed_ns: AtomicU64,
    pub(crate) bursts: AtomicU64,
    pub(crate) largest_burst: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    pub(crate) ran_ns: AtomicU64,
}

impl Tally {
    fn count_burst(&self, frames: u64) {
        if frames > 0 {
            self.bursts.fetch_add(1, Ordering::Relaxed);
            self.largest_burst.fetch_max(frames, Ordering::Relaxed);
        }
    }
}

/// The frames of one sender and when each is due.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Feed<'p> {
    Cycle { frames: &'p [Vec<u8>], pps: Option<f64> },
    Timed { recording: &'p Recording, speed: f64 },
    Paced { recording: &'p Recording, pps: Option<f64> },
}

impl<'p> Feed<'p> {
    pub(crate) fn of(plan: &'p Plan, timing: Option<Timing>, i: usize) -> Self {
        let pps = plan.pps_of_one();
        match (&plan.frames, timing) {
            (Frames::Cycles(cycles), _) => Self::Cycle { frames: &cycles[i].frames, pps },
            (Frames::Recording(recording), Some(Timing::Speed(speed))) => Self::Timed { recording, speed },
            (Frames::Recording(recording), _) => Self::Paced { recording, pps },
        }
    }

    fn frame(&self, n: u64) -> &'p [u8] {
        match self {
            Self::Cycle { frames, .. } => &frames[(n % frames.len() as u64) as usize],
            Self::Timed { recording, .. } | Self::Paced { recording, .. } => {
                &recording.frames[(n % recording.frames.len() as u64) as usize].1
            }
        }
    }

    /// The time at which packet `n` is due, in nanoseconds from the start; none when it is due at any time.
    fn due_ns(&self, n: u64) -> Option<u64> {
        match self {
            Self::Cycle { pps, .. } | Self::Paced { pps, .. } => pps.map(|pps| (n as f64 * 1e9 / pps) as u64),
            Self::Timed { recording, speed } => {
                let len = recording.frames.len() as u64;
                let ns = (n / len) as f64 * recording.span_ns as f64 + recording.frames[(n % len) as usize].0 as f64;
                Some((ns / speed) as u64)
            }
        }
    }

    /// The rest of the schedule when the time is over, from packet `n` of `count` on, in nanoseconds.
    fn left_ns(&self, n: u64, count: u64, shift: u64, duration: Duration) -> u64 {
        let Some(next) = self.due_ns(n) else { return 0 };
        let end = (duration.as_nanos() as u64).saturating_sub(shift);
        self.due_ns(count).unwrap_or(end).min(end).saturating_sub(next)
    }
}

/// A sender's end, and its way to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) count: Option<u64>,
    pub(crate) duration: Duration,
    /// Sleep at least so long and send what is due then, instead of meeting the time of each packet.
    pub(crate) nap: Option<Duration>,
}

/// Sends until count, duration or stop.
pub(crate) fn send(
    out: &mut dyn Out,
    feed: Feed<'_>,
    Bounds { count, duration, nap }: Bounds,
    tally: &Tally,
    stop: &AtomicBool,
) -> Result<(), TrafficError> {
    let start = Instant::now();
    let (mut n, mut bytes, mut shift, mut burst, mut waited) = (0u64, 0u64, 0u64, 0u64, false);
    let count = count.unwrap_or(u64::MAX);
    while n < count && !stop.load(Ordering::Relaxed) {
        let now = start.elapsed();
        let now_ns = now.as_nanos() as u64;
        tally.elapsed_ns.store(now_ns, Ordering::Relaxed);
        if now >= duration {
            tally.skipped_ns.store(shift + feed.left_ns(n, count, shift, duration), Ordering::Relaxed);
            break;
        }
        let mut pushed = 0;
        let mut wait = None;
        while pushed < BATCH_MAX && n < count {
            if let Some(due) = feed.due_ns(n) {
                let due = due + shift;
                if due > now_ns {
                    wait = Some(Duration::from_nanos(due - now_ns));
                    break;
                }
                let excess = (now_ns - due).saturating_sub(LAG_MAX_NS);
                shift += excess;
            }
            let frame = feed.frame(n);
            if !out.push(frame)? {
                break;
            }
            pushed += 1;
            n += 1;
            bytes += frame.len() as u64;
        }
        tally.skipped_ns.store(shift, Ordering::Relaxed);
        waited = wait.is_some() && pushed == 0;
        match wait {
            Some(wait) if waited => {
                // Not beyond the end: the run is over on time even if the next packet is far off.
                match nap {
                    Some(nap) => {
                        tally.count_burst(std::mem::take(&mut burst));
                        std::thread::sleep(until_last_look(wait.max(nap), duration - now).min(SLEEP_MAX));
                    }
                    None => rest(wait.min(duration - now)),
                }
            }
            _ => {
                burst += pushed as u64;
                out.kick()?;
                tally.sent.store(n, Ordering::Relaxed);
                tally.bytes.store(bytes, Ordering::Relaxed);
            }
        }
    }
    out.finish()?;
    if nap.is_some() {
        tally.count_burst(burst);
    }
    // One that had nothing to send any more was on time, however late it woke.
    let elapsed = if waited { start.elapsed().min(duration) } else { start.elapsed() };
    tally.elapsed_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
    Ok(())
}

/// Sleeps for most of `wait`, spins for what a sleep cannot hit.
fn rest(wait: Duration) {
    if wait > SPIN_TIME {
        std::thread::sleep((wait - SPIN_TIME).min(SLEEP_MAX));
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept {
        frames: Vec<Vec<u8>>,
        full_after: usize,
        waiting: usize,
    }

    impl Out for Kept {
        fn push(&mut self, frame: &[u8]) -> Result<bool, TrafficError> {
            if self.waiting >= self.full_after {
                return Ok(false);
            }
            self.waiting += 1;
            self.frames.push(frame.to_vec());
            Ok(true)
        }

        fn kick(&mut self) -> Result<(), TrafficError> {
            self.waiting = 0;
            Ok(())
        }

        fn finish(&mut self) -> Result<(), TrafficError> {
            self.kick()
        }
    }

    fn bounds(count: Option<u64>, ms: u64) -> Bounds {
        Bounds { count, duration: Duration::from_millis(ms), nap: None }
    }

    #[test]
    fn a_sender_that_naps_sends_what_is_due_in_bursts() {
        let frames = vec![vec![0; 60]];
        let mut out = Kept { full_after: usize::MAX, ..Kept::default() };
        let tally = Tally::default();
        let feed = Feed::Cycle { frames: &frames, pps: Some(10_000.0) };
        let bounds = Bounds { nap: Some(Duration::from_millis(5)), ..bounds(Some(200), 60_000) };
        send(&mut out, feed, bounds, &tally, &AtomicBool::new(false)).unwrap();
        let (sent, bursts, largest) =
            (tally.sent.into_inner(), tally.bursts.into_inner(), tally.largest_burst.into_inner());
        // Each sleep lasts at least 5 ms, in which 50 become due.
        assert_eq!((sent, out.frames.len()), (200, 200));
        assert!((1..=6).contains(&bursts) && largest >= 49, "{bursts} bursts, {largest} at most");
    }

    #[test]
    fn a_count_is_sent_in_order_through_a_small_ring() {
        let frames: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 60]).collect();
        let mut out = Kept { full_after: 3, ..Kept::default() };
        let tally = Tally::default();
        let feed = Feed::Cycle { frames: &frames, pps: None };
        send(&mut out, feed, bounds(Some(12), 60_000), &tally, &AtomicBool::new(false)).unwrap();
        assert_eq!(out.frames.iter().map(|f| f[0]).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]);
        assert_eq!((tally.sent.into_inner(), tally.bytes.into_inner()), (12, 720));
    }

    #[test]
    fn a_stop_ends_an_endless_run_and_a_duration_ends_a_waiting_one() {
        let frames = vec![vec![0; 60]];
        let mut out = Kept { full_after: usize::MAX, ..Kept::default() };
        let feed = Feed::Cycle { frames: &frames, pps: Some(0.001) };
        let tally = Tally::default();
        send(&mut out, feed, bounds(None, 3_600_000), &tally, &AtomicBool::new(true)).unwrap();
        assert!(out.frames.is_empty());
        send(&mut out, feed, bounds(None, 1), &tally, &AtomicBool::new(false)).unwrap();
        assert_eq!(out.frames.len(), 1);
    }

    /// A place that takes its time: 100 us for each kick.
    struct Slow;

    impl Out for Slow {
        fn push(&mut self, _: &[u8]) -> Result<bool, TrafficError> {
            Ok(true)
        }

        fn kick(&mut self) -> Result<(), TrafficError> {
            std::thread::sleep(Duration::from_micros(100));
            Ok(())
        }

        fn finish(&mut self) -> Result<(), TrafficError> {
            std::thread::sleep(Duration::from_millis(5));
            Ok(())
        }
    }

    #[test]
    fn what_is_left_at_the_end_is_given_up_and_the_time_is_what_it_took() {
        let frames = vec![vec![0; 60]];
        let tally = Tally::default();
        let feed = Feed::Cycle { frames: &frames, pps: Some(1e9) };
        send(&mut Slow, feed, bounds(None, 50), &tally, &AtomicBool::new(false)).unwrap();
        let (sent, given_up, elapsed) =
            (tally.sent.into_inner(), tally.skipped_ns.into_inner(), tally.elapsed_ns.into_inner());
        assert!(elapsed >= 55_000_000, "the last frames took 5 ms more: {elapsed}");
        assert!((sent + given_up).abs_diff(50_000_000) <= 1, "one packet a nanosecond: {sent} + {given_up}");
    }

    #[test]
    fn a_sender_on_time_took_its_time_and_gives_nothing_up() {
        let frames = vec![vec![0; 60]];
        let tally = Tally::default();
        let feed = Feed::Cycle { frames: &frames, pps: Some(0.001) };
        send(&mut Slow, feed, bounds(None, 20), &tally, &AtomicBool::new(false)).unwrap();
        assert_eq!((tally.sent.into_inner(), tally.skipped_ns.into_inner()), (1, 0));
        assert_eq!(tally.elapsed_ns.into_inner(), 20_000_000);
    }

    #[test]
    fn a_recording_keeps_its_gaps_at_any_speed_and_over_rounds() {
        let recording = Recording {
            path: "x".into(),
            frames: vec![(0, vec![1; 60]), (3_000, vec![2; 60]), (4_000, vec![3; 60])],
            span_ns: 6_000,
            timeless: false,
            cut_short: 0,
        };
        let due = |speed, n| Feed::Timed { recording: &recording, speed }.due_ns(n);
        assert_eq!([due(1.0, 1), due(1.0, 2), due(1.0, 3), due(1.0, 4)], [3_000, 4_000, 6_000, 9_000].map(Some));
        assert_eq!([due(2.0, 1), due(0.5, 5)], [1_500, 20_000].map(Some));
        assert_eq!(Feed::Paced { recording: &recording, pps: Some(1e6) }.due_ns(5), Some(5_000));
        assert_eq!(Feed::Paced { recording: &recording, pps: None }.due_ns(5), None);
    }
}
