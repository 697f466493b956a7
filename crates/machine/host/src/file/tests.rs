use std::{
    fs,
    os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink},
    process::Command,
};

use super::*;

fn folder_with_mode(mode: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    folder
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
}

#[test]
fn what_stood_there_stays_until_all_is_written_and_nothing_is_left_beside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let names = || fs::read_dir(folder.path()).unwrap().count();
    drop(AtomicFile::open(&path, PUBLIC).unwrap());
    assert_eq!(names(), 0);
    fs::write(&path, "old").unwrap();
    let out = AtomicFile::open(&path, PUBLIC).unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("old", 2));
    out.write(b"new").unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("new", 1));
}

#[test]
fn a_file_has_the_mode_that_was_requested_or_keeps_a_narrower_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.tar");
    replace(&path, b"1", PRIVATE).unwrap();
    assert_eq!(mode_of(&path), 0o600);
    replace(&path, b"2", PUBLIC).unwrap();
    assert_eq!(mode_of(&path), 0o600, "one that was there keeps its mode");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    replace(&path, b"3", PRIVATE).unwrap();
    assert_eq!(mode_of(&path), 0o600);
}

#[test]
fn a_link_is_followed_in_a_folder_of_ours_only() {
    let ours = tempfile::tempdir().unwrap();
    let target = ours.path().join("target");
    fs::write(&target, "kept").unwrap();
    for mode in [0o1777, 0o777] {
        let theirs = folder_with_mode(mode);
        let link = theirs.path().join("page.html");
        symlink(&target, &link).unwrap();
        assert!(matches!(AtomicFile::open(&link, PUBLIC), Err(FileError::ForeignLink { .. })));
        assert!(matches!(create(&link, PRIVATE), Err(FileError::ForeignLink { .. })));
        // Nor through a folder that is a link there.
        symlink(ours.path(), theirs.path().join("folder")).unwrap();
        let inside = theirs.path().join("folder/target");
        assert!(matches!(replace(&inside, b"x", PUBLIC), Err(FileError::ForeignLink { .. })));
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    let link = ours.path().join("link");
    symlink("target", &link).unwrap();
    replace(&link, b"new", PUBLIC).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// Gives user 65534 the right to write; false: the file system has no such lists.
fn shared_by_list(folder: &Path) -> bool {
    let list = "
import os, struct, sys
entries = [(1, 7, 2**32 - 1), (2, 7, 65534), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)]
os.setxattr(sys.argv[1], 'system.posix_acl_access', struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries))
";
    Command::new("python3").args(["-c", list]).arg(folder).status().unwrap().success()
}

#[test]
fn a_list_of_users_who_may_write_is_seen_without_proc() {
    let Some(()) = testbed::privileged() else { return };
    let folder = folder_with_mode(0o755);
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    fs::write(&target, "kept").unwrap();
    symlink("target", &link).unwrap();
    // Root's group may write: it is trusted.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o775)).unwrap();
    let opened = || std::thread::scope(|threads| threads.spawn(|| without_proc(&link)).join().unwrap());
    opened().unwrap();
    if shared_by_list(folder.path()) {
        assert!(matches!(opened(), Err(FileError::ForeignLink { .. })));
        assert!(matches!(create(&link, PRIVATE), Err(FileError::ForeignLink { .. })));
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
}

/// Opens a file on a thread of its own that sees no /proc.
fn without_proc(path: &Path) -> Result<AtomicFile, FileError> {
    use nix::{
        mount::{MntFlags, MsFlags, mount, umount2},
        sched::{CloneFlags, unshare},
    };
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    umount2("/proc", MntFlags::MNT_DETACH).unwrap();
    assert!(!Path::new("/proc/self/fd").exists());
    AtomicFile::open(path, PUBLIC)
}

#[test]
fn a_folder_of_somebody_else_is_written_to_but_its_links_and_pipes_are_not_used() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can give a folder to somebody else");
        return;
    }
    let ours = tempfile::tempdir().unwrap();
    let target = ours.path().join("target");
    fs::write(&target, "kept").unwrap();
    let theirs = folder_with_mode(0o755);
    chown(theirs.path(), Some(65534), Some(65534)).unwrap();
    symlink(&target, theirs.path().join("link")).unwrap();
    pipe(&theirs.path().join("pipe"));
    chown(theirs.path().join("pipe"), Some(65534), None).unwrap();
    assert!(matches!(replace(&theirs.path().join("link"), b"x", PUBLIC), Err(FileError::ForeignLink { .. })));
    assert!(matches!(AtomicFile::open(&theirs.path().join("pipe"), PUBLIC), Err(FileError::Foreign { .. })));
    assert!(matches!(create(&theirs.path().join("pipe"), PUBLIC), Err(FileError::Foreign { .. })));
    replace(&theirs.path().join("new"), b"x", PUBLIC).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
}

#[test]
fn a_pipe_without_a_reader_is_refused_and_one_with_a_reader_gets_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    pipe(&path);
    assert!(matches!(AtomicFile::open(&path, PUBLIC), Err(FileError::NoReader { .. })));
    assert!(matches!(AtomicFile::plain(&path, PUBLIC), Err(FileError::NotPlain { what: "pipe", .. })));
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || fs::read(path).unwrap())
    };
    let out = loop {
        match AtomicFile::open(&path, PUBLIC) {
            Ok(out) => break out,
            Err(FileError::NoReader { .. }) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    };
    // More than a pipe holds.
    out.write(&vec![7; 1 << 20]).unwrap();
    assert_eq!(reader.join().unwrap(), vec![7; 1 << 20]);
}

#[test]
fn devices_are_written_to_and_folders_are_not() {
    let folder = tempfile::tempdir().unwrap();
    AtomicFile::open(Path::new("/dev/null"), PUBLIC).unwrap().write(b"x").unwrap();
    let full = AtomicFile::open(Path::new("/dev/full"), PUBLIC).unwrap().write(b"x").unwrap_err();
    assert_eq!(io::Error::from(full).kind(), io::ErrorKind::StorageFull);
    for path in [folder.path(), &folder.path().join("none/x"), Path::new(""), &folder.path().join("x/")] {
        assert!(matches!(AtomicFile::open(path, PUBLIC), Err(FileError::Io { .. })), "{}", path.display());
    }
    fs::write(folder.path().join("x"), "").unwrap();
    assert!(AtomicFile::open(&folder.path().join("x/"), PUBLIC).is_err(), "a file is no folder");
    symlink("x2", folder.path().join("x2")).unwrap();
    let round = io::Error::from(AtomicFile::open(&folder.path().join("x2"), PUBLIC).unwrap_err());
    assert_eq!(round.raw_os_error(), Some(nix::errno::Errno::ELOOP as i32));
}

#[test]
fn a_relative_path_and_one_with_parents_are_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    replace(&folder.path().join("a/../b"), b"x", PUBLIC).unwrap();
    assert_eq!(fs::read(folder.path().join("b")).unwrap(), b"x");
    let (here, name) = Folder::of(Path::new("some-name")).unwrap();
    assert_eq!(name, "some-name");
    let stat = fstat(here.as_fd()).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(stat.st_ino, fs::metadata(".").unwrap().ino());
}

#[test]
fn the_standard_output_is_written_to_under_its_name_in_dev() {
    // In a process of its own: this one's output belongs to the test.
    if let Ok(path) = std::env::var("EK_FILE_TEST_OUT") {
        AtomicFile::open(Path::new(&path), PUBLIC).unwrap().write(b"said so").unwrap();
        return;
    }
    let run = |out: std::process::Stdio| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "file::tests::the_standard_output_is_written_to_under_its_name_in_dev",
            "--nocapture",
        ]);
        command.env("EK_FILE_TEST_OUT", "/dev/stdout").stdout(out);
        command.spawn().unwrap().wait_with_output().unwrap()
    };
    let output = run(std::process::Stdio::piped());
    assert!(String::from_utf8_lossy(&output.stdout).contains("said so"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    run(File::create(&path).unwrap().into());
    assert!(fs::read_to_string(&path).unwrap().contains("said so"));
}

#[test]
fn a_log_grows_and_is_not_appended_to_through_somebody_elses_link() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), folder_with_mode(0o1777));
    let path = ours.path().join("log");
    for _ in 0..2 {
        append(&path, PRIVATE).unwrap().write_all(b"line\n").unwrap();
    }
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode_of(&path)), ("line\nline\n", 0o600));
    let link = theirs.path().join("log");
    symlink(&path, &link).unwrap();
    assert!(matches!(append(&link, PRIVATE), Err(FileError::ForeignLink { .. })));
    pipe(&ours.path().join("pipe"));
    assert!(matches!(append(&ours.path().join("pipe"), PRIVATE), Err(FileError::NoReader { .. })));
}

#[test]
fn a_device_without_end_is_not_read_to_its_end() {
    assert!(read_text(Path::new("/dev/zero")).is_err());
    assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
}

#[test]
fn a_file_below_a_folder_is_written_through_no_link() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(folder.path().join("in")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("latest")).unwrap();
    std::os::unix::fs::symlink("in", folder.path().join("within")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("x"), folder.path().join("link")).unwrap();
    for path in ["latest/x", "within/x", "../x", "link", "in/../../x", "/etc/x"] {
        assert!(AtomicFile::below(folder.path(), Path::new(path), 0o600).is_err(), "{path}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    for path in ["in/x", "y"] {
        AtomicFile::below(folder.path(), Path::new(path), 0o600).unwrap().write(b"text").unwrap();
        assert_eq!(std::fs::read(folder.path().join(path)).unwrap(), b"text");
    }
}

/// Replaces the file at `path`, as another user can who owns its folder.
fn put_in_its_place(what: &str, path: &Path) {
    let other = path.with_extension("other");
    match what {
        "file" => {
            fs::write(&other, "theirs").unwrap();
            chown(&other, Some(65534), None).unwrap();
        }
        _ => pipe(&other),
    }
    fs::rename(other, path).unwrap();
}

#[test]
fn what_takes_the_name_of_a_file_before_it_is_opened_is_not_used() {
    type Use = fn(Spot, &Path) -> Result<(), FileError>;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let uses: [Use; 3] = [
        |spot, path| Beside::make(spot, path, PRIVATE).map(drop),
        |spot, path| spot.create(path, PRIVATE).map(drop),
        |spot, path| spot.append(path, PRIVATE).map(drop),
    ];
    let theirs = ["pipe without a reader", "pipe", "file"];
    // Root alone can give a file to somebody else.
    let theirs = &theirs[..if nix::unistd::geteuid().is_root() { 3 } else { 2 }];
    for (what, used) in theirs.iter().flat_map(|what| uses.map(|used| (*what, used))) {
        fs::write(&path, "seen").unwrap();
        let spot = Spot::of(&path).unwrap();
        put_in_its_place(what, &path);
        let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let reader = File::options().read(true).custom_flags(nonblocking).open(&path).unwrap();
        let reader = (what == "pipe").then_some(reader);
        let (done, is_done) = std::sync::mpsc::channel();
        let of = path.clone();
        std::thread::spawn(move || done.send(used(spot, &of)).unwrap());
        let used = is_done.recv_timeout(Duration::from_secs(10)).expect("it waits for a reader");
        assert!(used.is_err(), "{what} {used:?}");
        drop(reader);
        if what == "file" {
            assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_below_a_folder_is_on_its_file_system() {
    let error = AtomicFile::below(Path::new("/"), Path::new("proc/version"), 0o600).unwrap_err();
    assert!(error.to_string().contains("another file system is mounted on the way"), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::CrossesDevices);
}

#[test]
fn a_file_is_removed_through_no_link_of_others() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), folder_with_mode(0o777));
    fs::write(ours.path().join("metrics"), "kept").unwrap();
    let (folder, path) = (theirs.path().join("in"), theirs.path().join("in/metrics"));
    fs::create_dir(&folder).unwrap();
    replace(&path, b"x", PUBLIC).unwrap();
    remove(&path).unwrap();
    assert!(!path.exists() && matches!(remove(&path), Err(FileError::Io { .. })));
    fs::remove_dir(&folder).unwrap();
    symlink(ours.path(), &folder).unwrap();
    assert!(matches!(remove(&path), Err(FileError::ForeignLink { .. })));
    assert!(ours.path().join("metrics").exists());
}
