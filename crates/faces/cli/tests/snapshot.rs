//! `evenkeel snapshot`: the file, the pipe, and the places that cannot be written.

use std::fs;

use assert_cmd::Command;
use testbed::refused;

fn evenkeel() -> Command {
    Command::cargo_bin("evenkeel").expect("the program is built")
}

#[test]
fn a_file_and_a_pipe_hold_the_same_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.tar");
    let saved = evenkeel().arg("snapshot").arg(&file).output().unwrap();
    assert!(saved.status.success() && saved.stdout.is_empty(), "{saved:?}");
    let (printed, bytes) = (String::from_utf8_lossy(&saved.stderr), fs::metadata(&file).unwrap().len());
    assert!(printed.contains(&format!("machine.tar ({} kB)", bytes.div_ceil(1000))), "{bytes} bytes: {printed}");
    let piped = evenkeel().args(["snapshot", "-"]).output().unwrap();
    assert!(piped.status.success());
    let other = folder.path().join("piped.tar");
    fs::write(&other, piped.stdout).unwrap();
    let read = |file| host::Host::read(&host::Root::open(file).unwrap()).unwrap();
    let (filed, piped) = (read(&file), read(&other));
    assert_eq!(filed.cpus, piped.cpus);
    assert_eq!(filed.hostname, piped.hostname);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn anonymous_copies_hold_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.tar");
    evenkeel().args(["snapshot", "--anonymize"]).arg(&file).assert().success();
    let host = host::Host::read(&host::Root::open(&file).unwrap()).unwrap();
    assert_eq!(host.hostname, "host");
    assert!(host.nics.iter().filter_map(|nic| nic.mac.as_deref()).all(|mac| mac.starts_with("02:00:00:00:")));
}

#[test]
fn places_that_cannot_be_written_are_reported_once() {
    for (place, code, named) in [
        ("/ek-missing/machine.tar", 2, &["cannot write /ek-missing/machine.tar", "folder does not exist"][..]),
        ("/dev/full", 3, &["No space left on device"]),
        ("/tmp", 2, &[]),
    ] {
        refused(&evenkeel().args(["snapshot", place]).output().unwrap(), code, named);
    }
}
