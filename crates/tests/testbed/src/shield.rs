//! A client, a host or a gateway in front of a server, and `evenkeel shield` between them.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    ops::{Deref, DerefMut},
    path::PathBuf,
    process::{Command, ExitStatus, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{Bed, End, Running, Space, WAIT_TIMEOUT, json, log, printed, wait_for, wait_reporting};

pub const CLIENT: &str = "198.18.0.1";
/// The address that it speaks to: the host's that has the shield, or that of the server behind the gateway.
pub const SERVER: &str = "198.18.0.2";
pub const DROP_9: &str = "[[rule]]\nname = \"nine\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 9\n";

/// The bed. The program is killed, and what it left pinned taken away, when it is dropped.
#[derive(Debug)]
pub struct ShieldBed {
    program: &'static str,
    /// The program that tends the shield, if one does.
    pub running: Option<Running>,
    /// The interface that the program is told; of a gateway the first one.
    pub interface: String,
    /// The other interface of a gateway.
    pub second: Option<String>,
    pub client: End,
    /// Whom it comes to.
    pub server: End,
    /// The place of the shield: with the server, or in between.
    pub host: Space,
    bed: Bed,
}

impl Deref for ShieldBed {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

impl DerefMut for ShieldBed {
    fn deref_mut(&mut self) -> &mut Bed {
        &mut self.bed
    }
}

impl Drop for ShieldBed {
    fn drop(&mut self) {
        drop(self.running.take());
        // Whatever a failed test has left pinned.
        let _ = self.shield(&["stop", &self.interface]);
    }
}

impl ShieldBed {
    /// A client and a host that has the shield; `program` is evenkeel.
    pub fn host(program: &'static str, tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["client", "host"])?;
        let [client, server] = bed.join(["client", "host"], 1);
        for (end, own, other, owner) in [(&client, CLIENT, SERVER, &server), (&server, SERVER, CLIENT, &client)] {
            end.address(&format!("{own}/24"));
            end.knows(other, owner);
        }
        // Without NAPI there it takes no answers of XDP.
        client.feature("rx-gro", true);
        let (interface, host) = (server.interface().to_owned(), server.space().clone());
        Some(Self { program, running: None, interface, second: None, client, server, host, bed })
    }

    /// A client and a server, and a gateway of two interfaces between them, which has no addresses.
    pub fn gateway(program: &'static str, tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["c", "g", "s"])?;
        let ([client, first], [second, server]) = (bed.join(["c", "g"], 1), bed.join(["g", "s"], 1));
        for (end, address) in [(&client, CLIENT), (&server, SERVER)] {
            end.address(&format!("{address}/24"));
            // So that they take what is redirected to them, and what they send is whole: no NIC fills in checksums or cuts segments here.
            end.feature("rx-gro", true);
            end.feature("tx-checksum-ip-generic", false);
        }
        let (interface, second) = (first.interface().to_owned(), Some(second.interface().to_owned()));
        Some(Self { program, running: None, interface, second, client, server, host: first.space().clone(), bed })
    }

    /// `evenkeel shield` with these arguments, in the host.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.command(self.program);
        command.arg("shield").args(arguments);
        command
    }

    pub fn shield(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    /// Runs a command of the shield, which has to succeed.
    #[track_caller]
    pub fn shield_does(&self, arguments: &[&str]) -> Output {
        let output = self.shield(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
        output
    }

    /// Writes the file of rules; its path.
    pub fn rules(&self, text: &str) -> String {
        self.bed.file("rules.toml", text)
    }

    /// Both interfaces of a gateway, as the program is told them.
    pub fn pair(&self) -> String {
        format!("{},{}", self.interface, self.second.as_deref().expect("a gateway"))
    }

    /// Writes the file of rules, and starts the shield with it; its path.
    #[track_caller]
    pub fn protect(&mut self, text: &str, more: &[&str]) -> String {
        let rules = self.rules(text);
        self.run(&rules, more);
        rules
    }

    /// Starts the shield and waits until its rules hold.
    #[track_caller]
    pub fn run(&mut self, rules: &str, more: &[&str]) {
        self.run_fed(rules, more, "");
    }

    /// [`ShieldBed::run`] with this text in a pipe on its standard input.
    #[track_caller]
    pub fn run_fed(&mut self, rules: &str, more: &[&str], input: &str) {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(input.as_bytes()).expect("room in the pipe");
        drop(writer);
        let on = if self.second.is_some() {
            vec!["--between".to_owned(), self.pair()]
        } else {
            vec![self.interface.clone()]
        };
        let mut command = self.command(&["run"]);
        command.args(on).args(["--quiet", "--rules", rules]).args(more).stdin(reader);
        self.running = Some(Running::logged(&mut command, &self.log_file()));
        self.wait("the rules hold", || self.log().contains("shield up"));
    }

    fn log_file(&self) -> PathBuf {
        self.bed.path("log")
    }

    pub fn log(&self) -> String {
        log(&self.log_file())
    }

    #[track_caller]
    pub fn wait(&self, what: &str, is_so: impl FnMut() -> bool) {
        wait_reporting(what, is_so, || self.log());
    }

    #[track_caller]
    pub fn reload(&self) -> Output {
        self.shield_does(&["reload", &self.interface])
    }

    /// The shield ends, and is gone.
    #[track_caller]
    pub fn stop(&mut self) {
        self.shield_does(&["stop", &self.interface]);
        assert_eq!(self.ended().code(), Some(0), "{}", self.log());
    }

    /// Waits until the program has ended by itself.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        self.running.take().expect("a running shield").end()
    }

    #[track_caller]
    pub fn kill(&mut self) {
        self.running.take().expect("a running shield").kill();
    }

    /// The answer of `status`.
    #[track_caller]
    pub fn status(&self) -> Value {
        let output = self.shield(&["status", &self.interface, "--json", "--interval", "0.1"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        json(&output)
    }

    #[track_caller]
    pub fn warnings(&self) -> String {
        self.status()["warnings"].to_string()
    }

    /// A total of it, such as `dropped`.
    #[track_caller]
    pub fn total(&self, what: &str) -> u64 {
        self.status()["totals"][what].as_u64().expect("a number")
    }

    /// Packets that a rule applied to.
    #[track_caller]
    pub fn count(&self, rule: &str) -> u64 {
        let status = self.status();
        let rules = status["rules"].as_array().expect("rules");
        let found = rules.iter().find(|entry| entry["name"] == rule).unwrap_or_else(|| panic!("no {rule}: {status}"));
        found["packets"].as_u64().expect("a number")
    }

    /// `ip` in the host.
    #[track_caller]
    pub fn ip(&self, arguments: &str) -> String {
        self.host.output(&format!("ip {arguments}"))
    }

    /// The datagrams of the client to `port` that come through, of `count`.
    #[track_caller]
    pub fn come_through(&self, port: u16, count: usize) -> usize {
        self.datagrams((&self.client, CLIENT), (&self.server, SERVER), port, count)
    }

    /// [`ShieldBed::come_through`] in the other direction.
    #[track_caller]
    pub fn come_back(&self, port: u16, count: usize) -> usize {
        self.datagrams((&self.server, SERVER), (&self.client, CLIENT), port, count)
    }

    #[track_caller]
    fn datagrams(&self, from: (&End, &str), to: (&End, &str), port: u16, count: usize) -> usize {
        let receiver = to.0.run(|| bind((to.1, port)));
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        let sender = from.0.run(|| bind((from.1, 0)));
        for _ in 0..count {
            // Before a gateway, a neighbour that does not answer or a link that is down is what is to be seen.
            let sent = sender.send_to(b"ek", (to.1, port));
            assert!(sent.is_ok() || self.second.is_some(), "{sent:?}");
        }
        (0..count).take_while(|_| receiver.recv(&mut [0; 8]).is_ok()).count()
    }

    /// True if the client connects to port 80 within `time`, and a byte crosses.
    #[track_caller]
    pub fn connects(&self, time: Duration) -> bool {
        connect((&self.client, &self.server, SERVER), time)
    }

    /// True if the server connects to the client's, likewise.
    #[track_caller]
    pub fn connects_back(&self, time: Duration) -> bool {
        connect((&self.server, &self.client, CLIENT), time)
    }

    /// Numbered datagrams from the client to a port of the server, one in each `pause`.
    pub fn flow(&self, port: u16, pause: Duration) -> Flow {
        let receiver = self.server.run(|| bind((SERVER, port)));
        receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
        // A sender that was held up sends all that it is late with at once, before the receiver's turn.
        nix::sys::socket::setsockopt(&receiver, nix::sys::socket::sockopt::RcvBufForce, &(16 << 20)).expect("root");
        let sender = self.client.run(|| bind((CLIENT, 0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, ended) = (Arc::clone(&stop), Arc::clone(&stop));
        let send = thread::spawn(move || {
            let (begun, mut sent) = (Instant::now(), 0u32);
            while !stopped.load(Ordering::Relaxed) {
                sender.send_to(&sent.to_be_bytes(), (SERVER, port)).expect("sent");
                sent += 1;
                thread::sleep((pause * sent).saturating_sub(begun.elapsed()));
            }
            sent
        });
        let receive = thread::spawn(move || {
            let (mut bytes, mut numbers, mut times) = ([0; 8], BTreeSet::new(), None);
            loop {
                // Read before: what was sent until then has come when nothing comes.
                let all_sent = ended.load(Ordering::Relaxed);
                match receiver.recv(&mut bytes) {
                    Err(_) if all_sent => break,
                    Err(_) => continue,
                    Ok(_) => {}
                }
                let now = Instant::now();
                if numbers.insert(u32::from_be_bytes(*bytes.first_chunk().expect("four bytes"))) {
                    let (first, _) = times.unwrap_or((now, now));
                    times = Some((first, now));
                }
            }
            (numbers.len() as u32, times)
        });
        Flow { stop, send, receive }
    }
}

#[track_caller]
fn connect((from, to, address): (&End, &End, &str), time: Duration) -> bool {
    let listener = to.run(|| TcpListener::bind((address, 80)).expect("a socket"));
    let to = listener.local_addr().expect("its address");
    from.run(|| TcpStream::connect_timeout(&to, time)).is_ok_and(|mut stream| {
        let (mut accepted, _) = listener.accept().expect("a connection");
        let _ = accepted.set_read_timeout(Some(WAIT_TIMEOUT));
        let mut byte = [0];
        stream.write_all(b"e").is_ok() && accepted.read_exact(&mut byte).is_ok() && byte == *b"e"
    })
}

/// Datagrams on their way.
#[derive(Debug)]
pub struct Flow {
    stop: Arc<AtomicBool>,
    send: JoinHandle<u32>,
    receive: JoinHandle<(u32, Option<(Instant, Instant)>)>,
}

/// Counts at the end of a flow.
#[derive(Debug)]
pub struct Flown {
    pub sent: u32,
    /// The number that came, each counted once.
    pub received: u32,
    /// The times at which the first came, and the last.
    pub times: Option<(Instant, Instant)>,
}

impl Flow {
    /// No more are sent.
    pub fn end(self) -> Flown {
        self.stop.store(true, Ordering::Relaxed);
        let (sent, (received, times)) = (self.send.join().expect("sent"), self.receive.join().expect("received"));
        Flown { sent, received, times }
    }
}

/// A socket that was just closed may live on for a moment in a program that another test is starting.
#[track_caller]
pub fn bind(address: (&str, u16)) -> UdpSocket {
    wait_for("an address that is free", || match UdpSocket::bind(address) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => None,
        socket => Some(socket.expect("a socket")),
    })
}
