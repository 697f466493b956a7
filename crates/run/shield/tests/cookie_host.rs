//! Host mode with the kernel's own clients and servers. Needs root.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, listen, setsockopt,
    socket, sockopt,
};
use testbed::{
    End, Running,
    cookies::{
        self, CLIENT, CookieBed, Mode, PORT, SERVER, at, echo_on,
        frames::{ACK, Frame, RST},
        talk, talk_long,
    },
    wait, wait_for,
};

/// XDP_PASS and XDP_REDIRECT.
const DROPPED: u32 = 1;
const PASSED: u32 = 2;
const REDIRECTED: u32 = 4;

/// Output of `ss -tie` on the only established connection of a namespace.
fn ss(end: &End) -> String {
    end.output("ss -tieOHn state established")
}

fn host(tag: &str) -> Option<CookieBed> {
    CookieBed::new(tag, Mode::Host(|_| ()))
}

fn words<'a>(text: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    text.split_whitespace().filter(|w| wanted.iter().any(|p| w.starts_with(p))).collect()
}

#[test]
fn connections_keep_their_options() {
    let Some(bed) = host("ckoptions") else { return };
    assert_eq!(bed.server.output("nft list ruleset").trim(), "", "no netfilter");
    let setting = bed.server.read("/proc/sys/net/ipv4/tcp_syncookies");
    assert_eq!(setting.trim(), "1", "the kernel's default");
    for (family, mss) in [(0, 1448), (1, 1428)] {
        let to = bed.echo(SERVER[family]);
        let mut stream = bed.connect(to).unwrap();
        talk(&mut stream);
        let (near, far) = (ss(&bed.client), ss(&bed.server));
        let scale = |text: &str| words(text, &["wscale:"])[0]["wscale:".len()..].to_owned();
        for text in [&near, &far] {
            assert_eq!(words(text, &["ts", "sack", "mss:"]), ["ts", "sack", &format!("mss:{mss}")], "{text}");
        }
        let (near, far) = (scale(&near), scale(&far));
        assert_eq!(near.split_once(',').map(|(a, b)| format!("{b},{a}")).unwrap(), far);
        // Larger than any window without scaling.
        talk_long(&mut stream);
    }
    let (counts, acks) = (bed.counts(), bed.acks());
    assert_eq!((counts.answered, counts.right, counts.wrong), (2, 2, 0));
    assert_eq!((acks.given, acks.refused, acks.unlistened), (2, 0, 0));
    assert_eq!(bed.server.counter("TcpExtSyncookiesSent"), 0, "the kernel has answered none itself");
}

/// Its copy of a frame shares the bytes with the one that TCP gets.
#[test]
fn whoever_reads_along_from_a_packet_socket_is_in_nobodys_way() {
    let Some(bed) = host("ckreads") else { return };
    let reads = bed
        .server
        .run(|| socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll))
        .unwrap();
    for family in [0, 1] {
        let to = bed.echo(SERVER[family]);
        for _ in 0..5 {
            talk(&mut bed.connect(to).unwrap());
        }
    }
    drop(reads);
    assert_eq!((bed.counts().right, bed.acks().given, bed.acks().unlistened), (10, 10, 0));
}

/// A client that is told to offer no timestamps gets none of what they carry; the MSS comes from the cookie alone.
#[test]
fn without_timestamps_the_mss_remains() {
    let Some(bed) = host("ckplain") else { return };
    let to = bed.echo(SERVER[0]);
    let route = format!("{}/32", SERVER[0]);
    // The client's MSS, and what the kernel's cookie (its table) and our timestamp make of it.
    for (advertised, plain, stamped) in [("1460", 1460, 1460 - 12), ("1350", 1300, 1340 - 12), ("700", 536, 536 - 12)] {
        for (timestamps, mss) in [("0", plain), ("1", stamped)] {
            bed.client.output(&format!("ip route replace {route} dev {} advmss {advertised}", bed.client.interface()));
            bed.client.set("net.ipv4.tcp_timestamps", timestamps);
            let mut stream = bed.connect(to).unwrap();
            talk(&mut stream);
            let text = ss(&bed.server);
            let wanted = format!("mss:{mss}");
            let all: &[&str] = if timestamps == "0" { &[&wanted] } else { &["ts", "sack", "wscale:", &wanted] };
            let found = words(&text, &["ts", "sack", "wscale:", "mss:"]);
            assert_eq!(found.len(), all.len(), "{text}");
            assert!(found.contains(&wanted.as_str()), "{advertised}, timestamps {timestamps}: {text}");
            drop(stream);
            wait("the connection ends", || ss(&bed.server).is_empty());
        }
    }
    assert_eq!(bed.acks().given, 6);
}

#[test]
fn two_hundred_clients_connect_beside_a_flood() {
    let Some(bed) = host("ckflood") else { return };
    let to = bed.echo(SERVER[0]);
    let done = AtomicU32::new(0);
    thread::scope(|s| {
        s.spawn(|| bed.flood(4096, 300_000, 100_000.0));
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    talk(&mut bed.connect(to).unwrap());
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 200);
    let counts = bed.counts();
    assert!(counts.answered > 100_000, "{counts:?}");
    assert_eq!((counts.wrong, counts.failed), (0, 0), "{counts:?}");
    // An ACK that is lost behind the shield, or that comes again, is proved again: the listener's count is the exact one.
    assert!((200..220).contains(&bed.acks().given), "{counts:?}");
    for name in ["TcpExtSyncookiesSent", "TcpExtTCPReqQFullDrop", "TcpExtTCPReqQFullDoCookies"] {
        assert_eq!(bed.server.counter(name), 0, "{name}: the flood has reached no listener");
    }
    assert_eq!(bed.server.counter("TcpPassiveOpens"), 200);
}

fn tcp_socket() -> OwnedFd {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&fd, sockopt::ReuseAddr, &true).unwrap();
    fd
}

fn listener(bed: &CookieBed, shared: bool, backlog: i32) -> TcpListener {
    let make = || {
        let fd = tcp_socket();
        setsockopt(&fd, sockopt::ReusePort, &shared).unwrap();
        bind(fd.as_raw_fd(), &SockaddrStorage::from(at(SERVER[0]))).unwrap();
        listen(&fd, Backlog::new(backlog).unwrap()).unwrap();
        TcpListener::from(fd)
    };
    bed.server.run(make)
}

#[test]
fn listeners_that_share_a_port_share_the_connections() {
    let Some(bed) = host("ckreuse") else { return };
    let taken: Vec<Arc<AtomicU32>> = (0..4).map(|_| Arc::default()).collect();
    for mine in &taken {
        let (listener, mine) = (listener(&bed, true, 64), mine.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                mine.fetch_add(1, Ordering::Relaxed);
                let _ = stream.unwrap().write_all(b"keel");
            }
        });
    }
    for _ in 0..64 {
        let mut bytes = [0; 4];
        bed.connect(at(SERVER[0])).unwrap().read_exact(&mut bytes).unwrap();
    }
    let taken: Vec<u32> = taken.iter().map(|n| n.load(Ordering::Relaxed)).collect();
    assert_eq!(taken.iter().sum::<u32>(), 64);
    assert!(taken.iter().filter(|&&n| n > 0).count() > 1, "{taken:?}");
}

/// The queue of a listener that does not accept fills up; who came too late is let in by what he sends next.
#[test]
fn who_finds_the_queue_full_gets_in_later() {
    let Some(bed) = host("ckqueue") else { return };
    let listener = listener(&bed, false, 1);
    let mut streams: Vec<TcpStream> = (0..5).map(|_| bed.connect(at(SERVER[0])).unwrap()).collect();
    for stream in &mut streams {
        stream.write_all(b"keel").unwrap();
    }
    wait("the queue overflows", || bed.server.counter("TcpExtListenOverflows") > 0);
    echo_on(listener);
    for stream in &mut streams {
        stream.set_read_timeout(Some(cookies::ANSWER_TIMEOUT)).unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"keel");
    }
}

/// The server still has the last connection of the client's port in TIME-WAIT: its kernel answers that SYN.
#[test]
fn a_port_may_be_used_again_at_once() {
    let Some(bed) = host("ckagain") else { return };
    let listener = listener(&bed, false, 8);
    let to = SockaddrStorage::from(at(SERVER[0]));
    let from: SocketAddr = format!("{}:40777", CLIENT[0]).parse().unwrap();
    for round in 0..3 {
        let stream = bed.client.run(|| {
            let fd = tcp_socket();
            bind(fd.as_raw_fd(), &SockaddrStorage::from(from)).unwrap();
            connect(fd.as_raw_fd(), &to).unwrap_or_else(|e| panic!("round {round}: {e}"));
            TcpStream::from(fd)
        });
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, from);
        drop(server);
        let mut stream = stream;
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the server closes first");
        drop(stream);
        wait("TIME-WAIT", || bed.server.output("ss -tnH state time-wait").contains("40777"));
    }
    assert_eq!(bed.counts().answered, 1, "only the first was ours to answer");
}

/// Also while SYNs of others are answered without a look at the kernel's sockets.
/// Half open since before rules challenged: the kernel sends its SYN-ACK again without being asked.
#[test]
fn the_syn_of_a_half_open_connection_does_not_go_to_the_kernel_again() {
    let Some(mut bed) = host("ckhalf") else { return };
    let _listener = bed.server.run(|| TcpListener::bind((SERVER[0], PORT))).unwrap();
    let passes = bed.passing();
    bed.link.put(&passes).unwrap();
    bed.flood(8, 8, 1000.0);
    let half_open = || {
        let shown = bed.server.command("ss").args(["-Htn", "state", "syn-recv"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).lines().count()
    };
    wait("the kernel has them", || half_open() == 8);
    bed.link.put(&bed.shield).unwrap();
    bed.cookies.connected().unwrap().mark_incomplete();
    let before = bed.counts();
    for source in 0..8 {
        let from = cookies::spoofed(source).to_string();
        let syn = Frame { options: vec![], ..Frame::new(bed.server.link.mac, bed.client.link.mac, &from, SERVER[0]) };
        assert_eq!(bed.server.run(|| bed.shield.test(&syn.bytes()).unwrap().action), DROPPED);
    }
    assert_eq!(bed.counts().odd, before.odd + 8);
}

#[test]
fn a_syn_of_a_connection_that_is_there_goes_to_the_kernel() {
    let Some(bed) = host("ckthere") else { return };
    let connected = bed.cookies.connected().unwrap();
    for family in 0..2 {
        let to = bed.echo(SERVER[family]);
        let mut stream = bed.connect(to).unwrap();
        talk(&mut stream);
        let from = stream.local_addr().unwrap();
        assert!(connected.may_contain(to, from), "the program noted it, under the same bit as we look at");
        let verdict = |port| {
            let frame = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[family], SERVER[family]);
            let syn = Frame { ports: (port, PORT), ..frame }.bytes();
            bed.server.run(|| bed.shield.test(&syn).unwrap().action)
        };
        let other = from.port() ^ 1;
        for _ in 0..50 {
            assert_eq!((verdict(other), verdict(from.port())), (REDIRECTED, PASSED));
        }
        // Without the note it is answered like any other, unless the clock ticks in between.
        let forgotten = (0..50).any(|_| {
            connected.clear();
            (verdict(other), verdict(from.port())) == (REDIRECTED, REDIRECTED)
        });
        assert!(forgotten);
        // Nor is anybody answered for want of a note while the notes may lack some.
        connected.mark_incomplete();
        for _ in 0..50 {
            connected.clear();
            assert_eq!((verdict(other), verdict(from.port())), (REDIRECTED, PASSED));
        }
        connected.rebuild(|| Ok::<_, ()>(vec![(to, from)])).unwrap();
        assert!((0..50).all(|_| (verdict(other), verdict(from.port())) == (REDIRECTED, PASSED)));
        assert!(connected.fill_ratio() < 1e-4);
    }
}

/// The first segments of a client in one poll: TCP hears of the first ACK only after the last of them has gone through XDP.
#[test]
fn segments_behind_the_first_ack_arrive_with_it() {
    let Some(bed) = host("ckbehind") else { return };
    let listener = listener(&bed, false, 8);
    let source = "198.18.0.100";
    bed.server.knows(source, &bed.client);
    let syn = Frame::new(bed.server.link.mac, bed.client.link.mac, source, SERVER[0]);
    let answer = bed.server.run(|| bed.shield.test(&syn.bytes())).unwrap().frame;
    let ack = Frame { flags: ACK | 8, ..syn.finish(&Frame::read(&answer)) };
    let segments = (0..8u32).map(|n| Frame { data: vec![n as u8; 40], seq: ack.seq + 40 * n, ..ack.clone() }.bytes());
    bed.send(&segments.collect::<Vec<_>>(), 8, 1e6);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(cookies::ANSWER_TIMEOUT)).unwrap();
    let mut bytes = vec![0; 320];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, (0..8u8).flat_map(|n| [n; 40]).collect::<Vec<_>>());
    assert_eq!((bed.counts().right, bed.counts().wrong, bed.acks().given), (1, 0, 1));
}

/// A server that listens for MPTCP, as those in Go do unasked: no connection can be made of a cookie for it, and its clients get in all the same.
#[test]
fn clients_of_an_mptcp_server_get_in() {
    const SERVES: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.bind(('198.18.0.2', 80))
s.listen()
while True:
    c, _ = s.accept()
    c.sendall(c.recv(64))
";
    let Some(bed) = host("ckmptcp") else { return };
    let _server = Running::start(bed.server.command("python3").args(["-c", SERVES]));
    wait("a server", || bed.server.output("ss -tlnH").contains(":80"));
    for _ in 0..3 {
        talk(&mut bed.connect(at(SERVER[0])).unwrap());
    }
    assert_eq!((bed.counts().multipath, bed.counts().answered, bed.acks().refused), (3, 0, 0));
}

/// A router that listens at any address, itself: what it forwards is not for it, though a listener seems to be there.
#[test]
fn what_a_router_forwards_is_left_alone() {
    let Some(bed) = host("ckroute") else { return };
    let _listener = bed.server.run(|| TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    let syn = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[0], SERVER[0]);
    let beyond = Frame { destination: "203.0.113.7".parse().unwrap(), ..syn.clone() };
    bed.server.output(&format!("ip route add 203.0.113.0/24 via {}", CLIENT[0]));
    bed.server.set("net.ipv4.ip_forward", "1");
    let action = |frame: &Frame| bed.server.run(|| bed.shield.test(&frame.bytes())).unwrap().action;
    assert_eq!((action(&beyond), action(&syn)), (PASSED, REDIRECTED));
    // A route that refuses: a SYN-ACK would claim a host that is not there.
    for (kind, prefix) in
        [("unreachable", "203.0.114.0/24"), ("prohibit", "203.0.115.0/24"), ("blackhole", "203.0.116.0/24")]
    {
        bed.server.output(&format!("ip route add {kind} {prefix}"));
        let refused = Frame { destination: prefix.replace("0/24", "7").parse().unwrap(), ..syn.clone() };
        assert_eq!(action(&refused), PASSED, "{kind}");
    }
    let ack = Frame { flags: ACK, options: vec![], ..beyond };
    assert_eq!(action(&ack), PASSED, "nor is a connection that crosses cut off");
    assert_eq!((bed.counts().answered, bed.counts().wrong), (1, 0));
}

/// Frames by hand: data in the first ACK, both frames of it twice, and a priority tag; at last a reset.
#[test]
fn data_in_the_first_ack_arrives() {
    let Some(bed) = host("ckdata") else { return };
    let listener = listener(&bed, false, 8);
    listener.set_nonblocking(true).unwrap();
    for (number, tags) in [vec![], vec![0]].into_iter().enumerate() {
        let source = format!("198.18.0.{}", 100 + number);
        bed.server.knows(&source, &bed.client);
        let mut syn = Frame::new(bed.server.link.mac, bed.client.link.mac, &source, SERVER[0]);
        // A client of TCP Fast Open sends data with its SYN, and again if it is not acknowledged.
        syn.data = b"fast open".to_vec();
        syn.tags = tags;
        let answer = bed.server.run(|| bed.shield.test(&syn.bytes())).unwrap().frame;
        let answer = Frame::read(&answer);
        assert_eq!(answer.ack, syn.seq + 1);
        bed.send(&[syn.bytes()], 2, 1000.0);
        let ack = Frame { data: b"keel".to_vec(), flags: ACK | 8, ..syn.finish(&answer) };
        bed.send(&[ack.bytes()], 2, 1000.0);
        let (mut stream, peer) = wait_for("it is accepted", || listener.accept().ok());
        assert_eq!(peer, format!("{source}:40000").parse().unwrap());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(cookies::ANSWER_TIMEOUT)).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(stream.read(&mut bytes).unwrap(), 4);
        assert_eq!(&bytes[..4], b"keel");
        let reset = Frame { flags: RST, seq: ack.seq + 4, options: vec![], data: vec![], ..ack };
        bed.send(&[reset.bytes()], 1, 1000.0);
        assert_eq!(stream.read(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "once");
    }
    assert_eq!(bed.acks().given, 2);
}
