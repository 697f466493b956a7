//! A client and a server, and a gateway of two interfaces between them, which has no addresses.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

#[path = "../privileged/mod.rs"]
pub(crate) mod privileged;

use std::{
    fs,
    io::{ErrorKind, Write},
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use self::privileged::skip;
use lab::{Lab, LabError, Namespace, VethEnd};
use serde_json::Value;

pub(crate) const CLIENT: &str = "198.18.0.1";
pub(crate) const SERVER: &str = "198.18.0.2";
/// What is not there after so long will not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bed {
    pub(crate) client: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) server: Namespace,
    pub(crate) client_end: VethEnd,
    pub(crate) server_end: VethEnd,
    pub(crate) first: String,
    pub(crate) second: String,
    pub(crate) folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Whatever a failed test has left pinned.
        let _ = self.shield(&["stop", &self.first]);
    }
}

pub(crate) fn bed(tag: &str) -> Option<Bed> {
    if !nix::unistd::geteuid().is_root() {
        skip("root is needed");
        return None;
    }
    build(tag).map_err(skip).ok()
}

fn build(tag: &str) -> Result<Bed, LabError> {
    let lab = Lab::new(tag)?;
    let (client, gateway, server) = (lab.namespace("c")?, lab.namespace("g")?, lab.namespace("s")?);
    let names = ["bwc", "bwa", "bwb", "bws"].map(|label| lab.interface(label));
    let (client_end, first) = lab.veth((&client, &names[0]), (&gateway, &names[1]), 1)?;
    let (second, server_end) = lab.veth((&gateway, &names[2]), (&server, &names[3]), 1)?;
    for (ns, end, address) in [(&client, &client_end, CLIENT), (&server, &server_end, SERVER)] {
        let ns = ns.handle();
        ns.add_address(&end.name, address.parse().expect("an address"), 24)?;
        // So that they take what is redirected to them, and what they send is whole: no NIC fills in checksums or cuts segments here.
        ns.set_feature(&end.name, "rx-gro", true)?;
        ns.set_feature(&end.name, "tx-checksum-ip-generic", false)?;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (first.name, second.name);
    Ok(Bed { client, gateway, server, client_end, server_end, first, second, folder, child: None })
}

impl Bed {
    pub(crate) fn pair(&self) -> String {
        format!("{},{}", self.first, self.second)
    }

    /// A program inside a namespace, which shares /sys with everybody else: there is the BPF file system.
    pub(crate) fn inside(namespace: &Namespace, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", namespace.name())).arg(program);
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Self::inside(&self.gateway, env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("shield").args(arguments);
        command
    }

    pub(crate) fn shield(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        let output = Self::inside(&self.gateway, "ip").args(arguments).output().expect("ip starts");
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    fn link(&self, name: &str) -> Value {
        let text = self.ip(&["-json", "link", "show", "dev", name]);
        serde_json::from_str::<Value>(&text).expect("JSON")[0].take()
    }

    /// Of both interfaces, as ip(8) calls them.
    pub(crate) fn flags(&self) -> [String; 2] {
        [&self.first, &self.second].map(|name| {
            let link = self.link(name);
            let flags = link["flags"].as_array().expect("flags").iter().filter_map(Value::as_str).collect::<Vec<_>>();
            // The flag that the user sets is not the count that packet sockets raise.
            flags.join(",")
        })
    }

    /// The XDP programs of both.
    pub(crate) fn xdp(&self) -> [String; 2] {
        [&self.first, &self.second].map(|name| self.link(name).get("xdp").map_or_else(String::new, ToString::to_string))
    }

    pub(crate) fn neighbours(&self) -> String {
        said(&Self::inside(&self.client, "ip").args(["neighbour", "show"]).output().expect("ip starts"))
    }

    pub(crate) fn rules(&self, text: &str) -> String {
        let path = self.folder.path().join("rules.toml");
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Starts the gateway and waits until its rules hold.
    pub(crate) fn run(&mut self, rules: &str, more: &[&str]) {
        self.run_fed(rules, more, "");
    }

    /// Likewise, with this text in a pipe on its standard input.
    pub(crate) fn run_fed(&mut self, rules: &str, more: &[&str], input: &str) {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(input.as_bytes()).expect("room in the pipe");
        drop(writer);
        let log = self.folder.path().join("log");
        let file = fs::File::create(&log).expect("a file");
        let mut command = self.command(&["run", "--between", &self.pair(), "--quiet", "--rules", rules]);
        command.args(more).stdin(reader).stdout(Stdio::null()).stderr(file);
        self.child = Some(command.spawn().expect("the program starts"));
        self.wait("the rules hold", || read(&log).contains("shield up"));
    }

    pub(crate) fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: not yet; {}", read(&self.folder.path().join("log")));
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn stop(&mut self) {
        let stopped = self.shield(&["stop", &self.first]);
        assert!(stopped.status.success(), "{}", said(&stopped));
        self.reap();
    }

    pub(crate) fn reap(&mut self) {
        let ended = self.child.take().expect("a running shield").wait().expect("its end");
        assert_eq!(ended.code(), Some(0), "{}", read(&self.folder.path().join("log")));
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a running shield");
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }

    pub(crate) fn status(&self) -> Value {
        let output = self.shield(&["status", &self.first, "--json", "--interval", "0.1"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Packets that a rule applied to.
    pub(crate) fn count(&self, rule: &str) -> u64 {
        let status = self.status();
        let rules = status["rules"].as_array().expect("rules");
        let found = rules.iter().find(|entry| entry["name"] == rule).unwrap_or_else(|| panic!("no {rule}: {status}"));
        found["packets"].as_u64().expect("a number")
    }

    /// How many of `count` datagrams to `port` of the server come through.
    pub(crate) fn come_through(&self, port: u16, count: usize) -> usize {
        Self::datagrams((&self.client, CLIENT), (&self.server, SERVER), port, count)
    }

    /// Likewise to the client.
    pub(crate) fn come_back(&self, port: u16, count: usize) -> usize {
        Self::datagrams((&self.server, SERVER), (&self.client, CLIENT), port, count)
    }

    fn datagrams(from: (&Namespace, &str), to: (&Namespace, &str), port: u16, count: usize) -> usize {
        let receiver = to.0.run(|| bind((to.1, port))).expect("a namespace");
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        let sender = from.0.run(|| UdpSocket::bind((from.1, 0)).expect("a socket")).expect("a namespace");
        for _ in 0..count {
            // A neighbour that does not answer, a link that is down: that is what is to be seen.
            let _ = sender.send_to(b"ek", (to.1, port));
        }
        (0..count).take_while(|_| receiver.recv(&mut [0; 8]).is_ok()).count()
    }

    /// Numbered datagrams from the client to a port of the server, one in each `pause`.
    pub(crate) fn flow(&self, port: u16, pause: Duration) -> Flow {
        let receiver = self.server.run(|| bind((SERVER, port))).expect("a namespace");
        receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
        let sender = self.client.run(|| UdpSocket::bind((CLIENT, 0)).expect("a socket")).expect("a namespace");
        let stop = Arc::new(AtomicBool::new(false));
        let (told, heard) = (Arc::clone(&stop), Arc::clone(&stop));
        let send = thread::spawn(move || {
            let (begun, mut sent) = (Instant::now(), 0u32);
            while !told.load(Ordering::Relaxed) {
                sender.send_to(&sent.to_be_bytes(), (SERVER, port)).expect("sent");
                sent += 1;
                thread::sleep((pause * sent).saturating_sub(begun.elapsed()));
            }
            sent
        });
        let receive = thread::spawn(move || {
            let (mut bytes, mut numbers, mut times) = ([0; 8], std::collections::BTreeSet::new(), None);
            loop {
                // Read before: what was sent until then has come when nothing comes.
                let all_sent = heard.load(Ordering::Relaxed);
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

/// Datagrams on their way.
pub(crate) struct Flow {
    stop: Arc<AtomicBool>,
    send: JoinHandle<u32>,
    receive: JoinHandle<(u32, Option<(Instant, Instant)>)>,
}

/// What became of them.
pub(crate) struct Flown {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    /// When the first came, and the last.
    pub(crate) times: Option<(Instant, Instant)>,
}

impl Flow {
    /// No more are sent.
    pub(crate) fn end(self) -> Flown {
        self.stop.store(true, Ordering::Relaxed);
        let (sent, (received, times)) = (self.send.join().expect("sent"), self.receive.join().expect("received"));
        Flown { sent, received, times }
    }
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A socket that was just closed may live on for a moment in a program that another test is starting.
pub(crate) fn bind(address: (&str, u16)) -> UdpSocket {
    let begun = Instant::now();
    loop {
        match UdpSocket::bind(address) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            socket => return socket.expect("a socket"),
        }
    }
}
