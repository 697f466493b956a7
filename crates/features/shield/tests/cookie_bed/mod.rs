//! A client and a server in namespaces of their own, the shield on the server's interface with one rule: challenge everything.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unreachable_pub, reason = "a module of tests")]

pub mod frames;

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bpf::{
    LivePace, LivePacket, LiveSender, XdpMode,
    filter::{
        AckCounts, CookieCounts, CookieMode, Cookies, GatewayCookies, HostCookies, Shield, ShieldAck, ShieldConfig,
        ShieldLink, ShieldShared,
    },
};
use lab::{Lab, Namespace, VethEnd};
use rules::tables::{RuleAction, RuleEntry, RuleTables};

pub const CLIENT: [&str; 2] = ["198.18.0.1", "2001:2::1"];
pub const SERVER: [&str; 2] = ["198.18.0.2", "2001:2::2"];
pub const PORT: u16 = 80;

/// How long anything may take before the test has failed.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Bed {
    // What is attached goes before the namespaces.
    pub link: ShieldLink,
    pub ack: Option<ShieldAck>,
    pub shield: Shield,
    pub cookies: Cookies,
    _shared: ShieldShared,
    pub client: Namespace,
    pub server: Namespace,
    pub near: VethEnd,
    pub far: VethEnd,
    _lab: Lab,
}

/// A lab, or none without privilege; in CI that is a failure.
pub fn lab(tag: &str) -> Option<Lab> {
    if nix::unistd::geteuid().is_root() {
        return Some(Lab::new(tag).unwrap());
    }
    assert!(std::env::var_os("CI").is_none(), "the tests of SYN cookies need root, and CI must have it");
    eprintln!("skipped: a lab needs root");
    None
}

/// Which way, changed by a test from what fits the interface.
pub enum Way {
    Host(fn(&mut HostCookies)),
    Gateway(GatewayCookies),
}

impl Bed {
    pub fn new(tag: &str, way: Way) -> Option<Self> {
        let lab = lab(tag)?;
        let (client, server) = (lab.namespace("client").unwrap(), lab.namespace("server").unwrap());
        let (near, far) = (lab.interface("c"), lab.interface("s"));
        let (near, far) = lab.veth((&client, &near), (&server, &far), 1).unwrap();
        for (ns, end, addresses) in [(&client, &near, CLIENT), (&server, &far, SERVER)] {
            ns.set_feature(&end.name, "rx-gro", true).unwrap();
            for (address, len) in addresses.iter().zip([16, 64]) {
                ns.add_address(&end.name, address.parse().unwrap(), len).unwrap();
            }
            // The timing of tests hangs on no congestion control's probes.
            ns.set_sysctl("net.ipv4.tcp_congestion_control", "reno").unwrap();
        }
        for i in 0..2 {
            client.add_neighbour(&near.name, SERVER[i].parse().unwrap(), far.mac).unwrap();
            server.add_neighbour(&far.name, CLIENT[i].parse().unwrap(), near.mac).unwrap();
        }
        let interface = far.name.clone();
        let (link, ack, shield, cookies, shared) = server.run(move || protect(&interface, way)).unwrap();
        Some(Self { link, ack, shield, cookies, _shared: shared, client, server, near, far, _lab: lab })
    }

    pub fn counts(&self) -> CookieCounts {
        self.cookies.counts().unwrap()
    }

    pub fn acks(&self) -> AckCounts {
        self.ack.as_ref().expect("host mode").counts().unwrap()
    }

    /// A connection from the client.
    pub fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        self.client.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap()
    }

    /// Listens at the server and echoes on every connection what comes first.
    pub fn echo(&self, address: &str) -> SocketAddr {
        let listener = self.server.run(|| TcpListener::bind((address, PORT))).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        echo_on(listener);
        to
    }

    /// What a program says when it runs in a namespace.
    pub fn run(ns: &Namespace, program: &str, args: &[&str]) -> String {
        let output = ns.run(|| Command::new(program).args(args).output()).unwrap();
        let output = output.unwrap_or_else(|e| panic!("{program} is installed: {e}"));
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A counter of /proc/net/snmp or netstat, by `nstat`'s name.
    pub fn counter(ns: &Namespace, name: &str) -> u64 {
        let text = Self::run(ns, "nstat", &["-asz", name]);
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("nstat knows {name}: {text}"));
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }
}

/// Serves a listener until the process ends.
pub fn echo_on(listener: TcpListener) -> JoinHandle<()> {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    })
}

/// Says something and hears it again.
pub fn talk(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"keel").unwrap();
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"keel");
}

/// Waits until `done`.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT)
}

fn protect(interface: &str, way: Way) -> (ShieldLink, Option<ShieldAck>, Shield, Cookies, ShieldShared) {
    let (mode, ack) = match way {
        Way::Host(change) => {
            let mut host = HostCookies::of(interface).unwrap();
            change(&mut host);
            (CookieMode::Host(host), Some(ShieldAck::attach(interface).unwrap()))
        }
        Way::Gateway(gateway) => (CookieMode::Gateway(gateway), None),
    };
    let cookies = Cookies::create(interface, mode, 1 << 12).unwrap();
    let rule = RuleEntry { action: RuleAction::Challenge, ..RuleEntry::default() };
    let tables = RuleTables { words: 1, rules: vec![rule], malformed_drop: true, ..RuleTables::default() };
    let shared = ShieldShared::create().unwrap();
    let config = ShieldConfig { cookies: Some(cookies.clone()), tell: true, ..ShieldConfig::default() };
    let shield = Shield::load(&tables, &config, &shared).unwrap();
    let link = shield.attach(interface, XdpMode::Native).unwrap();
    // There is no connection yet.
    cookies.connected().unwrap().renew(|| Ok::<_, ()>(Vec::new())).unwrap();
    (link, ack, shield, cookies, shared)
}

impl Bed {
    /// Puts frames on the wire at the client, one after the other, in turn, until `count` are sent.
    pub fn send(&self, frames: &[Vec<u8>], count: u64, pps: f64) {
        let cycle: Vec<_> = frames.iter().map(|f| LivePacket { headers: f, frame_len: f.len() }).collect();
        let nap = Some(Duration::from_millis(1));
        let pace = LivePace { pps: Some(pps), count: Some(count), duration: PATIENCE, nap };
        let run = || LiveSender::load(&self.near.name, frames[0].clone(), &cycle, None, pace)?.run();
        self.client.run(run).unwrap().unwrap();
    }

    /// SYNs without options from sources that do not exist, `spoofed(0)` the first.
    pub fn flood(&self, sources: u32, count: u64, pps: f64) {
        let syn = |n| {
            let syn = frames::Frame::new(self.far.mac, self.near.mac, &spoofed(n).to_string(), SERVER[0]);
            let mut bytes = frames::Frame { options: vec![], seq: n << 16, ..syn }.bytes();
            bytes.resize(60, 0);
            bytes
        };
        self.send(&(0..sources).map(syn).collect::<Vec<_>>(), count, pps);
    }
}

/// A source that does not exist.
pub fn spoofed(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 128, 1).to_bits() + number).into()
}
