//! VLAN tags: what comes in by a way with a tag, or leaves by one, is what the kernel would have sent by a link of its own in that way's place, but
//! for the tag. Links stand in for VLAN devices, as not every kernel has those: the kernel forwards between the links, the fast path between the
//! tags, and what it leaves to the kernel is lost. EK_ORACLE_FRAMES says how many frames each way in gets (5,000), EK_ORACLE_SEED which.

#[path = "oracle/frames.rs"]
mod frames;

use std::{collections::BTreeMap, env, net::Ipv4Addr};

use bpf::{RouteInterface, RouteKey, RoutePort, RouteSlots, RouteTables, XdpMode};
use frames::{Aim, frame};
use model::route::{RouteMode, RouteTotals};
use testbed::{Dice, End, Ip, RouterBed, answers_refused, compared, ethernet, write_pcap};

/// The port, the tag, and the network of each way: 198.18.N.0/24 and 2001:2:0:N::/64. The first two are the ports without a tag.
const WAYS: [(usize, Option<u16>, u8); 6] =
    [(0, None, 1), (1, None, 2), (1, Some(6), 3), (0, Some(5), 5), (0, Some(7), 7), (1, Some(5), 8)];
/// Destinations of frames, all behind the first port.
const INTO: [usize; 3] = [0, 3, 4];
/// Of the second port.
const MTU: usize = 1400;

/// Frames received by each way, with their number.
type Seen = [BTreeMap<Vec<u8>, i64>; WAYS.len()];

/// The router's address on the link, and its neighbour's.
fn macs(port: usize) -> [[u8; 6]; 2] {
    [1, 2].map(|end| [2, 0, 0, 0, port as u8 + 1, end])
}

/// The router's ends of the ways, and the neighbours' ends.
fn world(tag: &str) -> Option<RouterBed> {
    let mut bed = RouterBed::new(tag, &["a", "b", "v"])?;
    for (port, tag, net) in WAYS {
        bed.join(if tag.is_some() { "v" } else { ["a", "b"][port] }, net, macs(port), tag.is_none());
        if port == 1 {
            bed.near[bed.near.len() - 1].link_set(&format!("mtu {MTU}"));
        }
    }
    bed.forward(&[
        "route add 198.18.10.0/24 via 198.18.1.2",
        "route add 198.18.20.0/24 via 198.18.7.2",
        "route add 198.18.30.0/24 via 198.18.8.2",
        "route add 198.18.31.0/24 via 198.18.2.2",
        "route add 198.18.32.0/24 via 198.18.8.2",
        "route add 198.18.33.0/24 via 198.18.5.2",
        "route add 198.18.40.0/24 via 198.18.2.2",
        "route add 198.18.41.0/24 via 198.18.5.2",
        "route add 198.18.60.0/24 via inet6 2001:2:0:3::2",
        "route add 198.18.61.0/24 via inet6 2001:2:0:7::2",
        "route add blackhole 198.18.50.0/24",
        "-6 route add 2001:2:0:10::/64 via 2001:2:0:1::2",
        "-6 route add 2001:2:0:20::/64 via 2001:2:0:7::2",
        "-6 route add 2001:2:0:30::/64 via 2001:2:0:8::2",
        "-6 route add 2001:2:0:31::/64 via 2001:2:0:8::2",
        "-6 route add 2001:2:0:32::/64 via 2001:2:0:5::2",
        "-6 route add 2001:2:0:40::/64 via 2001:2:0:5::2",
        "-6 route add blackhole 2001:2:0:50::/64",
    ]);
    Some(bed)
}

fn number(name: &str, else_this: u64) -> u64 {
    env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(else_this)
}

/// Frames without tags.
fn untagged() -> Vec<Vec<u8>> {
    let [router, sender] = macs(0);
    let aim = Aim { router, sender, mtus: [1500, MTU, 1500, MTU] };
    let mut dice = Dice::new(number("EK_ORACLE_SEED", 1));
    let mut frames = || frame(&mut dice, &aim);
    let plain = |frame: &Vec<u8>| !matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
    std::iter::from_fn(|| Some(frames())).filter(plain).take(number("EK_ORACLE_FRAMES", 5000) as usize).collect()
}

/// To a host behind the way with tag 5.
fn plain(to: u8, hops: u8) -> Vec<u8> {
    let ip = Ip { fragment: 0x4000, hops, ..Ip::new([198, 18, 1, 2], [198, 18, 41, to], 17) };
    ethernet(macs(0), &[], &ip.packet(&[], &[&[0, 9, 0, 9, 0, 26, 0, 0][..], &[7; 18]].concat()))
}

/// With a tag of some priority, which is the sender's alone: a VLAN device sends 0 unless it is told otherwise.
fn tagged(frame: &[u8], tag: u16, priority: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &(priority << 13 | tag).to_be_bytes(), &frame[12..]].concat()
}

/// What came by which way when `frames` are sent by the neighbour at the end of `from`.
fn received(world: &RouterBed, from: usize, frames: &[Vec<u8>]) -> Seen {
    let path = world.bed.path("sent.pcap");
    write_pcap(&path, frames);
    let routers: Vec<Ipv4Addr> = WAYS.iter().map(|(_, _, net)| Ipv4Addr::new(198, 18, *net, 1)).collect();
    let mut seen = Seen::default();
    for (at, came) in world.received(from, &path).into_iter().enumerate() {
        for data in came {
            let (way, frame) = match data.get(12..16) {
                Some([0x81, 0, high, low]) => {
                    let tci = u16::from_be_bytes([*high, *low]);
                    let way = WAYS.iter().position(|(port, tag, _)| *port == WAYS[at].0 && *tag == Some(tci));
                    let way = way.unwrap_or_else(|| panic!("{tci:#06x} leaves by port {}", WAYS[at].0));
                    (way, [&data[..12], &data[16..]].concat())
                }
                _ => (at, data),
            };
            if let Some(frame) = compared(&frame, &routers).filter(|frame| !answers_refused(frame)) {
                *seen[way].entry(frame).or_default() += 1;
            }
        }
    }
    seen
}

/// The fast path alone, without what looks after it: settings do not change here.
struct Fast {
    tables: RouteTables,
    ports: Vec<RoutePort>,
}

impl Fast {
    fn start(world: &RouterBed) -> Self {
        let tables = RouteTables::create(RouteSlots::all(64)).unwrap();
        let load = |number: usize| {
            let name = world.near[number].interface();
            RoutePort::load(&tables, number, name, macs(number)[0], XdpMode::Native, true).unwrap()
        };
        let mut ports: Vec<RoutePort> = [0, 1].map(load).into();
        tables.set_own_addresses(WAYS.iter().map(|(_, _, net)| Ipv4Addr::new(198, 18, *net, 1)));
        let way = |(end, (port, tag, _)): (&End, (usize, Option<u16>, u8))| {
            let way = RouteInterface {
                port: port as u32,
                tag,
                out: true,
                redirects: true,
                strict: false,
                loose: false,
                without_v6: false,
            };
            (end.link.index, way)
        };
        tables.set_interfaces(&world.near.iter().zip(WAYS).map(way).collect()).unwrap();
        tables.set_mode(RouteMode::Routed, false);
        ports.iter_mut().for_each(|port| port.put().unwrap());
        Self { tables, ports }
    }

    fn totals(&self) -> RouteTotals {
        let mut all = RouteTotals::default();
        self.ports.iter().for_each(|port| all += port.counts().unwrap());
        all
    }
}

/// Frames of the one that are not of the other.
fn without(some: &Seen, others: &Seen) -> Vec<String> {
    let mut left = Vec::new();
    for ((frames, others), (port, tag, _)) in some.iter().zip(others).zip(WAYS) {
        for (frame, times) in frames {
            let more = times - others.get(frame).unwrap_or(&0);
            if more > 0 {
                let hex: String = frame.iter().take(80).map(|byte| format!("{byte:02x}")).collect();
                left.push(format!("port {port}, tag {tag:?}: {more} of {} bytes {hex}", frame.len()));
            }
        }
    }
    left
}

#[test]
fn what_comes_or_leaves_with_a_tag_is_what_a_link_in_its_place_would_carry() {
    let (Some(alone), Some(world)) = (world("rtgk"), world("rtge")) else { return };
    let frames = untagged();
    let expected = INTO.map(|from| received(&alone, from, &frames));
    let fast = world.router.run(|| Fast::start(&world));
    let sent = |into: usize| -> Vec<Vec<u8>> {
        let of = |(n, frame): (usize, &Vec<u8>)| match WAYS[into].1 {
            Some(tag) => tagged(frame, tag, n as u16 % 8),
            None => frame.clone(),
        };
        frames.iter().enumerate().map(of).collect()
    };
    let ports = RouteKey { source: true, ports: true, ..RouteKey::default() };
    for key in [RouteKey::default(), ports] {
        fast.tables.set_key(key);
        for (into, expected) in INTO.into_iter().zip(&expected) {
            let before = fast.totals();
            let got = received(&world, 0, &sent(into));
            let now = fast.totals();
            let what = format!("{key:?}, into {:?}", WAYS[into]);
            let (more, less) = (without(&got, expected), without(expected, &got));
            assert_eq!(more, Vec::<String>::new(), "{what}: neighbours received what the kernel would not have sent");
            if WAYS[into].1.is_some() {
                // By the way that they came by the kernel alone sends, whatever is remembered of another way in.
                assert_eq!(got[into], BTreeMap::new(), "{what}");
            } else {
                assert_eq!(less, Vec::<String>::new(), "{what}: neighbours did not receive it");
            }
            let forwarded = now.forwarded - before.forwarded;
            println!("{what}: {forwarded} of {} forwarded", frames.len());
            assert!(forwarded * 100 > frames.len() as u64 * 15, "{what}: {forwarded} of {} forwarded", frames.len());
            // No way out is left out, but for the one that they came by.
            let unused: Vec<_> = (1..WAYS.len()).filter(|way| *way != into && got[*way].is_empty()).collect();
            assert_eq!(unused, Vec::<usize>::new(), "{what}");
            assert!(now.hairpin > before.hairpin, "{what}");
            assert!(got.iter().map(|seen| seen.values().sum::<i64>()).sum::<i64>() as u64 >= forwarded, "{what}");
        }
    }
    // The same destination from two ways, and what is remembered of the one is in the same place as what is of the other: there are few.
    fast.tables.set_key(RouteKey::default());
    let twice: Vec<Vec<u8>> = (1..=254).flat_map(|to| [plain(to, 64), tagged(&plain(to, 100), 5, 0)]).collect();
    let got = received(&world, 0, &twice);
    let hops: Vec<u8> = got[3].keys().map(|frame| frame[22]).collect();
    assert_eq!(hops, [63; 254], "and nothing by the way that it came by");
    // A tag without a device is nobody's, and one whose device forwards nothing the kernel's.
    let before = fast.totals();
    let strange: Vec<Vec<u8>> = frames.iter().map(|frame| tagged(frame, 9, 0)).collect();
    assert_eq!(without(&received(&world, 0, &strange), &Seen::default()), Vec::<String>::new());
    let now = fast.totals();
    assert_eq!((now.forwarded - before.forwarded, now.unknown_vlan > before.unknown_vlan), (0, true));
    let r = &world.router;
    for version in ["ipv4", "ipv6"] {
        r.set(&format!("net.{version}.conf.{}.forwarding", world.near[3].interface()), "0");
    }
    fast.tables.flush();
    received(&world, 0, &sent(3));
    let after = fast.totals();
    assert_eq!((after.forwarded - now.forwarded, after.no_forwarding > now.no_forwarding), (0, true), "{after:?}");
}
