//! `evenkeel ledger` from outside: what it refuses, what it says of a quiet box, and its exit codes. That the books close on
//! boxes with known losses is shown by the other tests of the same beginning.

use std::{
    io::{BufRead, BufReader, Read},
    net::UdpSocket,
    process::{Command, Output},
    thread,
    time::Duration,
};

use testbed::{Bed, Running, Space, ended, printed, refused, text};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

fn evenkeel(args: &[&str]) -> Output {
    Command::new(EVENKEEL).arg("ledger").args(args).output().expect("the program runs")
}

/// A namespace of its own; none, and a word why, without the privilege.
fn namespace(tag: &str) -> Option<(Bed, Space)> {
    let bed = Bed::new(tag, &["box"])?;
    let space = bed.space("box");
    Some((bed, space))
}

#[test]
fn what_cannot_be_is_refused_in_one_message() {
    for (args, code, words) in [
        (&["ek-no-such", "--once"][..], 3, "there is no interface `ek-no-such`"),
        (&["--filter", "no filter at all", "--once"], 2, "no filter at all"),
        (&["--interval", "0"], 2, "--interval"),
    ] {
        refused(&evenkeel(args), code, &[words]);
    }
}

#[test]
fn a_quiet_box_says_so_and_a_loss_is_a_finding_only_on_request() {
    let Some((_bed, namespace)) = namespace("ekledger") else { return };
    let run = |args: &[&str]| namespace.run(|| evenkeel(args));
    let quiet = run(&["--once", "--interval", "0.3", "--check"]);
    ended(&quiet, 0);
    assert!(text(&quiet.stdout).contains("Quiet"), "{}", printed(&quiet));
    // Datagrams to a port that nobody listens on, for as long as the ledger may take.
    let lossy = |args: &[&str]| {
        thread::scope(|s| {
            let counting = s.spawn(|| run(args));
            let send = || {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
                while !counting.is_finished() {
                    let _ = socket.send_to(&[0; 18], "127.0.0.1:9");
                    thread::sleep(Duration::from_millis(5));
                }
            };
            namespace.run(send);
            counting.join().expect("no panic")
        })
    };
    let checked = lossy(&["lo", "--once", "--check"]);
    ended(&checked, 1);
    let text = text(&checked.stdout);
    assert!(text.contains("no socket on the UDP port") && text.contains("What to do"), "{text}");
    let plain = lossy(&["--json", "--count", "2", "--interval", "0.3", "--no-trace"]);
    ended(&plain, 0);
    let lines: Vec<model::stations::LedgerReport> = plain
        .stdout
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).expect("JSON"))
        .collect();
    assert!(lines.len() == 2 && lines.iter().all(|r| r.trace.is_none()), "{lines:?}");
    assert!(lines[1].lost > 0 && lines[1].stations.iter().any(|s| s.name == "udp"), "{lines:?}");
}

#[test]
fn an_interface_that_goes_away_ends_it_with_one_message() {
    let Some((_bed, namespace)) = namespace("ekledgone") else { return };
    namespace.output("ip link add ekgone type veth peer name ekgonep");
    let mut command = Command::new(EVENKEEL);
    command.args(["ledger", "ekgone", "--once", "--interval", "1"]);
    let mut ledger = namespace.run(|| Running::piped(&mut command));
    let mut stderr = BufReader::new(ledger.child().stderr.take().expect("a pipe"));
    let mut text = String::new();
    assert_ne!(stderr.read_line(&mut text).expect("text"), 0, "it does not start");
    namespace.output("ip link del ekgone");
    stderr.read_to_string(&mut text).expect("text");
    assert_eq!(ledger.end().code(), Some(3), "{text}");
    assert!(text.contains("ekgone was removed"), "{text}");
}
