//! Connections that a program is taking over from the broker.

use std::{fs, process::Command, thread, time::Duration};

use nix::sys::signal::Signal;
use testbed::{Bed, wait, wait_telling};

use crate::cluster::{Cluster, PEER};

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/hostile.py");

/// Sends more than the server's end holds, and what it is answered.
const CLIENT: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], 7300))
for _ in range(4):
    connection.sendall(bytes(100))
connection.sendall(bytes(400000))
print('sent', flush=True)
connection.shutdown(socket.SHUT_WR)
print('answered', connection.recv(100), flush=True)
";

/// Reads little until it has taken its connection from the broker, which has not delivered all then; reads the rest once the file is there.
const SERVER: &str = "
import os, socket, sys, time
listener = socket.create_server((sys.argv[1], 7300))
print('ready', flush=True)
connection, _ = listener.accept()
def streams():
    found = set()
    for fd in os.listdir('/proc/self/fd'):
        try:
            found.add(os.readlink('/proc/self/fd/' + fd))
        except FileNotFoundError: # the library has closed it
            pass
    with open('/proc/net/unix') as table:
        rows = [line.split() for line in table.read().splitlines()[1:]]
    return sum(row[4] == '0001' and 'socket:[' + row[6] + ']' in found for row in rows)
before, came = streams(), 0
while streams() == before:
    came += len(connection.recv(1))
    time.sleep(0.01)
print('joins', flush=True)
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
if sys.argv[3] == 'setuid':
    os.setuid(65534)
try:
    while data := connection.recv(65536):
        came += len(data)
    connection.sendall(b'%d' % came)
    print('end', came, flush=True)
except OSError as error:
    print(type(error).__name__, came, flush=True)
";

fn log(cluster: &Cluster<'_>, of: &str) -> String {
    fs::read_to_string(cluster.log(of)).unwrap_or_default()
}

/// A program that has taken its connection, of which the broker still has bytes, does `way`, and `then` happens before it goes on.
fn joins(tag: &str, way: &str, then: impl FnOnce(&Cluster<'_>)) {
    let Some((bed, ends)) = Bed::pair(tag) else { return };
    let mut cluster = Cluster::start(&bed, &ends);
    cluster.after = Some(2);
    let go = cluster.log("go").display().to_string();
    let _server = cluster.run(1, &["python3", "-u", "-c", SERVER, PEER, &go, way], "server");
    wait("the server listens", || log(&cluster, "server").contains("ready"));
    let _client = cluster.run(0, &["python3", "-u", "-c", CLIENT, PEER], "client");
    let told = || log(&cluster, "server") + &log(&cluster, "client");
    wait_telling("the server takes the connection over", || log(&cluster, "server").contains("joins"), told);
    then(&cluster);
    fs::write(&go, "").unwrap();
    wait_telling("all came", || log(&cluster, "server").contains("end 400400"), told);
    wait_telling("the answer came", || log(&cluster, "client").contains("answered b'400400'"), told);
    assert_eq!(cluster.status(0)["tcp_fallbacks"], serde_json::json!([]), "it went over link");
}

#[test]
fn a_program_that_gives_up_root_while_it_takes_a_connection_keeps_it() {
    joins("lkjroot", "setuid", |_| {});
}

#[test]
fn a_broker_that_has_no_time_breaks_no_connection_that_a_program_takes() {
    joins("lkjbusy", "goes on", |cluster| {
        let broker = cluster.brokers[1].as_ref().unwrap();
        broker.signal(Signal::SIGSTOP);
        // Longer than a program waits for an answer.
        thread::sleep(Duration::from_secs(2));
        broker.signal(Signal::SIGCONT);
    });
}

#[test]
fn a_connection_that_its_program_did_not_wait_for_stays_with_the_broker() {
    let Some((bed, ends)) = Bed::pair("lkjleft") else { return };
    let cluster = Cluster::start(&bed, &ends);
    let echo = "
import socket, sys
listener = socket.create_server((sys.argv[1], 7300))
print('ready', flush=True)
connection, _ = listener.accept()
connection.sendall(b'server: ' + connection.recv(100))
";
    let _server = cluster.run(1, &["python3", "-u", "-c", echo, PEER], "server");
    wait("the server listens", || log(&cluster, "server").contains("ready"));
    let mut python = Command::new("python3");
    let asks = cluster.spoken(0, python.args(["-u", HOSTILE, "untaken", &format!("{PEER}:7300")]), "asks");
    let told = || log(&cluster, "asks");
    wait_telling("it is connected", || told().contains("connected"), told);
    let broker = cluster.brokers[0].as_ref().unwrap();
    broker.signal(Signal::SIGSTOP);
    asks.signal(Signal::SIGUSR1);
    wait_telling("it has asked and gone", || told().contains("left"), told);
    broker.signal(Signal::SIGCONT);
    wait_telling("the answer comes", || told().contains("b'server: secret'"), told);
}
