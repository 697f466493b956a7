//! Frame by frame: what the program makes of SYNs and ACKs, by test runs in the server's namespace. Needs root.

use std::{
    hash::Hasher,
    net::{IpAddr, TcpListener},
};

use bpf::filter::{CookieMode, HostCookies, Shield, SourceCookies, Tested};
use siphasher::sip::SipHasher24;
use testbed::cookies::{
    self, CLIENT, CookieBed, Mode, SERVER,
    frames::{ACK, ECN, FIN, Frame, LINUX, RST, SYN, WINDOWS},
};
use wire::Mac;

const DROP: u32 = 1;
const PASS: u32 = 2;
/// To where it came from; on other drivers than veth's it is XDP_TX.
const BACK: u32 = 4;

/// The ids of VLAN devices that there are, as the program is told.
const TAGS: [u16; 3] = [5, 100, 4094];

/// SACK, timestamps, the client's window shift.
type Kept = (bool, bool, Option<u8>);

struct Server {
    bed: CookieBed,
    _listeners: Vec<TcpListener>,
}

impl Server {
    fn new(tag: &str) -> Option<Self> {
        let bed = CookieBed::new(tag, Mode::Host(|host| host.tags = Some(TAGS.into())))?;
        let listen = |address| bed.server.run(|| TcpListener::bind((address, cookies::PORT))).unwrap();
        let listeners = SERVER.iter().map(|a| listen(*a)).collect();
        Some(Self { bed, _listeners: listeners })
    }

    fn test(&self, bytes: &[u8]) -> Tested {
        self.bed.server.run(|| self.bed.shield.test(bytes)).unwrap()
    }

    fn syn(&self, family: usize) -> Frame {
        Frame::new(self.bed.server.link.mac, self.bed.client.link.mac, CLIENT[family], SERVER[family])
    }

    /// The answer to a SYN, every byte of it checked that does not hang on options.
    fn answer(&self, syn: &Frame, bytes: &[u8]) -> Frame {
        let tested = self.test(bytes);
        assert_eq!(tested.action, BACK, "{syn:?}");
        let answer = Frame::read(&tested.frame);
        assert_eq!((answer.to, answer.from, &answer.tags), (syn.from, syn.to, &syn.tags));
        assert_eq!((answer.source, answer.destination), (syn.destination, syn.source));
        assert_eq!(answer.ports, (syn.ports.1, syn.ports.0));
        assert_eq!((answer.ack, answer.data.len()), (syn.seq + 1, 0));
        assert_eq!(answer.flags & !0x40, SYN | ACK);
        let allowed = (bytes.len() + 4).max(60);
        assert!(tested.frame.len() <= allowed, "{} bytes for {}", tested.frame.len(), bytes.len());
        answer
    }
}

#[test]
fn a_syn_is_answered_with_what_it_offers() {
    let Some(server) = Server::new("ckanswer") else { return };
    let stamps = [&[1, 1, 8, 10][..], &LINUX[8..12], &[0; 4]].concat();
    let unaligned = [&[8, 10][..], &LINUX[8..12], &[0; 4], &[3, 3, 2], &[0; 3]].concat();
    // Options, padding to the least frame or not, and what the answer has, the MSS apart: SACK, timestamps, the client's window shift.
    let cases: [(&[u8], Kept); 8] = [
        (&[], (false, false, None)),
        (&LINUX, (true, true, Some(10))),
        (&WINDOWS, (false, false, None)),
        (&LINUX[..4], (false, false, None)),
        (&stamps, (false, true, None)),
        (&unaligned, (false, true, Some(2))),
        // Options that end early, or lie about their length.
        (&[0, 4, 8, 10], (false, false, None)),
        (&[8, 200, 3, 0], (false, false, None)),
    ];
    for family in 0..2 {
        for tags in [vec![], vec![100], vec![0]] {
            for (options, (sack, stamps, shift)) in cases {
                let mut syn = Frame { tags: tags.clone(), options: options.to_vec(), ..server.syn(family) };
                for (data, padded) in [(0, false), (0, true), (1000, false)] {
                    syn.data = vec![7; data];
                    let mut bytes = syn.bytes();
                    if padded && bytes.len() < 60 {
                        bytes.resize(60, 0);
                    }
                    let answer = server.answer(&syn, &bytes);
                    let mss = if family == 0 { 1460u16 } else { 1440 };
                    let mut wanted = [&[2, 4][..], &mss.to_be_bytes()].concat();
                    if stamps {
                        wanted.extend_from_slice(if sack { &[4, 2, 8, 10] } else { &[1, 1, 8, 10] });
                        wanted.extend_from_slice(&answer.stamp().unwrap().to_be_bytes());
                        wanted.extend_from_slice(&LINUX[8..12]);
                    }
                    if shift.is_some() {
                        wanted.extend_from_slice(&[1, 3, 3, server_shift()]);
                    }
                    assert_eq!(answer.options, wanted, "{syn:?}");
                    if stamps {
                        let stamp = answer.stamp().unwrap();
                        assert_eq!((stamp & 15, stamp >> 4 & 1), (u32::from(shift.unwrap_or(15)), u32::from(sack)));
                    }
                    let ack = syn.finish(&answer);
                    assert_eq!(server.test(&ack.bytes()).action, PASS, "{ack:?}");
                }
            }
        }
    }
    let counts = server.bed.counts();
    assert_eq!((counts.answered, counts.right, counts.wrong, counts.failed), (144, 144, 0, 0));
}

#[test]
fn syns_pass_while_answers_are_withheld_and_cookies_of_before_stay_right() {
    let Some(server) = Server::new("ckwithheld") else { return };
    let connected = server.bed.cookies.connected().unwrap();
    for family in 0..2 {
        let syn = server.syn(family);
        let answer = server.answer(&syn, &syn.bytes());
        connected.set_withheld(true);
        assert_eq!(server.test(&syn.bytes()).action, PASS);
        assert_eq!(server.test(&syn.finish(&answer).bytes()).action, PASS);
        let guessed = Frame { ack: answer.seq.wrapping_add(7), ..syn.finish(&answer) };
        assert_eq!(server.test(&guessed.bytes()).action, DROP, "as ever");
        connected.set_withheld(false);
        // Of another client: of that one a connection may have come to be.
        let other = Frame { ports: (40_001, cookies::PORT), ..syn };
        server.answer(&other, &other.bytes());
    }
    let counts = server.bed.counts();
    assert_eq!((counts.answered, counts.right, counts.wrong), (4, 2, 2));
}

/// The shift that the kernel would choose, from net.ipv4.tcp_rmem.
fn server_shift() -> u8 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    let most: u64 = text.split_whitespace().last().unwrap().parse().unwrap();
    (0..14).find(|shift| most >> shift < 65536).unwrap_or(14)
}

#[test]
fn options_of_ip_are_not_answered_but_their_syn_is() {
    let Some(server) = Server::new("ckextra") else { return };
    // Record route with room for three addresses; destination options: a PadN of 4 and of 12 bytes.
    let v4 = [&[7, 15, 4][..], &[0; 12], &[0]].concat();
    let v6_short = vec![6, 0, 1, 4, 0, 0, 0, 0];
    let v6_long = [&[6, 1, 1, 12][..], &[0; 12]].concat();
    for (family, extra) in [(0, v4), (1, v6_short), (1, v6_long)] {
        let syn = Frame { extra, ..server.syn(family) };
        let answer = server.answer(&syn, &syn.bytes());
        assert_eq!(server.test(&syn.finish(&answer).bytes()).action, PASS);
    }
    let ecn = Frame { flags: SYN | ECN, ..server.syn(0) };
    assert_eq!(server.answer(&ecn, &ecn.bytes()).flags, SYN | ACK | 0x40);
    assert_eq!(server.bed.counts().right, 3);
}

#[test]
fn only_a_right_cookie_passes() {
    let Some(server) = Server::new("ckwrong") else { return };
    // Times that a segment came too late behind its ACK.
    let mut late = 0;
    for family in 0..2 {
        let syn = server.syn(family);
        let answer = server.answer(&syn, &syn.bytes());
        let good = Frame { data: vec![1; 10], ..syn.finish(&answer) };
        let pass = |frame: &Frame| server.test(&frame.bytes()).action;
        assert_eq!(pass(&good), PASS, "with data");
        let others = [
            Frame { ack: good.ack.wrapping_add(1 << 20), ..good.clone() },
            Frame { seq: good.seq.wrapping_sub(1 << 20), ..good.clone() },
            Frame { ports: (40_001, cookies::PORT), ..good.clone() },
            Frame { source: if family == 0 { "198.18.0.9" } else { "2001:2::9" }.parse().unwrap(), ..good.clone() },
            Frame { flags: SYN | ACK, ..good.clone() },
            Frame { flags: RST | ACK, ..good.clone() },
            Frame { flags: RST, ..good.clone() },
            Frame { flags: 0, ..good.clone() },
            Frame { flags: SYN | FIN, ..syn.clone() },
            Frame { flags: SYN | RST, ..syn.clone() },
        ];
        for other in &others {
            assert_eq!(pass(other), DROP, "{other:?}");
        }
        assert_eq!(pass(&Frame { flags: ACK | FIN, ..good.clone() }), PASS);
        let behind = Frame { seq: good.seq.wrapping_add(10), ..good.clone() };
        // KnownSources for 32 ms, by the CPU that saw the ACK: on a busy machine this thread may be late, or elsewhere by then.
        let in_time = || pass(&good) == PASS && pass(&behind) == PASS;
        late += (0..100).position(|_| in_time()).expect("what comes behind the ACK, before TCP has heard of it");
        assert_eq!(pass(&Frame { seq: good.seq.wrapping_add(1 << 18), ..good.clone() }), DROP, "too far behind");
        // One of 2^29 numbers is right; none of these is likely to be.
        for n in 1..2000u32 {
            let guess = Frame { ack: good.ack.wrapping_add(n.wrapping_mul(0x9e37_79b1)), ..good.clone() };
            assert_eq!(pass(&guess), DROP);
        }
    }
    let counts = server.bed.counts();
    let late = late as u64;
    assert_eq!((counts.right, counts.odd), (6 + late, 12));
    assert_eq!(counts.wrong, 2 * (5 + 1999) + late);
}

/// A cookie is SipHash-2-4 of what the paper's reference makes of the same bytes, and stands for the client's MSS.
#[test]
fn a_cookie_is_a_keyed_hash_and_the_number_of_an_mss() {
    let Some(server) = Server::new("cksip") else { return };
    let key = server.bed.cookies.connected().unwrap().cookie_key().unwrap();
    let numbers =
        [[(0, 0), (1299, 0), (1300, 1), (1459, 2), (1460, 3)], [(0, 0), (1419, 0), (1420, 1), (1440, 2), (8940, 3)]];
    for (family, numbers) in numbers.into_iter().enumerate() {
        for (mss, number) in numbers {
            let [high, low] = u16::to_be_bytes(mss);
            let options = if mss == 0 { vec![] } else { vec![2, 4, high, low] };
            let syn = Frame { options, seq: 0xffff_fff0, ..server.syn(family) };
            let added = server.answer(&syn, &syn.bytes()).seq.wrapping_sub(syn.seq);
            let hash = |back: u64| {
                let period = (model::clock::monotonic_ns() >> 36) - back;
                let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
                for address in [syn.source, syn.destination] {
                    match address {
                        IpAddr::V4(address) => hasher.write(&address.octets()),
                        IpAddr::V6(address) => hasher.write(&address.octets()),
                    }
                }
                hasher.write(&syn.ports.0.to_le_bytes());
                hasher.write(&syn.ports.1.to_le_bytes());
                hasher.write(&period.to_le_bytes()[..3]);
                hasher.finish() as u32 & !3
            };
            assert!(added & 3 == number && [0, 1].map(hash).contains(&(added & !3)), "{mss}: {added:#x}");
        }
    }
}

#[test]
fn a_program_that_follows_takes_the_cookies_and_others_do_not() {
    let Some(server) = Server::new("cknext") else { return };
    let (bed, mode) = (&server.bed, server.bed.cookies.mode());
    let next = bed.another(mode, Some(&bed.cookies));
    let stranger = bed.another(mode, None);
    for family in 0..2 {
        let syn = server.syn(family);
        let ack = syn.finish(&server.answer(&syn, &syn.bytes())).bytes();
        let action = |shield: &Shield| bed.server.run(|| shield.test(&ack)).unwrap().action;
        assert_eq!((action(&next), action(&stranger)), (PASS, DROP));
    }
}

/// The kernel answers by cookies of its own while nothing is challenged; what it has put into them it alone knows.
#[test]
fn the_kernels_own_cookies_are_left_to_it() {
    let Some(server) = Server::new("ckkernel") else { return };
    server.bed.server.set("net.ipv4.tcp_syncookies", "2");
    let CookieMode::Host(host) = server.bed.cookies.mode().clone() else { panic!("host mode") };
    let kernels = server.bed.another(&CookieMode::Kernel(host), None);
    for family in 0..2 {
        let syn = server.syn(family);
        let tested = server.bed.server.run(|| kernels.test(&syn.bytes())).unwrap();
        assert_eq!(tested.action, BACK);
        let ack = syn.finish(&Frame::read(&tested.frame));
        assert_eq!(server.test(&ack.bytes()).action, PASS);
        let wrong = Frame { ack: ack.ack.wrapping_add(1 << 20), ..ack };
        assert_eq!(server.test(&wrong.bytes()).action, DROP);
    }
    let counts = server.bed.counts();
    assert_eq!((counts.right, counts.wrong), (0, 2));
}

#[test]
fn a_timestamp_comes_back_with_its_cookie() {
    let Some(server) = Server::new("ckstamp") else { return };
    for family in 0..2 {
        let syn = server.syn(family);
        let ours = syn.finish(&server.answer(&syn, &syn.bytes()));
        for bit in 10..32 {
            let mut other = ours.clone();
            let at = other.options.len() - 1 - bit / 8;
            other.options[at] ^= 1 << (bit % 8);
            assert_eq!(server.test(&other.bytes()).action, DROP, "bit {bit}");
        }
        assert_eq!(server.test(&ours.bytes()).action, PASS);
    }
    assert_eq!((server.bed.counts().right, server.bed.counts().wrong), (2, 44));
}

#[test]
fn what_is_not_for_a_listener_here_is_left_alone() {
    let Some(server) = Server::new("ckalone") else { return };
    let syn = server.syn(0);
    let action = |frame: &Frame| server.test(&frame.bytes()).action;
    let cases = [
        (PASS, Frame { ports: (40_000, 81), ..syn.clone() }, "no listener: the stack says so"),
        (PASS, Frame { to: Mac([0xff; 6]), ..syn.clone() }, "to all hosts"),
        (PASS, Frame { to: Mac([2, 0, 0, 0, 0, 99]), ..syn.clone() }, "to another host"),
        (DROP, Frame { tags: vec![100, 200], ..syn.clone() }, "two tags, which nobody here takes"),
        (PASS, Frame { tags: vec![100, 200], flags: ACK, ..syn.clone() }, "two tags, and no SYN"),
        (PASS, Frame { tags: vec![7], ..syn.clone() }, "a tag of no device"),
        (PASS, Frame { tags: vec![7], flags: ACK, ..syn.clone() }, "an ACK with a tag of no device"),
        (DROP, Frame { source: "224.0.0.1".parse().unwrap(), ..syn.clone() }, "from a group"),
        (DROP, Frame { source: "127.0.0.1".parse().unwrap(), ..syn.clone() }, "from the loopback"),
        (
            DROP,
            Frame { destination: "224.0.0.1".parse().unwrap(), ..syn.clone() },
            "to a group, but not by its address",
        ),
        (
            DROP,
            Frame { destination: "255.255.255.255".parse().unwrap(), ..syn.clone() },
            "to all, but not by their address",
        ),
        (DROP, Frame { destination: "127.0.0.1".parse().unwrap(), ..syn.clone() }, "to the loopback"),
        (
            DROP,
            Frame { destination: "ff02::1".parse().unwrap(), ..server.syn(1) },
            "to a group, but not by its address",
        ),
        (DROP, Frame { source: syn.destination, ports: (80, 80), ..syn.clone() }, "to itself"),
    ];
    for (wanted, frame, why) in cases {
        assert_eq!(action(&frame), wanted, "{why}");
    }
    let mut udp = syn.bytes();
    udp[23] = 17;
    assert_eq!(server.test(&udp).action, PASS, "UDP");
    let CookieMode::Host(host) = server.bed.cookies.mode().clone() else { panic!("host mode") };
    let sources = SourceCookies { known_s: 600, until_ns: 0, host: host.clone() };
    let takes = server.bed.another(&CookieMode::Sources(sources), None);
    for (tags, wanted) in [(vec![], BACK), (vec![0], BACK), (vec![7], PASS), (vec![7, 8], PASS)] {
        let tagged = Frame { tags, ..syn.clone() }.bytes();
        assert_eq!(server.bed.server.run(|| takes.test(&tagged)).unwrap().action, wanted, "{:?}", &tagged[12..18]);
    }
    let takes = server.bed.another(&CookieMode::Host(HostCookies { two_tags: true, ..host }), None);
    let tagged = Frame { tags: vec![100, 200], ..syn }.bytes();
    assert_eq!(server.bed.server.run(|| takes.test(&tagged)).unwrap().action, PASS, "a device in a device takes them");
    assert_eq!(server.bed.counts().answered, 0);
}

#[test]
fn cut_frames_are_answered_or_dropped_and_nothing_else() {
    let Some(server) = Server::new("ckcut") else { return };
    for family in 0..2 {
        let whole = Frame { tags: vec![5], ..server.syn(family) }.bytes();
        for len in 14..whole.len() {
            let tested = server.test(&whole[..len]);
            assert!([DROP, PASS].contains(&tested.action), "{len} bytes of {}: {tested:?}", whole.len());
        }
        assert_eq!(server.test(&whole).action, BACK);
        // Every byte of the options, made everything.
        for at in whole.len() - 20..whole.len() {
            for value in [0, 1, 2, 3, 4, 8, 10, 40, 255] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let tested = server.test(&bytes);
                assert_eq!(tested.action, BACK);
                Frame::read(&tested.frame);
            }
        }
    }
}
