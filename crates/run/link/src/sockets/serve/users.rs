//! Users of programs: their quotas, and the close of descriptors they have sent, off the loop.
//!
//! Threads, each for some users, close descriptors in order of arrival, and send replies behind them. One whose close blocks is left to its user
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

use nix::sys::{
    resource::{Resource, getrlimit},
    socket::{getsockopt, sockopt::PeerCredentials},
};
use transport::Budget;

use super::closers::{Closer, LOOK_PERIOD, Pending, Queue};
use crate::{claim::MessageSocket, sockets::broker_client::Reply};

/// Unclosed descriptors of one user, beyond which its requests are refused: with those of one more message, of all users half of the limit of
/// descriptors that systemd sets.
const CLOSING_MAX: usize = 256;
/// Requests at once of one user, and of all users but root.
const REQUESTS_OF_USER_MAX: usize = 1024;
const REQUESTS_MAX: usize = 4096;
/// Closing threads; the first one is root's. One person may have tens of thousands of user ids (/etc/subuid).
const CLOSERS_MAX: usize = 16;
/// Users but root at once.
const USERS_MAX: usize = 512;

/// Connections of one user but root, of all users, and those of them that are kept for root.
const CONNECTIONS_OF_USER_MAX: usize = 1024;
const CONNECTIONS_MAX: usize = 16 * CONNECTIONS_OF_USER_MAX;
const CONNECTIONS_OF_ROOT: usize = CONNECTIONS_OF_USER_MAX;

/// Buffered bytes of one user but root, which its own limits do not count. Some 90 connections with frames of 1,500 bytes can fill all of their buffers
/// at once; beyond, each still has 8 frames each way and 8 that the pair does not take: 1,024 connections have 100 MB of what would be 600 MB.
const BUFFERED_OF_USER_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Users {
    users: HashMap<u32, Arc<User>>,
    /// Sums of all users but root.
    others: Arc<Tally>,
    /// Closing threads, each for a class of users.
    closers: [Option<Closer>; CLOSERS_MAX],
    /// Unclosed descriptors of all users but root, beyond which their requests are refused.
    closing_max: usize,
    checked: Instant,
}

#[derive(Debug)]
pub(super) struct User {
    pub(super) uid: u32,
    queue: Queue,
    pending: Arc<Pending>,
    own: Tally,
    /// Sums of all users but root; none: it is root.
    others: Option<Arc<Tally>>,
    /// Budget of its buffered bytes; none: it is root.
    bytes: Option<Arc<Budget>>,
}

/// Counts of requests and connections.
#[derive(Debug, Default)]
struct Tally {
    asking: AtomicUsize,
    open: AtomicUsize,
}

/// A descriptor received from a program, or its socket: closed off the loop.
#[derive(Debug)]
pub(super) struct Received<T: Into<OwnedFd>> {
    what: Option<T>,
    user: Arc<User>,
}

/// A request or connection counted for its user, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    user: Arc<User>,
    of: fn(&Tally) -> &AtomicUsize,
}

impl Users {
    pub(super) fn new() -> Self {
        let (users, others) = (HashMap::new(), Arc::default());
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(limit, _)| limit);
        let closing_max = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        Self { users, others, closers: [const { None }; CLOSERS_MAX], closing_max, checked: Instant::now() }
    }

    /// The user; none: there are too many, or no thread can be started.
    pub(super) fn user(&mut self, uid: u32) -> Option<Arc<User>> {
        if let Some(user) = self.users.get(&uid) {
            return Some(Arc::clone(user));
        }
        if uid != 0 && self.users.len() >= USERS_MAX {
            return None;
        }
        let place = if uid == 0 { 0 } else { 1 + uid as usize % (CLOSERS_MAX - 1) };
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
            bytes: (uid != 0).then(|| Budget::new(BUFFERED_OF_USER_BYTES_MAX)),
        });
        self.users.insert(uid, Arc::clone(&user));
        Some(user)
    }

    /// Counts a request of a user; none: too many requests, or too many unclosed descriptors.
    pub(super) fn asks(&self, user: &Arc<User>) -> Option<Counted> {
        let has_room = self.may_send(user)
            && user.own.asking.load(Relaxed) < REQUESTS_OF_USER_MAX
            && (user.uid == 0 || self.others.asking.load(Relaxed) < REQUESTS_MAX);
        has_room.then(|| user.count(|tally| &tally.asking))
    }

    /// True if descriptors of a user may be received: few of those received before are unclosed.
    pub(super) fn may_send(&self, user: &User) -> bool {
        let of_others =
            || self.users.values().filter(|user| user.uid != 0).map(|user| user.pending.count()).sum::<usize>();
        user.pending.count() < CLOSING_MAX && (user.uid == 0 || of_others() < self.closing_max)
    }

    /// Checks the threads, and removes users without requests and connections.
    pub(super) fn look(&mut self, now: Instant) {
        if now.duration_since(self.checked) < LOOK_PERIOD {
            return;
        }
        self.checked = now;
        self.closers.iter_mut().flatten().for_each(Closer::look);
        self.users.retain(|_, user| Arc::strong_count(user) > 1 || user.is_closing() || user.has_bytes());
    }

    /// True if a user may have one more connection; the error says why not.
    pub(super) fn may_open(&self, uid: u32) -> Result<(), String> {
        let open = |uid| self.users.get(&uid).map_or(0, |user| user.own.open.load(Relaxed));
        let (most, of_user) = match uid {
            0 => (CONNECTIONS_MAX, 0),
            _ => (CONNECTIONS_MAX - CONNECTIONS_OF_ROOT, open(uid)),
        };
        if of_user >= CONNECTIONS_OF_USER_MAX {
            return Err(format!(
                "user {uid} has {CONNECTIONS_OF_USER_MAX} connections over link, the most that one user may have"
            ));
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

    /// True if its budget is in use.
    fn has_bytes(&self) -> bool {
        self.bytes.as_ref().is_some_and(|bytes| Arc::strong_count(bytes) > 1)
    }

    /// Budget of the bytes buffered in its connections; none: unlimited.
    pub(super) fn waiting_bytes(&self) -> Option<&Arc<Budget>> {
        self.bytes.as_ref()
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        [&self.own].into_iter().chain(self.others.as_deref())
    }

    /// Counts a connection, from when it is offered to a listener or granted to a connect.
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

impl Counted {
    pub(super) fn user(&self) -> &Arc<User> {
        &self.user
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for tally in self.user.tallies() {
            (self.of)(tally).fetch_sub(1, Relaxed);
        }
    }
}

impl<T: Into<OwnedFd>> Received<T> {
    pub(super) fn new(what: T, user: &Arc<User>) -> Self {
        Self { what: Some(what), user: Arc::clone(user) }
    }

    pub(super) fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// The descriptor, which is closed elsewhere.
    pub(super) fn into_inner(mut self) -> T {
        self.what.take().expect("it is there until it is dropped")
    }
}

impl Received<MessageSocket> {
    /// Replies once all descriptors received from this user so far are closed: a program expects a port to be free when its close has returned.
    pub(super) fn answer(mut self, reply: Reply) {
        if let Some(socket) = self.what.take() {
            // The program may have gone.
            self.user.queue.give(&self.user.pending, move || _ = socket.send(&reply, &[]));
        }
    }
}

impl<T: Into<OwnedFd>> Deref for Received<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Received<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Into<OwnedFd>> Drop for Received<T> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            let fd: OwnedFd = what.into();
            self.user.queue.give(&self.user.pending, move || drop(fd));
        }
    }
}

/// Name and process id of the program that makes a request.
pub(super) fn program(socket: &MessageSocket) -> String {
    let pid = getsockopt(socket, PeerCredentials).map_or(0, |who| who.pid());
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

    /// A socket whose close blocks for an hour.
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
        let mut known = Users::new();
        let (one, other) = (known.user(1000).unwrap(), known.user(1001).unwrap());
        let (fd, _peer) = lingering();
        drop(Received::new(fd, &one));
        drop(Received::new(OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()), &other));
        // The hour is not over.
        let begun = Instant::now();
        while one.is_closing() || other.is_closing() {
            assert!(begun.elapsed() < Duration::from_secs(600), "it waits");
            known.look(Instant::now());
            thread::sleep(Duration::from_millis(1));
        }
        let counted = known.asks(&one).unwrap();
        assert_eq!(one.own.asking.load(Relaxed), 1);
        drop((counted, one, other));
        wait_until(|| {
            known.look(Instant::now());
            known.users.is_empty()
        });
    }

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_user_has_so_many_connections_and_root_has_some_left() {
        let mut known = Users::new();
        let users: Vec<_> = (0..17).map(|uid| known.user(uid).unwrap()).collect();
        let mut all: Vec<Vec<Counted>> = Vec::new();
        for user in &users[1..16] {
            all.push(
                (0..CONNECTIONS_OF_USER_MAX)
                    .map_while(|_| known.may_open(user.uid).ok().map(|()| user.opens()))
                    .collect(),
            );
            assert_eq!(all.last().unwrap().len(), CONNECTIONS_OF_USER_MAX);
            assert!(known.may_open(user.uid).unwrap_err().contains(&format!("user {} has 1024", user.uid)));
        }
        // All connections of others are in use.
        assert!(known.may_open(16).unwrap_err().contains("15360 connections are open"));
        let of_root: Vec<Counted> =
            (0..CONNECTIONS_OF_USER_MAX).map_while(|_| known.may_open(0).ok().map(|()| users[0].opens())).collect();
        assert_eq!((of_root.len(), known.may_open(0).is_err()), (CONNECTIONS_OF_USER_MAX, true));
        all.clear();
        assert_eq!(known.may_open(16), Ok(()));
    }

    #[test]
    fn a_user_is_known_while_bytes_wait_for_it_and_root_has_no_bound() {
        let mut known = Users::new();
        let bytes = Arc::clone(known.user(1000).unwrap().waiting_bytes().unwrap());
        let mut charge = transport::Charge::default();
        charge.charge_to(Some(&bytes));
        drop(bytes);
        charge.set(BUFFERED_OF_USER_BYTES_MAX);
        known.look(Instant::now() + LOOK_PERIOD);
        let user = known.user(1000).unwrap();
        assert_eq!(user.waiting_bytes().unwrap().bytes(), BUFFERED_OF_USER_BYTES_MAX);
        drop((user, charge));
        known.look(Instant::now() + 2 * LOOK_PERIOD);
        assert!(known.users.is_empty());
        assert!(known.user(0).unwrap().waiting_bytes().is_none());
    }

    #[test]
    fn a_user_with_too_many_unclosed_descriptors_is_refused() {
        let mut known = Users::new();
        let user = known.user(1000).unwrap();
        let (end, ended) = channel::<()>();
        user.queue.give(&user.pending, move || _ = ended.recv());
        for _ in 1..CLOSING_MAX {
            user.queue.give(&user.pending, || ());
        }
        assert!(known.asks(&user).is_none() && !known.may_send(&user));
        // A lower limit of descriptors leaves less to all others, but not to root.
        let [other, root] = [1001, 0].map(|uid| known.user(uid).unwrap());
        assert!(known.may_send(&other));
        known.closing_max = CLOSING_MAX;
        assert_eq!((known.may_send(&other), known.may_send(&root)), (false, true));
        drop(end);
        wait_until(|| !user.is_closing());
        let all: Vec<Counted> = (0..REQUESTS_OF_USER_MAX).map_while(|_| known.asks(&user)).collect();
        assert_eq!((all.len(), known.asks(&user).is_none()), (REQUESTS_OF_USER_MAX, true));
    }

    #[test]
    fn many_users_have_few_threads_and_leave_room_for_root() {
        let mut known = Users::new();
        let users: Vec<_> = (100_000..110_000).map_while(|uid| known.user(uid)).collect();
        assert_eq!(users.len(), USERS_MAX);
        assert_eq!(known.closers.iter().flatten().count(), CLOSERS_MAX - 1);
        let asking: Vec<Counted> =
            users.iter().flat_map(|user| (0..10).map_while(|_| known.asks(user)).collect::<Vec<_>>()).collect();
        assert_eq!(asking.len(), REQUESTS_MAX);
        let root = known.user(0).unwrap();
        assert!(known.asks(&root).is_some());
    }
}
