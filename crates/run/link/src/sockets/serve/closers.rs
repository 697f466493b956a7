//! Threads that close descriptors of programs, off the loop.
//!
//! close(2) of a descriptor that another program has made can wait for as long as that program likes: a TCP socket with SO_LINGER for its peer, a file of
//! a FUSE file system for its server. A wait for SO_LINGER is interrupted. FUSE flushes without interruption: the thread is left to the user whose
//! descriptor that is, and the other users of its queue get another thread.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use sys::interrupt::InterruptibleThread;

/// Time between two checks of the threads. A job that lasts longer is interrupted.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Checks in a row that find a slow job of one user, after which the thread is left to that user.
const STUCK_LOOKS: u32 = 4;

/// A close, or the reply behind it.
type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct Pending {
    /// Jobs that are not done.
    jobs: AtomicUsize,
    /// Jobs behind a stuck one, which the stuck thread runs.
    aside: Mutex<Option<VecDeque<Work>>>,
}

struct Job(Work, Arc<Pending>);

/// Sending end of a queue.
#[derive(Clone)]
pub(super) struct Queue(Sender<Job>);

/// The queue of some users, and its thread.
pub(super) struct Closer {
    queue: Queue,
    todo: Arc<Mutex<Receiver<Job>>>,
    worker: Arc<Worker>,
    /// Job at the last check, and its user.
    seen: u64,
    of: Option<Arc<Pending>>,
    /// Checks in a row at which a job of that user had run since the check before.
    stuck: u32,
    /// Threads left to one user each.
    alone: Vec<Arc<Worker>>,
}

#[derive(Default)]
struct Worker {
    state: Mutex<State>,
    thread: OnceLock<InterruptibleThread>,
}

#[derive(Default)]
struct State {
    /// Jobs started so far.
    begun: u64,
    /// User of the running job.
    user: Option<Arc<Pending>>,
    is_alone: bool,
    has_ended: bool,
}

/// Locks a mutex, none of whose holders panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    pub(super) fn count(&self) -> usize {
        self.jobs.load(Relaxed)
    }

    /// Returns the work if the user has no thread of its own.
    fn put_aside(&self, work: Work) -> Option<Work> {
        match &mut *lock(&self.aside) {
            Some(aside) => {
                aside.push_back(work);
                None
            }
            None => Some(work),
        }
    }

    /// The next job of a user with a thread of its own; none: that thread ends.
    fn next_aside(&self) -> Option<Work> {
        let mut aside = lock(&self.aside);
        let next = aside.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *aside = None;
        }
        next
    }
}

impl Queue {
    pub(super) fn give(&self, user: &Arc<Pending>, work: impl FnOnce() + Send + 'static) {
        user.jobs.fetch_add(1, Relaxed);
        // The thread outlives the queues.
        let _ = self.0.send(Job(Box::new(work), Arc::clone(user)));
    }
}

impl Closer {
    /// None: no thread can be started.
    pub(super) fn start() -> Option<Self> {
        let (jobs, todo) = channel();
        let todo = Arc::new(Mutex::new(todo));
        let worker = Worker::start(&todo)?;
        Some(Self { queue: Queue(jobs), todo, worker, seen: 0, of: None, stuck: 0, alone: Vec::new() })
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Threads left to one user each.
    #[cfg(test)]
    pub(super) fn alone(&self) -> usize {
        self.alone.len()
    }

    /// Interrupts a slow job, and leaves its thread to its user if that does not help.
    pub(super) fn look(&mut self) {
        self.alone.retain(|worker| {
            worker.interrupt();
            !lock(&worker.state).has_ended
        });
        let worker = Arc::clone(&self.worker);
        let mut state = lock(&worker.state);
        let is_stuck = state.user.is_some() && state.begun == self.seen;
        let is_same = matches!((&state.user, &self.of), (Some(now), Some(before)) if Arc::ptr_eq(now, before));
        (self.seen, self.of) = (state.begun, state.user.clone());
        // Many jobs that need an interruption each are as bad as one that ignores it.
        self.stuck = if is_same { self.stuck } else { 0 } + u32::from(is_stuck);
        if is_stuck {
            worker.interrupt();
        }
        if let (true, Some(user)) = (self.stuck >= STUCK_LOOKS, &state.user) {
            // Before the new thread starts, which must run no job of this user.
            *lock(&user.aside) = Some(VecDeque::new());
            match Worker::start(&self.todo) {
                Some(next) => {
                    state.is_alone = true;
                    self.alone.push(std::mem::replace(&mut self.worker, next));
                    (self.seen, self.stuck) = (0, 0);
                }
                // Tried again at the next check.
                None => *lock(&user.aside) = None,
            }
        }
    }
}

impl Worker {
    fn start(todo: &Arc<Mutex<Receiver<Job>>>) -> Option<Arc<Self>> {
        let (worker, todo) = (Arc::<Self>::default(), Arc::clone(todo));
        let of_thread = Arc::clone(&worker);
        thread::Builder::new().name("ek-close".into()).spawn(move || of_thread.run(&todo)).ok()?;
        Some(worker)
    }

    fn interrupt(&self) {
        if let Some(thread) = self.thread.get() {
            thread.interrupt();
        }
    }

    fn run(&self, todo: &Mutex<Receiver<Job>>) {
        if let Ok(thread) = InterruptibleThread::current() {
            let _ = self.thread.set(thread);
        }
        loop {
            // One thread at a time takes a job from a queue; the lock is free while it runs.
            let Ok(Job(work, user)) = lock(todo).recv() else { return };
            let Some(work) = user.put_aside(work) else { continue };
            {
                let mut state = lock(&self.state);
                state.begun += 1;
                state.user = Some(Arc::clone(&user));
            }
            work();
            user.jobs.fetch_sub(1, Relaxed);
            let is_alone = {
                let mut state = lock(&self.state);
                state.user = None;
                state.is_alone
            };
            if is_alone {
                while let Some(work) = user.next_aside() {
                    work();
                    user.jobs.fetch_sub(1, Relaxed);
                }
                lock(&self.state).has_ended = true;
                return;
            }
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({})", self.count())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").field("stuck", &self.stuck).field("alone", &self.alone.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{RecvTimeoutError, channel},
        time::Instant,
    };

    use super::*;

    fn look_until(closer: &mut Closer, mut is_so: impl FnMut(&Closer) -> bool) {
        let begun = Instant::now();
        while !is_so(closer) {
            assert!(begun.elapsed() < Duration::from_secs(600), "{closer:?}");
            closer.look();
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_job_that_nothing_ends_holds_up_its_own_user_alone() {
        let mut closer = Closer::start().unwrap();
        let queue = closer.queue();
        let (stuck, other) = (Arc::<Pending>::default(), Arc::<Pending>::default());
        let (end, ended) = channel::<()>();
        let (sender, receiver) = channel();
        let say = |what: &'static str| {
            let sender = sender.clone();
            move || _ = sender.send(what)
        };
        // Interruptions do not end it.
        queue.give(&stuck, move || _ = ended.recv());
        queue.give(&stuck, say("behind it"));
        queue.give(&other, say("of another user"));
        look_until(&mut closer, |_| other.count() == 0);
        queue.give(&stuck, say("last"));
        queue.give(&other, say("again"));
        look_until(&mut closer, |_| other.count() == 0);
        assert_eq!((receiver.recv(), receiver.recv()), (Ok("of another user"), Ok("again")));
        assert_eq!(receiver.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
        assert_eq!((closer.alone(), stuck.count()), (1, 3));
        drop(end);
        look_until(&mut closer, |closer| closer.alone() == 0 && stuck.count() == 0);
        assert_eq!((receiver.recv(), receiver.recv()), (Ok("behind it"), Ok("last")));
        // It is served as before.
        queue.give(&stuck, say("well again"));
        assert_eq!(receiver.recv(), Ok("well again"));
    }

    #[test]
    fn many_jobs_that_an_interruption_ends_hold_up_their_own_user_alone() {
        let mut closer = Closer::start().unwrap();
        let queue = closer.queue();
        let (slow, other) = (Arc::<Pending>::default(), Arc::<Pending>::default());
        for _ in 0..100 {
            queue.give(&slow, nix::unistd::pause);
        }
        queue.give(&other, || ());
        look_until(&mut closer, |_| other.count() == 0);
        assert!(slow.count() > 50, "{slow:?}");
        look_until(&mut closer, |_| slow.count() == 0);
    }
}
