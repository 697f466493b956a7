//! Events reach who is to hear of them.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use serve::{Event, EventLog, Hook, OutputSettings, Outputs, OutputsChange, ServeError};
use testbed::{log, wait, wait_for};

fn event(number: u64) -> Event {
    let line = format!("{{\"number\":{number}}}\n");
    Event { name: "began", line, environment: vec![("EVENKEEL_NUMBER", number.to_string())] }
}

fn script(dir: &Path, text: &str) -> String {
    let path = dir.join("hook");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_event_is_a_line_behind_those_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    for number in [1, 2] {
        EventLog::open(&path).unwrap().write(&event(number)).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), [1, 2].map(|number| event(number).line).concat());
    let error = EventLog::open(&dir.path().join("no/such")).unwrap_err();
    assert!(matches!(error, ServeError::EventLog { operation: "open", .. }), "{error}");
}

#[test]
fn a_log_that_was_rotated_goes_on_at_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let [path, old] = ["events", "old"].map(|name| dir.path().join(name));
    let mut log = EventLog::open(&path).unwrap();
    log.write(&event(1)).unwrap();
    fs::rename(&path, &old).unwrap();
    log.write(&event(2)).unwrap();
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!((lines(&old), lines(&path)), (1, 1));
    fs::remove_file(&path).unwrap();
    log.follow().unwrap();
    assert_eq!(lines(&path), 0, "a reload makes it anew");
    log.follow().unwrap();
    log.write(&event(3)).unwrap();
    log.write(&event(4)).unwrap();
    assert_eq!(lines(&path), 2);
    // Where there can be no new one, the old one has it.
    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    let error = log.write(&event(5)).unwrap_err();
    assert!(matches!(error, ServeError::EventLog { operation: "open", .. }) && lines(&old) == 3, "{error}");
}

#[test]
fn the_hook_gets_environment_and_input_without_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let program = script(dir.path(), "echo \"$1|$EVENKEEL_EVENT|$EVENKEEL_NUMBER|$(cat)\" >> \"$2\"");
    let run = vec![program, "$(id) ; a b".into(), out.to_str().unwrap().into()];
    let hook = Hook::start(&run, Duration::from_secs(10)).unwrap();
    hook.emit(&event(7)).unwrap();
    hook.emit(&event(8)).unwrap();
    drop(hook);
    let text = fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, [7, 8].map(|n| format!("$(id) ; a b|began|{n}|{{\"number\":{n}}}")), "{text}");
}

#[test]
fn a_hook_that_hangs_or_fails_is_ended_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let failure = |run: Vec<String>| {
        let hook = Hook::start(&run, Duration::from_millis(200)).unwrap();
        hook.emit(&event(1)).unwrap();
        wait_for("a failure is told", || hook.failures().next()).to_string()
    };
    let hangs = script(dir.path(), "sleep 1000 & wait");
    assert!(failure(vec![hangs]).contains("ended after 0.2 s, its timeout"));
    assert!(failure(vec!["/bin/false".into()]).contains("exit code 1"));
    assert!(failure(vec!["/no/such/program".into()]).contains("/no/such/program"));
}

#[test]
fn many_events_of_a_hook_that_hangs_do_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let begun = dir.path().join("begun");
    let hangs = script(dir.path(), &format!("echo begun >> {}; sleep 1000 & wait", begun.display()));
    let hook = Hook::start(&[hangs], Duration::from_millis(500)).unwrap();
    (0..20).for_each(|attack| hook.emit(&event(attack)).unwrap());
    drop(hook);
    assert!(log(&begun).lines().count() < 20, "the end does not wait until the hook was ended for each of them");
    // A timeout beyond what clocks can count is one.
    drop(Hook::start(&["/bin/true".into()], Duration::MAX).unwrap());
}

#[test]
fn a_hooks_program_does_not_outlive_the_outputs_that_end() {
    let dir = tempfile::tempdir().unwrap();
    let (polite, stubborn) = (dir.path().join("polite"), dir.path().join("stubborn"));
    let write = |trap: &str, to: &Path| {
        let text =
            format!("#!/bin/sh\n{trap}\nsleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait; wait\n", to.display());
        let program = to.with_extension("sh");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        OutputSettings {
            hook: Some((vec![program.display().to_string()], Duration::from_secs(3600))),
            ..OutputSettings::default()
        }
    };
    let (first, second) = (write("", &polite), write("trap '' TERM", &stubborn));
    let mut outputs = Outputs::start(&first).unwrap();
    assert!(outputs.emit([event(1)]).is_empty());
    wait_for("the first one runs", || polite.exists().then_some(()));
    // A reload does not wait for the program of the old hook.
    outputs.change(OutputsChange::open(&second, &first).unwrap());
    assert!(outputs.emit([event(2)]).is_empty());
    wait_for("the second one runs", || stubborn.exists().then_some(()));
    let pids: Vec<String> = [polite, stubborn]
        .iter()
        .flat_map(|file| log(file).split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let lives = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !matches!(rest.trim().chars().next(), None | Some('Z' | 'X')))
    };
    assert!(pids.len() == 4 && pids.iter().all(lives), "{pids:?}");
    outputs.end_hook();
    wait("both have ended, with what they started", || !pids.iter().any(lives));
}

#[test]
fn a_pipe_that_nobody_reads_is_an_error_and_a_full_one_holds_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(EventLog::open(&path).unwrap_err().to_string().contains("pipe"));
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut log = EventLog::open(&path).unwrap();
    let refused = (0..10_000).find_map(|attack| log.write(&event(attack)).err());
    assert!(refused.expect("a pipe has an end").to_string().contains("pipe"));
}
