//! Rights that a process has given up are gone. Each test gives them up in a process of its own.

use std::{
    env,
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    process::Command,
};

use sys::privilege::{Remaining, give_up};

const FOLDER: &str = "EK_PRIVILEGE_FOLDER";

/// Runs the test `name` again in a process of its own, with a folder in which root has a file. The folder in that process; none in the
/// first one.
fn inside(name: &str, prepare: impl FnOnce(&Path)) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(FOLDER) {
        return Some(folder.into());
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: there is nothing to give up without root");
        return None;
    }
    let folder = env::temp_dir().join(format!("ek-privilege-{}-{name}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("of-root"), "kept").unwrap();
    fs::set_permissions(folder.join("of-root"), fs::Permissions::from_mode(0o600)).unwrap();
    prepare(&folder);
    let mut again = Command::new(env::current_exe().unwrap());
    let output = again.args(["--exact", name, "--nocapture"]).env(FOLDER, &folder).output().unwrap();
    let kept = fs::read_to_string(folder.join("of-root")).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    assert_eq!(kept, "kept");
    None
}

/// A field of this thread's status: the harness runs a test in a thread.
fn status(field: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn nothing_comes_back_by_starting_a_program() {
    let Some(folder) = inside("nothing_comes_back_by_starting_a_program", |_| {}) else { return };
    assert_eq!(give_up(Remaining::Reading).unwrap().still_root, None);
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
        assert_eq!(status(set), "0000000000000000", "{set}");
    }
    assert_eq!((status("NoNewPrivs").as_str(), status("Uid").as_str()), ("1", "65534 65534 65534 65534"));
    let of_root = folder.join("of-root");
    // Either no program can be started (Landlock), or it has nothing.
    let script = "grep ^Cap /proc/self/status; echo x > \"$0\"; cat \"$0\"";
    if let Ok(output) = Command::new("/bin/sh").args(["-c", script]).arg(&of_root).output() {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.lines().all(|line| line.starts_with("Cap") && line.ends_with("0000000000000000")), "{printed}");
    }
    assert!(File::options().write(true).open(&of_root).is_err() && fs::read(&of_root).is_err());
    assert!(fs::write(folder.join("new"), "").is_err());
    // What is read while packets run still is.
    fs::read_to_string("/proc/net/dev").unwrap();
    std::thread::spawn(move || assert!(fs::read(&of_root).is_err())).join().unwrap();
}

#[test]
fn files_of_a_rotation_are_made_in_their_folder_and_nowhere_else() {
    let name = "files_of_a_rotation_are_made_in_their_folder_and_nowhere_else";
    let prepare = |folder: &Path| {
        for (name, user) in [("theirs", 65533), ("ours", 0)] {
            let path = folder.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&path, Some(user), Some(user)).unwrap();
        }
    };
    let Some(folder) = inside(name, prepare) else { return };
    for name in ["ours", "theirs"] {
        let (folder, capture) = (folder.clone(), folder.join(name));
        // Given up by a thread at a time: root's user id stays here.
        let check = move || {
            let open = File::open(&capture).unwrap();
            let given_up = give_up(Remaining::FilesIn(open.as_fd())).unwrap();
            let next = capture.join("2.pcapng");
            fs::write(&next, "packets").unwrap();
            fs::write(&next, "again").unwrap();
            fs::remove_file(&next).unwrap();
            if given_up.still_root.is_some() {
                return eprintln!("skipped: this kernel has no Landlock");
            }
            assert!(fs::write(folder.join("of-root"), "x").is_err() && fs::read(folder.join("of-root")).is_err());
            assert!(fs::write(folder.join("new"), "x").is_err());
            assert!(Command::new("/bin/true").status().is_err());
            assert_eq!(status("NoNewPrivs"), "1");
            // DAC_OVERRIDE (bit 1) where the folder is another user's, nothing in root's own.
            assert_eq!(status("CapEff"), if name == "theirs" { "0000000000000002" } else { "0000000000000000" });
        };
        std::thread::spawn(check).join().unwrap();
    }
}
