//! Prerequisites of a test that this machine lacks: a message, and in CI a failure.

use std::{
    fmt::Display,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Says that a test does not run, and why. CI must have what tests need.
pub fn skip(why: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "skipped, which CI must not: {why}");
    eprintln!("skipped: {why}");
}

/// None, and a word why, unless this is root, as namespaces and kernel programs need it.
pub fn privileged() -> Option<()> {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip("this takes root");
    }
    root.then_some(())
}

/// True if these programs are there, by their paths; said if not.
pub fn installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|path| !Path::new(path).exists());
    if let Some(path) = missing {
        skip(format!("{path} is missing (tools/setup test installs it)"));
    }
    missing.is_none()
}

/// The turn of a test that needs the cores or the machine's settings for itself, among the tests of its process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a test that needs root as well; none, and a word why, without.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    privileged().map(|()| alone())
}
