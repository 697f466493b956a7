//! HTTP on 127.0.0.1, for what is read only. One thread serves all connections as they become ready: who says nothing, or reads nothing, holds up
//! nobody, and beyond [`CONNECTIONS_MAX`] the one that has been there the longest goes.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// A connection ends after so long.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// A longer request is refused.
const HEAD_BYTES_MAX: usize = 8192;
/// After a failure to accept a connection: out of descriptors, most likely.
const ACCEPT_RETRY_PERIOD: Duration = Duration::from_millis(50);
/// Names of this machine's loopback address. Pages of elsewhere come with other names (DNS rebinding).
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A request for something: GET or HEAD, by a name of this machine.
#[derive(Debug)]
pub struct HttpRequest<'a> {
    /// The path, without a query.
    pub path: &'a str,
    headers: Vec<(String, &'a str)>,
}

impl<'a> HttpRequest<'a> {
    /// The values of the headers of this name, which is in lower case.
    pub fn header(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |header| header.0 == name).map(|header| header.1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status code and reason: `200 OK`.
    pub status: &'static str,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body, which HEAD leaves away.
    pub body: String,
}

impl HttpResponse {
    pub fn text(status: &'static str, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let len = body.len();
        let body = if with_body { body } else { "" };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// Answers requests on 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens on `port`; 0 lets the kernel choose one. `answer` is called on the thread of the server, and waits for nothing.
    pub fn start(port: u16, answer: impl Fn(&HttpRequest<'_>) -> HttpResponse + Send + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let serve = move || Server { listener, stopped, connections: Vec::new(), answer }.serve();
        let thread = thread::Builder::new().name("ek-http".into()).spawn(serve)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address and the port that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // The other end sees it.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It waits for nobody, and only answers.
            let _ = thread.join();
        }
    }
}

struct Server<F> {
    listener: TcpListener,
    stopped: UnixStream,
    connections: Vec<Connection>,
    answer: F,
}

impl<F: Fn(&HttpRequest<'_>) -> HttpResponse> Server<F> {
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
            let answer = &self.answer;
            let (now, mut ready_ones) = (Instant::now(), ready[2..].iter());
            self.connections.retain_mut(|connection| {
                let is_ready = *ready_ones.next().unwrap_or(&false);
                now < connection.until && (!is_ready || connection.go_on(answer))
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
        for _ in 0..CONNECTIONS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.connections.len() == CONNECTIONS_MAX {
                        self.connections.remove(0);
                    }
                    let mut connection = Connection {
                        stream,
                        until: Instant::now() + CONNECTION_TIMEOUT,
                        head: Vec::new(),
                        answer: Vec::new(),
                    };
                    // The request is there already, mostly.
                    if connection.go_on(&self.answer) {
                        self.connections.push(connection);
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return thread::sleep(ACCEPT_RETRY_PERIOD),
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    until: Instant,
    head: Vec<u8>,
    /// The rest of the answer; empty: the request is not complete yet.
    answer: Vec<u8>,
}

impl Connection {
    /// Reads and writes what can be. Returns whether there is more to do.
    fn go_on(&mut self, answer: impl Fn(&HttpRequest<'_>) -> HttpResponse) -> bool {
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
            if self.head.len() > HEAD_BYTES_MAX {
                self.answer = HttpResponse::text("431 Request Header Fields Too Large", "too long\n").bytes(true);
            } else if whole && !self.head.is_empty() {
                self.answer = answered(&String::from_utf8_lossy(&self.head), &answer);
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
fn answered(head: &str, answer: impl Fn(&HttpRequest<'_>) -> HttpResponse) -> Vec<u8> {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers = lines
        .map_while(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        .collect();
    let request = HttpRequest { path: target.split('?').next().unwrap_or_default(), headers };
    let response = if !request.header("host").all(is_local) {
        HttpResponse::text(
            "421 Misdirected Request",
            "this port is for this machine: ask as localhost or 127.0.0.1, or have a proxy set that Host\n",
        )
    } else if !["GET", "HEAD"].contains(&method) {
        HttpResponse::text("405 Method Not Allowed", "only GET is answered\n")
    } else {
        answer(&request)
    };
    response.bytes(method != "HEAD")
}

/// A Host header names this machine's loopback address, with any port: tunnels have others.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    LOOPBACK_HOSTS.iter().any(|known| known.eq_ignore_ascii_case(name))
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
}
