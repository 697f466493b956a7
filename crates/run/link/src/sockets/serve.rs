//! What carries the sockets of programs: one loop over the questions, the ends and the streams.

mod closers;
mod direct;
mod guests;
mod offers;
mod pairs;
mod sought;
mod stages;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use host::netlink::Netlink;
use ipnet::IpNet;
use model::link::LinkConnection;
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        resource::{Resource, getrlimit, setrlimit},
        socket::{
            Shutdown, SockProtocol, getsockopt, shutdown,
            sockopt::{AcceptConn, PeerCredentials},
        },
    },
};
use sys::{
    dispose::{Disposed, Disposer},
    fds::socket_cookie,
    socket_kind::{SocketKind, is_established_tcp, is_fresh_tcp, network_namespace},
};
use transport::{Handle, Reason};

use self::{
    direct::Direct,
    guests::{Counted, Guests, Sent, User, program},
    pairs::Pairs,
    sought::Sought,
    stages::{Keyed, Keys, Owners, Stages},
    wishes::{Connects, LOOK},
};
use super::{
    allow::Allow,
    ask::{Figures, Question, Reply},
    flow::{Flow, Next, PIECE},
    names::name,
    places::{Known, Listening, Places, local},
    questions::{LINE_MAX, listener, no_wait},
};
use crate::{Address, Claim, Either, Engine, LinkError, Paths, claim::Talk, ports::BROKER_PORTS};

/// The port of link that brokers take connections of programs on.
const PORT: u16 = 2;
/// Connections that wait to be accepted.
const WAITING: usize = 256;
/// Actively waited for before a wait sleeps.
const SPIN: Duration = Duration::from_micros(20);
const TURN: Duration = Duration::from_millis(20);
/// A program that does not wait is answered within this time; one that does, within that.
const IMPATIENT: Duration = Duration::from_millis(200);
const PATIENT: Duration = Duration::from_secs(10);
/// How often all are looked at, whether something happened or not.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// The number of the listener among what epoll reports; all others are above.
const QUESTIONS: u64 = 0;
/// The number of the engine.
const FRAMES: u64 = 1;
const EVENTS: usize = 64;
/// Names that are tried for an end.
const NAMES: u32 = 64;
/// Programs that are let in at once: those that come in a loop do not hold up connections.
const PROGRAMS: usize = 16;
/// How long a program that asks may say nothing.
const ASKED: Duration = Duration::from_secs(2);
/// Another node's broker says within this time which connection a stream is, and so many of a node's have not said it.
const NAMED: Duration = Duration::from_secs(5);
const NAMED_OF_NODE: usize = 1024;
/// A connection whose program is gone waits so long for the other end to close, as TCP's do (tcp_fin_timeout).
const ORPHAN: Duration = Duration::from_secs(60);
/// Broken connections that are remembered until their programs ask.
const BROKE_MAX: usize = 4096;

/// The carrier of the sockets of programs.
#[derive(Debug)]
pub struct Sockets {
    _claim: Claim,
    engine: Engine<Either>,
    epoll: Epoll,
    questions: Disposed,
    /// Releases programs that are not let in, with what they have sent.
    disposer: Arc<Disposer>,
    /// More programs wait to be let in.
    has_more: bool,
    guests: Guests,
    pairs: Pairs,
    /// Where the kernel says which socket has two addresses.
    diag: Netlink,
    /// The network namespace, as its sockets have it.
    namespace: u64,
    places: Places,
    sought: Sought,
    allowed: Vec<Allow>,
    listening: Listening,
    known: Known,
    all: Stages<Stage>,
    /// By the address that this broker connected from, who waits to be accepted.
    queued: BTreeMap<SocketAddr, u64>,
    /// Connections that broke, of late, by the cookies of their programs' ends.
    broke: VecDeque<(u64, Errno)>,
    /// Whose stream it is.
    streams: Owners<Handle>,
    /// By the cookies of both descriptors of a pair, whose they are.
    ends: Owners<u64>,
    /// Those that something happened to, and those that time happens to.
    busy: BTreeSet<u64>,
    wishes: BTreeSet<u64>,
    looked: Instant,
    drawn: u64,
    piece: Vec<u8>,
}

/// What a connection's two addresses are, and who is where.
#[derive(Debug, Clone)]
struct Who {
    local: SocketAddr,
    peer: SocketAddr,
    node: String,
    program: String,
}

/// How far something is.
#[derive(Debug)]
enum Stage {
    /// A program has come, and not asked yet.
    Asks { talk: Sent<Talk>, asks: Counted, since: Instant },
    /// It wants to be connected.
    Connects(Box<Connects>),
    /// Another node has a connection for us, and has not said which.
    Named { stream: Handle, node: Address, bytes: Vec<u8>, since: Instant },
    /// The listener of this node is connected to.
    Offered { stream: Handle, who: Who, tcp: OwnedFd, is_answered: bool },
    /// Another node's broker is to hear one line.
    Tells { stream: Handle, node: Address, line: Vec<u8> },
    /// It carries bytes. The TCP socket that was connected holds its port.
    Open { flow: Box<Flow>, who: Who, direct: Direct, holds: Option<Sent<OwnedFd>> },
    /// Its program carries the bytes. The descriptor that the program has, too, tells when nobody holds the end any more.
    Direct { end: OwnedFd, who: Who, direct: Direct, holds: Option<Sent<OwnedFd>> },
}

impl Keyed for Stage {
    fn keys(&self) -> Keys {
        let none = Keys::default();
        let names = |who: &Who| Some((who.local, who.peer));
        match self {
            Self::Asks { .. } => none,
            Self::Connects(wish) => Keys { port_to: wish.stream.as_ref().map(|stream| stream.node), ..none },
            Self::Named { node, .. } => Keys { unnamed: Some(*node), ..none },
            Self::Offered { who, .. } | Self::Direct { who, .. } => Keys { names: names(who), ..none },
            Self::Tells { node, .. } => Keys { port_to: Some(*node), tells: true, ..none },
            Self::Open { who, direct, .. } => Keys { names: names(who), port_to: direct.node(), ..none },
        }
    }
}

impl Sockets {
    /// Begins to carry the sockets of programs that connect to addresses of `prefixes`, which are behind the broker's interface. What `allowed` lets in
    /// comes to programs that listen here; empty: the ports of programs from all of those.
    ///
    /// # Errors
    /// No broker serves; a prefix is not behind its interface alone.
    pub fn start(
        prefixes: &[IpNet],
        allowed: &[Allow],
        known: Known,
        disposer: &Arc<Disposer>,
    ) -> Result<Self, LinkError> {
        let failed = |source| LinkError::System { operation: "serve the sockets of programs", source };
        let paths = Paths::here();
        // A connection has two descriptors here. With fewer there are fewer connections.
        let _ = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
        let (claim, mut engine) = Claim::take_plain()?;
        let places = Places::new(prefixes, engine.carrier().wire())?;
        claim.listen(PORT)?;
        engine.listen(PORT, true, WAITING)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| failed(e.into()))?;
        let questions = Disposed::new(listener(&paths.sockets()).map_err(failed)?, disposer);
        epoll
            .add(&questions, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, QUESTIONS))
            .map_err(|e| failed(e.into()))?;
        let frames = EpollEvent::new(EpollFlags::EPOLLIN, FRAMES);
        epoll.add(engine.descriptor()?, frames).map_err(|e| failed(e.into()))?;
        let lines: String = prefixes.iter().map(|prefix| format!("{prefix}\n")).collect();
        std::fs::write(paths.cluster(), lines).map_err(failed)?;
        let allowed_by_default = allowed.is_empty();
        let allowed: Vec<_> = match allowed {
            [] => prefixes.iter().copied().map(Allow::of).collect(),
            given => given.to_vec(),
        };
        {
            let mut shared = known.lock();
            (shared.is_carried, shared.allowed_by_default) = (true, allowed_by_default);
            shared.allowed = allowed.iter().map(ToString::to_string).collect();
        }
        Ok(Self {
            _claim: claim,
            engine,
            epoll,
            has_more: false,
            guests: Guests::new(),
            pairs: Pairs::start().map_err(failed)?,
            diag: Netlink::open(SockProtocol::NetlinkSockDiag).map_err(failed)?,
            namespace: network_namespace(&questions).map_err(failed)?,
            questions,
            disposer: Arc::clone(disposer),
            places,
            sought: Sought::default(),
            allowed,
            listening: Listening::read(paths.listening()),
            known,
            all: Stages::new(),
            queued: BTreeMap::new(),
            broke: VecDeque::new(),
            drawn: FRAMES,
            streams: Owners::new(),
            ends: Owners::new(),
            busy: BTreeSet::new(),
            wishes: BTreeSet::new(),
            looked: Instant::now(),
            piece: vec![0; PIECE],
        })
    }

    /// Carries until `stop` is set.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), LinkError> {
        let mut busy = Instant::now();
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut came = 0;
        while !stop.load(Ordering::Relaxed) {
            let arrived = self.engine.turn()?;
            for event in &events[..came] {
                self.on_event(event.data(), event.events());
            }
            while let Some(stream) = self.engine.accept(PORT) {
                self.on_stream(stream);
            }
            // The engine's descriptor stays readable until it is armed again.
            let others = events[..came].iter().any(|event| event.data() != FRAMES);
            let now = Instant::now();
            self.turn(now);
            let waits = !self.wishes.is_empty();
            if arrived > 0 || others || self.has_more {
                busy = now;
            } else if now.duration_since(busy) > SPIN && self.engine.arm()? {
                let most = if waits { LOOK } else { TURN };
                let time = EpollTimeout::try_from(most).unwrap_or(EpollTimeout::ZERO);
                came = self.epoll.wait(&mut events, time).unwrap_or(0);
                continue;
            }
            came = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        }
        Ok(())
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn watch(&self, fd: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(fd, EpollEvent::new(both, id))
    }

    /// Removes a descriptor from epoll. An entry ends with the file, and a program has the same file open.
    fn unwatch(&self, fd: impl AsFd) {
        // One that was not watched is none to forget.
        let _ = self.epoll.delete(fd);
    }

    fn on_event(&mut self, id: u64, what: EpollFlags) {
        if id == QUESTIONS {
            return self.on_programs();
        }
        match self.all.get_mut(id) {
            // Frames: the next turn takes them.
            None if id == FRAMES => {}
            Some(Stage::Asks { .. }) => self.on_question(id),
            Some(Stage::Offered { .. }) => drop(self.busy.insert(id)),
            Some(Stage::Open { flow, .. }) => {
                flow.is_readable |= what.intersects(!EpollFlags::EPOLLOUT);
                flow.is_writable |= what.intersects(!EpollFlags::EPOLLIN);
                if what.contains(EpollFlags::EPOLLHUP) {
                    flow.gone.get_or_insert_with(Instant::now);
                }
                self.busy.insert(id);
            }
            Some(Stage::Direct { .. }) => drop(self.busy.insert(id)),
            _ => {}
        }
    }

    /// Programs have come to ask. One user cannot hold up the others: so many are let in at once, so many of a user wait at the most, and none for long
    /// with nothing said.
    fn on_programs(&mut self) {
        self.has_more = false;
        for _ in 0..PROGRAMS {
            let Ok(fd) = sys::fds::accept(&self.questions) else { return };
            let uid = getsockopt(&fd, PeerCredentials).ok().map(|who| who.uid());
            let user = uid.and_then(|uid| self.guests.user(uid));
            let Some((asks, user)) = user.and_then(|user| Some((self.guests.asks(&user)?, user))) else {
                self.disposer.dispose(fd);
                continue;
            };
            let talk = Sent::new(Talk::new(fd), &user);
            let id = self.draw();
            if no_wait(&talk).is_ok() && self.watch(talk.as_fd(), id).is_ok() {
                self.all.insert(id, Stage::Asks { talk, asks, since: Instant::now() });
            }
        }
        self.has_more = true;
    }

    fn on_question(&mut self, id: u64) {
        let Some(Stage::Asks { talk, asks, since }) = self.all.remove(id) else { return };
        let (question, fds) = match talk.hear_stranger::<Question>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.all.insert(id, Stage::Asks { talk, asks, since });
                return;
            }
            Ok(heard) => heard,
            // Gone.
            Err(_) => return,
        };
        // It is closed later by its user's thread: its hang-up must not pass for one of the connection, which gets the same number.
        self.unwatch(&talk);
        let mut fds: Vec<_> = fds.into_iter().map(|fd| Sent::new(fd, talk.user())).collect();
        let Some(question) = question else { return };
        let count = if question == Question::Take { 2 } else { 1 };
        let shown = fds.pop().filter(|fd| fds.len() + 1 == count && self.is_meant(&question, fd));
        let Some(shown) = shown else {
            drop(fds);
            return talk.answer(Reply::Tcp);
        };
        let reply = match question {
            Question::Listens => {
                if let Some((at, _)) = local(&shown) {
                    // Without the file a broker that starts again does not know of it.
                    let _ = self.listening.add(&shown, at.port(), talk.user().uid);
                }
                Reply::Tcp
            }
            Question::Accepted => match self.on_accepted(&talk, &shown) {
                Some(()) => return,
                None => Reply::Tcp,
            },
            Question::Figures => self.figures(&shown).map_or(Reply::Tcp, Reply::Figures),
            Question::Ended => {
                let cookie = socket_cookie(&shown).ok();
                let broke = self.broke.iter().find(|(of, _)| Some(*of) == cookie);
                broke.map_or(Reply::Tcp, |&(_, error)| Reply::Broke(error as i32))
            }
            Question::Offer(_)
            | Question::IsOffered
            | Question::Take
            | Question::Delivered
            | Question::Moved
            | Question::Returned
            | Question::Did(_) => match self.on_direct(&talk, &shown, fds.pop(), &question) {
                Some(reply) => reply,
                None => return,
            },
            Question::Connect { to, is_patient } => {
                let asked = Instant::now();
                let until = asked + if is_patient { PATIENT } else { IMPATIENT };
                let (looked, stream, bytes) = (None, None, Vec::new());
                let wish = Connects { talk, _asks: asks, tcp: shown, to, asked, until, looked, stream, bytes };
                self.wishes.insert(id);
                self.all.insert(id, Stage::Connects(Box::new(wish)));
                return;
            }
        };
        drop((shown, fds));
        talk.answer(reply);
    }

    /// Is a descriptor of this network namespace, and what a question has to be about? Nothing of this waits, whatever it is.
    fn is_meant(&self, question: &Question, fd: &Sent<OwnedFd>) -> bool {
        let Ok(kind) = SocketKind::of(fd) else { return false };
        // A socket of another network namespace could have any address.
        if !network_namespace(fd).is_ok_and(|of| of == self.namespace) {
            return false;
        }
        match question {
            // Only Multipath TCP that nothing was done with yet does not say its state.
            Question::Connect { .. } => {
                kind.is_tcp() && is_fresh_tcp(fd).unwrap_or(kind.protocol == nix::libc::IPPROTO_MPTCP)
            }
            Question::Listens => kind.is_tcp() && getsockopt(fd, AcceptConn).unwrap_or(false),
            Question::Accepted => kind.is_tcp() && is_established_tcp(fd).unwrap_or(false),
            _ => kind.is_unix_stream(),
        }
    }

    fn figures(&self, end: &Sent<OwnedFd>) -> Option<Figures> {
        let id = self.ends.get(socket_cookie(end).ok()?)?;
        let (resent, round_trip) = match self.all.get(id)? {
            Stage::Open { flow, .. } => (self.engine.counts(flow.stream)?.resent, self.engine.round_trip(flow.stream)),
            Stage::Direct { direct, .. } => direct.figures(),
            _ => return None,
        };
        let round_trip = round_trip.unwrap_or_default();
        Some(Figures { resent, round_trip, frame_bytes: self.engine.carrier().wire().payload_max })
    }

    /// The two descriptors of a pair, of which the second, the program's, has these addresses as its name.
    fn pair(&mut self, (local, peer): (SocketAddr, SocketAddr)) -> Result<(OwnedFd, OwnedFd), Errno> {
        let (ours, theirs) = self.pairs.next()?;
        for _ in 0..NAMES {
            let number = self.draw();
            match name(&theirs, local, peer, number) {
                // Somebody else has that name.
                Err(Errno::EADDRINUSE) => {}
                done => return done.map(|()| (ours, theirs)),
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// A connection of a user is there, whose program has the other end of `flow.end`.
    fn open(
        &mut self,
        id: u64,
        user: &Arc<User>,
        who: Who,
        mut flow: Flow,
        theirs: &OwnedFd,
        holds: Option<Sent<OwnedFd>>,
    ) {
        let cookies = socket_cookie(theirs).and_then(|end| Ok([end, socket_cookie(&flow.end)?]));
        let (Ok(cookies), Ok(())) = (cookies, self.watch(flow.end.as_fd(), id)) else { return self.abort(flow.stream) };
        self.busy.insert(id);
        let direct = Direct::new(cookies, self.engine.peer_of(flow.stream), user.opens());
        cookies.into_iter().for_each(|cookie| self.ends.insert(cookie, id));
        user.waiting_bytes().into_iter().for_each(|budget| flow.share(&mut self.engine, budget));
        let flow = Box::new(flow);
        self.all.insert(id, Stage::Open { flow, who, direct, holds });
    }

    fn abort(&mut self, stream: Handle) {
        // Without the interface nobody can be told, which the next turn says.
        let _ = self.engine.abort(stream);
    }

    /// Appends what came of a first line; false: the connection has failed.
    fn read_line(&mut self, stream: Handle, bytes: &mut Vec<u8>) -> bool {
        let mut piece = [0; LINE_MAX];
        match self.engine.read_into(stream, &mut piece) {
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(_) => return false,
        }
        self.engine.state(stream).is_some()
    }

    fn on_stream(&mut self, stream: Handle) {
        // Programs of that node have other ports. What they say of addresses nobody has looked at.
        let is_of_broker = self.engine.peer_port_of(stream).is_some_and(|port| BROKER_PORTS.contains(&port));
        let Some(node) = self.engine.peer_of(stream).filter(|_| is_of_broker) else { return self.abort(stream) };
        // One node alone could have all connections that there are.
        if self.all.unnamed_of(node) >= NAMED_OF_NODE {
            return self.abort(stream);
        }
        let id = self.draw();
        self.streams.insert(stream, id);
        self.busy.insert(id);
        self.all.insert(id, Stage::Named { stream, node, bytes: Vec::new(), since: Instant::now() });
    }

    /// Does what can be done for those that something happened to, and for all once in a while.
    fn turn(&mut self, now: Instant) {
        while let Some(stream) = self.engine.news() {
            if let Some(id) = self.streams.get(stream) {
                self.busy.insert(id);
            }
        }
        self.guests.look(now);
        let looks = now.duration_since(self.looked) >= LOOKED_AT;
        if looks {
            self.looked = now;
            self.busy.extend(self.all.iter().map(|(id, _)| id));
        }
        if looks || self.has_more {
            self.on_programs();
        }
        self.busy.extend(self.wishes.iter().copied());
        for id in std::mem::take(&mut self.busy) {
            let Some(stage) = self.all.remove(id) else { continue };
            let after = match stage {
                Stage::Open { flow, who, direct, holds } => self.carry(flow, who, direct, holds, now),
                Stage::Direct { end, who, direct, holds } => self.watched(end, who, direct, holds),
                Stage::Tells { stream, node, line } => self.on_tells(stream, node, line),
                Stage::Connects(wish) => self.on_wish(id, wish, now),
                Stage::Named { stream, since, .. } if now.duration_since(since) > NAMED => {
                    self.abort(stream);
                    None
                }
                Stage::Named { stream, node, bytes, since } => self.on_head(id, stream, node, bytes, since),
                Stage::Offered { stream, who, tcp, is_answered } => self.on_offer(id, stream, who, tcp, is_answered),
                Stage::Asks { since, .. } if now.duration_since(since) > ASKED => None,
                asks @ Stage::Asks { .. } => Some(asks),
            };
            if !matches!(after, Some(Stage::Connects(_))) {
                self.wishes.remove(&id);
            }
            match after {
                Some(after) => self.all.insert(id, after),
                None => {
                    self.streams.forget(id);
                    self.ends.forget(id);
                }
            }
        }
        if self.known.is_asked() {
            self.show();
        }
    }

    /// Moves the bytes of a connection; what becomes of it.
    fn carry(
        &mut self,
        mut flow: Box<Flow>,
        who: Who,
        direct: Direct,
        holds: Option<Sent<OwnedFd>>,
        now: Instant,
    ) -> Option<Stage> {
        match flow.turn(&mut self.engine, &mut self.piece) {
            Ok(Next::More) if flow.gone.is_some_and(|at| now.duration_since(at) > ORPHAN) => {
                self.abort(flow.stream);
            }
            Ok(Next::More) if direct.has_lost_owner() => {
                self.abort(flow.stream);
                self.on_broken(direct.cookie(), &LinkError::Ended(Reason::Aborted));
                let _ = shutdown(flow.end.as_raw_fd(), Shutdown::Both);
            }
            Ok(Next::More) => return Some(Stage::Open { flow, who, direct, holds }),
            Ok(Next::Done) if flow.is_taken() => return Some(Stage::Direct { end: flow.end, who, direct, holds }),
            Ok(Next::Done) => {}
            Err(error) => {
                self.abort(flow.stream);
                self.on_broken(direct.cookie(), &error);
            }
        }
        self.unwatch(&flow.end);
        self.unowned(&direct);
        None
    }

    /// The program hears of it when it asks, once its end says that nothing follows.
    fn on_broken(&mut self, end: u64, error: &LinkError) {
        if self.broke.len() >= BROKE_MAX {
            self.broke.pop_front();
        }
        let error = match error {
            LinkError::Ended(Reason::TimedOut) => Errno::ETIMEDOUT,
            _ => Errno::ECONNRESET,
        };
        self.broke.push_back((end, error));
    }

    /// What `link status` shows.
    fn show(&self) {
        let one = |(id, stage): (u64, &Stage)| match stage {
            Stage::Open { flow, who, .. } => Some((id, self.shown(flow, who))),
            Stage::Direct { who, direct, .. } => Some((id, direct.shown(who))),
            _ => None,
        };
        self.known.tell(self.all.iter().filter_map(one).collect());
    }

    fn shown(&self, flow: &Flow, who: &Who) -> LinkConnection {
        let counts = self.engine.counts(flow.stream).unwrap_or_default();
        LinkConnection {
            program: who.program.clone(),
            local: who.local.to_string(),
            peer: who.peer.to_string(),
            node: who.node.clone(),
            carried: "the broker".to_owned(),
            sent_bytes: flow.sent,
            received_bytes: flow.received,
            resent: counts.resent,
            round_trip_ns: self.engine.round_trip(flow.stream).map(|time| time.as_nanos() as u64),
        }
    }
}
