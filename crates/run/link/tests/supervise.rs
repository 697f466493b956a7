//! Programs whose connections are replaced: a static one in C, and Python.

#[path = "supervise/halves.rs"]
mod halves;

use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::Ordering,
};

use halves::Halves;
use nix::sys::signal::Signal;
use testbed::Running;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/supervise");
const WORDS: &str = "EK_SUPERVISE_WORDS";

/// Not a test of its own: [`supervised`] starts this process again, as whoever supervises has no other children.
#[test]
fn as_supervisor() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let mut words = words.split('\n').map(OsString::from);
    let program = words.next().expect("a program");
    let sockets = Halves::default();
    let code = link::supervise::run(&program, &words.collect::<Vec<_>>(), &sockets);
    let (connected, accepted) = (&sockets.connected, &sockets.accepted);
    eprintln!("replaced {} {}", connected.load(Ordering::Relaxed), accepted.load(Ordering::Relaxed));
    eprintln!("users {:?}", sockets.users.lock().unwrap());
    std::process::exit(code.unwrap_or_else(|error| {
        eprintln!("{error}");
        99
    }));
}

fn supervised(words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    // The shell becomes this program again, which so knows its own number in the environment. Its threads all block the signal that is forwarded, which else
    // would end the one that runs tests.
    command.args([
        "-c",
        "EK_SUPERVISOR=$$ exec env --block-signal=TERM \"$0\" --exact as_supervisor --nocapture --test-threads=1",
    ]);
    command.arg(std::env::current_exe().unwrap()).env(WORDS, words.join("\n")).stdin(Stdio::null());
    command
}

#[track_caller]
fn run_in(words: &[&str]) -> (Output, String, String) {
    let output = Running::piped(&mut supervised(words)).output();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output, stdout, stderr)
}

/// Runs a case of the Python program; as many connections are replaced as are said.
#[track_caller]
fn python(case: &str, code: i32, replaced: usize) {
    let (output, stdout, stderr) = run_in(&["python3", &format!("{FOLDER}/halves.py"), case]);
    assert_eq!(output.status.code(), Some(code), "{stdout}{stderr}");
    assert!(stdout.contains(&format!("done {case}")), "{stdout}{stderr}");
    assert!(stderr.contains(&format!("replaced {replaced} {replaced}")), "{stderr}");
}

fn compile(folder: &Path) -> String {
    let program = folder.join("halves");
    let done = Command::new("cc")
        .args(["-static", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(format!("{FOLDER}/halves.c"))
        .output();
    let done = done.expect("cc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program.to_str().unwrap().to_owned()
}

#[test]
fn a_static_program_cannot_distinguish_the_ends_from_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let plain = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "all is as with TCP\n", "the program differs from TCP itself");
    for family in ["4", "6"] {
        let (output, stdout, stderr) = run_in(&[&program, family]);
        assert!(output.status.success() && stdout.contains("all is as with TCP\n"), "{stdout}{stderr}");
        assert!(stderr.contains("replaced 4 4"), "{stderr}");
    }
}

#[test]
fn a_registration_with_epoll_outlives_the_replacement() {
    python("epoll_before_connect", 0, 1);
}

#[test]
fn a_signal_ends_or_goes_through_an_accept_that_waits() {
    python("signal_while_accepting", 0, 1);
}

#[test]
fn an_accept_ends_by_time_and_by_shutdown() {
    python("timeout", 0, 0);
    python("shutdown", 0, 0);
}

#[test]
fn a_program_that_gives_up_root_is_supervised_as_its_user() {
    let Some(()) = testbed::privileged() else { return };
    for (case, counts, users) in [("user", "1 1", "{65534}"), ("root_and_user", "2 2", "{0, 65534}")] {
        let (output, stdout, stderr) = run_in(&["python3", &format!("{FOLDER}/halves.py"), case]);
        assert!(output.status.success(), "{stdout}{stderr}");
        assert!(stderr.contains(&format!("replaced {counts}\nusers {users}\n")), "{stderr}");
    }
}

#[test]
fn many_connections_at_a_time_of_an_event_loop() {
    python("streams", 0, 50);
}

#[test]
fn children_whose_parent_has_ended_are_supervised_to_their_end() {
    python("orphan", 3, 1);
}

#[test]
fn what_is_not_taken_is_the_kernels() {
    python("outside", 0, 0);
}

#[test]
fn a_program_without_descriptors_left_loses_no_connection() {
    python("full", 0, 1);
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    let code = |words: &[&str]| run_in(words).0.status.code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    let (output, _, stderr) = run_in(&["/nowhere/ek-program"]);
    assert_eq!(output.status.code(), Some(99));
    assert!(stderr.contains("cannot start /nowhere/ek-program: No such file or directory"), "{stderr}");
}

#[test]
fn a_signal_goes_to_the_program() {
    let mut running = Running::piped(&mut supervised(&["python3", &format!("{FOLDER}/halves.py"), "waits"]));
    let stdout = running.child().stdout.take().unwrap();
    let ready = BufReader::new(stdout).lines().map_while(Result::ok).find(|line| line.contains("ready"));
    assert!(ready.is_some());
    let status = running.stop(Signal::SIGTERM);
    assert_eq!((status.code(), status.signal()), (Some(5), None));
}

#[test]
fn a_supervised_program_cannot_supervise() {
    let this = std::env::current_exe().unwrap();
    let (output, _, stderr) = run_in(&[
        "sh",
        "-c",
        &format!("export {WORDS}=true; exec {} --exact as_supervisor --nocapture", this.display()),
    ]);
    assert_eq!(output.status.code(), Some(99), "{stderr}");
    assert!(stderr.contains("cannot start true: its system calls are answered by somebody already"), "{stderr}");
}
