//! The crates depend on each other as ARCHITECTURE.md draws them: downwards, and in one row only to the left of a `│`. `run` and `look` do
//! not depend on each other, and only `cli` depends on `measure`. What `tools/deny` cannot check, it names.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output},
};

use testbed::{ended, refused, text};

/// These know only the words: what they show must be plain data.
const KNOW_MODEL_ONLY: &[&str] = &["report", "tui"];

/// The wings that work without any other: what runs for months, and what answers once.
const WINGS: &[&str] = &["run", "look"];

/// The wing of the experiments: of the other crates, only these know it.
const MEASURE: &str = "measure";
const KNOW_MEASURE: &[&str] = &["cli"];

/// These may have unsafe code: system calls, kernel programs, and the two libraries whose callers are programs in C.
const UNSAFE: &[&str] = &["sys", "bpf", "link-c", "link-sockets"];

/// What tests are made of is in no program.
const FOR_TESTS: &str = "testbed";

/// The folder that has a folder for each row.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A place in the drawing: the row, counted from the bottom, and the group within it, counted from the left.
type Place = (usize, usize);

/// Of each crate in the drawing its row's name and its place.
fn drawing() -> BTreeMap<String, (String, Place)> {
    let text = fs::read_to_string(folder().join("../ARCHITECTURE.md")).unwrap();
    let drawing = text.split("```").nth(1).expect("ARCHITECTURE.md has a drawing");
    let mut places = BTreeMap::new();
    for (row, line) in drawing.lines().filter(|line| !line.is_empty()).rev().enumerate() {
        let (name, crates) = line.split_once(' ').expect("a row has crates");
        for (group, crates) in crates.split('│').enumerate() {
            for found in crates.split_whitespace() {
                places.insert(found.to_owned(), (name.to_owned(), (row, group)));
            }
        }
    }
    places
}

/// Of each crate on disk its row's folder and what it depends on.
fn crates() -> BTreeMap<String, (String, Vec<String>)> {
    let mut crates = BTreeMap::new();
    let entries = |folder: PathBuf| fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir());
    for row in entries(folder()) {
        for entry in entries(row.path()) {
            let Ok(text) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
            let manifest: toml::Table = text.parse().unwrap();
            let dependencies = manifest.get("dependencies").and_then(|d| d.as_table()).cloned().unwrap_or_default();
            let name = entry.file_name().into_string().unwrap();
            crates.insert(name, (row.file_name().into_string().unwrap(), dependencies.keys().cloned().collect()));
        }
    }
    crates
}

#[test]
fn arrows_point_downwards() {
    let (drawing, crates) = (drawing(), crates());
    assert!(crates.len() > 8, "the crates were found");
    assert!(drawing.keys().eq(crates.keys()), "drawn: {:?}; there: {:?}", drawing.keys(), crates.keys());
    for (name, (folder, dependencies)) in &crates {
        let (row, from) = &drawing[name];
        assert_eq!(row, folder, "{name} lies in the folder of another row");
        assert!(!dependencies.iter().any(|d| d == FOR_TESTS), "{name} has {FOR_TESTS} as more than a dev-dependency");
        for dependency in dependencies.iter().filter(|d| crates.contains_key(*d)) {
            let (_, to) = &drawing[dependency];
            assert!(to < from, "{name} -> {dependency} points upwards or sideways");
            assert!(
                !KNOW_MODEL_ONLY.contains(&name.as_str()) || dependency == "model",
                "{name} may know the model only, and knows {dependency}"
            );
        }
    }
}

#[test]
fn wings_depend_on_no_other_wing() {
    let crates = crates();
    for (name, (row, dependencies)) in &crates {
        for dependency in dependencies {
            let Some((other, _)) = crates.get(dependency) else { continue };
            assert!(
                !WINGS.contains(&row.as_str())
                    || row == other
                    || !(WINGS.contains(&other.as_str()) || other == MEASURE),
                "{name} of the wing {row} -> {dependency} of the wing {other}"
            );
            assert!(
                other != MEASURE || row == MEASURE || KNOW_MEASURE.contains(&name.as_str()),
                "{name} -> {dependency}, which measures"
            );
        }
    }
}

#[test]
fn unsafe_code_lives_in_sys_and_bpf_and_where_c_calls() {
    for (name, (row, _)) in crates() {
        let lib = folder().join(row).join(&name);
        let manifest = fs::read_to_string(lib.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
        let mut files = vec![lib.join("src")];
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(fs::read_dir(path).unwrap().flatten().map(|e| e.path()));
            } else if path.extension().is_some_and(|e| e == "rs") && !UNSAFE.contains(&name.as_str()) {
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("allow(unsafe_code)"), "{} allows unsafe code", path.display());
            }
        }
    }
}

/// A copy of `tools/deny` beside a cargo that finds everything right and fetches nothing.
#[test]
fn advisories_are_checked_by_a_dated_database_or_named_as_not_checked() {
    let (top, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (tool, programs) = (top.path().join("tools/deny"), home.path().join(".cargo/bin"));
    fs::create_dir(top.path().join("tools")).unwrap();
    fs::create_dir_all(&programs).unwrap();
    fs::copy(folder().join("../tools/deny"), &tool).unwrap();
    ["Cargo.lock", "deny.toml"].iter().for_each(|name| fs::write(top.path().join(name), name).unwrap());
    ["cargo", "cargo-deny"].iter().for_each(|name| symlink("/bin/true", programs.join(name)).unwrap());
    let run = |command: &mut Command| -> Output {
        command.env("HOME", home.path()).env("PATH", "/usr/bin:/bin").env_remove("CARGO_HOME").output().unwrap()
    };
    let deny = || run(Command::new("bash").arg(&tool));
    refused(&deny(), 3, &["advisories: NOT CHECKED: there is no copy of their database"]);
    // Right as before, and with nothing to look at advisories with.
    fs::remove_file(programs.join("cargo-deny")).unwrap();
    refused(&deny(), 3, &["advisories: NOT CHECKED: cargo-deny is not installed"]);
    symlink("/bin/true", programs.join("cargo-deny")).unwrap();
    let database = home.path().join(".cargo/advisory-dbs/one");
    ended(&run(Command::new("git").args(["init", "-q"]).arg(&database)), 0);
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let commit = ["commit", "-q", "--allow-empty", "-m", "one"];
    let mut git = Command::new("git");
    git.arg("-C").arg(&database).args(author).args(commit).env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z");
    ended(&run(&mut git), 0);
    let checked = deny();
    ended(&checked, 0);
    assert!(text(&checked.stdout).contains("checked, by a database of 2026-01-02"), "{}", text(&checked.stdout));
}
