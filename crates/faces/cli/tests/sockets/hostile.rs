//! Attacks on connections of others: by a user without rights, by a program of the group, by a node on the wire.

use std::{fs, io::Write, process::Command, time::Duration};

use link::{Claim, Engine, Raw, State, Wire};
use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::signal::Signal,
};
use testbed::{Bed, Running, ended, printed, refused, wait};

use crate::cluster::{Cluster, Network, OWN, PEER, PLAIN};

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/hostile.py");

/// Accepts once a file is there, and answers what comes; a client that says a secret, and what it is answered.
const SERVER: &str = "
import os, socket, sys, time
listener = socket.create_server((sys.argv[1], 7000), backlog=4096)
print('ready', flush=True)
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
while True:
    connection, peer = listener.accept()
    while data := connection.recv(4096):
        print('came', data, flush=True)
        connection.sendall(b'server: ' + data)
";
pub(crate) const CLIENT: &str = "
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000))
print('connected', flush=True)
for number in range(int(sys.argv[2])):
    connection.sendall(b'secret')
    print(connection.recv(100), flush=True)
    time.sleep(0.01)
";

fn hostile(cluster: &Cluster, at: usize, words: &[&str]) -> String {
    let mut python = Command::new("python3");
    let output = cluster.plain(at, python.arg(HOSTILE).args(words));
    ended(&output, 0);
    printed(&output)
}

/// Likewise, while the test goes on, once it has said `word`.
pub(crate) fn hostile_until(cluster: &Cluster, at: usize, words: &[&str], log: &str, word: &str) -> Running {
    let mut python = Command::new("python3");
    let running = cluster.spoken(at, python.args(["-u", HOSTILE]).args(words), log);
    cluster.wait_for_word(log, word);
    running
}

/// The server, once it listens; it accepts when [`let_in`] was called.
pub(crate) fn server(cluster: &Cluster) -> Running {
    let go = cluster.path("go").display().to_string();
    cluster.serves(1, &["-c", SERVER, PEER, &go], "server")
}

pub(crate) fn let_in(cluster: &Cluster) {
    fs::write(cluster.path("go"), "").unwrap();
}

/// A cluster whose server accepts.
fn serving(tag: &str) -> Option<(Cluster, Running)> {
    let cluster = Cluster::start(tag)?;
    let server = server(&cluster);
    let_in(&cluster);
    Some((cluster, server))
}

/// A client that goes on for long, once it is answered.
fn goes_on(cluster: &Cluster) -> Running {
    let client = cluster.run(0, &["python3", "-u", "-c", CLIENT, PEER, "100000"], "client");
    cluster.wait_for_word("client", "b'server: secret'");
    client
}

/// Fails unless a client is answered.
#[track_caller]
pub(crate) fn is_served(cluster: &Cluster) {
    let message = cluster.script_output(0, &["-u", "-c", CLIENT, PEER, "3"]);
    assert!(message.contains("b'server: secret'"), "{message}");
}

#[test]
fn a_connection_is_its_listeners_alone() {
    let Some(cluster) = Cluster::start("lkhsteal") else { return };
    let _server = server(&cluster);
    let _client = cluster.run(0, &["python3", "-u", "-c", CLIENT, PEER, "1"], "client");
    cluster.wait_for_word("client", "connected");
    let message = hostile(&cluster, 1, &["steal", PEER, "7000"]);
    for what in ["udp", "own", "accepted", "connected", "udp connects", "connection listens"] {
        assert!(message.lines().any(|line| line == format!("{what} ('Tcp', [])")), "{what}: {message}");
    }
    let_in(&cluster);
    cluster.wait_for_word("client", "b'server: secret'");
    assert!(cluster.log("server").contains("came b'secret'"));
}

#[test]
fn no_descriptor_that_somebody_sends_holds_up_the_broker() {
    let Some((mut cluster, _server)) = serving("lkhwait") else { return };
    let message = hostile(&cluster, 0, &["linger", &format!("{PEER}:7000")]);
    assert_eq!(message.matches("answered").count(), 6, "{message}");
    is_served(&cluster);
    // An end by SIGTERM waits for none of it either.
    cluster.brokers[0].take().unwrap().stop(Signal::SIGTERM);
}

#[test]
fn a_file_system_that_answers_nothing_holds_up_its_user_alone() {
    let Some((mut cluster, _server)) = serving("lkhfuse") else { return };
    let waits = hostile_until(&cluster, 0, &["wait"], "waits", "asked");
    // In the second question the file was to be looked at, too.
    is_served(&cluster);
    cluster.all_by_link();
    let pid = cluster.broker(0).pid();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    assert!(names.any(|name| name.trim() == "ek-close"), "the close still waits");
    // With its server the file system ends, and the close with it.
    waits.stop(Signal::SIGKILL);
    cluster.brokers[0].take().unwrap().stop(Signal::SIGTERM);
}

#[test]
fn what_is_reported_of_a_connection_is_reported_to_who_has_it() {
    let Some((cluster, _server)) = serving("lkhname") else { return };
    let _client = goes_on(&cluster);
    for at in [0, 1] {
        let message = hostile(&cluster, at, &["figures"]);
        assert!(!message.is_empty() && message.lines().all(|line| line == "['Tcp', 'Tcp', 'Tcp', 'Tcp']"), "{message}");
    }
}

#[test]
fn one_user_takes_no_more_than_its_part_of_the_connections() {
    let Some(cluster) = Cluster::start("lkhmany") else { return };
    let _server = server(&cluster);
    let message = hostile(&cluster, 0, &["crowd", &format!("{PEER}:7000"), "1100"]);
    assert_eq!(message.trim(), "has 1024 Tcp");
    let over_tcp = cluster.status(0)["tcp_fallbacks"].to_string();
    assert!(over_tcp.contains("user 65534 has 1024 connections"), "{over_tcp}");
    let_in(&cluster);
    is_served(&cluster);
}

#[test]
fn ports_to_a_node_are_left_for_root() {
    let Some(cluster) = Cluster::start("lkhports") else { return };
    let _server = server(&cluster);
    let mut users = Vec::new();
    for (user, has) in
        [("60001", "has 1024 Tcp"), ("60002", "has 1024 Tcp"), ("60003", "has 1024 Tcp"), ("60004", "has 0 Tcp")]
    {
        let words = ["crowd", &format!("{PEER}:7000"), "1100", user, "1"];
        users.push(hostile_until(&cluster, 0, &words, user, "Tcp"));
        assert_eq!(cluster.log(user).trim(), has, "user {user}");
    }
    let over_tcp = cluster.status(0)["tcp_fallbacks"].clone();
    assert!(over_tcp.to_string().contains("the most that users other than root may share"), "{over_tcp}");
    let_in(&cluster);
    let root = cluster.run(0, &["python3", "-u", "-c", CLIENT, PEER, "1"], "root");
    cluster.wait_for_word("root", "connected");
    assert_eq!(cluster.status(0)["tcp_fallbacks"], over_tcp, "root's goes by link");
    root.stop(Signal::SIGKILL);
    for user in users {
        user.stop(Signal::SIGKILL);
    }
}

/// A server of another user than root that accepts nothing.
const DEAF: &str = "
import encodings.idna, os, socket, sys, time
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
listener = socket.create_server((sys.argv[1], 7001), backlog=4096)
print('ready', flush=True)
time.sleep(3600)
";

/// Bytes of memory that a broker has.
fn memory(broker: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", broker.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn what_waits_for_one_user_takes_a_part_of_the_memory() {
    let Some((cluster, _server)) = serving("lkhbytes") else { return };
    let _deaf = cluster.serves(1, &["-c", DEAF, PEER], "deaf");
    let brokers = [0, 1].map(|at| cluster.broker(at));
    let before = brokers.map(memory);
    let full = hostile_until(&cluster, 0, &["full", &format!("{PEER}:7001"), "400"], "full", "full\n");
    for (broker, before) in brokers.into_iter().zip(before) {
        let grown = memory(broker).saturating_sub(before) >> 20;
        // 150 to 200 MB without a bound.
        assert!((30..110).contains(&grown), "{grown} MB");
    }
    is_served(&cluster);
    cluster.all_by_link();
    full.stop(Signal::SIGKILL);
}

#[test]
fn a_broker_whose_lines_nobody_reads_serves() {
    let Some((_bed, ends)) = Bed::pair("lkhread") else { return };
    let (_reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    writer.write_all(&[b'x'; 4096]).unwrap();
    let mut command = Command::new(crate::cluster::EVENKEEL);
    command.args(["link", "serve", ends[0].interface(), "--json"]);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let broker = ends[0].run(|| Running::start(&mut command));
    let link =
        |verb: &str| ends[0].run(|| Command::new(crate::cluster::EVENKEEL).args(["link", verb]).output().unwrap());
    wait("the broker serves", || link("status").status.success());
    // It has one more line at its end.
    assert_eq!(broker.stop(Signal::SIGTERM).code(), Some(0));
}

/// Ticks of CPU time that the thread of a broker has used which carries the sockets of programs.
fn ticks(broker: &Running) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", broker.pid())).unwrap().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let stat = stats.into_iter().find(|stat| stat.contains("(ek-sockets)")).expect("it has that thread");
    let words: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    words[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_pipe_that_somebody_keeps_costs_the_broker_nothing() {
    let Some((cluster, _server)) = serving("lkhpipe") else { return };
    let keeps = hostile_until(&cluster, 0, &["pipe", &format!("{PEER}:7000")], "keeps", "kept");
    assert!(cluster.log("keeps").contains("Taken"), "{}", cluster.log("keeps"));
    wait("the connection has ended", || cluster.status(0)["connections"] == serde_json::json!([]));
    let broker = cluster.broker(0);
    // It looks for frames for a moment after the last one.
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks(broker);
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(broker) - before;
    assert!(used < 30, "{used} ticks in a second");
    keeps.stop(Signal::SIGKILL);
}

#[test]
fn one_user_has_the_broker_look_for_and_show_little() {
    let Some(cluster) = Cluster::start("lkhseek") else { return };
    let _server = server(&cluster);
    let message = hostile(&cluster, 0, &["offers", &format!("{PEER}:7000")]);
    let done = message.matches("'Done'").count();
    // The answers take far less than a second.
    assert!((1..=2).contains(&done) && message.matches("'Tcp'").count() == 20 - done, "{message}");
    assert_eq!(hostile(&cluster, 0, &["absent", "100"]).trim(), "100");
    let over_tcp = cluster.status(0)["tcp_fallbacks"].clone();
    let count = |why: &str| {
        let rows = over_tcp.as_array().unwrap().iter();
        rows.filter(|row| row["reason"].as_str().unwrap().contains(why)).map(|row| row["count"].as_u64().unwrap()).sum()
    };
    let counts: [u64; 2] = [count("does not answer on this Ethernet"), count("too many addresses are looked for")];
    assert!(counts[0] >= 16 && counts[1] > 0, "{over_tcp}");
}

#[test]
fn who_listens_beside_a_server_takes_nothing_from_it() {
    let Some(cluster) = Cluster::start("lkhnext") else { return };
    let go = cluster.path("go").display().to_string();
    let _server = cluster.serves(1, &["-c", SERVER, "0.0.0.0", &go], "server");
    let_in(&cluster);
    let beside = hostile_until(&cluster, 1, &["beside", "7000"], "beside", "listens 500");
    is_served(&cluster);
    cluster.all_by_link();
    beside.stop(Signal::SIGKILL);
}

#[test]
fn nobody_has_the_addresses_of_anothers_connection() {
    let Some((cluster, _server)) = serving("lkhtwin") else { return };
    let _client = goes_on(&cluster);
    let port = cluster.status(0)["connections"][0]["local"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let message = hostile(&cluster, 0, &["twin", &format!("{PEER}:7000"), &port]);
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines, ["IPv6 alone Tcp", "first End", "again Tcp", "elsewhere Tcp"], "{message}");
    let over_tcp = cluster.status(0)["tcp_fallbacks"].to_string();
    assert!(over_tcp.contains("has a connection to it already"), "{over_tcp}");
}

/// Peer credentials of an accepted connection: those that the library answers, and those of the kernel by a call past it.
const WHO: &str = "
import ctypes, os, socket, struct, sys
def told(connection, name):
    try:
        return connection.getsockopt(socket.SOL_SOCKET, name, 12)
    except OSError as error:
        return error.errno
def passed(connection, name):
    try:
        return connection.setsockopt(socket.SOL_SOCKET, name, 1)
    except OSError as error:
        return error.errno
listener = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
while True:
    connection, _ = listener.accept()
    cred, groups, security, pidfd = [told(connection, name) for name in (17, 59, 31, 77)]
    all = struct.unpack('3i', cred), groups, security, pidfd, passed(connection, 16), passed(connection, 76)
    out, room = ctypes.create_string_buffer(12), ctypes.c_int(12)
    getsockopt = 55 if os.uname().machine == 'x86_64' else 209
    ctypes.CDLL(None).syscall(getsockopt, connection.fileno(), 1, 17, out, ctypes.byref(room))
    print('said', all, 'user', struct.unpack('3i', out.raw)[1], connection.family.name, flush=True)
    connection.sendall(b'done')
    connection.close()
";

#[test]
fn a_client_is_no_user_of_this_machine() {
    let Some(cluster) = Cluster::start("lkhwho") else { return };
    let ask = "import socket,sys; print(socket.create_connection((sys.argv[1],7000)).recv(4))";
    for by in ["library", "supervisor"] {
        let mut command = Command::new(crate::cluster::EVENKEEL);
        command.args(["link", "run", "--by", by, "--", "python3", "-u", "-c", WHO, PEER]);
        let server = cluster.spoken(1, &mut command, by);
        cluster.wait_for_word(by, "ready");
        cluster.script_output(0, &["-c", ask, PEER]);
        cluster.all_by_link();
        ended(&cluster.plain(0, Command::new("python3").args(["-c", ask, PEER])), 0);
        wait("both are answered", || cluster.log(by).matches("AF_INET").count() == 2);
        let message = cluster.log(by);
        let lines: Vec<_> = message.lines().filter(|line| line.starts_with("said")).collect();
        let of = |line: &str| line.split(" user ").next().unwrap().to_owned();
        assert!(lines[0].starts_with("said ((0, -1, -1), "), "{message}");
        assert_eq!(of(lines[0]), of(lines[1]), "as by TCP: {message}");
        // Past the library the pair is of a user that no process has; the supervisor hears that call, too.
        let user = if by == "library" { "user 2129587950 " } else { "user -1 " };
        assert!(lines[0].contains(user), "{message}");
        server.stop(Signal::SIGTERM);
    }
}

/// A server of root's that answers lines, gives up its rights in some way after the client has said 100, and then says what packet sockets it has.
const RETAINS: &str = "
import ctypes, os, socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
connection, _ = listener.accept()
def packets():
    found = set()
    for fd in os.listdir('/proc/self/fd'):
        try:
            found.add(os.readlink('/proc/self/fd/' + fd))
        except FileNotFoundError: # the library has closed it
            pass
    with open('/proc/net/packet') as table:
        inodes = [line.split()[-1] for line in table.read().splitlines()[1:]]
    return sum(f'socket:[{inode}]' in found for inode in inodes)
class Data(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in 'abcdef']
ways = {
    'setuid': lambda: os.setuid(65534),
    'setreuid': lambda: os.setreuid(65534, 65534),
    'setresuid': lambda: os.setresuid(65534, 65534, 65534),
    'seteuid': lambda: (os.setresuid(65534, 65534, 0), os.seteuid(0), os.seteuid(65534), os.setresuid(65534, 65534, 65534)),
    'capset': lambda: ctypes.CDLL(None).capset(ctypes.byref((ctypes.c_uint32 * 2)(0x20080522, 0)), ctypes.byref(Data())),
}
came = 0
while data := connection.recv(100):
    connection.sendall(data)
    came += 1
    if came == 100:
        before, had = packets(), os.getuid()
        ways[sys.argv[2]]()
        print('packet sockets', before, 'then', packets(), 'uid', os.getuid(), flush=True)
print('end', came, flush=True)
";

#[test]
fn a_program_that_gives_up_root_gives_up_its_sockets_and_keeps_its_connections() {
    let Some(mut cluster) = Cluster::start("lkhroot") else { return };
    cluster.after = Some(2);
    let client = "
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000))
for number in range(200):
    line = b'%d' % number
    connection.sendall(line)
    assert connection.recv(100) == line
    time.sleep(0.002)
";
    for way in ["setuid", "setreuid", "setresuid", "seteuid", "capset"] {
        let _server = cluster.serves(1, &["-c", RETAINS, PEER, way], way);
        cluster.script_output(0, &["-c", client, PEER]);
        cluster.wait_for_word(way, "end 200");
        let message = cluster.log(way);
        let had = message.lines().find_map(|line| line.strip_prefix("packet sockets ")).unwrap();
        let (before, after) = had.split_once(" then ").unwrap();
        assert!(before.parse::<u32>().unwrap() > 0, "it carried its connection: {message}");
        assert!(after.starts_with("0 uid "), "{way}: {message}");
    }
}

/// Servers on so many ports, which answer each connection.
const DOORS: &str = "
import select, socket, sys
all = [socket.create_server((sys.argv[1], int(port))) for port in sys.argv[2:]]
print('ready', flush=True)
while True:
    for listener in select.select(all, [], [])[0]:
        connection, _ = listener.accept()
        connection.sendall(b'open')
        connection.close()
";

/// Ports that a client reaches over link, and why others not; it gets to all, as nothing filters TCP.
fn reached(cluster: &Cluster, ports: &[&str]) -> (Vec<String>, String) {
    let ask = "
import socket, sys
for port in sys.argv[2:]:
    assert socket.create_connection((sys.argv[1], int(port)), timeout=20).recv(4) == b'open'
";
    cluster.script_output(0, &[&["-c", ask, PEER], ports].concat());
    let over_tcp = cluster.status(0)["tcp_fallbacks"].clone();
    let by_tcp = |port: &str| over_tcp.as_array().unwrap().iter().any(|row| row["peer"] == format!("{PEER}:{port}"));
    (ports.iter().filter(|port| !by_tcp(port)).map(ToString::to_string).collect(), over_tcp.to_string())
}

#[test]
fn who_comes_in_past_the_firewall_is_reported_and_others_meet_it() {
    let ports = ["22", "7000", "7001"];
    let named: &[&str] = &["--allow", "10.77.0.1/32:22", "--allow", "10.77.0.0/24:7001-7001"];
    for (tag, more, let_in) in [("lkhdflt", &[][..], ["7000", "7001"]), ("lkhallow", named, ["22", "7001"])] {
        let network = Network { more, ..PLAIN };
        let Some(cluster) = Cluster::on(network, tag) else { return };
        let _doors = cluster.serves(1, &[&["-c", DOORS, PEER], &ports[..]].concat(), "doors");
        let (over_link, over_tcp) = reached(&cluster, &ports);
        assert_eq!(over_link, let_in, "{over_tcp}");
        let closed = if more.is_empty() { "22" } else { "7000" };
        assert!(over_tcp.contains(&format!("allows {OWN} to port {closed} only over TCP")), "{over_tcp}");

        // Without rules there is nothing to bypass.
        assert!(!printed(&cluster.link(1, &["check"])).contains("firewall"));
        let rules = "table inet door { chain in { type filter hook input priority 0; tcp dport 7001 drop; }; }";
        cluster.inside(1, || ended(&Command::new("nft").arg(rules).output().unwrap(), 0));
        let checked = cluster.link(1, &["check"]);
        match more {
            [] => {
                ended(&checked, 1);
                for word in ["bypass the firewall", "table inet door", "10.77.0.0/24:1024-65535", "--allow"] {
                    assert!(printed(&checked).contains(word), "{word}: {}", printed(&checked));
                }
            }
            _ => drop(ended(&checked, 0)),
        }
    }
    let wrong = |words: &[&str]| {
        Command::new(crate::cluster::EVENKEEL).args(["link", "serve", "lo"]).args(words).output().unwrap()
    };
    refused(&wrong(&["--allow", "10.0.0.0/24"]), 2, &["--cluster"]);
    refused(&wrong(&["--cluster", "10.0.0.0/24", "--allow", "10.0.0.1"]), 2, &["10.0.0.0/24:7000-7999"]);
    refused(
        &wrong(&["--cluster", "10.0.0.0/24", "--allow", "192.0.2.0/24:22"]),
        2,
        &["192.0.2.0/24 is in no --cluster"],
    );
}

/// Answer of a broker to a first line from a port of a program; none: the broker resets the stream.
fn head(cluster: &Cluster, line: &str) -> Option<String> {
    cluster.inside(0, || {
        let (claim, mut engine) = Claim::take().unwrap();
        let node = claim.find("right").unwrap();
        let stream = engine.connect(node, 2, true).unwrap();
        let (mut answer, mut has_printed) = (Vec::new(), false);
        wait("the broker answers", || {
            engine.wait(Duration::ZERO, Duration::from_millis(10)).unwrap();
            if !has_printed && engine.state(stream) == Some(State::Open) {
                has_printed = engine.write(stream, line.as_bytes()).is_ok_and(|written| written > 0);
            }
            let ended = engine.read(stream, |bytes| answer.extend_from_slice(bytes)).is_err();
            ended || !answer.is_empty() || matches!(engine.state(stream), None | Some(State::Failed(_)))
        });
        (!answer.is_empty()).then(|| String::from_utf8(answer).unwrap())
    })
}

#[test]
fn streams_that_say_nothing_end_and_are_few() {
    let Some(mut cluster) = Cluster::start("lkhmute") else { return };
    let right = cluster.inside(1, || Wire::of(cluster.ends[1].interface()).unwrap().address);
    cluster.brokers[0].take().unwrap().stop(Signal::SIGTERM);
    cluster.inside(0, || {
        let mut engine = Engine::new(Raw::open(cluster.ends[0].interface()).unwrap(), "mute").unwrap();
        let all: Vec<_> = (0..300).map(|_| engine.connect(right, 2, true).unwrap()).collect();
        let mut most = 0;
        wait("all have ended", || {
            for _ in 0..10 {
                engine.wait(Duration::ZERO, Duration::from_millis(5)).unwrap();
            }
            let open = all.iter().filter(|&&stream| engine.state(stream) == Some(State::Open)).count();
            most = most.max(open);
            most > 0 && open == 0
        });
        assert!((100..=300).contains(&most), "{most}");
    });
}

#[test]
fn connections_that_wait_for_accept_are_as_few_as_open_ones() {
    let Some((mut cluster, _server)) = serving("lkhdeaf") else { return };
    let _deaf = cluster.serves(1, &["-c", DEAF, PEER], "deaf");
    // The other node's kernel knows this address from now on.
    is_served(&cluster);
    let right = cluster.inside(1, || Wire::of(cluster.ends[1].interface()).unwrap().address);
    cluster.brokers[0].take().unwrap().stop(Signal::SIGTERM);
    let answers = cluster.inside(0, || {
        let mut engine = Engine::new(Raw::open(cluster.ends[0].interface()).unwrap(), "many").unwrap();
        let mut answers = Vec::new();
        for batch in 0..11 {
            let connect =
                |at: u16| (engine.connect(right, 2, true).unwrap(), 20000 + 100 * batch + at, false, Vec::new());
            let mut all: Vec<_> = (0..100).map(connect).collect();
            wait("all are answered", || {
                engine.wait(Duration::ZERO, Duration::from_millis(5)).unwrap();
                for (stream, port, has_printed, answer) in &mut all {
                    if !*has_printed && engine.state(*stream) == Some(State::Open) {
                        let line = format!("{{\"from\":\"{OWN}:{port}\",\"to\":\"{PEER}:7001\"}}\n");
                        *has_printed = engine.write(*stream, line.as_bytes()).is_ok_and(|written| written > 0);
                    }
                    let _ = engine.read(*stream, |bytes| answer.extend_from_slice(bytes));
                }
                all.iter().all(|(.., answer)| answer.ends_with(b"\n"))
            });
            answers.extend(all.into_iter().map(|(.., answer)| String::from_utf8(answer).unwrap()));
        }
        answers
    });
    let count = |what: &str| answers.iter().filter(|answer| answer.contains(what)).count();
    assert_eq!([count("\"Yes\""), count("user 65534 has 1024 connections")], [1024, 76], "{answers:?}");
}

#[test]
fn brokers_believe_brokers_alone() {
    let udp = Network { more: &["--over", "udp"], ..PLAIN };
    let plain = Network { more: &[], ..udp };
    for (tag, network) in [("lkhhead", plain), ("lkhudp", udp)] {
        let Some(cluster) = Cluster::on(network, tag) else { return };
        let _server = server(&cluster);
        let_in(&cluster);
        let line = format!("{{\"from\":\"{OWN}:22\",\"to\":\"{PEER}:7000\"}}\n");
        assert_eq!(head(&cluster, &line), None, "{tag}: a head from a program's port");
        is_served(&cluster);
        cluster.all_by_link();
    }
}
