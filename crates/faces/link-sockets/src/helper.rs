//! The helper: a thread of this library, for work that no call of the program does: acknowledgements while the program computes, bytes that a child or
//! an unknown call writes into a pair, takeovers that are under way.

use std::{
    ffi::c_int,
    io,
    os::fd::AsRawFd,
    ptr,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use libc::{POLLIN, SIG_SETMASK, pollfd, timespec};

use crate::{
    helper_mode::{Mode, set_mode, wake_fd},
    real::real,
    reentry,
    state::{State, lock},
    table::{self, Descriptor},
};

/// Time within which calls of the program poll the receive ring themselves.
const POLL_PERIOD: Duration = Duration::from_millis(1);
/// Time after which unread bytes are passed into the pair, where calls find them that this library does not see.
const UNREAD_TIMEOUT: Duration = Duration::from_millis(1);
/// That timeout while calls go on that this library sees.
const UNREAD_BUSY_TIMEOUT: Duration = Duration::from_millis(5);
/// Time of a call's sleep after which the helper leaves the frames to it.
const CALL_SLEEP_TIMEOUT: Duration = Duration::from_millis(20);
const STACK_BYTES: usize = 256 << 10;

/// Starts the thread, with all signals blocked.
pub(crate) fn start() -> io::Result<JoinHandle<()>> {
    // SAFETY: all zeros are a set; the calls write sets, and the old one is put back.
    unsafe {
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(SIG_SETMASK, &raw const all, &raw mut old);
        let started = thread::Builder::new().name("evenkeel-link".to_owned()).stack_size(STACK_BYTES).spawn(run);
        libc::pthread_sigmask(SIG_SETMASK, &raw const old, ptr::null_mut());
        started
    }
}

fn run() {
    reentry::enter();
    let mut polls = 0;
    loop {
        let (descriptors, time) = {
            let mut state = lock();
            let Some(waits) = work(&mut state, &mut polls) else { return };
            waits
        };
        sleep(descriptors, time);
    }
}

/// Does what is due; returns the descriptors and the time to wait for. None: the process carries nothing any more.
fn work(state: &mut State, polls: &mut u64) -> Option<([c_int; 3], Option<Duration>)> {
    let now = Instant::now();
    let (has_waiter, since) = (state.frame_waiters > 0, state.waiting_since);
    let has_polled = std::mem::replace(polls, state.polls) != state.polls;
    let takeovers = state.takeovers()?;
    takeovers.on_pairs();
    takeovers.join_all();
    let polls_here = !has_waiter && (!has_polled || takeovers.is_waited_for());
    if polls_here {
        takeovers.poll(None);
    }
    takeovers.pass_stale(now, if has_polled { UNREAD_BUSY_TIMEOUT } else { UNREAD_TIMEOUT });
    takeovers.report_all(now);
    let gone: Vec<_> = takeovers.gone().collect();
    if !gone.is_empty() {
        let mut fds = Vec::new();
        table::each_registered(|fd, id| fds.extend(gone.contains(&id).then_some(fd)));
        fds.into_iter().for_each(|fd| table::set(fd, Descriptor::Other));
    }
    let due = takeovers.due();
    let pairs = takeovers.pairs().as_raw_fd();
    let engine = takeovers.descriptor().map_or(-1, |fd| fd.as_raw_fd());
    let (mode, engine, time) = if polls_here {
        match takeovers.arm() {
            Ok(true) => (Mode::Frames, engine, due),
            // There is something already, or nothing will come any more.
            _ => (Mode::Periodic, -1, Some(POLL_PERIOD / 10)),
        }
    } else if has_waiter && since.is_some_and(|since| now.duration_since(since) > CALL_SLEEP_TIMEOUT) {
        (Mode::Idle, -1, due)
    } else {
        (Mode::Periodic, -1, Some(POLL_PERIOD))
    };
    set_mode(mode);
    Some(([wake_fd(), pairs, engine], time))
}

fn sleep(descriptors: [c_int; 3], time: Option<Duration>) {
    let mut polls = descriptors.map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
    let time = time.map(|time| timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the array and the time are alive; the eight bytes are read from the eventfd that is ready.
    unsafe {
        (real().ppoll)(polls.as_mut_ptr(), polls.len() as libc::nfds_t, time, ptr::null());
        if polls[0].revents != 0 {
            let mut count = 0_u64;
            (real().read)(descriptors[0], (&raw mut count).cast(), 8);
        }
    }
}
