//! `evenkeel shield run` against a flood of each class beside legitimate traffic: real packets in a lab. What an attack is called, how
//! soon packets are dropped or answered, that it ends, and that nobody legitimate is hit.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpf::filter::{CookieMode, Cookies, HostCookies};
use serde_json::Value;
use shield::run::Paths;
use sys::ethtool::Ethtool;
use testbed::{CLIENT, End, Ends, Running, SERVER, ShieldBed, WAIT_TIMEOUT, alone, log, printed, words};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
/// Several times the limit of [`rules`].
const FLOOD: &str = "60000";
const FLOOD_TIME: &str = "2s";
/// Packets between two looks at a counter, half a millisecond apart, that only a flood brings.
const JUMP_MIN: u64 = 12;

/// With keys of `[detection]`.
fn bed(tag: &str, detection: &str) -> Option<ShieldBed> {
    bed_with(tag, "", detection)
}

/// With keys of the file, too, and rules behind `[detection]`.
fn bed_with(tag: &str, keys: &str, detection: &str) -> Option<ShieldBed> {
    let mut bed = ShieldBed::host(EVENKEEL, tag)?;
    // It takes live frames, and answers of the shield.
    bed.server.feature("rx-gro", true);
    let events = bed.path("events");
    let rules = bed.rules(&format!(
        "{keys}\nprotect = [\"{SERVER}/32\"]\n[detection]\nevents = {events:?}\nquiet-s = 0.5\n{detection}\n"
    ));
    bed.run(&rules, &[]);
    Some(bed)
}

/// What happened so far.
fn events(bed: &ShieldBed) -> Vec<Value> {
    log(&bed.path("events")).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Waits until the last attack has ended.
fn ends(bed: &ShieldBed) {
    bed.wait("it has ended", || events(bed).last().is_some_and(|event| event["event"] == "ended"));
}

/// Threads that serve a port until the test ends.
fn serve(end: &End, port: u16) -> SocketAddr {
    let listener = end.run(|| TcpListener::bind((SERVER, port)).expect("a socket"));
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || listener.incoming().for_each(drop));
    address
}

/// A flood, to its end; how long after its first packet the first was dropped or answered.
fn floods(bed: &ShieldBed, arguments: &[&str]) -> Option<Duration> {
    let mut all = vec!["gen", bed.client.interface(), "--rate", FLOOD, "--duration", FLOOD_TIME, "--dst-mac"];
    let mac = bed.server.link.mac.to_string();
    if arguments[0] == "--pcap" {
        all.pop();
    } else {
        all.extend([mac.as_str(), "--dst", SERVER]);
    }
    all.extend(arguments);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clock = scope.spawn(|| bed.host.run(|| time_to_act(&bed.interface, &over)));
        let ending = Ends(&over);
        thread::sleep(Duration::from_millis(50));
        let done = bed.client.command(EVENKEEL).args(all).output().expect("the program starts");
        assert!(done.status.success(), "{}", printed(&done));
        drop(ending);
        clock.join().expect("a time")
    })
}

/// Frames of this kernel's sockets that found no place in the queue of the host's interface.
fn lost_before(bed: &ShieldBed) -> u64 {
    let path = format!("/sys/class/net/{}/statistics/tx_dropped", bed.client.interface());
    bed.client.read(&path).trim().parse().expect("a number")
}

/// Datagrams, one in a millisecond or so, from some source ports in turn while `work` goes on: how many there were, and how many were
/// lost of which the queue before XDP lost none. Frames of a flood that it lost count there as well: the true number is not below this, and not above
/// [`beside_in_all`].
fn beside<T>(bed: &ShieldBed, ports: &[u16], work: impl FnOnce() -> T) -> (T, u64, u64) {
    let before = lost_before(bed);
    let (done, sent, lost) = beside_in_all(bed, ports, work);
    (done, sent, lost.saturating_sub(lost_before(bed) - before))
}

/// The same with all that were lost, in the queue before XDP too.
fn beside_in_all<T>(bed: &ShieldBed, ports: &[u16], work: impl FnOnce() -> T) -> (T, u64, u64) {
    let receiver = bed.host.run(|| UdpSocket::bind((SERVER, 4009)).expect("a socket"));
    receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
    let senders = ports.iter().map(|&port| {
        let socket = bed.client.run(|| UdpSocket::bind((CLIENT, port)).expect("a socket"));
        socket.connect((SERVER, 4009)).expect("connected");
        socket
    });
    let senders: Vec<UdpSocket> = senders.collect();
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (done, received) = thread::scope(|scope| {
        scope.spawn(|| {
            for socket in senders.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                sent.fetch_add(u64::from(socket.send(b"ek").is_ok()), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let counted = scope.spawn(|| {
            let mut received = 0;
            loop {
                match receiver.recv(&mut [0; 8]) {
                    // Floods go to other ports.
                    Ok(_) => received += 1,
                    Err(_) if over.load(Ordering::Relaxed) => return received,
                    Err(_) => {}
                }
            }
        });
        let ending = Ends(&over);
        let done = work();
        drop(ending);
        (done, counted.join().expect("a count"))
    });
    let sent = sent.into_inner();
    (done, sent, sent.saturating_sub(received))
}

/// Fragments of 256 sources, all later ones, as a capture file.
fn fragments(bed: &ShieldBed) -> String {
    let frame = |source| {
        let mut frame = [bed.server.link.mac.0, bed.client.link.mac.0].concat();
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 7, 0, 150, 64, 17, 0, 0, 10, 1, 2, source, 198, 18, 0, 2]);
        frame.resize(60, 0);
        frame
    };
    bed.pcap("fragments.pcap", (0..=255).map(frame))
}

/// Watches the driver's counters (answers leave a veth by redirect); to be called in the host's namespace.
fn time_to_act(interface: &str, over: &AtomicBool) -> Option<Duration> {
    let mut ethtool = Ethtool::open().expect("a socket");
    let names = ethtool.stat_names(interface).expect("names").expect("counters");
    let at = |name: &str| names.iter().position(|n| n == name).unwrap_or_else(|| panic!("no {name} in {names:?}"));
    let [packets, drops, answers] =
        ["xdp_packets", "xdp_drops", "xdp_redirect"].map(|what| at(&format!("rx_queue_0_{what}")));
    let mut values = Vec::new();
    let mut read = || {
        ethtool.stat_values(interface, &mut values).expect("values");
        (values[packets], values[drops] + values[answers], Instant::now())
    };
    let (mut last, mut began) = (read(), None);
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_micros(500));
        let now = read();
        if now.0 - last.0 > JUMP_MIN {
            began = began.or(Some(last.2));
        }
        if now.1 > last.1 {
            return began.map(|began| now.2 - began);
        }
        last = now;
    }
    None
}

#[test]
fn each_class_is_named_answered_soon_and_withdrawn_and_a_calm_mix_is_none() {
    let _alone = alone();
    let Some(bed) = bed("ekdta", "baseline = { learn = false }\nthreshold = { packets = 15000 }") else { return };
    let fragments = fragments(&bed);
    // Calm first: datagrams, and connections to a port that is open.
    let address = serve(&bed.server, 80);
    let connect = || bed.client.run(|| TcpStream::connect_timeout(&address, WAIT_TIMEOUT));
    // Slowly enough that datagrams are sent beside them on a fast machine too.
    let calm = || {
        (0..200).for_each(|_| {
            drop(connect().expect("connected"));
            thread::sleep(Duration::from_millis(2));
        });
    };
    let ((), sent, lost) = beside(&bed, &[4000], calm);
    assert!(sent > 50 && lost == 0, "{lost} of {sent}");
    assert_eq!(events(&bed), [Value::Null; 0]);

    for (class, arguments) in [
        ("few-sources", &["--udp", "--src", "10.0.0.0/30", "--flows", "4"][..]),
        ("syn-flood", &["--syn-flood", "--random-sources", "--src", "10.0.0.0/8"]),
        ("reflection", &["--udp", "--src", "10.0.0.0/20", "--src-port", "123", "--flows", "4096"]),
        ("fragments", &["--pcap", &fragments]),
        ("unknown", &["--tcp", "--src", "10.0.0.0/22", "--flows", "1024"]),
    ] {
        let before = events(&bed).len();
        let connects = AtomicU64::new(0);
        let work = || {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                // As long as the flood lasts a client connects again and again.
                let client = scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        connect().expect("connected beside the flood");
                        connects.fetch_add(1, Ordering::Relaxed);
                    }
                });
                let ending = Ends(&over);
                let took = floods(&bed, arguments);
                drop(ending);
                client.join().expect("connections");
                took
            })
        };
        let (took, sent, lost) = beside(&bed, &[4000], work);
        let took = took.unwrap_or_else(|| panic!("{class}: nothing was done\n{}", log(&bed.path("events"))));
        ends(&bed);
        let events = events(&bed).split_off(before);
        eprintln!("{class}: {took:.0?}, {lost} of {sent} datagrams lost, {connects:?} connections");
        let [event, of, prefix] = ["event", "class", "prefix"].map(|key| events[0][key].as_str());
        assert_eq!((event, of, prefix), (Some("began"), Some(class), Some("198.18.0.2/32")), "{events:#?}");
        assert_eq!(events.iter().filter(|event| event["event"] == "ended").count(), 1, "{events:#?}");
        assert!(sent > 100 && lost == 0, "{class}: {lost} of {sent} datagrams of a client were dropped");
        assert!(connects.into_inner() > 0, "{class}: nobody connected");
        // What was withdrawn is gone.
        bed.wait("the rules against it are gone", || {
            let ((), sent, lost) = beside(&bed, &[123], || thread::sleep(Duration::from_millis(200)));
            sent > 20 && lost == 0
        });
    }
}

/// A challenge lets in nobody whom the file keeps out; and of a flood's SYNs none is looked up among the connections that there are.
#[test]
fn what_the_file_drops_stays_dropped_while_it_is_challenged() {
    let web = "[[rule]]\nname = \"web\"\nprotocol = \"tcp\"\ndestination-port = 80\naction = \"pass\"";
    let detection = format!("baseline = {{ learn = false }}\nthreshold = {{ syn = 5000 }}\n{web}");
    let _alone = alone();
    let Some(bed) = bed_with("ekdtd", "default = \"drop\"", &detection) else { return };
    for port in [80, 5432] {
        serve(&bed.server, port);
    }
    let connects = |port: u16, patience| {
        let to = format!("{SERVER}:{port}").parse().expect("an address");
        bed.client.run(|| TcpStream::connect_timeout(&to, patience)).is_ok()
    };
    let short = Duration::from_millis(300);
    assert!(connects(80, WAIT_TIMEOUT) && !connects(5432, short), "in peace");
    thread::scope(|scope| {
        scope.spawn(|| floods(&bed, &["--syn-flood", "--random-sources", "--src", "10.0.0.0/8", "--dst-port", "80"]));
        bed.wait("it is challenged", || events(&bed).iter().any(|event| event["event"] == "mitigating"));
        assert!(connects(80, WAIT_TIMEOUT) && !connects(5432, short), "under attack");
        // In the host's network, and in front of the /sys of all, where the BPF file system is.
        let pinned = || {
            let network = fs::File::open(format!("/run/netns/{}", bed.host.name())).expect("a namespace");
            nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entered");
            let host = CookieMode::Host(HostCookies::default());
            Cookies::open(&bed.interface, host, &Paths::of(&bed.interface).pins).expect("its maps")
        };
        let cookies = || thread::scope(|scope| scope.spawn(pinned).join().expect("a thread"));
        bed.wait("its maps are there", || cookies().is_some());
        let connected = cookies().expect("pinned").connected().expect("one of them");
        bed.wait("all connections are known", || connected.is_complete());
        ends(&bed);
        bed.wait("connections go by unseen", || !connected.is_complete());
    });
    assert!(connects(80, WAIT_TIMEOUT) && !connects(5432, short), "in peace again");
}

/// A table of rules or of shields counts those of the file as rules, and no others.
#[test]
fn rules_against_an_attack_are_counted_apart_when_the_process_is_killed_too() {
    let _alone = alone();
    let file = "baseline = { learn = false }\nthreshold = { packets = 15000 }\n[[rule]]\nname = \"own\"\naction = \"drop\"\nprotocol = \"gre\"";
    let Some(mut bed) = bed("ekdtl", file) else { return };
    let listed = |bed: &ShieldBed| {
        let shown: Value = serde_json::from_slice(&bed.shield(&["list", "--json"]).stdout).expect("JSON");
        let shields = shown["shields"].as_array().expect("shields");
        let own = shields.iter().find(|shield| shield["interface"] == *bed.interface);
        ["rules", "attack_rules"].map(|key| own.and_then(|own| own[key].as_u64()).unwrap_or_else(|| panic!("{shown}")))
    };
    let column = |bed: &ShieldBed| {
        let table = printed(&bed.shield(&["list"]));
        let end = table.find("RULES").expect("a column") + "RULES".len();
        let row = table.lines().find(|row| row.contains(&bed.interface)).unwrap_or_else(|| panic!("{table}"));
        let row = &row[..end];
        row.split(' ').next_back().expect("a number").to_owned()
    };
    assert_eq!((listed(&bed), column(&bed)), ([1, 0], "1".to_owned()));
    let mac = bed.server.link.mac.to_string();
    let mut flood = bed.client.command(EVENKEEL);
    let line = format!("gen {} --rate {FLOOD} --duration 60s --dst-mac {mac} --dst {SERVER}", bed.client.interface());
    let flooding = Running::silent(flood.args(words(&line)).args(["--udp", "--src", "10.0.0.0/30", "--flows", "4"]));
    bed.wait("rules hold against it", || listed(&bed)[1] > 0);
    assert_eq!((listed(&bed)[0], column(&bed)), (1, "1".to_owned()));
    bed.kill();
    let status = bed.status();
    let of_attack = status["rules"].as_array().expect("rules").iter().filter(|rule| rule["attack"] == true).count();
    assert_eq!((listed(&bed), column(&bed)), ([1, of_attack as u64], "1".to_owned()), "{status}");
    assert!(of_attack > 0, "they still hold: {status}");
    flooding.kill();
    assert!(bed.shield(&["stop", &bed.interface]).status.success());
}

#[test]
fn rules_that_only_count_at_first_show_what_they_would_drop_and_of_whom() {
    let detection =
        "baseline = { learn = false }\nthreshold = { packets = 15000 }\nshadow = { first-s = 0.5, legitimate-max = 1 }";
    let _alone = alone();
    let Some(bed) = bed("ekdtb", detection) else { return };
    let flood = ["--udp", "--src", "10.0.0.0/20", "--src-port", "123", "--flows", "4096"];
    // Every second datagram of the client looks as the flood does. Sources are known when they were there for two seconds.
    let work = || {
        thread::sleep(Duration::from_millis(2600));
        floods(&bed, &flood)
    };
    let (took, sent, lost) = beside_in_all(&bed, &[123, 4000], work);
    ends(&bed);
    let events = events(&bed);
    let words: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(words, ["began", "mitigating", "shadowed", "mitigating", "ended"], "{events:#?}");
    assert_eq!((&events[1]["shadow"], &events[3]["shadow"]), (&true.into(), &false.into()));
    let shadowed = &events[2];
    let rate = shadowed["would_apply_pps"].as_f64().expect("a rate");
    let part = shadowed["legitimate_share"].as_f64().expect("the client was known");
    eprintln!(
        "acts after {took:.0?}; would drop {rate:.0}/s, {part:.2} of the client's packets; {lost} of {sent} lost"
    );
    assert!((20_000.0..90_000.0).contains(&rate), "{shadowed}");
    assert!((0.2..0.8).contains(&part) && shadowed["enforced"] == true, "{shadowed}");
    assert!(
        took.is_some_and(|took| took > Duration::from_millis(500)),
        "nothing is dropped while rules only count: {took:?}"
    );
    assert!(
        lost > 0 && lost < sent / 3,
        "what looks as the flood does is dropped while it lasts, and only then: {lost} of {sent}"
    );
}

#[test]
fn packet_rings_between_two_interfaces_watch_too() {
    let _alone = alone();
    let Some(mut bed) = ShieldBed::gateway(EVENKEEL, "ekdtc") else { return };
    let path = bed.path("events");
    let rules = bed.rules(&format!(
        "protect = [\"{SERVER}/32\"]\n[detection]\nevents = {path:?}\nquiet-s = 1\nbaseline = {{ learn = false }}\nthreshold = {{ packets = 15000 }}\n"
    ));
    bed.run(&rules, &["--backend", "ring"]);
    assert_eq!((bed.come_through(10, 5), bed.come_back(10, 5)), (5, 5));
    let address = serve(&bed.server, 80);
    let mac = bed.server.link.mac.to_string();
    for (class, counter, arguments) in [
        ("reflection", "dropped", &["--udp", "--src", "10.0.0.0/20", "--src-port", "123", "--flows", "4096"][..]),
        ("syn-flood", "challenged", &["--syn-flood", "--src", "10.0.0.0/16", "--flows", "65536", "--dst-port", "80"]),
    ] {
        let totals =
            |bed: &ShieldBed| ["passed", "dropped", "challenged"].map(|what| bed.total(what)).iter().sum::<u64>();
        let (before, acted, all_before) = (events(&bed).len(), bed.total(counter), totals(&bed));
        let mut all = vec!["gen", bed.client.interface(), "--rate", FLOOD, "--duration", FLOOD_TIME, "--dst-mac", &mac];
        all.extend(["--dst", SERVER]);
        all.extend(arguments);
        // Datagrams of a client, as many as come while it floods; from another port than reflectors have.
        let flow = bed.flow(4009, Duration::from_millis(2));
        let done = bed.client.command(EVENKEEL).args(all).output().expect("the program starts");
        assert!(done.status.success(), "{}", printed(&done));
        let connected = bed.client.run(|| TcpStream::connect_timeout(&address, WAIT_TIMEOUT));
        connected.expect("connected behind the flood");
        let flown = flow.end();
        ends(&bed);
        bed.wait("nothing is attacked", || bed.status()["attacks"] == Value::Array(Vec::new()));
        let (events, acted) = (events(&bed).split_off(before), bed.total(counter) - acted);
        let judged = totals(&bed) - all_before;
        eprintln!("{class}: {acted} {counter}, {} of {} datagrams came through", flown.received, flown.sent);
        let words: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
        assert_eq!((words[0], words[words.len() - 1]), ("began", "ended"), "{events:#?}");
        assert_eq!(events[0]["class"], class, "{events:#?}");
        assert!(words.contains(&"mitigating"), "{events:#?}");
        // Those of the first moments were let through. Where the flood keeps both cores busy, frames are lost before the rings.
        assert!(acted > 10_000 && acted * 2 > judged, "{acted} {counter} of {judged}");
        assert!(flown.received * 4 > flown.sent, "{} of {}", flown.received, flown.sent);
    }
    // Something else is protected, then nothing, then the same as before.
    let text = log(Path::new(&rules));
    for text in [text.replace(SERVER, CLIENT), "default = \"pass\"\n".to_owned(), text] {
        bed.rules(&text);
        bed.reload();
        assert_eq!((bed.come_through(10, 5), bed.come_back(10, 5)), (5, 5));
    }
    bed.stop();
}
