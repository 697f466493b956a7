//! Connections that the programs carry themselves, past the brokers.

use std::process::Command;

use nix::sys::signal::Signal;
use testbed::{Running, ended, printed, wait};

use crate::cluster::{Cluster, Network, OWN, PEER, PLAIN, PROGRAMS};

const ECHOES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/echoes.py");

/// Answers each line, and says at the end how many bytes came.
const SERVER: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], 7500))
print('ready', flush=True)
while True:
    connection, _ = listener.accept()
    came = 0
    try:
        while data := connection.recv(65536):
            came += len(data)
            if data.endswith(b'\\n') and len(data) < 100:
                connection.sendall(data)
        print('end', came, flush=True)
    except OSError as error:
        print(type(error).__name__, came, flush=True)
    connection.close()
";

/// What a client begins with: as many lines as it takes until the program carries the connection.
const CLIENT: &str = "
import os, socket, sys, time
connection = socket.create_connection((sys.argv[1], 7500))
def line(text):
    connection.sendall(text + b'\\n')
    assert connection.recv(100) == text + b'\\n'
for number in range(400):
    line(b'%d' % number)
    if number % 20 == 0: time.sleep(0.002)
print('carried', flush=True)
";

/// Times that a server is started again.
const RESTART_COUNT: u32 = 40;

/// Bytes of those lines: 400 numbers, each with the end of its line.
const LINES_BYTES: usize = 10 * 2 + 90 * 3 + 300 * 4;

/// The server, once it listens.
fn server(cluster: &Cluster, at: usize) -> Running {
    cluster.serves(at, &["-c", SERVER, [OWN, PEER][at]], "lines")
}

/// Starts a client that does `then` after the program carries its connection.
fn client(cluster: &Cluster, then: &str, name: &str) -> Running {
    let client = cluster.run(0, &["python3", "-u", "-c", &format!("{CLIENT}{then}"), PEER], name);
    cluster.wait_for_word(name, "carried");
    client
}

fn carrier(cluster: &Cluster, at: usize) -> String {
    cluster.status(at)["connections"][0]["carrier"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn programs_that_carry_their_connections_use_sockets_in_every_way() {
    let Some(mut cluster) = Cluster::start("lkcar") else { return };
    cluster.after = Some(1);
    let _server = cluster.server("0.0.0.0", "server");
    let used = cluster.result(0, &["python3", PROGRAMS, "use", OWN, PEER]);
    assert!(used.status.success(), "{}{}", printed(&used), cluster.log("server"));
}

#[test]
fn what_was_sent_comes_back_whenever_a_connection_is_taken_over() {
    let Some(mut cluster) = Cluster::start("lksum") else { return };
    for after in [1, 2, 16] {
        cluster.after = Some(after);
        echo(&cluster, PEER, 4);
    }
}

/// Echoes of so many seeds.
fn echo(cluster: &Cluster, peer: &str, seeds: u32) {
    let name = format!("echoes{}", cluster.after.unwrap_or_default());
    let server = cluster.serves(1, &[ECHOES, "serve", peer], &name);
    for seed in 0..seeds {
        let used = cluster.result(0, &["python3", ECHOES, "use", peer, &seed.to_string()]);
        assert!(used.status.success(), "after {:?}: {}{}", cluster.after, printed(&used), cluster.log(&name));
    }
    server.stop(Signal::SIGKILL);
    let by_tcp = cluster.status(0)["tcp_fallbacks"].clone();
    assert_eq!(by_tcp, serde_json::json!([]), "all went over link");
}

#[test]
fn the_same_by_ipv6_and_behind_udp() {
    let six = Network { prefix: "fd77::/64", addresses: ["fd77::1/64", "fd77::2/64"], ..PLAIN };
    let udp = Network { more: &["--over", "udp"], ..PLAIN };
    let six_udp = Network { more: &["--over", "udp"], ..six };
    for (tag, network, peer) in [("lksix", six, "fd77::2"), ("lkudp", udp, PEER), ("lkudp6", six_udp, "fd77::2")] {
        let Some(mut cluster) = Cluster::on(network, tag) else { return };
        cluster.after = Some(2);
        echo(&cluster, peer, 2);
    }
}

/// A server that watches its connections by epoll, and lets them be forgotten by closing them.
const WATCHES: &str = "
import select, socket, sys
listener = socket.create_server((sys.argv[1], 7600), backlog=100)
listener.setblocking(False)
epoll = select.epoll()
epoll.register(listener, select.EPOLLIN)
all = {}
print('ready', flush=True)
while True:
    for fd, events in epoll.poll():
        if fd == listener.fileno():
            connection, _ = listener.accept()
            connection.setblocking(False)
            epoll.register(connection, select.EPOLLIN | select.EPOLLET | select.EPOLLRDHUP)
            all[connection.fileno()] = connection
            continue
        try:
            while data := all[fd].recv(4096):
                all[fd].sendall(data)
            all.pop(fd).close()
        except BlockingIOError:
            pass
";

/// Connections that are used often, and closed, round after round.
const ROUNDS: &str = "
import socket, sys
for turn in range(4):
    all = [socket.create_connection((sys.argv[1], 7600), timeout=10) for _ in range(20)]
    for number in range(40):
        for connection in all:
            connection.sendall(b'%d' % number)
            assert connection.recv(10) == b'%d' % number
    for connection in all:
        connection.close()
";

/// Whether the server may carry its connections, or is another user's and leaves them to the broker.
#[test]
fn numbers_that_come_again_are_watched_as_new_ones() {
    let Some(cluster) = Cluster::start("lkwatch") else { return };
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    for (name, before) in [("root", &[][..]), ("nobody", &nobody)] {
        let python = ["/usr/bin/python3", "-u", "-c", WATCHES, PEER];
        let words: Vec<&str> = before.iter().chain(&python).copied().collect();
        let server = cluster.run(1, &words, name);
        cluster.wait_for_word(name, "ready");
        let used = cluster.result(0, &["python3", "-c", ROUNDS, PEER]);
        assert!(used.status.success(), "{name}: {}{}", printed(&used), cluster.log(name));
        server.stop(Signal::SIGKILL);
    }
}

#[test]
fn a_connection_goes_on_without_the_brokers_that_brought_the_programs_together() {
    let Some(mut cluster) = Cluster::start("lkalone") else { return };
    let _server = server(&cluster, 1);
    let then = "
while not os.path.exists(sys.argv[0] + 'x'):
    line(b'more')
    time.sleep(0.01)
    print('.', end='', flush=True)
";
    let _client = client(&cluster, then, "client");
    wait("both programs carry it", || [0, 1].into_iter().all(|at| carrier(&cluster, at) == "the program"));
    let one = || cluster.status(0)["connections"][0]["sent_bytes"].as_u64().unwrap_or(0);
    let before = one();
    wait("status goes on counting", || one() > before);
    for at in [0, 1] {
        cluster.brokers[at].take().unwrap().stop(Signal::SIGKILL);
    }
    let before = cluster.log("client").len();
    wait("lines go on", || cluster.log("client").len() > before + 50);
}

#[test]
fn a_program_that_ends_leaves_nothing_unreported_and_one_that_is_killed_is_noticed() {
    let Some(cluster) = Cluster::start("lkend") else { return };
    let _server = server(&cluster, 1);
    let last = |count: usize, after: &str| {
        let is_there = |text: String| text.ends_with('\n') && text.lines().count() == count;
        wait(&format!("the server has seen the end after {after}"), || is_there(cluster.log("lines")));
        cluster.log("lines").lines().last().unwrap_or_default().to_owned()
    };
    // What is on its way when a program ends, or becomes another one, arrives.
    let much = 3_000_000;
    let leaves = [
        format!("connection.sendall(bytes({much}) + b'x'); os._exit(0)"),
        format!("connection.sendall(bytes({much}) + b'x'); sys.exit(0)"),
        format!("connection.sendall(bytes({much})); connection.close()"),
        format!(
            "connection.sendall(bytes({much}));os.set_inheritable(connection.fileno(), True)
os.execvp('sh', ['sh', '-c', 'sleep 0.2; printf x >&%d' % connection.fileno()])"
        ),
        format!(
            "child = os.fork()
if child == 0:
    connection.sendall(bytes({much}) + b'x'); os._exit(0)
connection.close(); os.waitpid(child, 0)"
        ),
    ];
    for (count, (then, more)) in leaves.into_iter().zip([1, 1, 0, 1, 1]).enumerate() {
        let client = client(&cluster, &then, &format!("leaves{count}"));
        assert_eq!(last(count + 2, &then), format!("end {}", LINES_BYTES + much + more), "{then}");
        drop(client);
    }
    // One that is killed cannot end its connections: the other end reads an error, not an end.
    let killed = client(&cluster, "time.sleep(100)", "killed");
    wait("the program carries it", || carrier(&cluster, 0) == "the program");
    killed.stop(Signal::SIGKILL);
    assert_eq!(last(7, "a kill"), format!("ConnectionResetError {LINES_BYTES}"));
    wait("nothing of it is left", || cluster.status(1)["connections"] == serde_json::json!([]));
    ended(&cluster.result(0, &["true"]), 0);
}

/// A wrong program gets the kernel's error, and the connection goes on. A set of select(2) may be longer than `fd_set`.
#[test]
fn a_null_pointer_for_a_buffer_is_efault_and_loses_nothing() {
    let Some(mut cluster) = Cluster::start("lknull") else { return };
    cluster.after = Some(1);
    let _server = server(&cluster, 1);
    let nulls = "
import ctypes, errno, fcntl, resource, select
calls, place, nothing = ctypes.CDLL(None, use_errno=True), ctypes.c_size_t(9), ctypes.c_void_p(0)
def said(name, *words):
    done = getattr(calls, name)(*words)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else done
fd, watch = connection.fileno(), select.epoll()
watch.register(fd, select.EPOLLIN)
print(said('epoll_wait', watch.fileno(), nothing, 5, 0), flush=True)
print(said('write', fd, nothing, place), said('send', fd, nothing, place, 0), flush=True)
connection.sendall(b'late\\n')
select.select([connection], [], [])
print(said('epoll_wait', watch.fileno(), nothing, 5, -1), said('poll', nothing, place, 0), flush=True)
print(said('read', fd, nothing, place), said('recv', fd, nothing, place, 0), flush=True)
print(connection.recv(100), flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
high = fcntl.fcntl(fd, fcntl.F_DUPFD, 1500)
bits = (ctypes.c_ulong * 32)()
bits[high // 64] = 1 << high % 64
connection.sendall(b'high\\n')
print(calls.select(high + 1, bits, None, None, None), bits[high // 64] == 1 << high % 64, connection.recv(100), flush=True)
line(b'again')
print('whole', flush=True)
";
    let _client = client(&cluster, nulls, "nulls");
    let done = || ["whole", "Error"].iter().any(|word| cluster.log("nulls").contains(word));
    wait("the client has made its calls", done);
    let printed = "carried\n0\nEFAULT EFAULT\nEFAULT EFAULT\nEFAULT EFAULT\nb'late\\n'\n1 True b'high\\n'\nwhole\n";
    assert_eq!(cluster.log("nulls"), printed);
}

/// A server that is started again at once finds its port free, whoever carried its connections.
#[test]
fn the_port_of_a_server_that_ended_is_free_for_the_next_one() {
    let Some(mut cluster) = Cluster::start("lkagain") else { return };
    let server = cluster.path("once").display().to_string();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/once.c");
    ended(&Command::new("cc").args(["-Wall", "-Werror", "-o", &server, source]).output().unwrap(), 0);
    let client = "
import socket, sys, time
def turn():
    # It blocks in connect(2): one that does not has 200 ms, and goes by TCP when the server, which accepts once, has accepted already.
    with socket.create_connection((sys.argv[1], 7400)) as connection:
        connection.settimeout(10)
        for _ in range(40):
            connection.sendall(b'a')
            if connection.recv(1) != b'a':
                raise ConnectionError('the server ended')
done, until = 0, time.monotonic() + 60
while done < int(sys.argv[2]) and time.monotonic() < until:
    try:
        turn()
        done += 1
    except ConnectionError:
        time.sleep(0.001)
print('answered', done)
";
    for after in [None, Some(0)] {
        cluster.after = after;
        let again = format!("for turn in $(seq {RESTART_COUNT}); do {server} 7400 || exit 1; done; echo all served");
        let servers = cluster.run(1, &["bash", "-c", &again], "servers");
        let client_output = cluster.result(0, &["python3", "-c", client, PEER, &RESTART_COUNT.to_string()]);
        assert!(
            printed(&client_output).contains(&format!("answered {RESTART_COUNT}")),
            "{after:?}: {}{}",
            printed(&client_output),
            cluster.log("servers")
        );
        cluster.wait_for_word("servers", "all served");
        drop(servers);
    }
}
