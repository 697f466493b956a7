//! Changes of nftables that a shield waits for.

use std::{
    io,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use host::netlink::monitor::{Event, Monitor};

/// Rules that change without end, and are of no concern, are looked at for a part of the time.
const WAKE_SHARE: u32 = 10;

/// Changes, as they come.
pub(super) struct Wake {
    /// None: nothing is listened to.
    monitor: Option<Monitor>,
    /// The rules may have changed since they were looked at last.
    changed: bool,
    /// Time before which they are not looked at again.
    rests_until: Instant,
}

impl Wake {
    /// `listens`: for changes of nftables. Also why these cannot be listened to, in words.
    pub(super) fn new(listens: bool) -> (Self, Option<String>) {
        let opened = if listens { Monitor::of_nftables() } else { Ok(None) };
        let (monitor, failed) = match opened {
            Ok(monitor) => (monitor, None),
            Err(error) => (None, Some(unheard(&error))),
        };
        (Self::of(monitor), failed)
    }

    fn of(monitor: Option<Monitor>) -> Self {
        // What changed before is not heard.
        let changed = monitor.is_some();
        Self { monitor, changed, rests_until: Instant::now() }
    }

    /// True if the rules of nftables are to be read now.
    pub(super) fn is_changed(&self) -> bool {
        self.changed && self.rests_until <= Instant::now()
    }

    /// Notes that they were read from that moment on; `followed`: something had to be changed.
    pub(super) fn looked(&mut self, begun: Instant, followed: bool) {
        let now = Instant::now();
        let rest = if followed { Duration::ZERO } else { (now - begun) * WAKE_SHARE };
        (self.changed, self.rests_until) = (false, now + rest);
    }

    /// The end of the rest, after which a change is to be looked at.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.changed.then_some(self.rests_until)
    }

    /// Sockets that become readable with a change.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.monitor.iter().flat_map(Monitor::sockets)
    }

    /// Reads the changes. Returns why they are no longer heard, in words.
    pub(super) fn read(&mut self) -> Option<String> {
        // A lost change may have been one of the rules.
        let changed = &mut self.changed;
        let read = self.monitor.as_mut()?.read(|event| *changed |= matches!(event, Event::Nftables(_) | Event::Lost));
        let error = read.err().filter(|error| error.kind() != io::ErrorKind::Interrupted)?;
        self.monitor = None;
        Some(unheard(&error))
    }
}

fn unheard(error: &io::Error) -> String {
    format!("changes of nftables are followed once a second, not at once: cannot listen to them ({error})")
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use testbed::Bed;

    use super::*;

    const LONG_TIMEOUT: Duration = Duration::from_secs(120);
    const SHORT_TIMEOUT: Duration = Duration::from_millis(50);

    /// Waits that long at the most. Returns whether the rules are to be looked at.
    fn wakes(wake: &mut Wake, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            assert_eq!(wake.read(), None);
            let now = Instant::now();
            if wake.is_changed() || now >= until {
                return wake.is_changed();
            }
            let rest = until.min(wake.due_at().unwrap_or(until)).saturating_duration_since(now);
            let mut sockets: Vec<_> = wake.sockets().map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
            poll(&mut sockets, PollTimeout::try_from(rest + Duration::from_millis(1)).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_change_of_nftables_ends_the_wait() {
        let Some((_bed, [_, end])) = Bed::pair("shwk") else { return };
        let mut wake = Wake::of(end.run(Monitor::of_nftables).unwrap());
        assert!(wake.is_changed(), "what changed before");
        wake.looked(Instant::now(), true);
        assert!(!wakes(&mut wake, SHORT_TIMEOUT), "nothing changes");
        for rules in ["add table inet e", "flush ruleset"] {
            end.output(&format!("nft {rules}"));
            let begun = Instant::now();
            assert!(wakes(&mut wake, LONG_TIMEOUT) && begun.elapsed() < LONG_TIMEOUT / 2, "{rules}");
            assert!(wakes(&mut wake, SHORT_TIMEOUT), "until they were looked at");
            wake.looked(Instant::now(), true);
        }
        assert!(!wakes(&mut wake, SHORT_TIMEOUT));
    }

    /// A look that found nothing to do was for nothing: more changes wait for ten times as long as it took.
    #[test]
    fn changes_without_end_are_looked_at_for_a_part_of_the_time() {
        let Some((_bed, [_, end])) = Bed::pair("shws") else { return };
        let mut wake = Wake::of(end.run(Monitor::of_nftables).unwrap());
        wake.looked(Instant::now() - Duration::from_millis(200), false);
        end.output("nft add table inet e");
        let begun = Instant::now();
        assert!(
            wakes(&mut wake, LONG_TIMEOUT)
                && begun.elapsed() > Duration::from_secs(1)
                && begun.elapsed() < LONG_TIMEOUT / 2
        );
    }

    #[test]
    fn without_the_kernel_only_time_is_waited_for() {
        let (mut wake, failed) = Wake::new(false);
        assert!(failed.is_none() && !wake.is_changed() && !wakes(&mut wake, Duration::from_millis(1)));
    }
}
