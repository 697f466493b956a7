//! A client and a server in namespaces of their own, the shield on the server's interface with one rule: challenge everything.

pub mod frames;
pub mod hurt;

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::Duration,
};

use bpf::{
    LivePace, LivePacket, LiveSender, XdpMode,
    chain::SlotMaps,
    filter::{
        AckCounts, AckProgram, CookieCounts, CookieMode, Cookies, GatewayCookies, HostCookies, Shield, ShieldAck,
        ShieldConfig, ShieldLink, ShieldShared,
    },
};
use rules::tables::{RuleAction, RuleEntry, RuleTables};

use crate::{Bed, End};

pub const CLIENT: [&str; 2] = ["198.18.0.1", "2001:2::1"];
pub const SERVER: [&str; 2] = ["198.18.0.2", "2001:2::2"];
pub const PORT: u16 = 80;

/// Time in which packets are sent and answers awaited.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub struct CookieBed {
    // What is attached goes before the namespaces.
    pub link: ShieldLink,
    pub ack: Option<ShieldAck>,
    pub shield: Shield,
    pub cookies: Cookies,
    shared: ShieldShared,
    pub client: End,
    pub server: End,
    _bed: Bed,
}

/// The mode of cookies; a test changes those of a host from what fits the interface.
pub enum Mode {
    Host(fn(&mut HostCookies)),
    /// The kernel makes the connections by itself.
    Kernel,
    Gateway(GatewayCookies),
}

impl CookieBed {
    pub fn new(tag: &str, mode: Mode) -> Option<Self> {
        let (bed, [client, server]) = Bed::pair(tag)?;
        for (end, own, others, other) in [(&client, CLIENT, SERVER, &server), (&server, SERVER, CLIENT, &client)] {
            end.feature("rx-gro", true);
            for (address, len) in own.iter().zip([16, 64]) {
                end.address(&format!("{address}/{len}"));
            }
            others.iter().for_each(|address| end.knows(address, other));
            // The timing of tests hangs on no congestion control's probes.
            end.set("net.ipv4.tcp_congestion_control", "reno");
        }
        let interface = server.interface().to_owned();
        let (link, ack, shield, cookies, shared) = server.run(move || protect(&interface, mode));
        Some(Self { link, ack, shield, cookies, shared, client, server, _bed: bed })
    }

    pub fn counts(&self) -> CookieCounts {
        self.cookies.counts().unwrap()
    }

    pub fn acks(&self) -> AckCounts {
        self.ack.as_ref().expect("host mode").counts().unwrap()
    }

    /// A connection from the client.
    pub fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        self.client.run(|| TcpStream::connect_timeout(&to, ANSWER_TIMEOUT))
    }

    /// Listens at the server and echoes on every connection what comes first.
    pub fn echo(&self, address: &str) -> SocketAddr {
        let listener = self.server.run(|| TcpListener::bind((address, PORT))).unwrap();
        let to = listener.local_addr().unwrap();
        echo_on(listener);
        to
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
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    stream.write_all(b"keel").unwrap();
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"keel");
}

/// Says more than fits into a window without scaling, and hears it again.
pub fn talk_long(stream: &mut TcpStream) {
    let big = vec![1; 1 << 20];
    let mut back = stream.try_clone().unwrap();
    thread::scope(|s| {
        s.spawn(|| stream.write_all(&big).unwrap());
        let mut bytes = vec![0; big.len()];
        back.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, big);
    });
}

pub fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT)
}

fn protect(interface: &str, mode: Mode) -> (ShieldLink, Option<ShieldAck>, Shield, Cookies, ShieldShared) {
    let (mode, ack) = match mode {
        Mode::Host(change) => {
            let mut host = HostCookies::of(interface).unwrap();
            change(&mut host);
            (CookieMode::Host(host), Some(ShieldAck::attach(AckProgram::load().unwrap(), interface).unwrap()))
        }
        Mode::Kernel => (CookieMode::Kernel(HostCookies::of(interface).unwrap()), None),
        Mode::Gateway(gateway) => (CookieMode::Gateway(gateway), None),
    };
    let cookies = Cookies::create(interface, mode, 1 << 12).unwrap();
    let shared = ShieldShared::create().unwrap();
    let mut link = ShieldLink::take(interface, XdpMode::Native).unwrap();
    let shield = load(&cookies, vec![link.maps()], &shared);
    link.put(&shield).unwrap();
    // There is no connection yet.
    cookies.connected().unwrap().rebuild(|| Ok::<_, ()>(Vec::new())).unwrap();
    (link, ack, shield, cookies, shared)
}

/// A program that challenges everything.
fn load(cookies: &Cookies, slots: Vec<SlotMaps>, shared: &ShieldShared) -> Shield {
    let rule = RuleEntry { action: RuleAction::Challenge, ..RuleEntry::default() };
    let tables = RuleTables { words: 1, rules: vec![rule], malformed_drop: true, ..RuleTables::default() };
    let config = ShieldConfig { cookies: Some(cookies.clone()), slots, report: true, ..ShieldConfig::default() };
    Shield::load(&tables, &config, shared).unwrap()
}

impl CookieBed {
    /// Another program for test runs, with its maps if there are none.
    pub fn another(&self, mode: &CookieMode, cookies: Option<&Cookies>) -> Shield {
        let create = || Cookies::create(self.server.interface(), mode.clone(), 1 << 12).unwrap();
        let run = || load(&cookies.cloned().unwrap_or_else(create), Vec::new(), &ShieldShared::create().unwrap());
        self.server.run(run)
    }

    /// A program that passes everything, for the same place.
    pub fn passing(&self) -> Shield {
        let config = ShieldConfig { slots: vec![self.link.maps()], ..ShieldConfig::default() };
        let tables = RuleTables { words: 1, ..RuleTables::default() };
        self.server.run(|| Shield::load(&tables, &config, &self.shared)).unwrap()
    }

    /// Puts frames on the wire at the client, one after the other, in turn, until `count` are sent.
    pub fn send(&self, frames: &[Vec<u8>], count: u64, pps: f64) {
        let cycle: Vec<_> = frames.iter().map(|f| LivePacket { headers: f, frame_len: f.len() }).collect();
        let nap = Some(Duration::from_millis(1));
        let pace = LivePace { pps: Some(pps), count: Some(count), duration: ANSWER_TIMEOUT, nap };
        let run = || LiveSender::load(self.client.interface(), frames[0].clone(), &cycle, None, pace)?.run();
        self.client.run(run).unwrap();
    }

    /// SYNs without options from sources that do not exist, `spoofed(0)` the first.
    pub fn flood(&self, sources: u32, count: u64, pps: f64) {
        let syn = |n| {
            let syn =
                frames::Frame::new(self.server.link.mac, self.client.link.mac, &spoofed(n).to_string(), SERVER[0]);
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
