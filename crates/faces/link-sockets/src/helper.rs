//! A thread of this library's own, for what no call of the program is there to do: acknowledgements while it computes, what a child or a call that is
//! not known writes into a pair, connections that come over from the broker.

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
    helper_mode::{Mode, kick_fd, set_mode},
    real::real,
    reentry,
    state::{State, lock},
    table::{self, What},
};

/// While calls of the program come within this time, they take what comes themselves.
const TICK: Duration = Duration::from_millis(1);
/// What the program has not read after this time is passed into the pair, where calls that are not known find it.
const STALE: Duration = Duration::from_millis(1);
/// The same while calls that are known go on: what they have not come to yet is theirs.
const BUSY_STALE: Duration = Duration::from_millis(5);
/// A call that has slept for so long needs nobody beside it.
const LONG: Duration = Duration::from_millis(20);
const STACK_BYTES: usize = 256 << 10;

/// Starts it. It gets none of the program's signals.
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
    let mut turns = 0;
    loop {
        let (descriptors, time) = {
            let mut state = lock();
            let Some(looked) = look(&mut state, &mut turns) else { return };
            looked
        };
        sleep(descriptors, time);
    }
}

/// Does what there is to do; the descriptors to wait for, and how long. None: the process carries nothing any more.
fn look(state: &mut State, turns: &mut u64) -> Option<([c_int; 3], Option<Duration>)> {
    let now = Instant::now();
    let (is_watched, since) = (state.watchers > 0, state.since);
    let is_called = std::mem::replace(turns, state.turns) != state.turns;
    let direct = state.direct()?;
    direct.on_pairs();
    direct.join_all();
    let is_mine = !is_watched && (!is_called || direct.is_waited_for());
    if is_mine {
        direct.turn(None);
    }
    direct.pass_stale(now, if is_called { BUSY_STALE } else { STALE });
    direct.tell_all(now);
    let gone: Vec<_> = direct.gone().collect();
    if !gone.is_empty() {
        let mut fds = Vec::new();
        table::each_carried(|fd, id| fds.extend(gone.contains(&id).then_some(fd)));
        fds.into_iter().for_each(|fd| table::set(fd, What::Other));
    }
    let due = direct.due();
    let pairs = direct.pairs().as_raw_fd();
    let engine = direct.descriptor().map_or(-1, |fd| fd.as_raw_fd());
    let (mode, engine, time) = if is_mine {
        match direct.arm() {
            Ok(true) => (Mode::Watch, engine, due),
            // There is something already, or nothing will come any more.
            _ => (Mode::Tick, -1, Some(TICK / 10)),
        }
    } else if is_watched && since.is_some_and(|since| now.duration_since(since) > LONG) {
        (Mode::Deep, -1, due)
    } else {
        (Mode::Tick, -1, Some(TICK))
    };
    set_mode(mode);
    Some(([kick_fd(), pairs, engine], time))
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
