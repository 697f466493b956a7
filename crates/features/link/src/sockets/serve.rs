//! What carries the sockets of programs: one loop over the questions, the ends and the streams.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use model::link::LinkConnection;
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{
            AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt, socket, socketpair,
            sockopt::{PeerCredentials, SocketError},
        },
    },
};
use transport::{Handle, Reason, State};
use wire::Mac;

use super::{
    ask::{Figures, Question, Reply},
    flow::{Flow, Next, PIECE},
    names::{name, names},
    places::{Known, Listening, Places, as_of, canonical, local, peer},
    questions::{Head, LINE_MAX, Taken, line, listener, no_wait, take_line},
};
use crate::{Claim, Engine, LinkError, Paths, Raw, claim::Talk};

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
/// How often the kernel's neighbours are looked at while an address is looked for, and how long.
const LOOK: Duration = Duration::from_millis(1);
const LOOKED: Duration = Duration::from_millis(100);
/// How old the figures of `link status` are at the most.
const SHOWN: Duration = Duration::from_millis(100);
/// The number of the listener among what epoll reports; all others are above.
const QUESTIONS: u64 = 0;
/// The number of the engine.
const FRAMES: u64 = 1;
const EVENTS: usize = 64;
/// Broken connections that are remembered until their programs ask.
const BROKE_MAX: usize = 4096;

/// The carrier of the sockets of programs.
#[derive(Debug)]
pub struct Sockets {
    _claim: Claim,
    engine: Engine<Raw>,
    epoll: Epoll,
    questions: OwnedFd,
    places: Places,
    listening: Listening,
    known: Known,
    all: HashMap<u64, Stage>,
    /// By the address that this broker connected from, who waits to be accepted.
    queued: BTreeMap<SocketAddr, u64>,
    /// Connections that broke, of late, by the addresses that their ends have.
    broke: VecDeque<((SocketAddr, SocketAddr), Errno)>,
    drawn: u64,
    shown: Instant,
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
    Asks(Talk),
    /// It wants to be connected.
    Connects(Box<Connects>),
    /// Another node has a connection for us, and has not said which.
    Named { stream: Handle, node: Mac, bytes: Vec<u8> },
    /// The listener of this node is connected to.
    Offered { stream: Handle, who: Who, tcp: OwnedFd, is_answered: bool },
    /// It carries bytes. The TCP socket that was connected holds its port.
    Open { flow: Box<Flow>, who: Who, _holds: Option<OwnedFd> },
}

/// A program's wish to be connected.
#[derive(Debug)]
struct Connects {
    talk: Talk,
    tcp: OwnedFd,
    to: SocketAddr,
    asked: Instant,
    until: Instant,
    looked: Option<Instant>,
    /// The stream, the node, and whether the first line has been said.
    stream: Option<(Handle, String, bool)>,
    /// The answer so far, and what follows it.
    bytes: Vec<u8>,
}

/// What becomes of such a wish.
enum Wish {
    Waits,
    ByTcp(String),
    Granted,
}

impl Sockets {
    /// Begins to carry the sockets of programs that connect to addresses of `prefixes`, which are behind the broker's interface.
    ///
    /// # Errors
    /// No broker serves; a prefix is not behind its interface alone.
    pub fn start(prefixes: &[IpNet], known: Known) -> Result<Self, LinkError> {
        let failed = |source| LinkError::System { operation: "serve the sockets of programs", source };
        let paths = Paths::here();
        let (claim, mut engine) = Claim::take()?;
        let places = Places::new(prefixes, engine.carrier().wire())?;
        claim.listen(PORT)?;
        engine.listen(PORT, true, WAITING)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| failed(e.into()))?;
        let questions = listener(&paths.sockets()).map_err(failed)?;
        epoll.add(&questions, EpollEvent::new(EpollFlags::EPOLLIN, QUESTIONS)).map_err(|e| failed(e.into()))?;
        let frames = EpollEvent::new(EpollFlags::EPOLLIN, FRAMES);
        epoll.add(engine.descriptor()?, frames).map_err(|e| failed(e.into()))?;
        let lines: String = prefixes.iter().map(|prefix| format!("{prefix}\n")).collect();
        std::fs::write(paths.cluster(), lines).map_err(failed)?;
        Ok(Self {
            _claim: claim,
            engine,
            epoll,
            questions,
            places,
            listening: Listening::read(paths.listening()),
            known,
            all: HashMap::new(),
            queued: BTreeMap::new(),
            broke: VecDeque::new(),
            drawn: FRAMES,
            shown: Instant::now(),
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
            let waits = self.turn(now);
            if arrived > 0 || others {
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

    fn on_event(&mut self, id: u64, what: EpollFlags) {
        if id == QUESTIONS {
            while let Ok(fd) = sys::fds::accept(&self.questions) {
                let id = self.draw();
                if no_wait(&fd).is_ok() && self.watch(fd.as_fd(), id).is_ok() {
                    self.all.insert(id, Stage::Asks(Talk::new(fd)));
                }
            }
            return;
        }
        match self.all.get_mut(&id) {
            // Frames: the next turn takes them.
            None if id == FRAMES => {}
            Some(Stage::Asks(_)) => self.on_question(id),
            Some(Stage::Open { flow, .. }) => {
                flow.is_readable |= what.intersects(!EpollFlags::EPOLLOUT);
                flow.is_writable |= what.intersects(!EpollFlags::EPOLLIN);
            }
            _ => {}
        }
    }

    fn on_question(&mut self, id: u64) {
        let Some(Stage::Asks(talk)) = self.all.remove(&id) else { return };
        let (question, mut fds) = match talk.hear::<Question>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.all.insert(id, Stage::Asks(talk));
                return;
            }
            Ok(Some(heard)) => heard,
            // Gone, or none of ours.
            _ => return,
        };
        let Some(tcp) = fds.pop() else { return };
        match question {
            Question::Listens => {
                if let Some((at, _)) = local(&tcp) {
                    // Without the file a broker that starts again does not know of it.
                    let _ = self.listening.add(&tcp, at.port());
                }
                let _ = talk.say(&Reply::Tcp, &[]);
            }
            Question::Accepted => {
                if self.on_accepted(&talk, &tcp).is_none() {
                    let _ = talk.say(&Reply::Tcp, &[]);
                }
            }
            Question::Figures => {
                let reply = self.figures(&tcp).map_or(Reply::Tcp, Reply::Figures);
                let _ = talk.say(&reply, &[]);
            }
            Question::Ended => {
                let broke = names(&tcp).and_then(|ends| self.broke.iter().find(|(of, _)| *of == ends));
                let _ = talk.say(&broke.map_or(Reply::Tcp, |&(_, error)| Reply::Broke(error as i32)), &[]);
            }
            Question::Connect { to, is_patient } => {
                let asked = Instant::now();
                let until = asked + if is_patient { PATIENT } else { IMPATIENT };
                let wish = Connects { talk, tcp, to, asked, until, looked: None, stream: None, bytes: Vec::new() };
                self.all.insert(id, Stage::Connects(Box::new(wish)));
            }
        }
    }

    /// A connection that this broker made was accepted by a program, whose end it gets; none: it is not of this broker.
    fn on_accepted(&mut self, talk: &Talk, tcp: &OwnedFd) -> Option<()> {
        let (from, is_v6) = peer(tcp)?;
        let id = *self.queued.get(&from)?;
        let Some(Stage::Offered { who, .. }) = self.all.get(&id) else { return None };
        if local(tcp)?.0 != who.local {
            return None;
        }
        let names = (as_of(is_v6, who.local), as_of(is_v6, who.peer));
        let (ours, theirs) = self.pair(names).ok()?;
        talk.say(&Reply::End, &[theirs.as_raw_fd()]).ok()?;
        self.queued.remove(&from);
        if let Some(Stage::Offered { stream, mut who, .. }) = self.all.remove(&id) {
            who.program = program(talk);
            self.open(id, who, Flow::new(stream, ours, names, Vec::new()), None);
        }
        Some(())
    }

    fn figures(&self, end: &OwnedFd) -> Option<Figures> {
        let (local, peer) = names(end)?;
        let is_meant = |who: &Who| who.local == canonical(local) && who.peer == canonical(peer);
        let stream = self.all.values().find_map(|stage| match stage {
            Stage::Open { flow, who, .. } if is_meant(who) => Some(flow.stream),
            _ => None,
        })?;
        Some(Figures {
            resent: self.engine.counts(stream)?.resent,
            round_trip: self.engine.round_trip(stream).unwrap_or_default(),
            frame_bytes: self.engine.carrier().wire().payload_max,
        })
    }

    fn pair(&mut self, (local, peer): (SocketAddr, SocketAddr)) -> Result<(OwnedFd, OwnedFd), Errno> {
        let number = self.draw();
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        name(&theirs, local, peer, number)?;
        Ok((ours, theirs))
    }

    fn open(&mut self, id: u64, who: Who, flow: Flow, holds: Option<OwnedFd>) {
        // Of the same addresses an earlier one may have broken.
        self.broke.retain(|(names, _)| *names != flow.names);
        if self.watch(flow.end.as_fd(), id).is_err() {
            return self.abort(flow.stream);
        }
        let flow = Box::new(flow);
        self.all.insert(id, Stage::Open { flow, who, _holds: holds });
        self.shown = Instant::now() - SHOWN;
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
        let node = self.engine.peer_of(stream);
        let id = self.draw();
        if let Some(node) = node {
            self.all.insert(id, Stage::Named { stream, node, bytes: Vec::new() });
        }
    }

    /// Does what can be done for each; true: something has to be looked at again within a millisecond.
    fn turn(&mut self, now: Instant) -> bool {
        let mut waits = false;
        let ids: Vec<u64> = self.all.keys().copied().collect();
        for id in ids {
            let Some(stage) = self.all.remove(&id) else { continue };
            let after = match stage {
                Stage::Open { mut flow, who, _holds } => match flow.turn(&mut self.engine, &mut self.piece) {
                    Ok(Next::More) => Some(Stage::Open { flow, who, _holds }),
                    Ok(Next::Done) => None,
                    Err(error) => {
                        self.abort(flow.stream);
                        self.on_broken(&flow, &error);
                        None
                    }
                },
                Stage::Connects(wish) => {
                    waits = true;
                    self.on_wish(id, wish, now)
                }
                Stage::Named { stream, node, bytes } => self.on_head(stream, node, bytes),
                Stage::Offered { stream, who, tcp, is_answered } => self.on_offer(id, stream, who, tcp, is_answered),
                asks @ Stage::Asks(_) => Some(asks),
            };
            if let Some(after) = after {
                self.all.insert(id, after);
            }
        }
        if now.duration_since(self.shown) >= SHOWN {
            self.shown = now;
            self.show();
        }
        waits
    }

    /// The program hears of it when it asks, once its end says that nothing follows.
    fn on_broken(&mut self, flow: &Flow, error: &LinkError) {
        if self.broke.len() >= BROKE_MAX {
            self.broke.pop_front();
        }
        let error = match error {
            LinkError::Ended(Reason::TimedOut) => Errno::ETIMEDOUT,
            _ => Errno::ECONNRESET,
        };
        self.broke.push_back((flow.names, error));
    }

    fn on_wish(&mut self, id: u64, mut wish: Box<Connects>, now: Instant) -> Option<Stage> {
        let granted = match self.advance(id, &mut wish, now) {
            Wish::Waits if now < wish.until => return Some(Stage::Connects(wish)),
            Wish::Waits => Wish::ByTcp(format!("no answer within {} ms", now.duration_since(wish.asked).as_millis())),
            other => other,
        };
        if let Wish::ByTcp(why) = granted {
            if let Some((stream, ..)) = wish.stream {
                self.abort(stream);
            }
            self.known.lock().went_by_tcp(wish.to, &why);
            // It may have gone.
            let _ = wish.talk.say(&Reply::Tcp, &[]);
            return None;
        }
        self.all.remove(&id)
    }

    /// One step of a wish; where it is granted the connection stands among all.
    fn advance(&mut self, id: u64, wish: &mut Connects, now: Instant) -> Wish {
        let Some((stream, node, has_said)) = &mut wish.stream else { return self.find(wish, now) };
        let stream = *stream;
        match self.engine.state(stream) {
            Some(State::Opening) => return Wish::Waits,
            Some(State::Failed(Reason::Refused)) => {
                return Wish::ByTcp(format!("{node} serves no cluster: start its broker with --cluster"));
            }
            Some(State::Failed(reason)) => return Wish::ByTcp(format!("{node}: {reason}")),
            None => return Wish::ByTcp(format!("{node} ended the connection")),
            Some(_) => {}
        }
        let node = node.clone();
        if !*has_said {
            *has_said = true;
            let Some(from) = self.bound(wish) else { return Wish::ByTcp("no port of this node is free".to_owned()) };
            // The first bytes of a stream always find room.
            let _ = self.engine.write(stream, &line(&Head { from, to: wish.to }));
            return Wish::Waits;
        }
        if !self.read_line(stream, &mut wish.bytes) {
            return Wish::ByTcp(format!("{node} ended the connection"));
        }
        let Some(answer) = take_line(&mut wish.bytes) else {
            return match self.engine.is_at_end(stream) || wish.bytes.len() >= LINE_MAX {
                true => Wish::ByTcp(format!("{node} answers something else; is it of another version?")),
                false => Wish::Waits,
            };
        };
        match serde_json::from_slice(&answer) {
            Ok(Taken::Yes) => self.grant(id, wish, stream, node).unwrap_or_else(|| Wish::ByTcp("no memory".to_owned())),
            Ok(Taken::No(why)) => Wish::ByTcp(why),
            Err(_) => Wish::ByTcp(format!("{node} answers something else; is it of another version?")),
        }
    }

    /// Looks for the node, and offers it a stream.
    fn find(&mut self, wish: &mut Connects, now: Instant) -> Wish {
        match wish.looked {
            Some(last) if now.duration_since(last) < LOOK => return Wish::Waits,
            _ => wish.looked = Some(now),
        }
        let to = wish.to.ip();
        if self.places.own(to) == Some(to) {
            return Wish::ByTcp("it is this node".to_owned());
        }
        let Some(node) = self.places.find(to) else {
            self.places.provoke(to);
            return match now.duration_since(wish.asked) > LOOKED {
                true => Wish::ByTcp(format!("{to} does not answer on this Ethernet")),
                false => Wish::Waits,
            };
        };
        let Some(name) = self.known.lock().nodes.get(&node).cloned() else {
            return Wish::ByTcp(format!("{to} is at {node}, which is no node of link"));
        };
        match self.engine.connect(node, PORT, true) {
            Ok(stream) => {
                wish.stream = Some((stream, name, false));
                Wish::Waits
            }
            Err(error) => Wish::ByTcp(error.to_string()),
        }
    }

    /// The address that a wish's socket has, bound to a free port if it was not yet.
    fn bound(&self, wish: &Connects) -> Option<SocketAddr> {
        let own = self.places.own(wish.to.ip())?;
        let (mut at, is_v6) = local(&wish.tcp)?;
        if at.port() == 0 {
            let any = as_of(is_v6, SocketAddr::new(own, 0));
            bind(wish.tcp.as_raw_fd(), &SockaddrStorage::from(any)).ok()?;
            at = local(&wish.tcp)?.0;
        }
        Some(SocketAddr::new(if at.ip().is_unspecified() { own } else { at.ip() }, at.port()))
    }

    fn grant(&mut self, id: u64, wish: &mut Connects, stream: Handle, node: String) -> Option<Wish> {
        let from = self.bound(wish)?;
        let is_v6 = local(&wish.tcp)?.1;
        let names = (as_of(is_v6, from), as_of(is_v6, wish.to));
        let (ours, theirs) = self.pair(names).ok()?;
        let who = Who { local: from, peer: wish.to, node, program: program(&wish.talk) };
        let holds = wish.tcp.try_clone().ok();
        self.open(id, who, Flow::new(stream, ours, names, std::mem::take(&mut wish.bytes)), holds);
        if wish.talk.say(&Reply::End, &[theirs.as_raw_fd()]).is_err() {
            // It has gone: its end is closed here, which ends the connection.
            drop(theirs);
        }
        Some(Wish::Granted)
    }

    /// The first line of a stream: which listener it is for.
    fn on_head(&mut self, stream: Handle, node: Mac, mut bytes: Vec<u8>) -> Option<Stage> {
        if !self.read_line(stream, &mut bytes) {
            return None;
        }
        let Some(head) = take_line(&mut bytes) else {
            if bytes.len() < LINE_MAX && !self.engine.is_at_end(stream) {
                return Some(Stage::Named { stream, node, bytes });
            }
            self.abort(stream);
            return None;
        };
        let offered = serde_json::from_slice::<Head>(&head).map_err(|_| "the first line is none".to_owned());
        let name = self.known.lock().nodes.get(&node).cloned().unwrap_or_else(|| node.to_string());
        match offered.and_then(|Head { from, to }| self.offer(to).map(|tcp| (from, to, tcp))) {
            Ok((from, to, tcp)) => {
                let who = Who { local: to, peer: from, node: name, program: String::new() };
                Some(Stage::Offered { stream, who, tcp, is_answered: false })
            }
            Err(why) => {
                let _ = self.engine.write(stream, &line(&Taken::No(why)));
                let _ = self.engine.close(stream);
                None
            }
        }
    }

    /// Connects to the listener, as a client of TCP.
    fn offer(&mut self, to: SocketAddr) -> Result<OwnedFd, String> {
        if self.places.own(to.ip()) != Some(to.ip()) {
            return Err(format!("{to} is not of that node"));
        }
        if !self.listening.has(to.port()) {
            return Err(format!("no program with link listens on port {} there", to.port()));
        }
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let refused = |error: Errno| format!("{to} refuses: {error}");
        let tcp = socket(family, SockType::Stream, flags, None).map_err(refused)?;
        bind(tcp.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to.ip(), 0))).map_err(refused)?;
        match connect(tcp.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(tcp),
            Err(error) => Err(refused(error)),
        }
    }

    /// Says that it waits for accept(2) once it does, and looks whether both ends are there still.
    fn on_offer(&mut self, id: u64, stream: Handle, who: Who, tcp: OwnedFd, is_answered: bool) -> Option<Stage> {
        let from = local(&tcp).map(|(from, _)| from)?;
        let failed = getsockopt(&tcp, SocketError).ok().filter(|&error| error != 0);
        let is_there = matches!(self.engine.state(stream), Some(State::Opening | State::Open));
        if let (Some(error), false) = (failed, is_answered) {
            let _ = self.engine.write(stream, &line(&Taken::No(format!("{}", Errno::from_raw(error)))));
            let _ = self.engine.close(stream);
            return None;
        }
        if failed.is_some() || !is_there {
            self.queued.remove(&from);
            self.abort(stream);
            return None;
        }
        let is_connected = peer(&tcp).is_some();
        if is_connected && !is_answered {
            self.queued.insert(from, id);
            let _ = self.engine.write(stream, &line(&Taken::Yes));
        }
        Some(Stage::Offered { stream, who, tcp, is_answered: is_answered || is_connected })
    }

    /// What `link status` shows.
    fn show(&self) {
        let one = |(&id, stage): (&u64, &Stage)| match stage {
            Stage::Open { flow, who, .. } => Some((id, self.shown(flow, who))),
            _ => None,
        };
        self.known.lock().connections = self.all.iter().filter_map(one).collect();
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

/// The name and the process of who asks.
fn program(talk: &Talk) -> String {
    let pid = getsockopt(talk, PeerCredentials).map_or(0, |who| who.pid());
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", name.trim())
}
