//! The connections that this program carries itself, behind one lock.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ffi::c_int,
    mem::ManuallyDrop,
    os::fd::AsRawFd,
    process, ptr,
    sync::{
        Mutex, MutexGuard, Once, OnceLock, PoisonError,
        atomic::{AtomicI32, AtomicU8, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use libc::{EFD_CLOEXEC, EFD_NONBLOCK, EINTR, POLLIN, SA_RESTART, SIG_DFL, SIG_IGN, pollfd, timespec};
use link::sockets::direct::{Direct, Id};

use crate::{
    helper,
    real::{Errno, real},
    table::{self, What},
};

/// A connection is taken over from the broker when so many calls have come for it: those that ask once and end are not worth it.
const AFTER: u32 = 16;
/// The number of calls, instead of [`AFTER`]; 0: the broker carries all.
const AFTER_NAME: &str = "EVENKEEL_LINK_AFTER";
/// A call that waits looks for so long before it sleeps, where that has paid: what going to sleep and waking up costs.
const SPIN: Duration = Duration::from_micros(20);
/// The time in microseconds, instead of [`SPIN`].
const SPIN_NAME: &str = "EVENKEEL_LINK_SPIN";
/// Looks between two looks at the clock.
const SPINS: u32 = 4;
/// A program that accepted a connection asks at every power of two of this, and at every so many calls, whether the other one offers it.
const ASKS: u32 = 1024;

/// So often a call takes what comes meanwhile before it lets others sleep.
const ARMS: u32 = 16;

/// So many calls do what they do before one takes what came, and has acknowledgements leave.
const BEHIND: u32 = 8;

/// What the helper's thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// It has not been started.
    None,
    /// A time, as calls of the program take what comes.
    Tick,
    /// Frames.
    Watch,
    /// To be told: a call has slept for long, and waits for frames itself.
    Deep,
}

/// The mode of the helper's thread. It changes under the lock.
static MODE: AtomicU8 = AtomicU8::new(Mode::None as u8);
/// What wakes that thread.
static KICK: AtomicI32 = AtomicI32::new(-1);

static STATE: Mutex<State> = Mutex::new(State {
    direct: None,
    is_refused: false,
    helper: None,
    descriptors: BTreeMap::new(),
    watchers: 0,
    since: None,
    turns: 0,
    behind: 0,
    spins: Spins::NEW,
    has_turned: false,
    pid: 0,
});

thread_local! {
    /// This thread holds the lock, or is the helper: a call that comes meanwhile, out of a signal's handler or from the library itself, is the kernel's.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// The lock, while this thread forks. Nothing is to be dropped, so that it can be asked at the very end of a thread, too.
    static FORKS: Cell<Option<ManuallyDrop<MutexGuard<'static, State>>>> = const { Cell::new(None) };
}

pub(crate) struct State {
    direct: Option<Direct>,
    /// There was no broker to ask, or it said no.
    is_refused: bool,
    /// The thread of [`helper`].
    helper: Option<JoinHandle<()>>,
    /// The descriptors of each connection.
    descriptors: BTreeMap<Id, Vec<c_int>>,
    /// Calls that sleep until a frame comes.
    pub(crate) watchers: u32,
    /// When the first of them went to sleep.
    pub(crate) since: Option<Instant>,
    /// Calls of the program that took what came.
    pub(crate) turns: u64,
    /// Calls since then that did not.
    behind: u32,
    /// A call that found nothing lately looked on for a while, and something came.
    spins: Spins,
    /// Frames were taken since they were last made to wake who sleeps.
    has_turned: bool,
    /// The process that has it: a child of vfork(2) sees the memory of its parent.
    pid: u32,
}

/// Whether calls that wait look for a while before they sleep: as long as that has paid lately.
#[derive(Debug, Clone, Copy)]
struct Spins {
    /// So many have not paid since the last that did.
    vain: u32,
    /// Sleeps to come before the next one is tried.
    rest: u32,
}

impl Spins {
    const NEW: Self = Self { vain: 0, rest: 0 };
    /// Sleeps between two tries at the most.
    const REST: u32 = 256;

    /// May the next one look for a while?
    fn may(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    fn paid(&mut self, did: bool) {
        self.vain = if did { 0 } else { (self.vain + 1).min(16) };
        self.rest = if did { 0 } else { (1 << self.vain).min(Self::REST) };
    }
}

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

/// The lock, held by a call of the program.
pub(crate) struct Locked {
    guard: Option<MutexGuard<'static, State>>,
}

impl Locked {
    /// None: this thread holds it already, and the kernel's call is right.
    pub(crate) fn take() -> Option<Self> {
        if BUSY.replace(true) {
            return None;
        }
        Some(Self { guard: Some(lock()) })
    }

    fn state(&mut self) -> &mut State {
        self.guard.get_or_insert_with(lock)
    }

    /// The connections; none: there are none in this process.
    pub(crate) fn direct(&mut self) -> Option<&mut Direct> {
        self.state().direct.as_mut()
    }

    /// Nobody else sleeps until a frame comes.
    pub(crate) fn is_first(&mut self) -> bool {
        self.state().watchers == 0
    }

    /// Counts a call that has not taken what came; true: it is time to.
    pub(crate) fn is_behind(&mut self) -> bool {
        let state = self.state();
        state.behind += 1;
        state.behind >= BEHIND
    }

    /// Takes what came, for all but one connection.
    pub(crate) fn turn(&mut self, but: Option<Id>) {
        self.state().turn(but);
    }

    /// A descriptor is one of a connection.
    pub(crate) fn know(&mut self, fd: c_int, id: Id) {
        let fds = self.state().descriptors.entry(id).or_default();
        if !fds.contains(&fd) {
            fds.push(fd);
        }
    }

    /// A descriptor is none of a connection any more.
    pub(crate) fn unknow(&mut self, fd: c_int, id: Id) {
        let all = &mut self.state().descriptors;
        if let Some(fds) = all.get_mut(&id) {
            fds.retain(|&other| other != fd);
            if fds.is_empty() {
                all.remove(&id);
            }
        }
    }

    /// Calls `each` with a descriptor of each connection that has something to read, and whether that is new. Those for which it is true are passed into
    /// their pairs.
    pub(crate) fn tidings(&mut self, mut each: impl FnMut(c_int, bool) -> bool) {
        let State { direct: Some(direct), descriptors, .. } = self.state() else { return };
        direct.tidings(|id, is_fresh| {
            let mut passes = false;
            for &fd in descriptors.get(&id).map_or(&[][..], Vec::as_slice) {
                passes |= each(fd, is_fresh);
            }
            passes
        });
    }

    /// Is this process the one that has it, and not a child that sees its memory for a while?
    pub(crate) fn is_own(&mut self) -> bool {
        let pid = self.state().pid;
        pid == 0 || pid == process::id()
    }

    /// Forgets all that is carried here: another process does. Nothing of it is undone.
    pub(crate) fn forget(&mut self) {
        self.state().forget();
    }

    /// Has this process what it takes to carry connections?
    pub(crate) fn has_begun(&self) -> bool {
        self.guard.as_ref().is_some_and(|state| state.direct.is_some() && state.pid == process::id())
    }

    /// Ends all that this process carries connections with, its sockets among it; [`may_begin`] allows it again. If it `goes_on` in another process,
    /// nothing of it is undone.
    pub(crate) fn end(mut self, goes_on: bool) {
        let state = self.state();
        let Some(direct) = state.direct.take() else { return };
        state.is_refused = true;
        let mut carried = Vec::new();
        table::each_carried(|fd, _| carried.push(fd));
        carried.into_iter().for_each(|fd| table::set(fd, What::Other));
        let (kick, helper) = (KICK.swap(-1, Relaxed), state.helper.take());
        set_mode(Mode::None);
        state.descriptors.clear();
        (state.watchers, state.since, state.pid) = (0, None, 0);
        drop(self);
        let _errno = Errno::keep();
        // SAFETY: a write of eight bytes that are there; the descriptor is the helper's.
        unsafe { (real().write)(kick, ptr::from_ref(&1_u64).cast(), 8) };
        // It sleeps on these descriptors, and finds that there is nothing to do.
        let _ = helper.map(JoinHandle::join);
        // SAFETY: it is this library's own, and nobody uses it any more.
        unsafe { (real().close)(kick) };
        if goes_on {
            for fd in direct.descriptors() {
                // SAFETY: as above; they are forgotten below.
                unsafe { (real().close)(fd) };
            }
            std::mem::forget(direct);
        }
    }

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
                BUSY.set(true);
                self.guard = Some(lock());
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
        BUSY.set(true);
        let state = self.guard.insert(lock());
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

    /// Lets others have it. A call that sleeps is woken by frames only as long as nobody took any since it went to sleep.
    fn unlock(&mut self) {
        let Some(mut state) = self.guard.take() else { return };
        // Without the interface there is no end to that.
        for _ in 0..ARMS {
            if state.watchers == 0 || !state.has_turned || state.arm() {
                break;
            }
            state.turn(None);
        }
        drop(state);
        BUSY.set(false);
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The helper waits for frames, and may have set its clock for later than what this call did wants.
        if mode() == Mode::Watch {
            wake_helper();
        }
        self.unlock();
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

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process may carry connections, after [`Locked::end`].
pub(crate) fn may_begin() {
    if let Some(mut locked) = Locked::take() {
        locked.state().is_refused = false;
    }
}

/// Marks this thread as one whose calls are all the kernel's.
pub(crate) fn stay_out() {
    BUSY.set(true);
}

/// Is this call one of the library itself?
pub(crate) fn is_busy() -> bool {
    BUSY.get()
}

pub(crate) fn mode() -> Mode {
    match MODE.load(Relaxed) {
        1 => Mode::Tick,
        2 => Mode::Watch,
        3 => Mode::Deep,
        _ => Mode::None,
    }
}

pub(crate) fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Relaxed);
}

pub(crate) fn kick_fd() -> c_int {
    KICK.load(Relaxed)
}

/// Has the helper's thread look at everything, and wait for a time only.
pub(crate) fn wake_helper() {
    if mode() != Mode::None {
        set_mode(Mode::Tick);
        let _errno = Errno::keep();
        // SAFETY: a write of eight bytes that are there; the descriptor is the helper's.
        unsafe { (real().write)(kick_fd(), ptr::from_ref(&1_u64).cast(), 8) };
    }
}

impl State {
    pub(crate) fn direct(&mut self) -> Option<&mut Direct> {
        self.direct.as_mut()
    }

    fn turn(&mut self, but: Option<Id>) {
        if let Some(direct) = &mut self.direct {
            direct.turn(but);
            (self.turns, self.behind, self.has_turned) = (self.turns + 1, 0, true);
        }
    }

    /// Has frames wake who sleeps; false: there is something to do already.
    fn arm(&mut self) -> bool {
        let is_armed = self.direct.as_mut().is_none_or(|direct| matches!(direct.arm(), Ok(true)));
        self.has_turned &= !is_armed;
        is_armed
    }

    /// Makes the connections of this process ready to be carried here; none: they are not.
    fn start(&mut self) -> Option<&mut Direct> {
        if self.direct.is_none() && !self.is_refused {
            self.is_refused = true;
            let direct = Direct::start().ok()?;
            // SAFETY: it takes two numbers, and gives a descriptor that nobody else has.
            let kick = unsafe { libc::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
            if kick < 0 {
                return None;
            }
            KICK.store(kick, Relaxed);
            set_mode(Mode::Tick);
            self.helper = Some(helper::start().ok()?);
            at_forks();
            (self.direct, self.is_refused, self.pid) = (Some(direct), false, process::id());
        }
        self.direct.as_mut()
    }

    fn forget(&mut self) {
        let mut carried = Vec::new();
        table::each_carried(|fd, _| carried.push(fd));
        carried.into_iter().for_each(|fd| table::set(fd, What::Other));
        // Of a thread that this process has not there is nothing to give back.
        std::mem::forget(self.helper.take());
        let Some(direct) = self.direct.take() else { return };
        let kick = KICK.swap(-1, Relaxed);
        for fd in direct.descriptors().into_iter().chain([kick]) {
            // SAFETY: they are this library's own, and forgotten below.
            unsafe { (real().close)(fd) };
        }
        std::mem::forget(direct);
        set_mode(Mode::None);
        self.descriptors.clear();
        (self.watchers, self.since, self.pid) = (0, None, 0);
    }
}

/// The connection of a descriptor, if it is carried here. Counts a call, and takes the connection over from the broker when it is time.
#[inline]
pub(crate) fn carried(fd: c_int) -> Option<Id> {
    match table::get(fd) {
        What::Other => None,
        What::Carried(id) => Some(id),
        What::Brokered { is_accepted, calls } => {
            counted(fd, is_accepted, calls.saturating_add(1));
            None
        }
    }
}

/// Calls after which a connection is taken over; none: never.
fn after() -> Option<u32> {
    static AFTER_CALLS: OnceLock<u32> = OnceLock::new();
    let after = *AFTER_CALLS.get_or_init(|| {
        // What the kernel lets a sandboxed program call is not known: asking could end it.
        // SAFETY: it takes no pointer.
        if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } > 0 {
            return 0;
        }
        std::env::var(AFTER_NAME).ok().and_then(|text| text.parse().ok()).unwrap_or(AFTER)
    });
    (after > 0).then_some(after)
}

/// How long a call that waits looks before it sleeps.
fn spin_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| {
        let micros = std::env::var(SPIN_NAME).ok().and_then(|text| text.parse().ok());
        micros.map_or(SPIN, Duration::from_micros)
    })
}

fn counted(fd: c_int, is_accepted: bool, calls: u32) {
    let Some(after) = after() else { return table::set(fd, What::Other) };
    table::set(fd, What::Brokered { is_accepted, calls });
    let is_time = match is_accepted {
        false => calls == after,
        true => calls >= after && (calls.is_power_of_two() || calls.is_multiple_of(ASKS)),
    };
    if !is_time {
        return;
    }
    let _errno = Errno::keep();
    let Some(mut locked) = Locked::take() else { return };
    let has_room = has_room_for_descriptors(&mut locked);
    let Some(direct) = locked.state().start().filter(|_| has_room) else { return table::set(fd, What::Other) };
    let id = if is_accepted { direct.seek(fd) } else { direct.offer(fd) };
    if let Some(id) = id {
        table::set(fd, What::Carried(id));
        locked.know(fd, id);
        wake_helper();
    }
}

/// Each connection that is carried here has a descriptor more: they take at most a quarter of those that the program may have.
fn has_room_for_descriptors(locked: &mut Locked) -> bool {
    // SAFETY: all zeros are limits; the call writes them.
    let most = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return false;
        }
        limit.rlim_cur / 4
    };
    locked.direct().is_none_or(|direct| (direct.descriptors().len() as u64) < most)
}

/// Has fork(2) leave the connections to the parent: the child has ends of pairs, which the parent's helper serves.
fn at_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are this library's, and stay.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    });
}

extern "C" fn before_fork() {
    if !BUSY.replace(true) {
        FORKS.set(Some(ManuallyDrop::new(lock())));
    }
}

extern "C" fn after_fork() {
    if let Some(held) = FORKS.take() {
        drop(ManuallyDrop::into_inner(held));
        BUSY.set(false);
    }
}

extern "C" fn in_child() {
    if let Some(held) = FORKS.take() {
        let mut state = ManuallyDrop::into_inner(held);
        state.forget();
        drop(state);
        BUSY.set(false);
    }
}
