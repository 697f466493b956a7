//! Connections that a program is taking over from the broker.

use std::{fs, thread, time::Duration};

use nix::sys::signal::Signal;

use crate::{
    cluster::{Cluster, PEER},
    hostile::hostile_until,
};

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

/// A program that has taken its connection, of which the broker still has bytes, does `way`, and `then` happens before it goes on.
fn joins(tag: &str, way: &str, then: impl FnOnce(&Cluster)) {
    let Some(mut cluster) = Cluster::start(tag) else { return };
    cluster.after = Some(2);
    let go = cluster.path("go").display().to_string();
    let _server = cluster.serves(1, &["-c", SERVER, PEER, &go, way], "server");
    let _client = cluster.run(0, &["python3", "-u", "-c", CLIENT, PEER], "client");
    cluster.wait_for_word("server", "joins");
    then(&cluster);
    fs::write(&go, "").unwrap();
    cluster.wait_for_word("server", "end 400400");
    cluster.wait_for_word("client", "answered b'400400'");
    cluster.all_by_link();
}

#[test]
fn a_program_that_gives_up_root_while_it_takes_a_connection_keeps_it() {
    joins("lkjroot", "setuid", |_| {});
}

#[test]
fn a_broker_that_has_no_time_breaks_no_connection_that_a_program_takes() {
    joins("lkjbusy", "goes on", |cluster| {
        let broker = cluster.broker(1);
        broker.signal(Signal::SIGSTOP);
        // Longer than a program waits for an answer.
        thread::sleep(Duration::from_secs(2));
        broker.signal(Signal::SIGCONT);
    });
}

#[test]
fn a_connection_that_its_program_did_not_wait_for_stays_with_the_broker() {
    let Some(cluster) = Cluster::start("lkjleft") else { return };
    let echo = "
import socket, sys
listener = socket.create_server((sys.argv[1], 7300))
print('ready', flush=True)
connection, _ = listener.accept()
connection.sendall(b'server: ' + connection.recv(100))
";
    let _server = cluster.serves(1, &["-c", echo, PEER], "server");
    let waiting = hostile_until(&cluster, 0, &["untaken", &format!("{PEER}:7300")], "asks", "connected");
    let broker = cluster.broker(0);
    broker.signal(Signal::SIGSTOP);
    waiting.signal(Signal::SIGUSR1);
    cluster.wait_for_word("asks", "left");
    broker.signal(Signal::SIGCONT);
    cluster.wait_for_word("asks", "b'server: secret'");
}
