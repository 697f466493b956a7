//! A neighbour that moves to another MAC address without a word: the fast path alone sends to it, and yet the kernel notices. And a port that goes
//! to another namespace and comes back.

mod beside;
mod settings;
mod totals;

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use beside::{Control, beside};
use model::route::RouteMode;
use settings::settings;
use testbed::{Ends, HostsBed, Tap, wait};
use totals::totals;

const PORT: u16 = 4000;
const SEND_PERIOD: Duration = Duration::from_millis(1);
/// The kernel's times: reachable for 0.5 to 1.5 times so many milliseconds, which is longer than the delay of a second that follows, as it would
/// look by itself else; then so many questions to the old address.
const TIMES: [(&str, &str); 4] = [
    ("base_reachable_time_ms", "2100"),
    ("delay_first_probe_time", "1"),
    ("retrans_time_ms", "100"),
    ("ucast_solicit", "2"),
];
const ARP: [u8; 2] = [8, 6];
const NEIGHBOUR: [u8; 2] = [135, 136];

/// Neighbour discovery seen at `b`: a complete answer means that a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Answer,
    Unsolicited,
}

/// Messages of `b` since its address is `mac`.
struct Heard {
    mac: [u8; 6],
    /// True if each datagram was for that address.
    datagrams: Vec<bool>,
    words: Vec<Word>,
}

impl Heard {
    fn see(&mut self, frame: &[u8]) {
        let Some((link, packet)) = frame.split_at_checked(14) else { return };
        let is_for = link[..6] == self.mac;
        let (next, rest) = match (&link[12..], packet.first().map(|byte| byte >> 4)) {
            ([8, 0], Some(4)) => (packet.get(9), packet.get(20..)),
            ([0x86, 0xdd], Some(6)) => (packet.get(6), packet.get(40..)),
            (kind, _) if kind == ARP && link[6..12] == self.mac => {
                self.words.push(if packet.get(7) == Some(&2) { Word::Answer } else { Word::Unsolicited });
                return;
            }
            _ => return,
        };
        match (next, rest) {
            (Some(17), Some(udp)) if udp.get(2..4) == Some(&PORT.to_be_bytes()) => self.datagrams.push(is_for),
            (Some(58), Some(icmp)) if link[6..12] == self.mac && NEIGHBOUR.contains(&icmp[0]) => {
                // An advertisement with the bit that says that it was asked for.
                let solicited = icmp[0] == NEIGHBOUR[1] && icmp.get(4).is_some_and(|flags| flags & 0x40 != 0);
                self.words.push(if solicited { Word::Answer } else { Word::Unsolicited });
            }
            _ => {}
        }
    }
}

/// `b` moves to `mac` while `a` sends to it and nobody sends from it.
fn moves(world: &HostsBed, control: &Control<'_>, to: IpAddr, mac: [u8; 6]) {
    let to = SocketAddr::new(to, PORT);
    let taken = world.b.run(|| UdpSocket::bind(to).unwrap());
    let from = world.a.run(|| UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap());
    let heard = Mutex::new(Heard { mac, datagrams: Vec::new(), words: Vec::new() });
    let (stop, tap) = (AtomicBool::new(false), Tap::open(world.b.space()));
    let many = |which: bool, more: usize| {
        let come = || heard.lock().unwrap().datagrams.iter().filter(|new| **new == which).count();
        let (before, forwarded) = (come(), control.ask(totals).forwarded);
        wait("they come", || come() >= before + more);
        wait("the fast path sends them", || control.ask(totals).forwarded >= forwarded + more as u64 / 2);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                from.send_to(&[0; 32], to).unwrap();
                thread::sleep(SEND_PERIOD);
            }
        });
        scope.spawn(|| {
            let mut buffer = [0; 128];
            while !stop.load(Relaxed) {
                if let Some(frame) = tap.next(&mut buffer) {
                    heard.lock().unwrap().see(frame);
                }
            }
        });
        let _ends = Ends(&stop);
        many(false, 200);
        // Of what the kernel itself has sent to it lately, it would ask by itself.
        let known = || world.rb.output(&format!("ip neigh show to {} dev {}", to.ip(), world.rb.interface()));
        wait("the kernel has not heard of it lately", || known().contains("STALE"));
        heard.lock().unwrap().words.clear();
        world.b.link_set(&format!("address {}", mac.map(|byte| format!("{byte:02x}")).join(":")));
        let moved = Instant::now();
        many(true, 1);
        println!("{to}: followed after {} ms", moved.elapsed().as_millis());
        many(true, 200);
    });
    drop(taken);
    let heard = heard.into_inner().unwrap();
    let first = heard.datagrams.iter().position(|new| *new).unwrap();
    assert!(heard.datagrams[first..].iter().all(|new| *new), "some went to the old address later");
    assert_eq!(heard.words.first(), Some(&Word::Answer), "it said a word: {:?}", heard.words);
}

#[test]
fn a_neighbour_that_moves_without_a_word_is_followed() {
    let Some(world) = HostsBed::with_ipv6("rtmov") else { return };
    let (r, port) = (world.rb.space(), world.rb.interface());
    for (version, (name, value)) in ["ipv4", "ipv6"].iter().flat_map(|version| TIMES.map(|time| (version, time))) {
        r.set(&format!("net.{version}.neigh.{port}.{name}"), value);
    }
    beside(r, settings(&world.ports()), None, RouteMode::Routed, |control| {
        moves(&world, control, "198.18.2.2".parse().unwrap(), [2, 0, 0, 0, 9, 4]);
        moves(&world, control, "2001:2:0:2::2".parse().unwrap(), [2, 0, 0, 0, 9, 6]);
    });
}

#[test]
fn a_port_that_was_elsewhere_sends_again() {
    let Some(world) = HostsBed::with_ipv6("rtaway") else { return };
    let (r, port) = (world.rb.space(), world.rb.interface().to_owned());
    let away = world.b.space();
    beside(r, settings(&world.ports()), None, RouteMode::Routed, |control| {
        let pings = || world.a.output("ping -c 3 -i 0.2 -W 1 198.18.2.2");
        assert!(pings().contains(" 3 received"));
        for _ in 0..3 {
            r.output(&format!("ip link set {port} netns {}", away.name()));
            away.output(&format!("ip link set {port} netns {}", r.name()));
            world.rb.link_set("up");
            world.rb.address("198.18.2.1/24");
            let forwarded = control.ask(totals).forwarded;
            let answers = pings();
            assert!(answers.contains(" 3 received"), "{answers}");
            assert!(control.ask(totals).forwarded > forwarded, "the fast path sends by it again");
        }
    });
}

#[test]
fn what_comes_where_ipv6_is_off_is_the_kernels() {
    let Some(world) = HostsBed::with_ipv6("rtoff") else { return };
    let (r, port) = (world.ra.space(), world.ra.interface().to_owned());
    beside(r, settings(&world.ports()), None, RouteMode::Routed, |control| {
        let ping = |version: &str, to: &str| {
            let mut ping = world.a.command("ping");
            ping.args([version, "-c", "1", "-W", "1", to]).output().unwrap().status.success()
        };
        let forwards = |version: &str, to: &str| {
            let before = control.ask(totals).forwarded;
            (ping(version, to), control.ask(totals).forwarded > before)
        };
        wait("IPv6 is forwarded", || forwards("-6", "2001:2:0:2::2") == (true, true));
        r.set(&format!("net.ipv6.conf.{port}.disable_ipv6"), "1");
        wait("IPv6 is the kernel's", || forwards("-6", "2001:2:0:2::2") == (false, false));
        assert_eq!(forwards("-4", "198.18.2.2"), (true, true));
    });
}
