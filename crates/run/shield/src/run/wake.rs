//! What a shield's loop waits for: requests, and changes of nftables.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use host::netlink::monitor::{Event, Monitor};

use super::event_loop::Request;

/// While the kernel is listened to, requests are looked for this often.
const REQUEST_PERIOD: Duration = Duration::from_millis(20);
/// poll counts in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);
/// Rules that change without end, and are of no concern, are looked at for a part of the time.
const PART: u32 = 10;

/// Requests and changes, as they come.
pub(super) struct Wake<'a> {
    requests: &'a Receiver<Request>,
    /// None: nothing is listened to.
    monitor: Option<Monitor>,
    /// The rules may have changed since they were looked at last.
    changed: bool,
    /// Until then they are not looked at again.
    rests_until: Instant,
}

impl<'a> Wake<'a> {
    /// For these requests; `listens`: for changes of nftables, too. Also why these cannot be listened to, in words.
    pub(super) fn new(requests: &'a Receiver<Request>, listens: bool) -> (Self, Option<String>) {
        let opened = if listens { Monitor::of_nftables() } else { Ok(None) };
        let (monitor, failed) = match opened {
            Ok(monitor) => (monitor, None),
            Err(error) => (None, Some(unheard(&error))),
        };
        (Self::of(requests, monitor), failed)
    }

    fn of(requests: &'a Receiver<Request>, monitor: Option<Monitor>) -> Self {
        // What changed before is not heard.
        let changed = monitor.is_some();
        Self { requests, monitor, changed, rests_until: Instant::now() }
    }

    /// Whether the rules of nftables are to be looked at now.
    pub(super) fn is_changed(&self) -> bool {
        self.changed && self.rests_until <= Instant::now()
    }

    /// They were looked at, which began at that moment; `followed`: something had to be done.
    pub(super) fn looked(&mut self, begun: Instant, followed: bool) {
        let now = Instant::now();
        let rest = if followed { Duration::ZERO } else { (now - begun) * PART };
        (self.changed, self.rests_until) = (false, now + rest);
    }

    /// The next request; none: none came in that time, or the rules have changed. Also why changes are no longer heard, in words.
    pub(super) fn next(&mut self, time: Duration) -> (Option<Request>, Option<String>) {
        let mut until = Instant::now() + time;
        if self.changed {
            until = until.min(self.rests_until);
        }
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let Some(monitor) = &mut self.monitor else {
                return (next(self.requests, rest), None);
            };
            match self.requests.try_recv() {
                Ok(request) => return (Some(request), None),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) if rest.is_zero() => return (None, None),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
            match heard(monitor, rest.clamp(SHORTEST, REQUEST_PERIOD)) {
                Ok(true) if !self.changed => {
                    self.changed = true;
                    until = until.min(self.rests_until);
                }
                Ok(_) => {}
                Err(error) => {
                    self.monitor = None;
                    return (None, Some(unheard(&error)));
                }
            }
        }
    }
}

/// Waits for a change of nftables. One of which nothing more is known than that it was missed counts, too.
fn heard(monitor: &mut Monitor, time: Duration) -> io::Result<bool> {
    let mut changed = false;
    let waited = monitor.wait(time).and_then(|came| {
        let told = |event| changed |= matches!(event, Event::Nftables(_) | Event::Lost);
        if came { monitor.read(told) } else { Ok(()) }
    });
    match waited {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(changed),
    }
}

fn next(requests: &Receiver<Request>, time: Duration) -> Option<Request> {
    match requests.recv_timeout(time) {
        Ok(request) => Some(request),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            thread::sleep(time);
            None
        }
    }
}

fn unheard(error: &io::Error) -> String {
    format!("changes of nftables are followed once a second, not at once: cannot listen to them ({error})")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use testbed::Bed;

    use super::*;
    use crate::run::Command;

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn a_change_of_nftables_ends_the_wait_and_no_other_one() {
        let Some((_bed, [_, end])) = Bed::pair("shwk") else { return };
        let (to, requests) = mpsc::channel();
        let mut wake = Wake::of(&requests, end.run(Monitor::of_nftables).unwrap());
        assert!(wake.is_changed(), "what changed before");
        wake.looked(Instant::now(), true);
        let short = Duration::from_millis(50);
        assert!(wake.next(short).0.is_none() && !wake.is_changed(), "nothing changes");
        for rules in ["add table inet e", "flush ruleset"] {
            end.output(&format!("nft {rules}"));
            let begun = Instant::now();
            assert!(wake.next(LONG).0.is_none() && wake.is_changed() && begun.elapsed() < LONG / 2, "{rules}");
            assert!(wake.next(short).0.is_none() && wake.is_changed(), "until they were looked at");
            wake.looked(Instant::now(), true);
        }
        let (answer, _answers) = mpsc::channel();
        to.send((Command::Status, answer)).unwrap();
        assert!(wake.next(LONG).0.is_some() && !wake.is_changed());
    }

    /// A look that found nothing to do was for nothing: more changes wait for ten times as long as it took.
    #[test]
    fn changes_without_end_are_looked_at_for_a_part_of_the_time() {
        let Some((_bed, [_, end])) = Bed::pair("shws") else { return };
        let (_to, requests) = mpsc::channel();
        let mut wake = Wake::of(&requests, end.run(Monitor::of_nftables).unwrap());
        wake.looked(Instant::now() - Duration::from_millis(200), false);
        end.output("nft add table inet e");
        let begun = Instant::now();
        assert!(wake.next(LONG).0.is_none());
        assert!(begun.elapsed() > Duration::from_secs(1) && begun.elapsed() < LONG / 2 && wake.is_changed());
    }

    #[test]
    fn without_the_kernel_requests_are_waited_for_alone() {
        let (to, requests) = mpsc::channel();
        let (mut wake, failed) = Wake::new(&requests, false);
        assert!(failed.is_none() && !wake.is_changed() && wake.next(Duration::from_millis(1)).0.is_none());
        let (answer, _answers) = mpsc::channel();
        to.send((Command::Stop, answer)).unwrap();
        assert!(wake.next(LONG).0.is_some());
    }
}
