//! `evenkeel shield run --between A,B` between a client and a server of a lab: real packets through a gateway.

#[path = "shield_between/replay.rs"]
mod replay;

use std::{
    cell::Cell,
    io::ErrorKind,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use testbed::{CLIENT, DROP_9, Flown, SERVER, ShieldBed, WAIT_TIMEOUT, bind, printed};

/// A rule against something that does not come, so that a reload changes something.
const DROP_9_AND_11: &str = "[[rule]]\nname = \"eleven\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 11\n[[rule]]\nname = \"nine\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 9\n";

fn bed(tag: &str) -> Option<ShieldBed> {
    ShieldBed::gateway(env!("CARGO_BIN_EXE_evenkeel"), tag)
}

/// `ip` about each of the two interfaces.
fn links(bed: &ShieldBed) -> [Value; 2] {
    [&bed.interface, bed.second.as_ref().expect("a gateway")].map(|name| {
        let shown = bed.ip(&format!("-json link show dev {name}"));
        serde_json::from_str::<Value>(&shown).expect("JSON")[0].take()
    })
}

/// The flags of both interfaces, as ip(8) calls them. The flag that the user sets is not the count that packet sockets raise.
fn flags(bed: &ShieldBed) -> [String; 2] {
    let text = |link: Value| {
        let flags = link["flags"].as_array().expect("flags").iter().filter_map(Value::as_str);
        flags.collect::<Vec<_>>().join(",")
    };
    links(bed).map(text)
}

fn is_up(bed: &ShieldBed, side: usize) -> bool {
    flags(bed)[side].split(',').any(|flag| flag == "UP")
}

/// No interface is promiscuous, and none has an XDP program.
fn nothing_stays(bed: &ShieldBed) {
    assert!(flags(bed).iter().all(|flags| !flags.contains("PROMISC")), "{:?}", flags(bed));
    // The kernel takes a program off when the last pin is freed, which is a moment later.
    bed.wait("no program stays", || links(bed).iter().all(|link| link.get("xdp").is_none()));
}

#[test]
fn frames_cross_unchanged_and_are_filtered_in_both_directions() {
    for more in [&[][..], &["--backend", "ring"]] {
        let Some(mut bed) = bed("ekbwa") else { return };
        assert_eq!(bed.come_through(10, 3), 0, "nothing crosses by itself");
        let rules = bed.protect(DROP_9, more);
        // It asks for the address by ARP, which crosses too.
        bed.wait("frames cross", || bed.come_through(10, 1) == 1);
        assert_eq!((bed.come_through(10, 5), bed.come_through(9, 5)), (5, 0), "{more:?}");
        assert_eq!((bed.come_back(10, 5), bed.come_back(9, 5)), (5, 0), "{more:?}");
        let neighbours = bed.client.output("ip neighbour show");
        assert!(neighbours.contains(&bed.server.link.mac.to_string()), "{neighbours}");
        assert_eq!(bed.count("nine"), 10, "{more:?}");
        assert!(flags(&bed).iter().all(|flags| flags.contains("PROMISC")) || !more.is_empty(), "{:?}", flags(&bed));
        assert_eq!(bed.status()["interface"], bed.pair());

        let second = bed.shield(&["run", "--between", &bed.pair(), "--quiet", "--rules", &rules]);
        assert_eq!(second.status.code(), Some(3), "{}", printed(&second));
        assert!(printed(&second).contains(&format!("shield stop {}", bed.interface)), "{}", printed(&second));

        bed.stop();
        assert!(flags(&bed).iter().all(|flags| !flags.contains("PROMISC")), "{:?}", flags(&bed));
        assert_eq!(bed.come_through(10, 3), 0, "the shield is gone");
    }
}

#[test]
fn interfaces_that_will_not_do_are_refused() {
    let Some(bed) = bed("ekbwb") else { return };
    let rules = bed.rules(DROP_9);
    let refused = |between: &str, more: &[&str], code: i32, why: &str| {
        let mut arguments = vec!["run", "--between", between, "--quiet", "--rules", &rules];
        arguments.extend(more);
        let output = bed.shield(&arguments);
        assert!(output.status.code() == Some(code) && printed(&output).contains(why), "{why}: {}", printed(&output));
        assert!(code != 3 || printed(&output).lines().count() == 1, "one error: {}", printed(&output));
    };
    let (first, second) = (bed.interface.as_str(), bed.second.as_deref().expect("a gateway"));
    let pair = bed.pair();
    refused(&format!("{first},{first}"), &[], 2, "and itself");
    refused(first, &[], 2, "not two interfaces");
    refused(&format!("{first},ek-none0"), &[], 3, "ek-none0");
    refused(&pair, &["--backend", "ring", "--fail", "open"], 2, "always fails closed");

    bed.ip(&format!("link set {second} mtu 1400"));
    refused(&pair, &[], 3, &format!("ip link set {first} mtu 1400"));
    bed.ip(&format!("link set {second} mtu 1500"));

    bed.host.set_feature(first, "rx-gro", true).unwrap();
    for more in [&["--xdp-mode", "generic"][..], &["--backend", "ring"]] {
        refused(&pair, more, 3, &format!("ethtool -K {first} gro off"));
    }
    bed.host.set_feature(first, "rx-gro", false).unwrap();

    bed.client.feature("rx-gro", false);
    refused(&pair, &[], 3, "takes no redirected frames");
    bed.client.feature("rx-gro", true);

    // Both ends are here, and the other one can be asked.
    bed.ip("link add ekbwx type veth peer name ekbwy");
    bed.ip("link set ekbwx up");
    refused(&format!("ekbwx,{second}"), &[], 3, "ethtool -K ekbwy txvlan off tx-vlan-stag-hw-insert off");
    for more in [&["--xdp-mode", "generic"][..], &["--backend", "ring"]] {
        refused(&format!("ekbwx,{second}"), more, 3, "ethtool -K ekbwy tso off tx-udp-segmentation off");
    }
    bed.ip("link del ekbwx");

    let other = bed.host.run(|| bpf::XdpFib::attach(&[second], bpf::XdpMode::Native).unwrap());
    for more in [&[][..], &["--backend", "ring"]] {
        refused(&pair, more, 3, "already runs the XDP program `xdp_fib`");
    }
    drop(other);
    bed.ip(&format!("link set {second} down"));
    refused(&pair, &[], 3, "is down");
    nothing_stays(&bed);
}

#[test]
fn the_link_state_of_one_side_is_carried_over_and_put_back() {
    for more in [&[][..], &["--backend", "ring"]] {
        let Some(mut bed) = bed("ekbwc") else { return };
        bed.protect(DROP_9, more);
        assert_eq!(bed.come_through(10, 3), 3);
        bed.client.link_set("down");
        bed.wait("the other side is down", || !is_up(&bed, 1));
        if more.is_empty() {
            // Not that it is to be brought up by hand.
            let warnings = bed.status()["warnings"].to_string();
            assert!(warnings.contains("is held down until") && !warnings.contains("ip link set"), "{warnings}");
        }
        bed.client.link_set("up");
        bed.wait("the other side is up again", || is_up(&bed, 1));
        bed.wait("frames cross again", || bed.come_through(10, 3) == 3);
        bed.client.link_set("down");
        bed.wait("the other side is down", || !is_up(&bed, 1));
        bed.stop();
        assert!(is_up(&bed, 1), "put back at the end: {:?}", flags(&bed));
    }
}

#[test]
fn what_a_killed_process_took_down_is_up_again_with_the_next_one() {
    for more in [&[][..], &["--backend", "ring"]] {
        let Some(mut bed) = bed("ekbwk") else { return };
        let rules = bed.protect(DROP_9, more);
        bed.client.link_set("down");
        bed.wait("the other side is down", || !is_up(&bed, 1));
        bed.kill();
        bed.client.link_set("up");
        bed.run(&rules, more);
        bed.wait("it is up again", || is_up(&bed, 1));
        bed.wait("frames cross again", || bed.come_through(10, 3) == 3);
        // Taken down again if the link is not back in the end.
        bed.client.link_set("down");
        bed.wait("the other side is down", || !is_up(&bed, 1));
        bed.kill();
        bed.run(&rules, more);
        bed.wait("it is down still, or again", || !is_up(&bed, 1));
        bed.stop();
        assert!(is_up(&bed, 1), "put back at the end: {:?}", flags(&bed));
    }
}

#[test]
fn a_killed_control_process_leaves_the_way_open_or_closed_and_another_takes_it_over() {
    for (fail, through) in [("open", 5), ("closed", 0)] {
        let Some(mut bed) = bed("ekbwd") else { return };
        let rules = bed.protect(DROP_9, &["--fail", fail]);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (0, 5), "{fail}");
        // One port that the rules drop, another that they pass.
        let (dropped, passed) = (bed.flow(9, Duration::from_millis(2)), bed.flow(10, Duration::from_millis(2)));
        thread::sleep(Duration::from_millis(200));
        let killed = Instant::now();
        bed.kill();
        thread::sleep(Duration::from_millis(1500));
        let (dropped, passed) = (dropped.end(), passed.end());
        let at = match fail {
            "open" => {
                assert_eq!(passed.sent, passed.received);
                dropped.times.expect("some come through in the end").0
            }
            _ => {
                assert!(
                    dropped.received == 0 && passed.received < passed.sent,
                    "{} of {}",
                    passed.received,
                    passed.sent
                );
                passed.times.expect("some come through at first").1
            }
        };
        eprintln!("failed {fail} {:.2} s after kill -9", at.duration_since(killed).as_secs_f64());
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5)), (through, through), "{fail}");
        assert!(flags(&bed).iter().all(|flags| flags.contains("PROMISC")), "{:?}", flags(&bed));
        bed.run(&rules, &["--fail", fail]);
        assert_eq!((bed.come_through(9, 5), bed.come_through(10, 5), bed.come_back(10, 5)), (0, 5, 5), "{fail}");
        bed.kill();
        bed.shield_does(&["stop", &bed.pair()]);
        nothing_stays(&bed);
    }
}

#[test]
fn no_packet_is_lost_while_rules_are_reloaded_and_the_control_process_is_replaced() {
    let Some(mut bed) = bed("ekbwe") else { return };
    // On a busy machine a process takes longer to start than the 700 ms after which a shield fails closed.
    let closed = ["--fail", "closed", "--fail-after", "30s"];
    let rules = bed.protect(DROP_9, &closed);
    assert_eq!(bed.come_through(10, 1), 1, "the neighbours are known");
    let flow = bed.flow(10, Duration::from_micros(250));
    for round in 0..6 {
        bed.rules(if round % 2 == 0 { DROP_9_AND_11 } else { DROP_9 });
        bed.reload();
    }
    for round in 0..2 {
        match round {
            0 => bed.kill(),
            _ => {
                bed.shield_does(&["stop", "--leave", &bed.interface]);
                assert_eq!(bed.ended().code(), Some(0), "{}", bed.log());
            }
        }
        bed.run(&rules, &closed);
    }
    let Flown { sent, received, .. } = flow.end();
    eprintln!("{sent} packets sent, {received} received, over 6 reloads and 2 replaced control processes");
    assert!(sent > 1000, "{sent}");
    assert_eq!(sent, received);
    bed.stop();
}

#[test]
fn a_ring_is_closed_when_its_process_is_gone() {
    let Some(mut bed) = bed("ekbwf") else { return };
    let rules = bed.protect(DROP_9, &["--backend", "ring", "--threads", "2"]);
    assert_eq!(bed.come_through(10, 5), 5);
    bed.rules(&format!("[sets.unused]\nprefixes = \"192.0.2.1\"\n{DROP_9_AND_11}"));
    let reloaded = bed.reload();
    assert!(printed(&reloaded).contains("no rule names the set `unused`"), "{}", printed(&reloaded));
    assert_eq!((bed.come_through(11, 5), bed.come_through(9, 5), bed.come_through(10, 5)), (0, 0, 5));
    bed.kill();
    assert_eq!(bed.come_through(10, 5), 0);
    bed.run(&rules, &["--backend", "ring"]);
    assert_eq!(bed.come_through(10, 5), 5);
    bed.stop();
}

#[test]
fn a_ring_begins_a_new_file_of_events_when_the_old_one_was_renamed() {
    let Some(mut bed) = bed("ekbwl") else { return };
    let [events, old] = ["events", "old"].map(|name| bed.path(name));
    bed.protect(&format!("protect = \"{SERVER}\"\ndetection.events = {events:?}\n{DROP_9}"), &["--backend", "ring"]);
    std::fs::rename(&events, &old).expect("rotated");
    bed.reload();
    assert!(events.exists() && old.exists());
    bed.stop();
}

#[test]
fn the_second_interface_is_known_to_belong_to_the_shield_of_both() {
    for more in [&[][..], &["--backend", "ring"]] {
        let Some(mut bed) = bed("ekbwm") else { return };
        let rules = bed.protect(DROP_9, more);
        let (pair, second) = (bed.pair(), bed.second.clone().expect("a gateway"));
        let turned = format!("{second},{}", bed.interface);
        let other = ["run", "--rules", &rules, "--quiet"];
        let run: [Vec<&str>; 2] =
            [[&other[..], &[&second]].concat(), [&other[..], &["--between", &turned], more].concat()];
        for arguments in
            [vec!["status", &second], vec!["stop", &second], vec!["reload", &turned]].into_iter().chain(run)
        {
            let output = bed.shield(&arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", printed(&output));
            let says = printed(&output);
            let way_out = format!("shield status {}", bed.interface);
            assert!([&second, &pair, &way_out].iter().all(|part| says.contains(*part)), "{arguments:?}: {says}");
        }
        assert_eq!(bed.come_through(10, 3), 3);
        bed.stop();
    }
}

#[test]
fn rings_outlive_a_link_that_flaps_and_an_mtu_that_changes() {
    let Some(mut bed) = bed("ekbwj") else { return };
    bed.protect(DROP_9, &["--backend", "ring", "--threads", "2"]);
    assert_eq!(bed.come_through(10, 5), 5);
    let (first, second) = (bed.interface.clone(), bed.second.clone().expect("a gateway"));
    // Each process that sets it takes about a millisecond: down again while rings are opened, among others.
    for _ in 0..100 {
        bed.ip(&format!("link set {first} down"));
        bed.ip(&format!("link set {first} up"));
    }
    bed.wait("frames cross again", || bed.come_through(10, 3) == 3);
    bed.wait("and back", || bed.come_back(10, 3) == 3);

    // Datagrams of two sizes by turns, each from a port of its own, so that both threads have some; how many of each come.
    let sizes = [100, 1200];
    let come = |bed: &ShieldBed| {
        let receiver = bed.server.run(|| bind((SERVER, 12)));
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        for n in 0..40 {
            let sender = bed.client.run(|| bind((CLIENT, 0)));
            sender.send_to(&vec![0; sizes[n % 2]], (SERVER, 12)).expect("sent");
        }
        let (mut bytes, mut came) = ([0; 2000], [0; 2]);
        while let Ok(len) = receiver.recv(&mut bytes) {
            came[usize::from(len == sizes[1])] += 1;
        }
        came
    };
    bed.wait("all cross", || come(&bed) == [20, 20]);
    bed.ip(&format!("link set {second} mtu 1000"));
    let before = ["dropped", "passed"].map(|what| bed.total(what));
    // What was in a ring with the first one that is too large is dropped with it.
    come(&bed);
    let tries = Cell::new(1);
    bed.wait("small ones cross", || {
        tries.set(tries.get() + 1);
        come(&bed) == [20, 0]
    });
    let tries = tries.get();
    bed.wait("the others are counted", || bed.total("dropped") >= before[0] + tries * 20);
    let passed = bed.total("passed") - before[1];
    assert!(passed < tries * 30, "what is dropped in the end did not pass: {passed} of {tries} times 40");
    // By another name it is the same interface.
    let renamed = format!("{second}x");
    bed.ip(&format!("link set {second} down"));
    bed.ip(&format!("link set {second} name {renamed}"));
    bed.ip(&format!("link set {renamed} mtu 1500"));
    bed.ip(&format!("link set {renamed} up"));
    bed.wait("all cross", || come(&bed) == [20, 20]);
    bed.wait("and back", || bed.come_back(10, 3) == 3);
    let warnings = bed.status()["warnings"].to_string();
    assert!(warnings.contains(&format!("{second} was renamed to {renamed}")), "{warnings}");
    bed.ip(&format!("link set {renamed} down"));
    bed.ip(&format!("link set {renamed} name {second}"));
    bed.ip(&format!("link set {second} up"));
    bed.stop();
}

#[test]
fn the_gateway_itself_keeps_silent() {
    let Some(mut bed) = bed("ekbwg") else { return };
    let address = "198.18.0.3/24";
    bed.ip(&format!("address add {address} dev {}", bed.interface));
    let rules = bed.rules(DROP_9);
    // Nobody listens there, which a host says by ICMP.
    let answers = |bed: &ShieldBed| {
        let socket = bed.client.run(|| bind((CLIENT, 0)));
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out");
        socket.connect(("198.18.0.3", 7)).expect("connected");
        socket.send(b"ek").expect("sent");
        socket.recv(&mut [0; 8]).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    };
    bed.wait("the gateway answers", || answers(&bed));
    for more in [&[][..], &["--backend", "ring"]] {
        bed.run(&rules, more);
        assert!(!answers(&bed), "{more:?}");
        bed.wait("frames cross", || bed.come_through(10, 1) == 1);
        assert_eq!(bed.come_through(10, 3), 3, "{CLIENT} to {SERVER}");
        bed.stop();
    }
    bed.wait("the gateway answers again", || answers(&bed));
}

#[test]
fn unknown_sources_show_that_they_exist_and_connect_then() {
    unknown_sources("ekbwh", &[]);
}

#[test]
fn unknown_sources_show_packet_rings_that_they_exist_and_connect_then() {
    unknown_sources("ekbwi", &["--backend", "ring", "--threads", "2"]);
}

#[test]
fn unknown_sources_show_generic_xdp_that_they_exist_and_connect_then() {
    unknown_sources("ekbwk", &["--xdp-mode", "generic"]);
}

#[test]
fn rings_finish_checksums_that_were_left_to_a_nic() {
    let Some(mut bed) = bed("ekbwo") else { return };
    for end in [&bed.client, &bed.server] {
        end.feature("tx-checksum-ip-generic", true);
        for feature in ["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"] {
            end.feature(feature, false);
        }
    }
    bed.protect(DROP_9, &["--backend", "ring"]);
    bed.wait("frames cross", || bed.come_through(10, 1) == 1);
    assert_eq!((bed.come_through(10, 5), bed.come_back(10, 5)), (5, 5));
    assert!(bed.connects(WAIT_TIMEOUT) && bed.connects_back(WAIT_TIMEOUT));
    bed.stop();
}

fn unknown_sources(tag: &str, more: &[&str]) {
    let Some(mut bed) = bed(tag) else { return };
    let rules = bed.protect("[[rule]]\nname = \"syn\"\naction = \"challenge\"\nprotocol = \"tcp\"\n", more);
    // The rule is for both directions, and so is the question to sources that nobody knows.
    assert!(bed.connects(WAIT_TIMEOUT) && bed.connects_back(WAIT_TIMEOUT) && bed.connects(WAIT_TIMEOUT));
    let challenged = bed.total("challenged");
    assert!(challenged >= 2, "{}", bed.status());
    // A process that follows asks nobody again: rings write down who is known once a second, and their counts begin anew.
    thread::sleep(Duration::from_millis(2500));
    bed.kill();
    bed.run(&rules, more);
    let before = if more.contains(&"ring") { 0 } else { challenged };
    assert!(bed.connects(WAIT_TIMEOUT) && bed.connects_back(WAIT_TIMEOUT));
    assert_eq!(bed.total("challenged"), before, "{}", bed.status());
    bed.stop();
}
