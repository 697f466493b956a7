//! `evenkeel ledger` where the kernel drops and nothing is lost: connections that end, a scan, a tap that stands still, a dead next hop; and
//! where a program does not read.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use model::stations::LossKind;
use nix::sys::signal::Signal;

use testbed::{
    Running, Tcpdump, alone,
    losses::{BOX, Found, LOADS, Load, RECEIVER, Road, SENDER, road},
    wait_for,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A few packets, slow enough for any machine.
const FEW: Load = Load { rate: "1k", duration: "500ms" };
const HTTP: u16 = 7080;

fn connect(road: &Road, port: u16) -> TcpStream {
    wait_for("a server", || road.from.run(|| TcpStream::connect((BOX, port))).ok())
}

/// Packets that ended in one way.
fn of_kind(found: &Found, kind: LossKind) -> u64 {
    let all = found.report.stations.iter().flat_map(|s| &s.losses);
    all.filter(|l| l.kind == kind).map(|l| l.packets).sum()
}

/// Each reason and what is done about it has words.
#[track_caller]
fn is_advised(found: &Found) {
    for loss in found.report.stations.iter().flat_map(|s| &s.losses) {
        assert!(loss.advice.as_ref().is_some_and(|a| !a.is_empty() && !a.contains(['{', '}'])), "{loss:#?}");
    }
}

#[test]
fn a_healthy_web_server_loses_nothing() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekhttp") else { return };
    road.file("page", [b'x'; 3000]);
    let mut server = Command::new("python3");
    server.args(["-m", "http.server", &HTTP.to_string(), "--bind", BOX, "--directory"]).arg(road.path(""));
    let _server = road.entry.run(|| Running::silent(&mut server));
    drop(connect(&road, HTTP));
    thread::sleep(Duration::from_millis(300));
    let (found, answers) = road.measure(|| {
        let get = || {
            let mut stream = connect(&road, HTTP);
            stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").expect("a request");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("an answer");
            usize::from(answer.len() > 3000)
        };
        (0..100).map(|_| get()).sum::<usize>()
    });
    assert_eq!(answers, 100);
    found.lost_nothing();
    // How many of the clients' FINs meet a socket that its program has closed depends on who is faster; without any, nothing was tried.
    assert!(of_kind(&found, LossKind::Harmless) > 0, "{}", found.shown());
    is_advised(&found);
}

#[test]
fn a_scan_loses_nothing() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekscan") else { return };
    let _listener = road.entry.run(|| TcpListener::bind((BOX, 7020))).expect("a port");
    // The sender's kernel knows nothing of these connections and resets each.
    let (found, sent) = road.measure(|| {
        let mac = road.entry.link.mac.to_string();
        let syns = |ports: &str| {
            let what = ["--syn-flood", "--src", SENDER, "--src-port", "10000-10199", "--dst", BOX, "--dst-port", ports];
            road.generate(&[&what[..], &["--dst-mac", &mac, "--count", "200"]].concat(), FEW)
        };
        syns("7020") + syns("7021")
    });
    assert!(sent >= 600, "200 requests each, and the resets of the open port: {sent}");
    found.lost_nothing();
    assert!(of_kind(&found, LossKind::Harmless) >= 400, "{}", found.shown());
    let refused = found.at("tcp", "no socket");
    assert_eq!(refused.iter().map(|l| l.packets).sum::<u64>(), 200, "{}", found.shown());
    assert!(refused.iter().all(|l| l.advice.as_ref().is_some_and(|a| a.contains(":7021"))), "{}", found.shown());
    is_advised(&found);
}

#[test]
fn data_that_a_program_did_not_read_are_lost() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekunrd") else { return };
    let listener = road.entry.run(|| TcpListener::bind((BOX, 7030))).expect("a port");
    let (found, closed) = road.measure(|| {
        for _ in 0..20 {
            let mut client = connect(&road, 7030);
            let (server, _) = listener.accept().expect("a connection");
            client.write_all(b"nobody reads this").expect("it is sent");
            let mut first = [0];
            server.peek(&mut first).expect("it has come");
            drop(server);
        }
        20
    });
    assert_eq!(found.packets("tcp", "data unread"), closed, "{}", found.shown());
    assert!(found.finding && found.report.lost >= closed, "{}", found.shown());
    is_advised(&found);
}

#[test]
fn a_stopped_tap_loses_copies_and_no_packets() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ektaps") else { return };
    let options = ["-i", road.entry.interface(), "-B", "4", "-s", "200"];
    let tap = Tcpdump::start_with(&road.entry, &road.path("copies.pcap"), &options);
    thread::sleep(Duration::from_millis(300));
    let pid = tap.running().pid();
    tap.running().signal(Signal::SIGSTOP);
    let (found, sent) = road.measure(|| road.send_udp(RECEIVER, 9, LOADS[0]));
    tap.running().signal(Signal::SIGCONT);
    found.lost_nothing();
    assert!(found.report.copies_lost > sent / 2 && found.report.delivered >= sent, "{}", found.shown());
    assert_eq!(found.report.copies_lost, of_kind(&found, LossKind::Copy), "{}", found.shown());
    assert!(found.names("taps", "", &format!("tcpdump[{pid}]")), "{}", found.shown());
    is_advised(&found);
}

#[test]
fn what_a_dead_next_hop_keeps_waits_and_is_lost_then() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekdead") else { return };
    let mac = road.entry.link.mac.to_string();
    let what = ["--udp", "--src", SENDER, "--src-port", "5000", "--dst-port", "9", "--dst-mac", &mac, "--count", "50"];
    // The next hop is asked three times in 4.5 s and then given up: after the first measurement.
    road.entry.set(&format!("net/ipv4/neigh/{}/retrans_time_ms", road.exit.interface()), "1500");
    let (found, sent) = road.measure(|| road.generate(&[&what[..], &["--dst", "198.19.0.78"]].concat(), FEW));
    let waiting: u64 = found.report.transmit.waiting.iter().map(|e| e.packets).sum();
    // The questions themselves go past IP, and hide as many.
    assert!(found.report.waiting == waiting && waiting <= sent && sent - waiting <= 5, "{}", found.shown());
    assert!(found.report.delivered < sent && !found.finding, "{}", found.shown());
    found.closes();
    for _ in 0..2 {
        let (found, ()) = road.measure(|| thread::sleep(Duration::from_secs(4)));
        is_advised(&found);
        if found.packets("neighbour", "no answer") == sent {
            assert_eq!((found.report.waiting, found.report.lost, found.finding), (0, sent, true), "{}", found.shown());
            return;
        }
        assert_eq!((found.report.waiting, found.report.lost), (0, 0), "{}", found.shown());
    }
    panic!("they were never given up");
}

#[test]
fn a_vlan_without_an_interface_and_a_foreign_address_of_ipv6_are_named() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekvlan") else { return };
    let mac = road.entry.link.mac.to_string();
    let count = ["--dst-mac", &mac, "--count", "100", "--src-port", "5000"];
    let tagged = ["--udp", "--src", SENDER, "--dst", BOX, "--vlan", "77"];
    let (found, sent) = road.measure(|| road.generate(&[&count[..], &tagged].concat(), FEW));
    found.holds("ethernet", "VLAN", "OTHERHOST", sent);
    assert_eq!(found.packets("ethernet", "another host"), 0, "{}", found.shown());
    road.entry.set(&format!("net/ipv6/conf/{}/disable_ipv6", road.entry.interface()), "0");
    road.entry.output(&format!("ip -6 addr add 2001:2:0:9::2/64 dev {} nodad", road.entry.interface()));
    let six = ["--udp", "--ipv6", "--src", "2001:2:0:9::1", "--dst", "2001:2:0:9::77"];
    let (found, sent) = road.measure(|| road.generate(&[&count[..], &six].concat(), FEW));
    found.holds("ip", "IPv6: not an address", "", sent);
    let advised = |l: &&model::stations::StationLoss| {
        l.advice.as_ref().is_some_and(|a| a.contains("net.ipv6.conf.all.forwarding") && !a.contains("ipv4"))
    };
    assert!(found.at("ip", "IPv6: not an address").iter().all(advised), "{}", found.shown());
    is_advised(&found);
}

/// Frames that switches send by themselves, by name: their destination and what follows the source.
fn of_switches() -> Vec<(&'static str, [u8; 6], Vec<u8>)> {
    let ieee = |last: u8| [0x01, 0x80, 0xc2, 0, 0, last];
    let cisco = |last: u8| [0x01, 0x00, 0x0c, 0xcc, 0xcc, last];
    let llc = |header: &[u8]| [&38u16.to_be_bytes()[..], header, &[0; 35]].concat();
    let of_type = |ethertype: u16| [&ethertype.to_be_bytes()[..], &[0; 46]].concat();
    let snap = |organisation: [u8; 3], protocol: u16| {
        llc(&[&[0xaa, 0xaa, 3][..], &organisation, &protocol.to_be_bytes()].concat())
    };
    vec![
        ("STP", ieee(0), llc(&[0x42, 0x42, 3])),
        ("STP of a provider bridge", ieee(8), llc(&[0x42, 0x42, 3])),
        ("GARP", ieee(0x20), llc(&[0x42, 0x42, 3])),
        ("IS-IS", ieee(0x14), llc(&[0xfe, 0xfe, 3])),
        ("pause", ieee(1), of_type(0x8808)),
        ("LACP", ieee(2), of_type(0x8809)),
        ("802.1X", ieee(3), of_type(0x888e)),
        ("LLDP", ieee(0x0e), of_type(0x88cc)),
        ("LLDP, nearest bridge", ieee(3), of_type(0x88cc)),
        ("MVRP", ieee(0x21), of_type(0x88f5)),
        ("CDP", cisco(0xcc), snap([0, 0, 0x0c], 0x2000)),
        ("PVST+", cisco(0xcd), snap([0, 0, 0x0c], 0x010b)),
    ]
}

/// Report of the ledger on fifty of these frames, from a trace that looked at every drop: drops of other programs may make it sample.
fn fifty(road: &Road, frame: &[u8]) -> Found {
    let file = road.pcap("frame.pcap", [frame]);
    wait_for("a trace that does not sample", || {
        let (found, sent) = road.measure(|| road.generate(&["--pcap", &file, "--count", "50"], FEW));
        assert_eq!(sent, 50);
        found.report.trace.as_ref().is_none_or(|trace| trace.sampling <= 1).then_some(found)
    })
}

#[test]
fn frames_that_switches_send_by_themselves_are_counted_once_and_are_no_loss() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekswit") else { return };
    let frames: Vec<(&str, Vec<u8>)> = of_switches()
        .into_iter()
        .map(|(name, to, rest)| (name, [&to[..], &road.from.link.mac.0, &rest].concat()))
        .collect();
    for (name, frame) in &frames {
        let found = fifty(&road, frame);
        found.lost_nothing();
        assert!(found.report.delivered >= 50 && found.report.offered < 100, "{name}: {}", found.shown());
        is_advised(&found);
    }
    // What is for a station, and nobody speaks, is lost.
    let strange = [&road.entry.link.mac.0[..], &road.from.link.mac.0, &0x88b5u16.to_be_bytes(), &[0; 46]].concat();
    fifty(&road, &strange).holds("ethernet", "no protocol wanted it", "", 50);
}
