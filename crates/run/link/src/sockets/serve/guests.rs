//! Users whose programs ask: what they have sent is closed off the loop, and counted.
//!
//! Threads, each for some users, close it in the order in which it came, and answer behind that. One whose close does not end is left to its user
//! ([`super::closers`]).

use std::{
    collections::HashMap,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use transport::Budget;

use super::closers::{Closer, LOOK_PERIOD, Pending, Queue};
use crate::{claim::Talk, sockets::ask::Reply};

/// A user of whom so many descriptors wait to be closed is not heard.
const CLOSING_MAX: usize = 256;
/// Programs of one user that may ask at once, and those of all users but root.
const ASKING_MAX: usize = 1024;
const ASKING_ALL: usize = 4096;
/// Threads that close; the first one is root's. A user may have tens of thousands of numbers (/etc/subuid).
const CLOSERS: usize = 16;
/// Users but root that are known at once.
const USERS_MAX: usize = 512;

/// Connections of one user but root, and of all together. The last ones are root's.
const OPEN_MAX: usize = 1024;
const ALL_MAX: usize = 16 * OPEN_MAX;
const KEPT_FOR_ROOT: usize = OPEN_MAX;

/// Bytes of one user but root that wait here, of which its own limits know nothing. Some 90 connections with frames of 1,500 bytes have all of their room
/// full at once; beyond, each still has 8 frames each way and 8 that the pair does not take: 1,024 connections have 100 MB of what would be 600 MB.
const WAITING_BYTES: usize = 64 << 20;

/// All users that have asked lately.
#[derive(Debug)]
pub(super) struct Guests {
    users: HashMap<u32, Arc<User>>,
    /// The sums of all users but root.
    others: Arc<Tally>,
    /// One for each class of users that has asked.
    closers: [Option<Closer>; CLOSERS],
    looked: Instant,
}

/// One user.
#[derive(Debug)]
pub(super) struct User {
    pub(super) uid: u32,
    queue: Queue,
    pending: Arc<Pending>,
    own: Tally,
    /// Its own and those of others; none: it is root.
    others: Option<Arc<Tally>>,
    /// Of the bytes that wait in its connections; none: it is root.
    bytes: Option<Arc<Budget>>,
}

/// Programs that ask, and connections.
#[derive(Debug, Default)]
struct Tally {
    asking: AtomicUsize,
    open: AtomicUsize,
}

/// A descriptor that a program of a user has sent, or the socket that it asks by.
#[derive(Debug)]
pub(super) struct Sent<T: Into<OwnedFd>> {
    what: Option<T>,
    user: Arc<User>,
}

/// What a user has of something.
#[derive(Debug)]
pub(super) struct Counted {
    user: Arc<User>,
    of: fn(&Tally) -> &AtomicUsize,
}

impl Guests {
    pub(super) fn new() -> Self {
        let (users, others) = (HashMap::new(), Arc::default());
        Self { users, others, closers: [const { None }; CLOSERS], looked: Instant::now() }
    }

    /// The user; none: there are too many, or no thread can be had.
    pub(super) fn user(&mut self, uid: u32) -> Option<Arc<User>> {
        if let Some(user) = self.users.get(&uid) {
            return Some(Arc::clone(user));
        }
        if uid != 0 && self.users.len() >= USERS_MAX {
            return None;
        }
        let place = if uid == 0 { 0 } else { 1 + uid as usize % (CLOSERS - 1) };
        let queue = match &mut self.closers[place] {
            Some(closer) => closer.queue(),
            none => none.insert(Closer::start()?).queue(),
        };
        let user = Arc::new(User {
            uid,
            queue,
            pending: Arc::default(),
            own: Tally::default(),
            others: (uid != 0).then(|| Arc::clone(&self.others)),
            bytes: (uid != 0).then(|| Budget::new(WAITING_BYTES)),
        });
        self.users.insert(uid, Arc::clone(&user));
        Some(user)
    }

    /// Counts a program of a user that asks; none: too many do already, or too much of them is not closed yet.
    pub(super) fn asks(&self, user: &Arc<User>) -> Option<Counted> {
        let has_room = user.pending.count() < CLOSING_MAX
            && user.own.asking.load(Relaxed) < ASKING_MAX
            && (user.uid == 0 || self.others.asking.load(Relaxed) < ASKING_ALL);
        has_room.then(|| user.count(|tally| &tally.asking))
    }

    /// Looks at the threads, and forgets users that have nothing here.
    pub(super) fn look(&mut self, now: Instant) {
        if now.duration_since(self.looked) < LOOK_PERIOD {
            return;
        }
        self.looked = now;
        self.closers.iter_mut().flatten().for_each(Closer::look);
        self.users.retain(|_, user| Arc::strong_count(user) > 1 || user.is_closing() || user.has_bytes());
    }

    /// Whether a user may have one more connection; if not, why.
    pub(super) fn may_open(&self, uid: u32) -> Result<(), String> {
        let open = |uid| self.users.get(&uid).map_or(0, |user| user.own.open.load(Relaxed));
        let (most, of_user) = match uid {
            0 => (ALL_MAX, 0),
            _ => (ALL_MAX - KEPT_FOR_ROOT, open(uid)),
        };
        if of_user >= OPEN_MAX {
            return Err(format!("user {uid} has {OPEN_MAX} connections over link, the most that one user may have"));
        }
        match open(0) + self.others.open.load(Relaxed) >= most {
            true => Err(format!("{most} connections are open over link, the most that this user may share")),
            false => Ok(()),
        }
    }
}

impl User {
    fn is_closing(&self) -> bool {
        self.pending.count() > 0
    }

    /// Connections have memory of it.
    fn has_bytes(&self) -> bool {
        self.bytes.as_ref().is_some_and(|bytes| Arc::strong_count(bytes) > 1)
    }

    /// Where the bytes count that wait in its connections; none: nowhere.
    pub(super) fn waiting_bytes(&self) -> Option<&Arc<Budget>> {
        self.bytes.as_ref()
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        [&self.own].into_iter().chain(self.others.as_deref())
    }

    /// Counts a connection.
    pub(super) fn opens(self: &Arc<Self>) -> Counted {
        self.count(|tally| &tally.open)
    }

    fn count(self: &Arc<Self>, of: fn(&Tally) -> &AtomicUsize) -> Counted {
        for tally in self.tallies() {
            of(tally).fetch_add(1, Relaxed);
        }
        Counted { user: Arc::clone(self), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for tally in self.user.tallies() {
            (self.of)(tally).fetch_sub(1, Relaxed);
        }
    }
}

impl<T: Into<OwnedFd>> Sent<T> {
    pub(super) fn new(what: T, user: &Arc<User>) -> Self {
        Self { what: Some(what), user: Arc::clone(user) }
    }

    pub(super) fn user(&self) -> &Arc<User> {
        &self.user
    }
}

impl Sent<Talk> {
    /// Answers once all that came from this user so far is closed: a program counts on a port being free when its own close has returned.
    pub(super) fn answer(mut self, reply: Reply) {
        if let Some(talk) = self.what.take() {
            // The program may have gone.
            self.user.queue.give(&self.user.pending, move || _ = talk.say(&reply, &[]));
        }
    }
}

impl<T: Into<OwnedFd>> Deref for Sent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Sent<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Into<OwnedFd>> Drop for Sent<T> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            let fd: OwnedFd = what.into();
            self.user.queue.give(&self.user.pending, move || drop(fd));
        }
    }
}

/// The name and the process of who asks.
pub(super) fn program(talk: &Talk) -> String {
    let pid = getsockopt(talk, PeerCredentials).map_or(0, |who| who.pid());
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", name.trim())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        sync::mpsc::channel,
        thread,
        time::Duration,
    };

    use nix::{
        libc::linger,
        sys::socket::{setsockopt, sockopt::Linger},
    };

    use super::*;

    /// A socket whose close waits for an hour.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        full.set_nonblocking(true).unwrap();
        while full.write(&[0; 1 << 16]).is_ok() {}
        setsockopt(&full, Linger, &linger { l_onoff: 1, l_linger: 3600 }).unwrap();
        (full.into(), other)
    }

    #[test]
    fn a_close_that_waits_is_ended_and_holds_up_no_other_user() {
        let mut guests = Guests::new();
        let (one, other) = (guests.user(1000).unwrap(), guests.user(1001).unwrap());
        let (fd, _peer) = lingering();
        drop(Sent::new(fd, &one));
        drop(Sent::new(OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()), &other));
        // The hour is not over.
        let begun = Instant::now();
        while one.is_closing() || other.is_closing() {
            assert!(begun.elapsed() < Duration::from_secs(600), "it waits");
            guests.look(Instant::now());
            thread::sleep(Duration::from_millis(1));
        }
        let counted = guests.asks(&one).unwrap();
        assert_eq!(one.own.asking.load(Relaxed), 1);
        drop((counted, one, other));
        wait_until(|| {
            guests.look(Instant::now());
            guests.users.is_empty()
        });
    }

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_user_has_so_many_connections_and_root_has_some_left() {
        let mut guests = Guests::new();
        let users: Vec<_> = (0..17).map(|uid| guests.user(uid).unwrap()).collect();
        let mut all: Vec<Vec<Counted>> = Vec::new();
        for user in &users[1..16] {
            all.push((0..OPEN_MAX).map_while(|_| guests.may_open(user.uid).ok().map(|()| user.opens())).collect());
            assert_eq!(all.last().unwrap().len(), OPEN_MAX);
            assert!(guests.may_open(user.uid).unwrap_err().contains(&format!("user {} has 1024", user.uid)));
        }
        // All that others may have are taken.
        assert!(guests.may_open(16).unwrap_err().contains("15360 connections are open"));
        let of_root: Vec<Counted> =
            (0..OPEN_MAX).map_while(|_| guests.may_open(0).ok().map(|()| users[0].opens())).collect();
        assert_eq!((of_root.len(), guests.may_open(0).is_err()), (OPEN_MAX, true));
        all.clear();
        assert_eq!(guests.may_open(16), Ok(()));
    }

    #[test]
    fn a_user_is_known_while_bytes_wait_for_it_and_root_has_no_bound() {
        let mut guests = Guests::new();
        let bytes = Arc::clone(guests.user(1000).unwrap().waiting_bytes().unwrap());
        let mut part = transport::Part::default();
        part.share(&bytes);
        drop(bytes);
        part.set(WAITING_BYTES);
        guests.look(Instant::now() + LOOK_PERIOD);
        let user = guests.user(1000).unwrap();
        assert_eq!(user.waiting_bytes().unwrap().bytes(), WAITING_BYTES);
        drop((user, part));
        guests.look(Instant::now() + 2 * LOOK_PERIOD);
        assert!(guests.users.is_empty());
        assert!(guests.user(0).unwrap().waiting_bytes().is_none());
    }

    #[test]
    fn a_user_whose_descriptors_are_not_closed_is_not_heard() {
        let mut guests = Guests::new();
        let user = guests.user(1000).unwrap();
        let (end, ended) = channel::<()>();
        user.queue.give(&user.pending, move || _ = ended.recv());
        for _ in 1..CLOSING_MAX {
            user.queue.give(&user.pending, || ());
        }
        assert!(guests.asks(&user).is_none());
        drop(end);
        wait_until(|| !user.is_closing());
        let all: Vec<Counted> = (0..ASKING_MAX).map_while(|_| guests.asks(&user)).collect();
        assert_eq!((all.len(), guests.asks(&user).is_none()), (ASKING_MAX, true));
    }

    #[test]
    fn many_users_have_few_threads_and_leave_room_for_root() {
        let mut guests = Guests::new();
        let users: Vec<_> = (100_000..110_000).map_while(|uid| guests.user(uid)).collect();
        assert_eq!(users.len(), USERS_MAX);
        assert_eq!(guests.closers.iter().flatten().count(), CLOSERS - 1);
        let asking: Vec<Counted> =
            users.iter().flat_map(|user| (0..10).map_while(|_| guests.asks(user)).collect::<Vec<_>>()).collect();
        assert_eq!(asking.len(), ASKING_ALL);
        let root = guests.user(0).unwrap();
        assert!(guests.asks(&root).is_some());
    }
}
