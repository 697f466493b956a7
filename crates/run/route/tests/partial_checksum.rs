//! Packets whose checksum is left to a device, and merged ones: the kernel finishes and cuts them, so that none arrives damaged.

mod settings;
mod totals;

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use bpf::XdpMode;
use model::{CpuSet, route::RouteMode};
use route::{RouteError, RouteSettings, Router};
use settings::settings;
use testbed::HostsBed;
use totals::totals;

const PORT: u16 = 5000;
const DATAGRAM_COUNT: u64 = 50;
/// Many segments, which come merged where something merges.
const STREAM_BYTES: usize = 300_000;

/// Has `a` send datagrams and a stream to `b`: all of it arrives as it was sent.
fn arrive(world: &HostsBed, to: &str) {
    let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), PORT);
    let (datagrams, listener) = world.b.run(|| (UdpSocket::bind(to).unwrap(), TcpListener::bind(to).unwrap()));
    datagrams.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    world.a.run(|| {
        let unbound = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(unbound).unwrap();
        for number in 0..DATAGRAM_COUNT {
            let sent = number.to_be_bytes().repeat(20);
            socket.send_to(&sent, to).unwrap();
            let mut got = [0; 200];
            let length = datagrams.recv(&mut got).unwrap_or_else(|e| panic!("datagram {number} to {to}: {e}"));
            assert_eq!(got[..length], sent);
        }
        let stream: Vec<u8> = (0..STREAM_BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
        let mut client = TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap();
        let reader = thread::spawn(move || {
            let (mut from, _) = listener.accept().unwrap();
            from.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut got = Vec::new();
            from.read_to_end(&mut got).unwrap();
            got
        });
        client.write_all(&stream).unwrap();
        drop(client);
        assert!(reader.join().unwrap() == stream, "the stream to {to} came otherwise");
    });
}

#[test]
fn packets_that_a_device_was_to_finish_arrive_whole_in_native_and_generic_mode() {
    let Some(world) = HostsBed::with_ipv6("runfi") else { return };
    for (xdp, cpus) in [(XdpMode::Native, ""), (XdpMode::Native, "0"), (XdpMode::Generic, "")] {
        world.ra.run(|| {
            let cpus = CpuSet::parse_list(cpus).unwrap();
            let mut router = Router::start(RouteSettings { xdp, cpus, ..settings(&world.ports()) }).unwrap();
            router.set_mode(RouteMode::Routed).unwrap();
            for to in ["198.18.2.2", "2001:2:0:2::2"] {
                // Unfinished, by the one that sends.
                world.a.feature("tx-checksum-ip-generic", true);
                let before = totals(&router);
                arrive(&world, to);
                let now = totals(&router);
                assert!(now.partial_checksum - before.partial_checksum >= DATAGRAM_COUNT, "{xdp}: {now:?}");
                assert!(now.forwarded > before.forwarded, "what comes back is finished: {now:?}");
                // Finished: the same is forwarded here, but for one of 65,536 and what comes merged.
                world.a.feature("tx-checksum-ip-generic", false);
                let before = totals(&router);
                arrive(&world, to);
                let now = totals(&router);
                assert!(now.forwarded - before.forwarded > DATAGRAM_COUNT - 5, "{xdp}: {now:?}");
            }
        });
    }
}

/// Of 65,536 finished packets that differ in two bytes one has the sum of the pseudo header for its checksum.
#[test]
fn no_complete_checksum_is_taken_for_a_partial_one() {
    let Some(world) = HostsBed::with_ipv6("ralls") else { return };
    world.ra.run(|| {
        let mut router = Router::start(settings(&world.ports())).unwrap();
        router.set_mode(RouteMode::Routed).unwrap();
        for to in ["198.18.2.2", "2001:2:0:2::2"] {
            let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), PORT);
            let unbound = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = world.a.run(|| UdpSocket::bind(unbound).unwrap());
            // An odd length, so that the last byte counts.
            let mut bytes = [7; 111];
            socket.send_to(&bytes, to).unwrap();
            testbed::wait("the neighbour is known", || {
                let before = totals(&router).forwarded;
                socket.send_to(&bytes, to).unwrap();
                thread::sleep(Duration::from_millis(20));
                totals(&router).forwarded > before
            });
            let before = totals(&router);
            for number in 0..=u16::MAX {
                [bytes[30], bytes[31]] = number.to_be_bytes();
                // What the sender has no room for is not under way.
                while socket.send_to(&bytes, to).is_err() {
                    thread::yield_now();
                }
            }
            testbed::wait("most have come", || totals(&router).forwarded - before.forwarded > 60_000);
            assert_eq!(totals(&router).partial_checksum - before.partial_checksum, 0, "{to}");
        }
    });
}

#[test]
fn generic_mode_hands_nothing_to_other_cpus() {
    let Some(world) = HostsBed::with_ipv6("rgcpu") else { return };
    world.ra.run(|| {
        let generic = RouteSettings { xdp: XdpMode::Generic, ..settings(&world.ports()) };
        let cpus = CpuSet::parse_list("0").unwrap();
        let refused = Router::start(RouteSettings { cpus: cpus.clone(), ..generic.clone() });
        assert!(matches!(refused, Err(RouteError::CpusInGeneric)), "{refused:?}");
        let mut router = Router::start(generic).unwrap();
        assert!(matches!(router.set_cpus(&cpus), Err(RouteError::CpusInGeneric)));
        router.set_cpus(&CpuSet::new()).unwrap();
        // Redirected by the kernel itself, whoever takes frames: no port is mute.
        assert!(router.status().unwrap().ports.iter().all(|port| port.can_transmit));
    });
}

#[test]
fn a_driver_that_sends_no_frames_of_several_buffers_is_an_obstacle_to_native_mode_alone() {
    let Some(world) = HostsBed::with_ipv6("rjumb") else { return };
    world.ra.output("ip tuntap add ekrjumb mode tap");
    world.ra.output("ip link set ekrjumb mtu 9000 up");
    world.ra.run(|| {
        let ports = [world.ra.interface().to_owned(), "ekrjumb".to_owned()];
        let codes = |xdp| {
            let check = route::audit::check(&ports, RouteMode::Routed, model::route::CtMark::default(), xdp).unwrap();
            check.obstacles.into_iter().map(|obstacle| obstacle.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(XdpMode::Native), ["jumbo"]);
        assert!(codes(XdpMode::Generic).is_empty());
        testbed::run("ip link set ekrjumb mtu 1500");
        assert!(codes(XdpMode::Native).is_empty());
    });
}

#[test]
fn whoever_may_leave_checksums_is_named() {
    let Some(world) = HostsBed::with_ipv6("rmerg") else { return };
    let notes = |ports: &[String]| {
        let check = route::audit::check(ports, RouteMode::Routed, model::route::CtMark::default(), XdpMode::Native);
        check.unwrap().notes.into_iter().map(|note| (note.code, note.remedy)).collect::<Vec<_>>()
    };
    let partial_checksum = |who: &str| ("partial-checksum".to_owned(), format!("ethtool -K {who} tx off"));
    world.ra.run(|| {
        // The other ends are in other namespaces: nobody here can ask them.
        let ports = [world.ra.interface().to_owned(), world.rb.interface().to_owned()];
        assert_eq!(notes(&ports), [partial_checksum("PEER"), partial_checksum("PEER")]);
        testbed::run("ip link add ekrmerg0 type veth peer name ekrmerg1");
        let ports = [world.ra.interface().to_owned(), "ekrmerg0".to_owned()];
        assert_eq!(notes(&ports)[1], partial_checksum("ekrmerg1"));
        testbed::run("ethtool -K ekrmerg1 tx off");
        assert_eq!(notes(&ports), [partial_checksum("PEER")]);
    });
}
