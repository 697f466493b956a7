//! `evenkeel ledger --details`: whose packets were dropped, one of them, and the kernel's way to the drop; with a filter.

use std::{net::UdpSocket, process::Command, thread, time::Duration};

use testbed::{
    Running, alone, ended,
    losses::{BOX, LOADS, Load, SENDER, road},
    text,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A few packets, slow enough for any machine.
const FEW: Load = Load { rate: "1k", duration: "500ms" };

#[test]
fn a_port_without_a_socket_is_named_with_its_sender() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekdeta") else { return };
    let (found, sent) = road.measure_with(&["--details"], || {
        let sent = road.send_udp(BOX, 7001, FEW);
        (sent, road.send_udp(BOX, 7002, FEW))
    });
    let loss = found.at("udp", "no socket")[0];
    let details = loss.details.as_ref().expect("details");
    let share = |port: u16| {
        let target = format!("UDP {BOX}:{port}");
        details.targets.iter().find(|s| s.what == target).map(|s| s.packets)
    };
    assert_eq!((share(7001), share(7002)), (Some(sent.0), Some(sent.1)), "{details:#?}");
    assert_eq!((details.sources.len(), details.sources[0].what.as_str()), (1, SENDER), "{details:#?}");
    assert_eq!(details.sources[0].packets, loss.packets, "{details:#?}");
    let sample = details.sample.as_ref().expect("a packet");
    assert!(
        sample.text.contains(&format!("IP {SENDER}.5000 > {BOX}.700")) && sample.text.contains("UDP, length 18"),
        "{sample:#?}"
    );
    // The generator's payload lies in pages of its own: the headers are there.
    assert_eq!((sample.length, sample.network_header), (60, 14), "{sample:#?}");
    assert!(sample.hex.len() >= 84 && sample.hex[24..].starts_with("08004500"), "{sample:#?}");
    let (top, below) = (details.stack.first(), details.stack.iter().any(|f| f.starts_with("ip_local_deliver")));
    assert!(top.is_some_and(|f| f.starts_with("__udp4_lib_rcv")) && below, "{details:#?}");
    // Two ports are not told as one.
    let advises = |word: &str| loss.advice.as_ref().is_some_and(|advice| advice.contains(word));
    assert!(advises(SENDER) && advises(&format!("{BOX}:7001")) && advises(&format!("{BOX}:7002")), "{loss:#?}");
}

#[test]
fn a_filter_leaves_the_others_out() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekfilt") else { return };
    let (found, sent) = road.measure_with(&["--filter", "udp dst port 7002"], || {
        let sent = road.send_udp(BOX, 7001, FEW);
        (sent, road.send_udp(BOX, 7002, FEW))
    });
    let loss = found.at("udp", "no socket")[0];
    assert_eq!(loss.packets, sent.0 + sent.1, "the books are of all packets: {}", found.shown());
    let targets = &loss.details.as_ref().expect("details").targets;
    assert_eq!((targets.len(), targets[0].packets), (1, sent.1), "{targets:#?}");
    assert!(
        loss.advice.as_ref().is_some_and(|a| a.contains(":7002")),
        "the advice is of what was asked for: {loss:#?}"
    );
    let text =
        road.entry.run(|| Command::new(EVENKEEL).args(["ledger", "--once", "--filter", "port of call"]).output());
    ended(&text.expect("the program runs"), 2);
}

#[test]
fn a_flood_is_sampled_and_its_port_still_named() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekdflo") else { return };
    let (found, _) = road.measure_with(&["--details"], || road.send_udp(BOX, 7003, LOADS[1]));
    let loss = found.at("udp", "no socket")[0];
    let details = loss.details.as_ref().expect("details");
    assert_eq!((details.targets.len(), details.targets[0].what.as_str()), (1, "UDP 198.18.0.2:7003"), "{details:#?}");
    assert!(details.targets[0].packets <= loss.packets, "{details:#?}");
    found.closes();
}

#[test]
fn an_interrupt_shows_what_was_counted() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "eksigi") else { return };
    let mut ledger = Command::new(EVENKEEL);
    ledger.args(["ledger", "-i", "60", "--once", "--details"]);
    let ledger = road.entry.run(|| Running::piped(&mut ledger));
    let socket = road.from.run(|| UdpSocket::bind((SENDER, 0))).expect("a port");
    // Until it has started and counted some.
    for _ in 0..300 {
        socket.send_to(b"nobody", (BOX, 7009)).expect("sent");
        thread::sleep(Duration::from_millis(10));
    }
    let output = ledger.interrupt();
    let text = text(&output.stdout);
    ended(&output, 0);
    for words in ["no socket on the UDP port", "UDP 198.18.0.2:7009", "0x0000:", "dropped in:"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
