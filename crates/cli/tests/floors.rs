//! The house stands as ARCHITECTURE.md says: every dependency between our crates points downwards.

use std::{collections::BTreeMap, fs, path::PathBuf};

/// The floors from the bottom up. On one floor an arrow may point only to a crate of an earlier row.
const FLOORS: &[&[&str]] = &[
    &["wire", "model"],
    &["sys"],
    &["bpf", "host"],
    &["port"],
    &["lab", "traffic"],
    &["capture", "spread", "ledger", "profile", "doctor", "bench", "shield"],
    &["report", "tui"],
    &["cli"],
];

/// These know only the words: what they show must be plain data.
const KNOW_MODEL_ONLY: &[&str] = &["report", "tui"];

fn crates() -> BTreeMap<String, Vec<String>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        let manifest: toml::Table = text.parse().unwrap();
        let dependencies = manifest.get("dependencies").and_then(|d| d.as_table()).cloned().unwrap_or_default();
        crates.insert(
            entry.file_name().into_string().unwrap(),
            dependencies.keys().map(|k| k.replace("evenkeel", "cli")).collect(),
        );
    }
    crates
}

fn row(name: &str) -> Option<usize> {
    FLOORS.iter().position(|row| row.contains(&name))
}

#[test]
fn arrows_point_downwards() {
    let crates = crates();
    assert!(crates.len() > 8, "the crates were found");
    for (name, dependencies) in &crates {
        let from = row(name).unwrap_or_else(|| panic!("{name} stands on no floor: add it to FLOORS"));
        for dependency in dependencies.iter().filter(|d| crates.contains_key(*d)) {
            let to = row(dependency).unwrap();
            assert!(to < from, "{name} -> {dependency} points upwards or sideways");
            assert!(
                !KNOW_MODEL_ONLY.contains(&name.as_str()) || dependency == "model",
                "{name} may know the model only, and knows {dependency}"
            );
        }
    }
}

#[test]
fn unsafe_code_lives_in_sys_and_bpf() {
    for (name, _) in crates() {
        let lib = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(&name);
        let manifest = fs::read_to_string(lib.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
        let mut files = vec![lib.join("src")];
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(fs::read_dir(path).unwrap().flatten().map(|e| e.path()));
            } else if path.extension().is_some_and(|e| e == "rs") && !["sys", "bpf"].contains(&name.as_str()) {
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("allow(unsafe_code)"), "{} allows unsafe code", path.display());
            }
        }
    }
}
