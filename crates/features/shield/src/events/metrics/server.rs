//! Metrics over HTTP on 127.0.0.1. One thread serves all connections as they become ready: who says nothing, or reads nothing, holds up
//! nobody, and beyond [`CONNECTIONS`] the one that has been there the longest goes.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Metrics, Notation};
use crate::events::EventError;

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// A connection ends after so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A longer request is refused.
const HEAD_MAX: usize = 8192;
/// After a failure to accept a connection: out of descriptors, most likely.
const PAUSE: Duration = Duration::from_millis(50);
/// Names of this machine's loopback address. Pages of elsewhere come with other names (DNS rebinding).
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Answers GET /metrics on 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    metrics: Arc<Mutex<Metrics>>,
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on `port`; 0 lets the kernel choose one.
    ///
    /// # Errors
    /// [`EventError::MetricsPort`].
    pub fn start(port: u16) -> Result<Self, EventError> {
        let failed = |source| EventError::MetricsPort { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let metrics = Arc::new(Mutex::new(Metrics::default()));
        let shared = Arc::clone(&metrics);
        let serve = move || Server { listener, stopped, connections: Vec::new(), metrics: shared }.serve();
        let thread = thread::Builder::new().name("shield-metrics".into()).spawn(serve).map_err(failed)?;
        Ok(Self { metrics, address, stop: Some(stop), thread: Some(thread) })
    }

    /// What is answered from now on.
    pub fn set(&self, metrics: Metrics) {
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // The other end sees it.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It waits for nobody, and only answers.
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: TcpListener,
    stopped: UnixStream,
    /// The oldest first.
    connections: Vec<Connection>,
    metrics: Arc<Mutex<Metrics>>,
}

impl Server {
    fn serve(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if ready[0] {
                return;
            }
            let metrics = &self.metrics;
            let (now, mut ready_ones) = (Instant::now(), ready[2..].iter());
            self.connections.retain_mut(|connection| {
                let is_ready = *ready_ones.next().unwrap_or(&false);
                now < connection.until && (!is_ready || connection.go_on(metrics))
            });
            if ready[1] {
                self.accept();
            }
        }
    }

    /// Waits until something is ready, or the oldest connection has had its time: the end, the listener, each connection.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut watched = vec![
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        for connection in &self.connections {
            let wanted = if connection.answer.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
            watched.push(PollFd::new(connection.stream.as_fd(), wanted));
        }
        let left = self.connections.first().map(|oldest| oldest.until.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        poll(&mut watched, timeout)?;
        Ok(watched.iter().map(|fd| fd.any().unwrap_or(false)).collect())
    }

    /// Takes all that wait for it.
    fn accept(&mut self) {
        for _ in 0..CONNECTIONS {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.connections.len() == CONNECTIONS {
                        self.connections.remove(0);
                    }
                    let mut connection =
                        Connection { stream, until: Instant::now() + PATIENCE, head: Vec::new(), answer: Vec::new() };
                    // The request is there already, mostly.
                    if connection.go_on(&self.metrics) {
                        self.connections.push(connection);
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    until: Instant,
    head: Vec<u8>,
    /// What is still to be written; empty: the request is not whole yet.
    answer: Vec<u8>,
}

impl Connection {
    /// Reads and writes what can be. Whether there is more to do.
    fn go_on(&mut self, metrics: &Mutex<Metrics>) -> bool {
        let mut piece = [0; 1024];
        while self.answer.is_empty() {
            let at_end = match self.stream.read(&mut piece) {
                Ok(0) => true,
                Ok(len) => {
                    self.head.extend_from_slice(&piece[..len]);
                    false
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            let whole = at_end || [&b"\r\n\r\n"[..], b"\n\n"].iter().any(|end| contains(&self.head, end));
            if self.head.len() > HEAD_MAX {
                self.answer = response("431 Request Header Fields Too Large", "text/plain", "too long\n", true);
            } else if whole && !self.head.is_empty() {
                self.answer = answer(&String::from_utf8_lossy(&self.head), metrics);
            } else if at_end {
                return false;
            }
        }
        loop {
            match self.stream.write(&self.answer) {
                Ok(0) => return false,
                Ok(len) if len == self.answer.len() => return false,
                Ok(len) => drop(self.answer.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The answer to a request's head.
fn answer(head: &str, metrics: &Mutex<Metrics>) -> Vec<u8> {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers: Vec<(String, &str)> = lines
        .map_while(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        .collect();
    let of = |name: &'static str| headers.iter().filter(move |header| header.0 == name).map(|header| header.1);
    let with_body = method != "HEAD";
    let text = |status: &str, body: &str| response(status, "text/plain; charset=utf-8", body, with_body);
    if !of("host").all(is_local) {
        return text(
            "421 Misdirected Request",
            "metrics are for this machine: ask as localhost or 127.0.0.1, or have a proxy set that Host\n",
        );
    }
    match (method, target.split('?').next()) {
        ("GET" | "HEAD", Some("/metrics" | "/")) => {
            let notation = notation(of("accept"));
            let body = metrics.lock().unwrap_or_else(PoisonError::into_inner).text(notation);
            response("200 OK", notation.content_type(), &body, with_body)
        }
        ("GET" | "HEAD", _) => text("404 Not Found", "metrics are at /metrics\n"),
        _ => text("405 Method Not Allowed", "only GET is answered\n"),
    }
}

fn response(status: &str, kind: &str, body: &str, with_body: bool) -> Vec<u8> {
    let len = body.len();
    let body = if with_body { body } else { "" };
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

/// Whether a Host header names this machine's loopback address, with any port: tunnels have others.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    HOSTS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The notation that Accept headers ask for: OpenMetrics where it is named and wanted at least as much as plain text.
fn notation<'a>(accept: impl Iterator<Item = &'a str>) -> Notation {
    let (mut open, mut plain) = (0.0f64, 0.0f64);
    for kind in accept.flat_map(|value| value.split(',')) {
        let mut parts = kind.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let of = |wanted: &str| parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|p| p.1);
        let quality = of("q").map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0));
        match &*name {
            "application/openmetrics-text" if of("version").is_none_or(|version| version == "1.0.0") => {
                open = open.max(quality);
            }
            "text/plain" => plain = plain.max(quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain { Notation::OpenMetrics } else { Notation::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_loopback_address_are_local() {
        for host in ["localhost", "LocalHost:9464", "127.0.0.1", "127.0.0.1:1", "[::1]:9464", "[::1]"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["example.org", "example.org:9464", "localhost.example.org", "127.0.0.1.nip.io", "", "localhost:a"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        let of = |accept: &str| notation([accept].into_iter());
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(of(prometheus), Notation::OpenMetrics);
        assert_eq!(of("application/openmetrics-text"), Notation::OpenMetrics);
        for accept in ["", "*/*", "text/plain", "text/plain;q=0.9, application/openmetrics-text;q=0.3"] {
            assert_eq!(of(accept), Notation::Text, "{accept}");
        }
        assert_eq!(of("application/openmetrics-text;version=0.0.1"), Notation::Text, "another version");
        assert_eq!(of("application/openmetrics-text;q=0"), Notation::Text);
        assert_eq!(notation(std::iter::empty()), Notation::Text);
    }
}
