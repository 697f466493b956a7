//! Programs that know nothing of link, under `evenkeel link run`: their TCP connections between two nodes, and what goes wrong.

use std::{fs, path::Path, process::Command};

use nix::sys::signal::Signal;
use testbed::{Bed, ended, json, printed, refused, wait};

#[path = "sockets/carried.rs"]
mod carried;
#[path = "sockets/cluster.rs"]
mod cluster;
#[path = "sockets/hostile.rs"]
mod hostile;
#[path = "sockets/joining.rs"]
mod joining;
#[path = "sockets/rights.rs"]
mod rights;

use cluster::{Cluster, EVENKEEL, OWN, PEER, PROGRAMS};

#[test]
fn unmodified_programs_go_over_link_in_every_way_that_sockets_are_used() {
    let Some(cluster) = Cluster::start("lkrun") else { return };
    let _server = cluster.server("0.0.0.0", "server");
    let used = cluster.result(0, &["python3", PROGRAMS, "use", OWN, PEER]);
    assert!(used.status.success(), "{}{}", printed(&used), cluster.log("server"));
    // What nobody listens for, and what is bound to an address out of the cluster, went by TCP, which refuses it, and nothing else did.
    let over_tcp = cluster.status(0)["tcp_fallbacks"].clone();
    let rows: Vec<_> =
        over_tcp.as_array().unwrap().iter().map(|row| (row["peer"].as_str(), row["count"].as_u64())).collect();
    let ports = [7001, 7009].map(|port| format!("{PEER}:{port}"));
    assert_eq!(rows, ports.each_ref().map(|peer| (Some(peer.as_str()), Some(1))), "{over_tcp}");

    let _iperf = cluster.run(1, &["iperf3", "-s", "-p", "7100", "--forceflush"], "iperf");
    cluster.wait_for_word("iperf", "listening");
    let sent = cluster.result(0, &["iperf3", "-c", PEER, "-p", "7100", "-n", "50M", "-J"]);
    let sent = json(&sent);
    let bytes = |way: &str| sent["end"][way]["bytes"].as_u64().unwrap_or(0);
    assert!(bytes("sum_sent") >= 50 << 20, "{sent}");
    // iperf3 ends before what is still on its way has been counted.
    assert!(bytes("sum_received") * 10 >= bytes("sum_sent") * 9, "{sent}");
    assert_eq!(cluster.status(0)["tcp_fallbacks"], over_tcp);
}

#[test]
fn status_names_what_carries_a_connection_and_why_another_goes_by_tcp() {
    let Some(cluster) = Cluster::start("lkwhy") else { return };
    let _server = cluster.server(PEER, "server");
    let hold =
        "import socket,sys,time; s=socket.create_connection((sys.argv[1],7003)); s.sendall(b'12345'); time.sleep(100)";
    let _holder = cluster.run(0, &["python3", "-c", hold, PEER], "holder");
    wait("the connection is shown", || cluster.status(0)["connections"][0]["sent_bytes"] == 5);
    let one = cluster.status(0)["connections"][0].clone();
    assert_eq!((&one["node"], &one["carrier"]), (&"right".into(), &"the broker".into()));
    assert_eq!(one["peer"], format!("{PEER}:7003"));
    assert!(one["local"].as_str().unwrap().starts_with(&format!("{OWN}:")), "{one}");
    assert!(one["program"].as_str().unwrap().starts_with("python3["), "{one}");
    wait("the other node shows it", || cluster.status(1)["connections"][0]["received_bytes"] == 5);
    assert_eq!(cluster.status(1)["connections"][0]["peer"], one["local"]);
    assert!(printed(&cluster.link(0, &["status"])).contains("the broker"));

    // A server that was not started under link.
    let plain = format!("import socket; s=socket.create_server(('{PEER}',7200)); c,_=s.accept(); c.sendall(b'by tcp')");
    let mut python = Command::new("python3");
    let _plain = cluster.spoken(1, python.args(["-c", &plain]), "plain");
    let ask = "import socket,sys; print(socket.create_connection((sys.argv[1],int(sys.argv[2]))).recv(10).decode())";
    wait("the plain server answers", || {
        printed(&cluster.result(0, &["python3", "-c", ask, PEER, "7200"])).contains("by tcp")
    });
    let over_tcp = cluster.status(0)["tcp_fallbacks"][0].clone();
    assert!(over_tcp["reason"].as_str().unwrap().contains("no program with link listens on port 7200"), "{over_tcp}");

    // Without link a client of TCP gets to a server under it.
    let words = ["-c", "import socket,sys; s=socket.create_connection((sys.argv[1],7001)); print(s.recv(100))", PEER];
    let plain = cluster.ends[0].run(|| Command::new("python3").args(words).output().unwrap());
    assert!(printed(&plain).contains(OWN), "{}", printed(&plain));
}

#[test]
fn a_static_program_is_supervised_and_reaches_one_under_the_library() {
    let Some(cluster) = Cluster::start("lkstat") else { return };
    let _server = cluster.server("0.0.0.0", "server");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/greeted.c");
    let program = cluster.path("greeted").display().to_string();
    ended(&Command::new("cc").args(["-static", "-Wall", "-Werror", "-o", &program, source]).output().unwrap(), 0);
    let greeted = cluster.result(0, &[&program, PEER, "7001"]);
    assert!(
        printed(&greeted).contains(&format!("peer {PEER}:7001 says ('{PEER}', 7001) ('{OWN}', ")),
        "{}",
        printed(&greeted)
    );
    // All that the library answers, the supervisor does too, but for calls that read and write, which go past it.
    let words =
        ["link", "run", "--by", "supervisor", "--", "python3", "-u", PROGRAMS, "use", OWN, PEER, "reset", "addressed"];
    let used = cluster.ends[0].run(|| Command::new(EVENKEEL).args(words).output().unwrap());
    ended(&used, 0);
    assert_eq!(cluster.status(0)["tcp_fallbacks"].as_array().map(Vec::len), Some(2), "{}", printed(&used));
}

#[test]
fn a_broker_that_is_gone_is_an_error_and_the_next_one_knows_who_listens() {
    let Some(mut cluster) = Cluster::start("lkgone") else { return };
    let _server = cluster.server("0.0.0.0", "server");
    let ask = "import socket,sys; print(socket.create_connection((sys.argv[1],7001)).recv(100).decode())";
    let connect = |cluster: &Cluster| cluster.result(0, &["python3", "-c", ask, PEER]);
    assert!(printed(&connect(&cluster)).contains(PEER), "{}", printed(&connect(&cluster)));

    // A program whose broker is killed: its connection breaks, and a new one is an error that says so.
    let hold = "
import socket, sys
s = socket.create_connection((sys.argv[1], 7003))
print('open', flush=True)
for what in (lambda: s.recv(1), lambda: socket.create_connection((sys.argv[1], 7001))):
    try:
        print('no error:', what(), flush=True)
    except OSError as error:
        print(type(error).__name__, error.errno, flush=True)
";
    let _holder = cluster.run(0, &["python3", "-c", hold, PEER], "holder");
    cluster.wait_for_word("holder", "open");
    cluster.brokers[0].take().unwrap().stop(Signal::SIGKILL);
    wait("the program hears of it", || cluster.log("holder").lines().count() == 3);
    assert_eq!(cluster.log("holder"), "open\nConnectionResetError 104\nOSError 100\n");
    refused(&connect(&cluster), 1, &["--cluster"]);
    cluster.serve(0);

    // The broker of the server, ended and killed.
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        cluster.brokers[1].take().unwrap().stop(signal);
        cluster.serve(1);
        wait("the nodes see each other", || cluster.status(0)["nodes"][0]["name"] == "right");
        wait("and so connect over link", || {
            let before = cluster.status(0)["tcp_fallbacks"].clone();
            printed(&connect(&cluster)).contains(PEER) && cluster.status(0)["tcp_fallbacks"] == before
        });
    }
}

/// Waits for a pipe that has a byte, for as long as a number can say, in each way.
const FOR_EVER: &str = "
import ctypes, os, select, struct
reads, writes = os.pipe()
os.write(writes, b'x')
epoll = select.epoll()
epoll.register(reads, select.EPOLLIN)
c = ctypes.CDLL(None)
time, bits, polls, events = [ctypes.create_string_buffer(bytes, 128) for bytes in (
    struct.pack('ll', 2**63 - 1, 999_999), (1 << reads).to_bytes(16, 'little'), struct.pack('ihh', reads, 1, 0), b'')]
print(
    c.select(reads + 1, bits, None, None, time),
    c.pselect(reads + 1, bits, None, None, time, None),
    c.ppoll(polls, 1, time, None),
    c.epoll_pwait2(epoll.fileno(), events, 1, time, None),
)
";

#[test]
fn a_time_beyond_the_clock_is_for_ever() {
    let library = Path::new(EVENKEEL).with_file_name("libevenkeel_sockets.so");
    assert!(library.exists(), "build {} first: cargo build --workspace", library.display());
    let waited = Command::new("python3").args(["-c", FOR_EVER]).env("LD_PRELOAD", library).output().unwrap();
    ended(&waited, 0);
    assert_eq!(printed(&waited), "1 1 1 1\n");
}

#[test]
fn what_any_user_may_send_the_broker_costs_it_nothing() {
    let Some(cluster) = Cluster::start("lkask") else { return };
    let _server = cluster.server("0.0.0.0", "server");
    let pid = cluster.broker(0).pid();
    let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = descriptors();
    let flood = "
import os, socket
os.setuid(65534)
path = f'/run/evenkeel-link/{os.stat(\"/proc/self/ns/net\").st_ino}/sockets'
one = socket.socket()
for words in (b'\"Listens\"', b'\"Accepted\"', b'\"Figures\"', b'\"Ended\"', b'{}', b'\\xff' * 3000):
    for count in (1, 5, 200):
        for _ in range(5):
            ask = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ask.connect(path)
            socket.send_fds(ask, [words], [one.fileno()] * count)
            ask.close()
# Some say nothing, and go on saying nothing.
held = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(200)]
[ask.connect(path) for ask in held]
print('asked')
";
    let flooded = cluster.ends[0].run(|| Command::new("python3").args(["-c", flood]).output().unwrap());
    assert!(printed(&flooded).contains("asked"), "{}", printed(&flooded));
    wait("all descriptors are given back", || descriptors() <= before);
    let ask = "import socket,sys; print(socket.create_connection((sys.argv[1],7001)).recv(100).decode())";
    assert!(printed(&cluster.result(0, &["python3", "-c", ask, PEER])).contains(OWN));
    cluster.all_by_link();
}

#[test]
fn a_cluster_that_is_not_behind_the_interface_is_refused() {
    let Some((_bed, ends)) = Bed::pair("lkbad") else { return };
    let serve = |prefix: &str| {
        let args = ["link", "serve", ends[0].interface(), "--cluster", prefix];
        ends[0].run(|| Command::new(EVENKEEL).args(args).output().unwrap())
    };
    refused(&serve("203.0.113.0/24"), 3, &["203.0.113.0/24", ends[0].interface()]);
    refused(&serve("0.0.0.0/0"), 3, &["0.0.0.0/0", "127.0.0.1"]);
    refused(&serve("10.0.0.0/33"), 2, &["10.0.0.0/33"]);
    let alone = ends[0].run(|| Command::new(EVENKEEL).args(["link", "run", "--", "true"]).output().unwrap());
    refused(&alone, 1, &["--cluster"]);
    let Some(cluster) = Cluster::start("lkgood") else { return };
    refused(&cluster.result(0, &["no-such-program"]), 3, &["no-such-program"]);
    ended(&cluster.result(0, &["true"]), 0);
    assert_eq!(cluster.result(0, &["sh", "-c", "exit 7"]).status.code(), Some(7));
}
