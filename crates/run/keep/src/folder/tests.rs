//! Files that are read, refused and written.

use std::{fs, os::unix::fs::PermissionsExt, sync::mpsc, thread, time::Duration};

use nix::{sys::stat::Mode, unistd::mkfifo};

use super::*;
use crate::intent::{Pattern, Spread};

fn check(name: &str) -> Result<(), String> {
    if name == "rings" { Ok(()) } else { Err(format!("there is no check `{name}`")) }
}

struct Etc {
    _folder: tempfile::TempDir,
    folder: Folder,
}

fn etc(files: &[(&str, &str)]) -> Etc {
    let etc = tempfile::tempdir().unwrap();
    let folder = Folder::at(Some(etc.path()));
    fs::create_dir(folder.path()).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        fs::write(folder.file(name), text).unwrap();
        fs::set_permissions(folder.file(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    Etc { _folder: etc, folder }
}

/// The problem of the one file that is wrong.
fn problem(text: &str) -> String {
    let etc = etc(&[("a", text), ("good", "[[doctor]]\nchecks = [\"rings\"]\n")]);
    let files = etc.folder.read(check).unwrap();
    assert_eq!(files.good.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["good"], "{files:?}");
    files.bad[0].problem.clone()
}

#[test]
fn what_is_wrong_is_named_by_file_line_and_key() {
    for (text, line, words) in [
        ("[[spread]]\ninterfaces = [\"eth0\"]\ncpu = \"0-3\"\n", 3, &["cpu", "cpus"][..]),
        ("[[spread]]\ninterfaces = [\"eth0\"]\n\ncpus = \"0-x\"\n", 4, &["cpus"]),
        ("drift = \"undo\"\n[[spread]]\n", 1, &["drift", "restore", "leave"]),
        ("[[spread]]\nrps = \"maybe\"\n", 2, &["rps", "auto", "on", "off"]),
        ("[[spread]]\ncoalesce = [\"rx-usec=5\"]\n", 2, &["coalesce", "rx-usecs"]),
        ("[[spread]]\nring = \"4096\"\n", 2, &["ring", "max"]),
        ("[[spread]]\ninterfaces = [\"a b\"]\n", 2, &["interfaces", "eth0"]),
        ("[[doctor]]\nrole = \"router\"\nchecks = [\"ring\"]\n", 3, &["checks", "no check `ring`"]),
        ("[[doctor]]\nchecks = []\n", 2, &["checks", "rings"]),
        ("[spread\n", 1, &[]),
        ("", 1, &["[[spread]]"]),
    ] {
        let problem = problem(text);
        assert!(problem.contains(&format!("keep.d/a.toml, line {line}: ")), "{text}: {problem}");
        words.iter().for_each(|word| assert!(problem.contains(word), "{text}: {word}: {problem}"));
    }
}

#[test]
fn files_that_contradict_each_other_are_both_refused_and_others_are_not() {
    let etc = etc(&[
        ("a", "[[spread]]\ninterfaces = [\"eth*\"]\ncpus = \"0-1\"\n"),
        ("b", "# b\n[[spread]]\ninterfaces = [\"eth0\"]\ncpus = \"2-3\"\n"),
        ("c", "[[spread]]\ninterfaces = [\"lan0\"]\ncpus = \"4\"\n"),
        ("d", "[[spread]]\ninterfaces = [\"lan0\"]\ncpus = \"4\"\nrfs = 4096\n"),
    ]);
    let files = etc.folder.read(check).unwrap();
    assert_eq!(files.good.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["c", "d"]);
    let problems: Vec<&str> = files.bad.iter().map(|bad| bad.problem.as_str()).collect();
    for (problem, words) in problems.iter().zip([
        ["a.toml, line 3: `cpus` is 0-1", "2-3 in ", "b.toml, line 4"],
        ["b.toml, line 4: `cpus` is 2-3", "0-1 in ", "a.toml, line 3"],
    ]) {
        words.iter().for_each(|word| assert!(problem.contains(word), "{word}: {problem}"));
    }
    // The table of socket flows is one for all interfaces.
    let spread =
        Spread { interfaces: vec![Pattern::try_from("x0".to_owned()).unwrap()], rfs: Some(1), ..Spread::default() };
    let refused = etc.folder.prepare("e", &Intents { spread: vec![spread], ..Intents::default() }, check).unwrap_err();
    assert!(refused.to_string().contains("its `rfs` would be 1"), "{refused}");
    assert!(!etc.folder.file("e").exists());
}

#[test]
fn what_others_can_write_is_refused() {
    let etc = etc(&[("a", "[[spread]]\n")]);
    fs::set_permissions(etc.folder.file("a"), fs::Permissions::from_mode(0o646)).unwrap();
    let files = etc.folder.read(check).unwrap();
    assert!(files.good.is_empty() && files.bad[0].problem.contains("chmod 644"), "{files:?}");
    fs::set_permissions(etc.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(etc.folder.read(check), Err(KeepError::Folder { .. })));
}

#[test]
fn what_is_no_text_is_not_overwritten() {
    let etc = etc(&[]);
    let text = b"# caf\xe9\n[[spread]]\n";
    fs::write(etc.folder.file("all"), text).unwrap();
    let intents = Intents { spread: vec![Spread::default()], ..Intents::default() };
    assert!(matches!(etc.folder.prepare("all", &intents, check), Err(KeepError::Edited { .. })));
    fs::create_dir(etc.folder.file("other")).unwrap();
    assert!(matches!(etc.folder.prepare("other", &intents, check), Err(KeepError::Folder { .. })));
    assert_eq!(fs::read(etc.folder.file("all")).unwrap(), text);
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let etc = etc(&[("good", "[[doctor]]\nchecks = [\"rings\"]\n")]);
    mkfifo(&etc.folder.file("pipe"), Mode::from_bits_truncate(0o644)).unwrap();
    let (to, answers) = mpsc::channel();
    let folder = etc.folder.clone();
    thread::spawn(move || {
        let intents = Intents { spread: vec![Spread::default()], ..Intents::default() };
        to.send((folder.read(check), folder.prepare("pipe", &intents, check))).unwrap();
    });
    let (files, prepared) = answers.recv_timeout(Duration::from_secs(10)).expect("no wait for a writer");
    let files = files.unwrap();
    assert_eq!(files.good.len(), 1);
    assert!(files.bad[0].problem.contains("pipe.toml: it is no plain file"), "{files:?}");
    assert!(matches!(prepared, Err(KeepError::Folder { .. })));
}

#[test]
fn a_file_is_written_replaced_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::at(Some(&home.path().join("etc")));
    assert_eq!(folder.read(check).unwrap(), Files::default(), "there is no folder");
    let intents = Intents { spread: vec![Spread::default()], ..Intents::default() };
    let file = folder.prepare("all", &intents, check).unwrap();
    assert_eq!(folder.write(&file).unwrap(), None);
    let before = folder.fingerprint();
    assert_eq!(
        folder.write(&folder.prepare("all", &intents, check).unwrap()).unwrap(),
        Some(intents.text()),
        "replaced"
    );
    assert_ne!(folder.fingerprint(), before);
    let mode = fs::metadata(folder.file("all")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode & 0o133, 0, "{mode:o}");
    assert_eq!(folder.read(check).unwrap().good[0].intents, intents);
    assert!(matches!(folder.prepare("../x", &intents, check), Err(KeepError::Intent(_))));
    folder.put_back("all", Some(&(intents.text() + "# mine\n"))).unwrap();
    assert!(matches!(folder.prepare("all", &intents, check), Err(KeepError::Edited { .. })));
    folder.put_back("all", None).unwrap();
    folder.write(&file).unwrap();
    folder.remove("all").unwrap();
    assert!(matches!(folder.remove("all"), Err(KeepError::NoSuchFile { .. })));
}
