//! A broker for tests of this crate, which the program `evenkeel` is not there for: a process of its own, as programs notice its end by its sockets.

use std::{
    env, io,
    process::{Command, Stdio},
    thread,
};

use link::{
    Paths, Receive,
    broker::{self, Answer, BrokerOptions, BrokerService, BrokerSettings},
};
use model::link::LinkStatus;
use serve::Server;
use testbed::{End, Running, wait};

/// What the process is to serve: the interface, the name, and whether by sockets.
const SERVES: &str = "EK_TEST_BROKER";

/// A broker, as long as it lives.
pub(crate) struct Serves {
    end: End,
    process: Option<Running>,
}

impl Serves {
    pub(crate) fn start(end: &End, name: &str, by_sockets: bool) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "broker::is_a_broker", "--ignored"]);
        command.env(SERVES, format!("{} {name} {by_sockets}", end.interface()));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let process = end.run(|| Running::start(&mut command));
        let serves = Self { end: end.clone(), process: Some(process) };
        wait("the broker serves", || serves.status().is_some());
        serves
    }

    fn status(&self) -> Option<LinkStatus> {
        match self.end.run(|| broker::ask(&broker::Command::Status)) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// Waits until it has heard a node of this name.
    pub(crate) fn knows(&self, name: &str) {
        wait("a node is known", || {
            self.status().is_some_and(|status| status.nodes.iter().any(|node| node.name == name))
        });
    }

    /// Waits until a program listens on a port, and no other does.
    pub(crate) fn has_listener(&self, port: u16) {
        let listens =
            |status: LinkStatus| status.programs.iter().any(|program| program.listening_ports.contains(&port));
        wait("a program listens", || self.status().is_some_and(listens));
    }

    /// Waits until no program has ports.
    pub(crate) fn has_nobody(&self) {
        wait("all programs are gone", || self.status().is_some_and(|status| status.programs.is_empty()));
    }

    pub(crate) fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.child().stdin.take());
            assert!(process.end().success());
        }
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}

/// Not a test: the process of [`Serves`], until its standard input ends.
#[test]
#[ignore = "other tests start it"]
fn is_a_broker() {
    let Ok(serves) = env::var(SERVES) else { return };
    let [interface, name, by_sockets] = serves.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let xdp = if by_sockets == "true" { Receive::Sockets } else { Receive::Auto };
    let settings =
        BrokerSettings { interface: interface.to_owned(), name: name.to_owned(), group: None, xdp, udp: None };
    let options =
        BrokerOptions { broker: settings, cluster: Vec::new(), allow: Vec::new(), receive: None, receive_free: None };
    let service = BrokerService::open(Paths::here().lock().unwrap(), &options, drop, drop).unwrap();
    let mut server = Server::without_signals().unwrap();
    let broker = server.add(service).unwrap();
    let stop = server.stop();
    thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
        stop.stop();
    });
    server.run(|error| panic!("{error}"));
    broker.ended().unwrap().unwrap();
}
