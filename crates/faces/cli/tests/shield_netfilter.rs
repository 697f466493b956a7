//! `evenkeel shield` that challenges in front of a host with rules of netfilter: nobody is lost by them, and nobody gets past them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::Stdio,
    thread,
    time::Duration,
};

use testbed::{End, Running, ShieldBed, Space, log, printed};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

const CHALLENGE: &str = "[[rule]]\nname = \"web\"\naction = \"challenge\"\nprotocol = \"tcp\"\n";
const HOST: [&str; 2] = ["198.18.0.2", "2001:2::2"];
/// What usual hardening says of first packets that are no SYNs.
const NEW_WITHOUT_SYN: &str = "add table inet h; add chain inet h i { type filter hook input priority 0; };
    add rule inet h i ct state new tcp flags & (fin|syn|rst|ack) != syn counter drop";
/// Likewise, where net.netfilter.nf_conntrack_tcp_loose is 0.
const INVALID: &str = "add table inet h; add chain inet h i { type filter hook input priority 0; };
    add rule inet h i ct state invalid counter drop";
/// SYNs to one port are kept out, and nothing else is.
const NO_SYNS_TO_81: &str = "add table inet h; add chain inet h i { type filter hook input priority 0; };
    add rule inet h i tcp dport 81 tcp flags & (syn|ack) == syn counter drop";
/// Five connections from the client, one after the other; what those said that came to be.
const CLIENT: &str = "import socket, sys
for _ in range(5):
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as s:
            s.settimeout(float(sys.argv[3]))
            s.sendall(b'hello')
            print(s.recv(4).decode(), end=' ')
    except OSError:
        print('lost', end=' ')
";

fn bed(tag: &str) -> Option<ShieldBed> {
    ShieldBed::host(EVENKEEL, tag)
}

/// The bed with IPv6, and something that listens at any address of the host on ports 80 and 81.
fn listening(tag: &str) -> Option<ShieldBed> {
    let bed = bed(tag)?;
    let (client, host) = (&bed.client, &bed.server);
    for (end, own, other, owner) in [(client, "2001:2::1", HOST[1], host), (host, HOST[1], "2001:2::1", client)] {
        end.address(&format!("{own}/64"));
        end.knows(other, owner);
    }
    for port in [80, 81] {
        serve(&bed.host, port, "host");
    }
    Some(bed)
}

/// Says four letters to whoever connects.
fn serve(space: &Space, port: u16, word: &'static str) {
    let listener = space.run(|| TcpListener::bind(("::", port)).expect("a socket"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Who has gone is not told.
            let _ = stream.write_all(word.as_bytes());
        }
    });
}

/// What five connections to a port are told.
fn five(bed: &ShieldBed, host: &str, port: &str, patience: &str) -> String {
    let done = bed.client.command("python3").args(["-c", CLIENT, host, port, patience]).output().expect("python3");
    assert!(done.status.success(), "{}", printed(&done));
    printed(&done).trim().to_owned()
}

fn all(word: &str) -> String {
    [word; 5].join(" ")
}

fn both_families_connect(bed: &ShieldBed, when: &str) {
    for host in HOST {
        assert_eq!(five(bed, host, "80", "10"), all("host"), "{host}, {when}: {}", bed.log());
    }
}

fn way(bed: &ShieldBed) -> (String, String) {
    let status = bed.status();
    let word = |key: &str| status["challenge"][key].as_str().unwrap_or_default().to_owned();
    (word("method"), word("reason"))
}

/// SYNs of sources drawn anew, for some seconds.
fn flood(bed: &ShieldBed, host: &str, rate: &str) -> Running {
    flood_of(bed, host, rate, &["--syn-flood", "--random-sources", "--src", "10.0.0.0/8"])
}

/// Runs a shield with the default ladder above that limit, for the IPv4 address; its file of events.
fn run_with_ladder(bed: &mut ShieldBed, limit: &str) -> PathBuf {
    let events = bed.path("events");
    let rules = bed.rules(&format!(
        "protect = [\"{}/32\"]\n[detection]\nevents = {events:?}\nbaseline = {{ learn = false }}\nthreshold = {{ {limit} }}\n",
        HOST[0]
    ));
    bed.run(&rules, &[]);
    events
}

fn flood_of(bed: &ShieldBed, host: &str, rate: &str, frames: &[&str]) -> Running {
    let mac = bed.server.link.mac.to_string();
    let arguments =
        ["gen", bed.client.interface(), "--dst-port", "80", "--dst", host, "--dst-mac", &mac, "--rate", rate];
    Running::silent(bed.client.command(EVENKEEL).args(arguments).args(["--duration", "12s"]).args(frames))
}

/// The kernel hands the packets of a bridge's port on from there, and binds sockets to the bridge.
#[test]
fn sources_are_authenticated_where_the_interface_is_a_port_of_a_bridge() {
    let Some(mut bed) = listening("eknfp") else { return };
    let port = bed.server.interface().to_owned();
    let mac = bed.server.link.mac;
    for step in [
        format!("ip link add ekbr address {mac} type bridge"),
        format!("ip addr flush dev {port}"),
        format!("ip link set {port} master ekbr"),
        "ip link set ekbr up".to_owned(),
        format!("ip addr add {}/24 dev ekbr", HOST[0]),
    ] {
        bed.server.output(&step);
    }
    let rules_file =
        bed.rules("[[rule]]\nname = \"strays\"\naction = \"drop\"\nprotocol = \"tcp\"\nconnection = \"none\"\n");
    let refused =
        bed.server.command(EVENKEEL).args(["shield", "run", &port, "--rules"]).arg(&rules_file).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", printed(&refused));
    assert!(printed(&refused).contains(&format!("its port {port}")), "{}", printed(&refused));
    bed.protect(CHALLENGE, &[]);
    let (way, why) = way(&bed);
    assert!(way == "sources" && why.starts_with(&format!("{port} is a port of ekbr")), "{way}: {why}");
    assert_eq!(five(&bed, HOST[0], "80", "10"), all("host"), "{}", bed.log());
}

#[test]
fn cookies_answer_where_nothing_stands_between() {
    let Some(mut bed) = listening("eknfa") else { return };
    // A chain without rules does nothing, and one about what is forwarded nothing here.
    bed.host.nft("add table inet h; add chain inet h i { type filter hook input priority 0; }");
    bed.host.nft("add chain inet h f { type filter hook forward priority 0; policy drop; }");
    bed.protect(CHALLENGE, &[]);
    assert_eq!(way(&bed).0, "cookies", "{:?}", way(&bed));
    both_families_connect(&bed, "by cookies");
    // A client whose answer is held up on a busy machine sends its SYN again.
    assert!(bed.total("challenged") >= 10, "each SYN is answered: {}", bed.status());
    bed.stop();
}

#[test]
fn nobody_is_lost_beside_hardening() {
    for (tag, script) in [("eknfb", NEW_WITHOUT_SYN), ("eknfc", INVALID)] {
        let Some(mut bed) = listening(tag) else { return };
        bed.host.nft(script);
        if script == INVALID {
            bed.host.set("net.netfilter.nf_conntrack_tcp_loose", "0");
        }
        both_families_connect(&bed, "without a shield");
        bed.protect(CHALLENGE, &[]);
        assert_eq!(way(&bed), ("sources".to_owned(), "nftables filters input (table inet h)".to_owned()));
        both_families_connect(&bed, script);
        assert!(bed.total("challenged") >= 2, "a SYN each: {}", bed.status());
        // Whoever has not shown that it exists is none of the kernel's business.
        let flooding = flood(&bed, HOST[0], "20000");
        bed.wait("the flood is answered", || bed.total("challenged") > 5000);
        both_families_connect(&bed, "beside a flood");
        flooding.end();
        let tracked = bed.host.read("/proc/sys/net/netfilter/nf_conntrack_count");
        let tracked: u32 = tracked.trim().parse().expect("a number");
        assert!(tracked < 100, "{tracked} connections are tracked");
        bed.stop();
    }
}

#[test]
fn nobody_is_lost_beside_hardening_when_the_ladder_challenges() {
    let Some(mut bed) = listening("eknfd") else { return };
    bed.host.nft(NEW_WITHOUT_SYN);
    let events = run_with_ladder(&mut bed, "syn = 5000");
    assert_eq!(way(&bed).0, "sources");
    let flooding = flood(&bed, HOST[0], "40000");
    bed.wait("it is challenged", || log(&events).contains("mitigating"));
    bed.wait("it is answered", || bed.total("challenged") > 5000);
    both_families_connect(&bed, "under attack");
    flooding.end();
    bed.stop();
}

#[test]
fn sources_prove_themselves_while_packets_of_no_connection_are_dropped() {
    let Some(mut bed) = listening("eknfl") else { return };
    bed.host.nft(NEW_WITHOUT_SYN);
    let events = run_with_ladder(&mut bed, "packets = 5000");
    assert_eq!(way(&bed).0, "sources");
    let flooding = flood_of(&bed, HOST[0], "20000", &["--tcp", "--src", "10.9.0.1", "--flows", "200"]);
    bed.wait("it is seen", || log(&events).contains("drop TCP of no connection, challenge TCP SYN"));
    bed.wait("strays are dropped", || bed.total("dropped") > 1000);
    // The RST by which a source shows that it exists belongs to no connection, either.
    assert_eq!(five(&bed, HOST[0], "80", "10"), all("host"), "{}", bed.log());
    assert!(bed.total("challenged") >= 1, "{}", bed.status());
    flooding.end();
    bed.stop();
}

#[test]
fn a_rule_that_drops_syns_still_does() {
    let Some(mut bed) = listening("eknfe") else { return };
    bed.host.nft(NO_SYNS_TO_81);
    bed.protect(CHALLENGE, &[]);
    for host in HOST {
        assert_eq!(five(&bed, host, "81", "1.5"), all("lost"), "{host}");
    }
    both_families_connect(&bed, "to another port");
    bed.stop();
}

/// A host behind the one with the shield, which forwards to it; it serves port 80.
fn behind(bed: &mut ShieldBed) -> End {
    bed.add("behind");
    let [near, far] = bed.join(["host", "behind"], 1);
    for (end, addresses) in [(&near, ["198.19.0.1/24", "2001:2:1::1/64"]), (&far, ["198.19.0.2/24", "2001:2:1::2/64"])]
    {
        addresses.iter().for_each(|address| end.address(address));
    }
    far.output("ip route add default via 198.19.0.1");
    far.output("ip route add default via 2001:2:1::1");
    forward(bed, "1");
    serve(&far, 80, "back");
    far
}

fn forward(bed: &ShieldBed, value: &str) {
    for setting in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        bed.host.set(setting, value);
    }
}

#[test]
fn a_host_behind_a_router_is_protected() {
    let Some(mut bed) = listening("eknfk") else { return };
    let behind = behind(&mut bed);
    let there = ["198.19.0.2", "2001:2:1::2"];
    for (host, by) in there.iter().zip(HOST) {
        bed.client.output(&format!("ip route add {host} via {by}"));
    }
    // SYNs that reach the host behind.
    behind.nft("add table inet b; add chain inet b i { type filter hook input priority 0; }");
    behind.nft("add rule inet b i tcp flags & (syn|ack) == syn counter");
    let arrived = || {
        let shown: serde_json::Value = serde_json::from_str(&behind.output("nft -j list ruleset")).expect("JSON");
        let entries = shown["nftables"].as_array().expect("entries");
        let counter = |entry: &serde_json::Value| {
            entry["rule"]["expr"].as_array()?.iter().find_map(|part| part["counter"]["packets"].as_u64())
        };
        entries.iter().find_map(counter).expect("a counter")
    };
    bed.protect(CHALLENGE, &[]);
    let (kind, why) = way(&bed);
    assert_eq!(kind, "sources", "{why}");
    assert!(why.contains("forwarding"), "{why}");
    let connect = |when: &str| {
        for host in there {
            assert_eq!(five(&bed, host, "80", "10"), all("back"), "{host}, {when}: {}", bed.log());
        }
    };
    connect("challenged");
    assert!(bed.total("challenged") >= 2, "a SYN each: {}", bed.status());
    both_families_connect(&bed, "to the router itself");
    let before = arrived();
    let flooding = flood(&bed, there[0], "20000");
    bed.wait("the flood is answered", || bed.total("challenged") > 5000);
    connect("beside a flood");
    flooding.end();
    let new = arrived() - before;
    assert!((10..100).contains(&new), "{new} SYNs reached the host behind; 10 clients connected");
    forward(&bed, "0");
    bed.wait("it forwards no more", || way(&bed).0 == "cookies");
    both_families_connect(&bed, "by cookies");
    bed.stop();
}

#[test]
fn an_address_that_is_translated_leads_where_it_should() {
    let Some(mut bed) = listening("eknfg") else { return };
    behind(&mut bed);
    // Of the two ports only one has something of this machine that listens.
    bed.host.nft("add table inet n; add chain inet n p { type nat hook prerouting priority -100; }");
    for port in [80, 8080] {
        bed.host.nft(&format!("add rule inet n p ip daddr {} tcp dport {port} dnat ip to 198.19.0.2:80", HOST[0]));
        bed.host.nft(&format!("add rule inet n p ip6 daddr {} tcp dport {port} dnat ip6 to [2001:2:1::2]:80", HOST[1]));
    }
    let connect = |bed: &ShieldBed, when: &str| {
        for (host, port) in [(HOST[0], "80"), (HOST[1], "80"), (HOST[0], "8080"), (HOST[1], "8080")] {
            assert_eq!(five(bed, host, port, "10"), all("back"), "{host} {port}, {when}: {}", bed.log());
        }
    };
    connect(&bed, "without a shield");
    bed.protect(CHALLENGE, &[]);
    assert_eq!(way(&bed).1, "nftables translates addresses at prerouting (table inet n)");
    connect(&bed, "challenged");
    let flooding = flood(&bed, HOST[0], "20000");
    bed.wait("the flood is answered", || bed.total("challenged") > 5000);
    connect(&bed, "beside a flood");
    flooding.end();
    bed.stop();
}

#[test]
fn rules_that_come_and_go_while_it_runs_are_followed() {
    let Some(mut bed) = listening("eknff") else { return };
    let rules = bed.protect(CHALLENGE, &[]);
    assert_eq!(way(&bed).0, "cookies");
    both_families_connect(&bed, "by cookies");
    bed.host.nft(NEW_WITHOUT_SYN);
    bed.wait("the rules are seen", || way(&bed).0 == "sources");
    both_families_connect(&bed, "behind the new rules");
    // Reloads and the like keep it.
    assert!(bed.shield(&["reload", &bed.interface]).status.success());
    assert_eq!(way(&bed).0, "sources");
    bed.kill();
    bed.run(&rules, &[]);
    assert_eq!(way(&bed).0, "sources", "a process that takes over");
    bed.host.nft("flush ruleset");
    bed.wait("they have gone", || way(&bed).0 == "cookies");
    both_families_connect(&bed, "by cookies again");
    bed.stop();
}

/// The packets that the only rule of nftables with this comment has counted.
fn counted(space: &Space, comment: &str) -> u64 {
    let shown: serde_json::Value = serde_json::from_str(&space.output("nft -j list ruleset")).expect("JSON");
    let entries = shown["nftables"].as_array().expect("entries");
    let rule = entries.iter().map(|entry| &entry["rule"]).find(|rule| rule["comment"] == comment).expect("the rule");
    let parts = rule["expr"].as_array().expect("parts");
    parts.iter().find_map(|part| part["counter"]["packets"].as_u64()).expect("a counter")
}

/// Connections that cookies begin end at such rules. From the moment that those are there, SYNs go to the kernel, be the program for them ready or not.
#[test]
fn no_connection_is_lost_while_the_program_for_new_rules_is_loaded() {
    let Some(mut bed) = listening("eknfm") else { return };
    // So many rules that the program takes a second or more.
    let rule = |n: u32| {
        format!(
            "[[rule]]\nname = \"r{n}\"\naction = \"drop\"\nprotocol = \"udp\"\nsource = \"10.{}.{}.0/24\"\n",
            n >> 8,
            n & 255
        )
    };
    bed.protect(&format!("{CHALLENGE}{}", (0..3000).map(rule).collect::<String>()), &[]);
    assert_eq!(way(&bed).0, "cookies");
    let flooding = flood(&bed, HOST[0], "5000");
    bed.wait("the flood is answered", || bed.total("challenged") > 1000);
    bed.host
        .nft(&format!("{NEW_WITHOUT_SYN}; add rule inet h i ip saddr 198.18.0.1 tcp flags syn counter comment syns"));
    let connects = |patience: Duration| {
        bed.client.run(|| -> std::io::Result<()> {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(HOST[0].parse().unwrap(), 80), patience)?;
            stream.set_read_timeout(Some(patience))?;
            stream.write_all(b"hello")?;
            stream.read_exact(&mut [0; 4])
        })
    };
    // One whose SYN came before the rules may be lost, as it would be without a shield.
    bed.wait("the rules see a SYN", || {
        let _ = connects(Duration::from_millis(50));
        counted(&bed.host, "syns") > 0
    });
    assert!(!bed.log().contains("sources are authenticated"), "not by a new program: {}", bed.log());
    for n in 0..20 {
        connects(Duration::from_secs(20)).unwrap_or_else(|error| panic!("connection {n}: {error}; {}", bed.log()));
    }
    flooding.end();
    bed.wait("the program is there", || way(&bed).0 == "sources");
    // Answers are withheld no more when the rules have gone.
    bed.host.nft("flush ruleset");
    bed.wait("they have gone", || way(&bed).0 == "cookies");
    let before = bed.total("challenged");
    both_families_connect(&bed, "by cookies again");
    assert!(bed.total("challenged") >= before + 10, "each SYN is answered: {}", bed.status());
    bed.stop();
}

/// What asks them is no answer that connection tracking knows, and is let through all the same.
#[test]
fn clients_with_a_stateful_firewall_get_in() {
    let Some(mut bed) = listening("eknfj") else { return };
    bed.host.nft(NEW_WITHOUT_SYN);
    bed.client.nft("add table ip c; add chain ip c i { type filter hook input priority 0; policy drop; }");
    bed.client.nft("add rule ip c i ct state established,related accept");
    bed.protect(CHALLENGE, &[]);
    assert_eq!(way(&bed).0, "sources");
    for n in 10..18 {
        let source = format!("198.18.0.{n}");
        bed.client.output(&format!("ip address add {source}/24 dev {}", bed.client.interface()));
        bed.host.output(&format!("ip neigh replace {source} lladdr {} dev {}", bed.client.link.mac, bed.interface));
        let from_it = CLIENT.replace("range(5)", "range(1)");
        let from_it = from_it.replace("), float(sys.argv[3]))", &format!("), float(sys.argv[3]), ('{source}', 0))"));
        assert!(from_it.contains(&source));
        let done = bed.client.command("python3").args(["-c", &from_it, HOST[0], "80", "3"]).output().expect("python3");
        assert_eq!(printed(&done).trim(), "host", "{source}");
    }
    bed.stop();
}

/// A client that was answered by a cookie ends its handshake after rules have come.
#[test]
fn handshakes_under_way_end_when_the_way_changes() {
    let Some(mut bed) = listening("eknfh") else { return };
    bed.protect(CHALLENGE, &[]);
    assert_eq!(way(&bed).0, "cookies");
    // Its ACKs are held back until the rules are followed; then the data brings the cookie.
    bed.client.nft("add table ip c; add chain ip c o { type filter hook output priority 0; }");
    bed.client.nft("add rule ip c o tcp dport 80 tcp flags & (syn|ack) == ack drop");
    let client = bed
        .client
        .command("python3")
        .args(["-c", &CLIENT.replace("range(5)", "range(1)"), HOST[0], "80", "15"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    bed.wait("it is answered", || bed.total("challenged") >= 1);
    // One that lets it in.
    bed.host
        .nft("add table inet h; add chain inet h i { type filter hook input priority 0; }; add rule inet h i counter");
    bed.wait("the rules are seen", || way(&bed).0 == "sources");
    bed.client.nft("delete table ip c");
    let done = client.wait_with_output().expect("its end");
    assert_eq!(printed(&done).trim(), "host", "{}", bed.log());
    bed.stop();
}
