//! How a call of the program waits.

use std::{
    ffi::c_int,
    os::fd::AsRawFd,
    ptr,
    time::{Duration, Instant},
};

use libc::{EINTR, POLLIN, SA_RESTART, SIG_DFL, SIG_IGN, pollfd, timespec};
use link::sockets::direct::Id;

use crate::{
    helper_mode::{Mode, mode, wake_helper},
    locked::Locked,
    real::real,
    settings::spin_time,
};

/// Looks between two looks at the clock.
const SPINS: u32 = 4;

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woke {
    /// There may be something.
    Look,
    /// The time is over.
    Late,
    /// A signal came whose handler wants the call to end.
    Signal,
}

impl Locked {
    /// Looks on for a while, before a call sleeps, where that has paid lately. True: something came.
    pub(crate) fn spin(&mut self, id: Option<Id>) -> bool {
        let time = spin_time();
        if time.is_zero() || self.state().watchers > 0 || !self.state().spins.may() {
            return false;
        }
        let began = Instant::now();
        let mut came = false;
        while !came && began.elapsed() < time {
            for _ in 0..SPINS {
                // Other threads may want it.
                self.unlock();
                std::hint::spin_loop();
                self.lock_again();
                self.turn(id);
                came = self.direct().is_none_or(|direct| id.map_or(direct.has_news(), |id| direct.has_something(id)));
                if came {
                    break;
                }
            }
        }
        self.state().spins.paid(came);
        came
    }

    /// Sleeps for a connection until there may be something to read (`reads`) or room to write, or one of `others` is ready.
    pub(crate) fn sleep(&mut self, id: Id, fd: c_int, reads: bool, until: Option<Instant>) -> Woke {
        let mut others = [pollfd { fd, events: if reads { POLLIN } else { 0 }, revents: 0 }];
        let is_first = self.state().watchers == 0;
        let watches = is_first || !reads;
        if let Some(direct) = self.direct() {
            direct.sleeps(id, true);
        }
        // Room comes by frames that another call may take.
        let soon = Instant::now() + Duration::from_millis(1);
        let is_short = !reads && !is_first && until.is_none_or(|until| soon < until);
        let until = if is_short { Some(soon) } else { until };
        let woke = match self.sleep_until(&mut others, watches, until, ptr::null(), has_handler_that_ends_calls) {
            Woke::Late if is_short => Woke::Look,
            woke => woke,
        };
        if let Some(direct) = self.direct() {
            direct.sleeps(id, false);
            if others[0].revents != 0 {
                direct.has_passed(id);
            }
        }
        woke
    }

    /// Sleeps until one of `others` is ready, as poll(2) has it, or, if it `watches`, a frame comes. `ends`: does a signal whose handler ran end the call?
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
            return Woke::Late;
        }
        let state = self.state();
        let mut engine = -1;
        if watches && state.direct.is_some() {
            // There is something, or the interface is gone, which the next turn says.
            if !state.arm() {
                return Woke::Look;
            }
            engine = state.direct().and_then(|direct| direct.descriptor().ok()).map_or(-1, |fd| fd.as_raw_fd());
            state.watchers += 1;
            state.since.get_or_insert_with(Instant::now);
        }
        self.unlock();
        let slept = doze(others, engine, time, mask);
        let state = self.lock_again();
        if engine >= 0 {
            state.watchers = state.watchers.saturating_sub(1);
            if state.watchers == 0 {
                state.since = None;
                // Others sleep and nobody watches, or the helper waits to be told.
                let is_left = state.direct.as_ref().is_some_and(|direct| direct.waited() > 1);
                if is_left || mode() == Mode::Deep {
                    wake_helper();
                }
            }
        }
        match slept {
            Err(EINTR) if ends() => Woke::Signal,
            Ok(0) if until.is_some_and(|until| Instant::now() >= until) => Woke::Late,
            _ => Woke::Look,
        }
    }
}

/// Sleeps until one of `others`, or the descriptor `engine` unless it is negative, is ready; the error of ppoll(2).
fn doze(
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
    // SAFETY: the array, the time and the mask are alive for the time of the call.
    let ready = unsafe { (real().ppoll)(all.as_mut_ptr(), all.len() as libc::nfds_t, time, mask) };
    if ready < 0 {
        // SAFETY: errno is this thread's own.
        return Err(unsafe { *libc::__errno_location() });
    }
    others.copy_from_slice(&all[1..]);
    Ok(ready)
}

/// Does the program have a signal's handler after which calls do not go on? The kernel does not say which signal it was.
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
