//! Sleeps of an engine, and its descriptor for other loops.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};
use transport::Nanos;

use super::Engine;
use crate::{BrokerCarrier, Carrier, LinkError};

/// Longest sleep of an engine without a timer.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// A descriptor for frames and the next timer.
#[derive(Debug)]
pub(super) struct Sleep {
    epoll: Epoll,
    timer: TimerFd,
    /// Expiry of the timer.
    due: Option<Nanos>,
}

impl Sleep {
    fn new(carrier: &impl Carrier) -> Result<Self, LinkError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("make an epoll descriptor"))?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(failed("make a timer"))?;
        carrier.watch(&epoll)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll.add(&timer, event).map_err(failed("wait for a timer by epoll"))?;
        Ok(Self { epoll, timer, due: None })
    }

    fn set(&mut self, due: Option<Nanos>, now: Nanos) -> Result<(), LinkError> {
        if self.due == due {
            return Ok(());
        }
        let set = match due {
            None => self.timer.unset(),
            // A time of 0 would stop it.
            Some(due) => {
                let left = Duration::from_nanos(due.saturating_sub(now).max(1));
                self.timer.set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty())
            }
        };
        set.map_err(failed("set a timer"))?;
        self.due = due;
        Ok(())
    }
}

impl<C: Carrier> Engine<C> {
    /// Turns until a frame arrived, `at_most` is over, or a signal came while it slept: actively for the time `spin`, asleep from then on; how many frames
    /// arrived.
    pub fn wait(&mut self, spin: Duration, at_most: Duration) -> Result<usize, LinkError> {
        let began = Instant::now();
        loop {
            let arrived = self.poll()?;
            let waited = began.elapsed();
            if arrived > 0 || waited >= at_most {
                return Ok(arrived);
            }
            if waited < spin {
                std::hint::spin_loop();
                continue;
            }
            let due = self.node.due().map(|due| Duration::from_nanos(due.saturating_sub(self.now())));
            let time = (at_most - waited).min(SLEEP_MAX).min(due.unwrap_or(SLEEP_MAX));
            if !time.is_zero() && !self.carrier.wait(time)? {
                return self.poll();
            }
        }
    }

    /// A descriptor for poll(2) or epoll(7), with which a loop that waits for other things, too, waits for this engine. It becomes readable (and only
    /// that) when a frame came, or a timer is due, after [`Engine::arm`] was true. [`Engine::poll`] comes then.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, LinkError> {
        Ok(self.slept()?.epoll.0.as_fd())
    }

    fn slept(&mut self) -> Result<&mut Sleep, LinkError> {
        let sleep = match self.sleep.take() {
            Some(sleep) => sleep,
            None => Sleep::new(&self.carrier)?,
        };
        Ok(self.sleep.insert(sleep))
    }

    /// Makes [`Engine::descriptor`] good for one sleep: sends what waits, sets the timer, and has frames wake. It is the last call before the sleep: any other
    /// may change what there is to wait for. False: there is something to do already; [`Engine::poll`] comes next, not the sleep.
    ///
    /// Bytes of earlier polls do not wake: read them first.
    pub fn arm(&mut self) -> Result<bool, LinkError> {
        self.flush()?;
        let (now, due) = (self.now(), self.node.due());
        if due.is_some_and(|due| due <= now) {
            return Ok(false);
        }
        self.slept()?.set(due, now)?;
        self.asleep = self.carrier.sleep();
        if !self.asleep {
            self.carrier.awake();
        }
        Ok(self.asleep)
    }
}

impl Engine<BrokerCarrier> {
    /// The descriptors that it has open: for who must not close them with others.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.carrier.descriptors();
        all.extend(self.sleep.iter().flat_map(|sleep| [sleep.epoll.0.as_raw_fd(), sleep.timer.as_fd().as_raw_fd()]));
        all
    }
}

fn failed(operation: &'static str) -> impl Fn(Errno) -> LinkError {
    move |errno| LinkError::System { operation, source: errno.into() }
}
