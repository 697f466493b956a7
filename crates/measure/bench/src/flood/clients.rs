//! Clients: each comes from an address that nobody has seen, connects, asks, reads the answer and closes.
//!
//! They come at a steady rate, whatever became of those before, so that a service that hangs is not spared.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use lab::NamespaceHandle;
use model::flood::Clients;
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt, socket, sockopt},
    },
    time::{ClockId, clock_gettime},
};
use sys::affinity::{pin_current_thread, set_nice_of_current_thread};

use super::{
    addresses::Addresses,
    server::{ANSWER_BYTES, REQUEST},
};
use crate::{BenchError, histogram};

/// Before all other work of normal scheduling: how long the clients' own core makes them wait is not the host's delay.
const NICE_MIN: i32 = -20;
/// No longer than this without a look at the clock and at the stop flag.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
const EVENTS_MAX: usize = 256;

/// The clients' task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    pub(super) addresses: Addresses,
    pub(super) connects: u32,
    pub(super) per_s: f64,
    pub(super) patience: Duration,
    pub(super) cpu: u32,
}

/// Connects them all from inside of `net`.
pub(super) fn visit(net: &NamespaceHandle, visit: &Visit, stop: &AtomicBool) -> Result<Clients, BenchError> {
    net.run(|| {
        pin_current_thread(visit.cpu)?;
        set_nice_of_current_thread(NICE_MIN)?;
        let (begun, worked) = (Instant::now(), own_cpu_time()?);
        let mut clients = Connections::new()?.run(visit, stop)?;
        let worked = own_cpu_time()?.saturating_sub(worked);
        clients.cpu_percent = Some(100.0 * worked.as_secs_f64() / begun.elapsed().as_secs_f64());
        Ok::<_, io::Error>(clients)
    })?
    .map_err(|e| BenchError::Machine(format!("the clients cannot go on: {e}")))
}

/// The CPU time of the calling thread, with the receiving and sending on top of it.
fn own_cpu_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

struct Connection {
    stream: TcpStream,
    begun: Instant,
    connected: bool,
    read: usize,
}

struct Connections {
    epoll: Epoll,
    connections: HashMap<u64, Connection>,
    /// Connections under way and some that are done, the oldest first.
    order: VecDeque<(u64, Instant)>,
    result: Clients,
    connects_ns: Vec<u64>,
    answers_ns: Vec<u64>,
    last_answer: Option<Instant>,
}

impl Connections {
    fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            connections: HashMap::new(),
            order: VecDeque::new(),
            result: Clients::default(),
            connects_ns: Vec::new(),
            answers_ns: Vec::new(),
            last_answer: None,
        })
    }

    fn run(mut self, visit: &Visit, stop: &AtomicBool) -> io::Result<Clients> {
        let start = Instant::now();
        let due = |n: u32| start + Duration::from_secs_f64(f64::from(n) / visit.per_s);
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        while self.result.attempted < visit.connects || !self.connections.is_empty() {
            if stop.load(Ordering::Relaxed) {
                return Err(ErrorKind::Interrupted.into());
            }
            let mut now = Instant::now();
            while self.result.attempted < visit.connects && due(self.result.attempted) <= now {
                self.begin(visit)?;
                now = Instant::now();
            }
            self.give_up(now, visit.patience);
            let mut wake = now + POLL_TIMEOUT;
            if self.result.attempted < visit.connects {
                wake = wake.min(due(self.result.attempted));
            }
            if let Some((_, begun)) = self.order.front() {
                wake = wake.min(*begun + visit.patience);
            }
            let ms = wake.saturating_duration_since(now).as_micros().div_ceil(1000);
            let count = match self.epoll.wait(&mut events, EpollTimeout::from(ms as u8)) {
                Err(Errno::EINTR) => 0,
                other => other?,
            };
            for event in &events[..count] {
                self.serve(event.data(), visit.patience);
            }
        }
        // Those who wait in vain at the end do not make the others slower.
        let planned = Duration::from_secs_f64(f64::from(visit.connects) / visit.per_s);
        let last = self.last_answer.map_or(planned, |at| at.duration_since(start));
        self.result.seconds = last.max(planned).as_secs_f64();
        self.result.connect = histogram::of_values(&self.connects_ns);
        self.result.answer = histogram::of_values(&self.answers_ns);
        Ok(self.result)
    }

    fn begin(&mut self, visit: &Visit) -> io::Result<()> {
        let number = self.result.attempted;
        self.result.attempted += 1;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let server = visit.addresses.server;
        let family = if server.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let fd = socket(family, SockType::Stream, flags, None)?;
        let own = SocketAddr::new(visit.addresses.client(number), 0);
        bind(fd.as_raw_fd(), &SockaddrStorage::from(own))?;
        let key = u64::from(number);
        self.epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLOUT, key))?;
        let begun = Instant::now();
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(server)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(Errno::ECONNREFUSED) => {
                self.result.refused += 1;
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        }
        self.connections.insert(key, Connection { stream: TcpStream::from(fd), begun, connected: false, read: 0 });
        self.order.push_back((key, begun));
        Ok(())
    }

    /// Goes on with a connection that has something to say.
    fn serve(&mut self, key: u64, patience: Duration) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let passed = connection.begun.elapsed();
        let went = if passed > patience {
            // Too late, also if the clock was not looked at meanwhile.
            Ok(true)
        } else if connection.connected {
            read_answer(connection).inspect(|&done| {
                if done {
                    self.result.completed += 1;
                    self.answers_ns.push(passed.as_nanos() as u64);
                    self.last_answer = Some(connection.begun + passed);
                }
            })
        } else {
            ask(connection, &self.epoll, key).map(|()| {
                self.result.connected += 1;
                self.connects_ns.push(passed.as_nanos() as u64);
                false
            })
        };
        match went {
            Ok(false) => {}
            Ok(true) => drop(self.connections.remove(&key)),
            Err(_) => {
                self.result.refused += 1;
                self.connections.remove(&key);
            }
        }
    }

    /// Ends what took too long.
    fn give_up(&mut self, now: Instant, patience: Duration) {
        while let Some(&(key, begun)) = self.order.front() {
            if self.connections.contains_key(&key) {
                if now.duration_since(begun) <= patience {
                    return;
                }
                self.connections.remove(&key);
            }
            self.order.pop_front();
        }
    }
}

/// Connected, or refused: the first is followed by the request.
fn ask(connection: &mut Connection, epoll: &Epoll, key: u64) -> io::Result<()> {
    match getsockopt(&connection.stream, sockopt::SocketError)? {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    connection.connected = true;
    let mut event = EpollEvent::new(EpollFlags::EPOLLIN, key);
    epoll.modify(&connection.stream, &mut event)?;
    // An empty send buffer takes it whole.
    connection.stream.write_all(REQUEST)
}

/// True if the answer is whole.
fn read_answer(connection: &mut Connection) -> io::Result<bool> {
    let mut bytes = [0; ANSWER_BYTES];
    match connection.stream.read(&mut bytes) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(n) => {
            connection.read += n;
            Ok(connection.read >= ANSWER_BYTES)
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}
