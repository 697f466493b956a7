//! Two services in one server.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};
use serve::{HeldHome, Home, HomeKind, Server, Service, Wait, control};

/// Longer than any test: what is done at once was not waited for.
const IDLE_PERIOD: Duration = Duration::from_secs(600);
const KIND: HomeKind = HomeKind { prefix: "counter@", mode: 0o700, files: &["total"] };

#[derive(Debug, Serialize, Deserialize)]
enum Command {
    Add(u64),
    Fail,
    Stop,
}

/// Adds up what it is told, and counts polls and reloads.
struct Counter {
    held: HeldHome,
    total: u64,
    polls: u64,
    reloads: u64,
    fails: bool,
    stopped: Option<Sender<u64>>,
}

impl Counter {
    fn open(root: &Path, key: &str) -> Self {
        let held = Home::new(KIND, root, key).hold().unwrap();
        Self { held, total: 0, polls: 0, reloads: 0, fails: false, stopped: None }
    }
}

impl Service for Counter {
    type Command = Command;
    type Answer = u64;
    type Status = (u64, u64);
    type Ended = u64;
    type Error = String;

    fn name(&self) -> String {
        "the counter".to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.held.socket()
    }

    fn on_listen(&mut self) {
        self.held.write("total", "0").unwrap();
    }

    fn poll(&mut self) -> Result<(), String> {
        self.polls += 1;
        if self.fails { Err("it fails".to_owned()) } else { Ok(()) }
    }

    fn wait(&mut self) -> Result<Wait<'_>, String> {
        Ok(Wait { until: Instant::now() + IDLE_PERIOD, readable: Vec::new() })
    }

    fn reload(&mut self) {
        self.reloads += 1;
    }

    fn command(&mut self, command: Command, to: Sender<u64>) -> Result<ControlFlow<()>, String> {
        match command {
            Command::Add(more) => {
                self.total += more;
                // Nobody may wait for it.
                let _ = to.send(self.total);
            }
            Command::Fail => {
                self.fails = true;
                to.send(self.total).unwrap();
            }
            Command::Stop => {
                self.stopped = Some(to);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn status(&mut self) -> Result<(u64, u64), String> {
        Ok((self.polls, self.reloads))
    }

    fn close(self) -> Result<u64, String> {
        // Whoever asked for the end hears of it when it has come.
        self.stopped.iter().for_each(|to| to.send(self.total).unwrap());
        Ok(self.total)
    }
}

fn ask(root: &Path, key: &str, command: &Command) -> Option<u64> {
    control::ask(&Home::new(KIND, root, key).socket(), command).unwrap()
}

#[test]
fn two_services_answer_and_end_each_for_itself() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut server = Server::without_signals().unwrap();
    let [one, two] = ["one", "two"].map(|key| server.add(Counter::open(root, key)).unwrap());
    let stop = server.stop();
    let (client, other) = (one.client(), two.client());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(ask(root, "one", &Command::Add(3)), Some(3));
            assert_eq!(ask(root, "two", &Command::Add(5)), Some(5));
            client.send(Command::Add(1));
            assert_eq!(ask(root, "one", &Command::Add(0)), Some(4));
            // Commands and questions alone have them polled.
            let polls = || [client, other].map(|client| client.status().unwrap().0);
            let before = polls();
            thread::sleep(Duration::from_millis(100));
            let [a, b] = polls();
            assert!(a - before[0] <= 4 && b - before[1] <= 4, "polled {a} and {b} times, {before:?} before");
            assert_eq!(ask(root, "one", &Command::Stop), Some(4));
            testbed::wait("the folder of one is gone", || !Home::new(KIND, root, "one").folder().exists());
            assert_eq!(client.status(), None);
            assert_eq!(ask(root, "one", &Command::Add(3)), None);
            assert_eq!(ask(root, "two", &Command::Add(2)), Some(7));
            stop.stop();
        });
        server.run(|error| panic!("{error}"));
    });
    assert_eq!((one.ended(), two.ended()), (Some(Ok(4)), Some(Ok(7))));
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
}

#[test]
fn one_that_fails_is_closed_and_the_other_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut server = Server::without_signals().unwrap();
    let [one, two] = ["one", "two"].map(|key| server.add(Counter::open(root, key)).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(ask(root, "one", &Command::Fail), Some(0));
            testbed::wait("the folder of one is gone", || !Home::new(KIND, root, "one").folder().exists());
            assert_eq!(ask(root, "two", &Command::Add(2)), Some(2));
            assert_eq!(ask(root, "two", &Command::Stop), Some(2));
        });
        server.run(|error| panic!("{error}"));
    });
    assert_eq!((one.ended(), two.ended()), (Some(Err("it fails".to_owned())), Some(Ok(2))));
}

#[test]
fn signals_reach_all() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut server = Server::start().unwrap();
    let [one, two] = ["one", "two"].map(|key| server.add(Counter::open(root, key)).unwrap());
    let clients = [one.client(), two.client()];
    thread::scope(|scope| {
        scope.spawn(|| {
            raise(Signal::SIGHUP).unwrap();
            testbed::wait("both reload", || clients.iter().all(|client| client.status().unwrap().1 == 1));
            raise(Signal::SIGTERM).unwrap();
        });
        server.run(|error| panic!("{error}"));
    });
    assert_eq!((one.ended(), two.ended()), (Some(Ok(0)), Some(Ok(0))));
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
}

#[test]
fn a_server_that_never_ran_closes_its_services() {
    let root = tempfile::tempdir().unwrap();
    let mut server = Server::without_signals().unwrap();
    let one = server.add(Counter::open(root.path(), "one")).unwrap();
    assert!(one.ended().is_none());
    drop(server);
    assert_eq!(one.ended(), Some(Ok(0)));
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}
