//! Rules that ask what the machine knows, with real packets: connections, listeners, sources that were seen before.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    process::Output,
    thread,
    time::Duration,
};

use testbed::{CLIENT, SERVER, ShieldBed, bind, ended, printed, turn};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
/// Ports that are open, and one that is not.
const TCP: u16 = 8080;
const UDP: u16 = 5353;
/// Open, and for those alone who were seen before.
const MEMBERS: u16 = 5454;
const CLOSED: u16 = 9;
const FRAME_COUNT: &str = "200";

const RULES: &str = r#"
protect = ["198.18.0.2/32"]
rule = [
    { name = "strays", action = "drop", protocol = "tcp", tcp-flags = "!syn", connection = "none" },
    { name = "closed", action = "drop", protocol = ["tcp", "udp"], listener = "no" },
    { name = "strangers", action = "drop", protocol = "udp", destination-port = 5454, source-seen = "never" },
]
"#;

/// So many frames from made-up sources.
fn flood(bed: &ShieldBed, words: &[&str]) -> Output {
    let mac = bed.server.link.mac.to_string();
    let mut all = vec!["gen", bed.client.interface(), "--count", FRAME_COUNT, "--rate", "2000", "--flows", "200"];
    all.extend(["--dst-mac", &mac, "--dst", SERVER]);
    if !words.contains(&"--src") {
        all.extend(["--src", "10.0.0.0/16"]);
    }
    all.extend(words);
    let done = bed.client.command(EVENKEEL).args(all).output().unwrap();
    ended(&done, 0);
    done
}

/// A connection that says something and hears it back.
fn echoes(bed: &ShieldBed) -> bool {
    let ask = || -> std::io::Result<bool> {
        let address = (SERVER.parse::<std::net::IpAddr>().unwrap(), TCP).into();
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"hello")?;
        let mut heard = [0; 5];
        stream.read_exact(&mut heard)?;
        Ok(&heard == b"hello")
    };
    bed.client.run(ask).unwrap_or(false)
}

#[test]
fn what_nobody_waits_for_is_dropped_and_what_is_waited_for_is_not() {
    let Some(_alone) = turn() else { return };
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "eksk") else { return };
    bed.server.feature("rx-gro", true);
    let listener = bed.server.run(|| TcpListener::bind((SERVER, TCP)).unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut heard = [0; 5];
            let _ = stream.read_exact(&mut heard).and_then(|()| stream.write_all(&heard));
        }
    });
    let _waits = bed.server.run(|| bind((SERVER, UDP)));
    bed.protect(RULES, &[]);
    assert!(echoes(&bed), "{}", bed.log());
    assert_eq!((bed.count("strays"), bed.count("closed")), (0, 0), "a connection is known from its SYN to its end");
    // Of no connection, to an open port and to a closed one; a SYN to a closed one; and UDP.
    let frames: u64 = FRAME_COUNT.parse().unwrap();
    for port in [TCP, CLOSED] {
        flood(&bed, &["--tcp", "--dst-port", &port.to_string()]);
    }
    bed.wait("strays are dropped", || bed.count("strays") == 2 * frames);
    flood(&bed, &["--syn-flood", "--dst-port", &CLOSED.to_string()]);
    flood(&bed, &["--udp", "--dst-port", &CLOSED.to_string()]);
    bed.wait("what is closed is dropped", || bed.count("closed") == 2 * frames);
    flood(&bed, &["--udp", "--dst-port", &UDP.to_string()]);
    flood(&bed, &["--syn-flood", "--dst-port", &TCP.to_string()]);
    assert_eq!((bed.count("strays"), bed.count("closed")), (2 * frames, 2 * frames), "what is waited for passes");
    assert!(echoes(&bed));
    // The client was seen. Who sends for the first time is a stranger, until a look at what was sampled.
    assert_eq!((bed.come_through(MEMBERS, 5), bed.count("strangers")), (5, 0));
    let status = bed.status();
    assert!(status["known_sources"]["sources"].as_u64() > Some(0), "{status}");
    assert!(status["known_sources"]["false_positives"].as_f64() < Some(0.01), "{status}");
    let _members = bed.server.run(|| bind((SERVER, MEMBERS)));
    flood(&bed, &["--udp", "--dst-port", &MEMBERS.to_string(), "--src", "10.9.0.0/16"]);
    bed.wait("strangers are dropped", || bed.count("strangers") > frames / 10);
    bed.stop();
}

#[test]
fn what_cannot_be_known_is_refused_and_a_rule_that_translates_later_is_noticed() {
    let Some(_alone) = turn() else { return };
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "eksl") else { return };
    bed.server.feature("rx-gro", true);
    let nft = |words: &str| ended(&bed.server.command("nft").arg(words).output().unwrap(), 0);
    nft(
        "add table ip t; add chain ip t p { type nat hook prerouting priority -100; }; add rule ip t p tcp dport 80 redirect to :8080",
    );
    let closed = bed.rules("[[rule]]\nname = \"closed\"\naction = \"drop\"\nprotocol = \"udp\"\nlistener = \"no\"\n");
    let refused = bed.command(&["run", &bed.interface, "--rules", &closed]).output().unwrap();
    assert!(
        refused.status.code() == Some(3) && printed(&refused).contains("translated address"),
        "{}",
        printed(&refused)
    );
    let checked = bed.shield(&["check", &closed]);
    assert!(
        checked.status.code() == Some(1) && printed(&checked).contains("`run` refuses it"),
        "{}",
        printed(&checked)
    );
    nft("delete table ip t");
    bed.protect("[[rule]]\nname = \"strays\"\naction = \"drop\"\nprotocol = \"tcp\"\ntcp-flags = \"!syn\"\nconnection = \"none\"\n[[rule]]\nname = \"closed\"\naction = \"drop\"\nprotocol = \"udp\"\nlistener = \"no\"\n", &[]);
    assert_eq!(bed.warnings(), "[]");
    let nft = |words: &str| ended(&bed.server.command("nft").arg(words).output().unwrap(), 0);
    nft(
        "add table ip t; add chain ip t p { type nat hook prerouting priority -100; }; add rule ip t p tcp dport 80 redirect to :8080",
    );
    bed.wait("it is noticed", || bed.log().contains("address changed: rules with `connection`"));
    let warned = bed.warnings();
    assert!(
        warned.contains("closed") && warned.contains("applies to no packet") && !warned.contains("strays"),
        "{warned}"
    );
    // The connection is at port 80 to the client, and no socket has it there: conntrack does.
    let listener = bed.server.run(|| TcpListener::bind((SERVER, 8080)).unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut heard = [0; 5];
            let _ = stream.read_exact(&mut heard).and_then(|()| stream.write_all(&heard));
        }
    });
    let ask = || -> std::io::Result<()> {
        let address = (SERVER.parse::<std::net::IpAddr>().unwrap(), 80).into();
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"hello")?;
        stream.read_exact(&mut [0; 5])
    };
    bed.client.run(ask).unwrap();
    assert_eq!(bed.count("strays"), 0, "{}", bed.log());
    flood(&bed, &["--tcp", "--dst-port", "80"]);
    bed.wait("strays are dropped", || bed.count("strays") >= FRAME_COUNT.parse().unwrap());
    bed.stop();
}

#[test]
fn answers_to_what_left_by_a_masquerade_are_waited_for() {
    let Some(_alone) = turn() else { return };
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "eksm") else { return };
    bed.server.feature("rx-gro", true);
    let rules = "add table ip t; add chain ip t p { type nat hook postrouting priority 100; }; add rule ip t p udp dport 7000 masquerade to :40000-40100";
    ended(&bed.server.command("nft").arg(rules).output().unwrap(), 0);
    let strays =
        bed.rules("[[rule]]\nname = \"strays\"\naction = \"drop\"\nprotocol = \"udp\"\nconnection = \"none\"\n");
    bed.run(&strays, &[]);
    // Asked from one port and seen from another, at which no socket of the server waits for the answer.
    let answers = bed.client.run(|| UdpSocket::bind((CLIENT, 7000)).unwrap());
    let questioner = bed.server.run(|| UdpSocket::bind((SERVER, 0)).unwrap());
    let second = Some(Duration::from_secs(1));
    for socket in [&answers, &questioner] {
        socket.set_read_timeout(second).unwrap();
    }
    for _ in 0..5 {
        questioner.send_to(b"who", (CLIENT, 7000)).unwrap();
        let (_, from) = answers.recv_from(&mut [0; 8]).unwrap();
        assert!((40000..=40100).contains(&from.port()), "{from} is not masqueraded");
        answers.send_to(b"me", from).unwrap();
        questioner.recv_from(&mut [0; 8]).expect("the answer comes back");
    }
    assert_eq!(bed.count("strays"), 0, "{}", bed.log());
    flood(&bed, &["--udp", "--dst-port", "40001"]);
    bed.wait("strays are dropped", || bed.count("strays") == FRAME_COUNT.parse::<u64>().unwrap());
    bed.stop();
}

/// The programs that wait for rules against an attack were loaded before the rule that translates.
#[test]
fn an_attack_is_met_by_what_netfilter_came_to_do_in_quiet() {
    let Some(_alone) = turn() else { return };
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "eksq") else { return };
    bed.server.feature("rx-gro", true);
    let rules = bed.rules(
        "protect = [\"198.18.0.2/32\"]\n[detection]\nbaseline = { learn = false }\nthreshold = { packets = 15000 }\n\
         [detection.ladder]\nunknown = [{ do = \"drop-unknown\" }]\n",
    );
    // SYNs are answered in the same way before and after.
    let nft = |bed: &ShieldBed, words: &str| ended(&bed.server.command("nft").arg(words).output().unwrap(), 0);
    nft(
        &bed,
        "add table ip f; add chain ip f i { type filter hook input priority 0; }; add rule ip f i ct state new counter",
    );
    bed.run(&rules, &[]);
    thread::sleep(Duration::from_secs(2));
    nft(
        &bed,
        "add table ip t; add chain ip t p { type nat hook prerouting priority -100; }; add rule ip t p udp dport 53 redirect to :5353",
    );
    // Who is looked at once a second has seen it.
    thread::sleep(Duration::from_secs(2));
    let mac = bed.server.link.mac.to_string();
    let mut flood = bed.client.command(EVENKEEL);
    flood.args(["gen", bed.client.interface(), "--udp", "--dst-port", "9", "--rate", "40000", "--duration", "60s"]);
    flood.args(["--src", "10.0.0.0/16", "--flows", "4096", "--dst-mac", &mac, "--dst", SERVER]);
    let mut flood = flood.spawn().unwrap();
    bed.wait("it is seen", || bed.log().contains(": step ") || bed.log().contains("no step is left"));
    let requester = bed.client.run(|| UdpSocket::bind((CLIENT, 0)).unwrap());
    let answers = bed.server.run(|| bind((SERVER, UDP)));
    answers.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let heard = (0..20).filter(|_| {
        requester.send_to(b"who", (SERVER, 53)).unwrap();
        answers.recv_from(&mut [0; 8]).is_ok()
    });
    assert_eq!(heard.count(), 20, "{}", bed.log());
    flood.kill().unwrap();
    flood.wait().unwrap();
    bed.stop();
}
