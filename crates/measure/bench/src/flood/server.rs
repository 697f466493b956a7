//! The service: reads a request, answers it, and closes when the client does.

use std::{
    collections::HashMap,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use lab::NamespaceHandle;
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{
            AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
        },
    },
};
use sys::affinity::pin_current_thread;

use crate::BenchError;

pub(super) const REQUEST: &[u8; 64] = b"GET /keel HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nX: .......\r\n\r\n";
/// The length of the answer.
pub(super) const ANSWER_BYTES: usize = 256;
/// Connections that wait to be accepted, and half-open ones; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;
const THREAD_COUNT: usize = 2;
/// The time between two looks at the stop flag, in milliseconds.
const POLL_TIMEOUT_MS: u8 = 50;
const EVENTS_MAX: usize = 64;
const LISTENER_TOKEN: u64 = u64::MAX;

/// The service, until it is dropped.
pub(super) struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Listens inside `host`, and serves from the cores `cpus`.
    pub(super) fn start(host: &NamespaceHandle, at: SocketAddr, cpus: &[u32]) -> Result<Self, BenchError> {
        let failed = |error: io::Error| BenchError::Machine(format!("the server cannot listen: {error}"));
        let listener = Arc::new(host.run(|| listener(at))?.map_err(failed)?);
        let mut server = Self { stop: Arc::default(), threads: Vec::new() };
        for (n, cpu) in (0..THREAD_COUNT).zip(cpus.iter().cycle()) {
            let (stop, listener, cpu) = (Arc::clone(&server.stop), Arc::clone(&listener), *cpu);
            let work = move || {
                pin_current_thread(cpu)?;
                serve(&listener, &stop)
            };
            let thread = thread::Builder::new().name(format!("ek-serve-{n}")).spawn(work).map_err(failed)?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    pub(super) fn stop(mut self) -> Result<(), BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|_| BenchError::Panicked("server"))?;
            ended.map_err(|e| BenchError::Machine(format!("the server cannot go on: {e}")))?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Whoever drops it has another error to tell.
            let _ = thread.join();
        }
    }
}

fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let family = if at.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(TcpListener::from(fd))
}

fn serve(listener: &TcpListener, stop: &AtomicBool) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    // Of several threads one wakes.
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, LISTENER_TOKEN))?;
    let mut connections: HashMap<u64, (TcpStream, usize)> = HashMap::new();
    let mut next = 0;
    let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
    while !stop.load(Ordering::Relaxed) {
        let count = match epoll.wait(&mut events, EpollTimeout::from(POLL_TIMEOUT_MS)) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..count] {
            let key = event.data();
            if key != LISTENER_TOKEN {
                let Some((stream, read)) = connections.get_mut(&key) else { continue };
                if !answer(stream, read) {
                    connections.remove(&key);
                }
                continue;
            }
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(true)?;
                        epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, next))?;
                        connections.insert(next, (stream, 0));
                        next += 1;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // It was reset while it waited.
                    Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(())
}

/// Reads, and answers a whole request; whether the client is still there.
fn answer(stream: &mut TcpStream, read: &mut usize) -> bool {
    let mut bytes = [0; REQUEST.len()];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(n) => {
            *read += n;
            // An empty send buffer takes it whole.
            *read != REQUEST.len() || stream.write_all(&[b'k'; ANSWER_BYTES]).is_ok()
        }
        Err(e) => e.kind() == ErrorKind::WouldBlock,
    }
}
