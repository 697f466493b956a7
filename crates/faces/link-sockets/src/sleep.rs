//! Waiting calls of the program: they busy-poll, then sleep without the lock.

use std::{
    ffi::c_int,
    os::fd::AsRawFd,
    ptr,
    time::{Duration, Instant},
};

use libc::{EINTR, POLLIN, SA_RESTART, SIG_DFL, SIG_IGN, pollfd, timespec};
use link::sockets::takeover::ConnectionId;

use crate::{
    helper_mode::{Mode, mode, wake_helper},
    locked::Locked,
    real::real,
    settings::busy_poll_time,
};

/// Polls between two readings of the clock.
const POLLS_PER_CLOCK_READ: u32 = 4;
/// Time after which a sleeping write checks for room, while another call waits for frames.
const WRITE_SLEEP_MAX: Duration = Duration::from_millis(1);

/// The end of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woke {
    /// A frame or a descriptor is there: the caller checks.
    Check,
    TimedOut,
    /// A signal whose handler ends the call.
    Interrupted,
}

impl Locked {
    /// Busy-polls before a sleep, where that has paid lately; true: something arrived.
    pub(crate) fn busy_poll(&mut self, id: Option<ConnectionId>) -> bool {
        let time = busy_poll_time();
        if time.is_zero() || self.state().frame_waiters > 0 || !self.state().backoff.is_due() {
            return false;
        }
        let began = Instant::now();
        let mut arrived = false;
        while !arrived && began.elapsed() < time {
            for _ in 0..POLLS_PER_CLOCK_READ {
                // Other threads may wait for the lock.
                self.unlock();
                std::hint::spin_loop();
                self.lock_again();
                self.poll(id);
                arrived = self
                    .takeovers()
                    .is_none_or(|takeovers| id.map_or(takeovers.has_unread(), |id| takeovers.has_unread_of(id)));
                if arrived {
                    break;
                }
            }
        }
        self.state().backoff.record(arrived);
        arrived
    }

    /// Sleeps until a connection may be readable (`reads`) or writable, or its descriptor `fd` is ready.
    pub(crate) fn sleep(&mut self, id: ConnectionId, fd: c_int, reads: bool, until: Option<Instant>) -> Woke {
        let mut others = [pollfd { fd, events: if reads { POLLIN } else { 0 }, revents: 0 }];
        let is_first = self.state().frame_waiters == 0;
        let watches = is_first || !reads;
        if let Some(takeovers) = self.takeovers() {
            takeovers.sleeps(id, true);
        }
        // Acknowledgements that make room may be polled by another call.
        let soon = Instant::now() + WRITE_SLEEP_MAX;
        let is_short = !reads && !is_first && until.is_none_or(|until| soon < until);
        let until = if is_short { Some(soon) } else { until };
        let woke = match self.sleep_until(&mut others, watches, until, ptr::null(), has_handler_that_ends_calls) {
            Woke::TimedOut if is_short => Woke::Check,
            woke => woke,
        };
        if let Some(takeovers) = self.takeovers() {
            takeovers.sleeps(id, false);
            if others[0].revents != 0 {
                takeovers.has_passed(id);
            }
        }
        woke
    }

    /// Sleeps until one of `others` is ready, as by poll(2), or, if it `watches`, a frame arrives. `ends`: whether a signal's handler that ran ends the call.
    pub(crate) fn sleep_until(
        &mut self,
        others: &mut [pollfd],
        watches: bool,
        until: Option<Instant>,
        mask: *const libc::sigset_t,
        ends: impl FnOnce() -> bool,
    ) -> Woke {
        let time = until.map(|until| until.saturating_duration_since(Instant::now()));
        if time.is_some_and(|time| time.is_zero()) {
            return Woke::TimedOut;
        }
        let state = self.state();
        let mut engine = -1;
        if watches && state.takeovers.is_some() {
            // Something is there, or the interface is gone, which the next poll reports.
            if !state.arm() {
                return Woke::Check;
            }
            engine =
                state.takeovers().and_then(|takeovers| takeovers.descriptor().ok()).map_or(-1, |fd| fd.as_raw_fd());
            state.frame_waiters += 1;
            state.waiting_since.get_or_insert_with(Instant::now);
        }
        self.unlock();
        let slept = ppoll_with_engine(others, engine, time, mask);
        let state = self.lock_again();
        if engine >= 0 {
            state.frame_waiters = state.frame_waiters.saturating_sub(1);
            if state.frame_waiters == 0 {
                state.waiting_since = None;
                // Others sleep and nobody waits for frames, or the helper is idle.
                let is_left = state.takeovers.as_ref().is_some_and(|takeovers| takeovers.waited() > 1);
                if is_left || mode() == Mode::Idle {
                    wake_helper();
                }
            }
        }
        match slept {
            Err(EINTR) if ends() => Woke::Interrupted,
            Ok(0) if until.is_some_and(|until| Instant::now() >= until) => Woke::TimedOut,
            _ => Woke::Check,
        }
    }
}

/// ppoll(2) of `others` and of the descriptor `engine` unless it is negative; the error number if it fails.
fn ppoll_with_engine(
    others: &mut [pollfd],
    engine: c_int,
    time: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Result<c_int, c_int> {
    let time = time.map(|time| timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut few = [pollfd { fd: -1, events: 0, revents: 0 }; 16];
    let mut many = Vec::new();
    let all = if others.len() < few.len() {
        &mut few[..=others.len()]
    } else {
        many.resize(others.len() + 1, few[0]);
        &mut many[..]
    };
    all[0] = pollfd { fd: engine, events: POLLIN, revents: 0 };
    all[1..].copy_from_slice(others);
    // SAFETY: the array, the time and the mask outlive the call.
    let ready = unsafe { (real().ppoll)(all.as_mut_ptr(), all.len() as libc::nfds_t, time, mask) };
    if ready < 0 {
        // SAFETY: errno is this thread's own.
        return Err(unsafe { *libc::__errno_location() });
    }
    others.copy_from_slice(&all[1..]);
    Ok(ready)
}

/// True if any handler of the program was set without SA_RESTART. The kernel does not say which signal it was.
fn has_handler_that_ends_calls() -> bool {
    (1..=64).any(|signal| {
        // SAFETY: all zeros are an action; the call writes one. Numbers that are the C library's own are refused.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &raw mut action) == 0
                && action.sa_sigaction != SIG_DFL
                && action.sa_sigaction != SIG_IGN
                && action.sa_flags & SA_RESTART == 0
        }
    })
}
