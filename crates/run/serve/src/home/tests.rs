//! Locks and files of instances that run, end, are killed or lose their folder.

use std::os::unix::fs::symlink;

use super::*;

const KIND: HomeKind = HomeKind { prefix: "test@", mode: 0o700, files: &["list"] };

#[test]
fn a_home_is_one_instances_and_its_files_go_with_it() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::new(KIND, root.path(), 7);
    assert!(home.holder().is_none() && !home.clear().unwrap() && Home::all(KIND, root.path()).unwrap().is_empty());
    let held = home.hold().unwrap();
    held.write("list", "a\n").unwrap();
    assert_eq!(fs::read_to_string(home.file("list")).unwrap(), "a\n");
    assert_eq!(home.holder().unwrap().0, std::process::id().to_string());
    assert!(matches!(home.hold(), Err(HomeError::Held { pid }) if pid == std::process::id().to_string()));
    assert!(!home.is_left() && !home.clear().unwrap(), "it runs");
    assert_eq!(Home::all(KIND, root.path()).unwrap(), [("7".to_owned(), home.clone())]);
    drop(held);
    assert!(!home.folder().exists() && root.path().exists());
}

#[test]
fn the_end_of_an_instance_is_waited_for_and_one_that_stays_is_named() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::new(KIND, root.path(), "a");
    let held = home.hold().unwrap();
    let (pid, _) = home.holder().unwrap();
    let stays = home.hold_within(END_PERIOD, Some(&pid)).unwrap_err().to_string();
    assert!(stays.contains(&format!("process {pid} ")) && stays.contains(&format!("`kill -9 {pid}`")), "{stays}");
    assert!(home.hold_after(Some("1")).unwrap().is_none(), "the next one runs");
    let next = thread::scope(|scope| {
        let next = scope.spawn(|| home.hold_after(Some(&pid)));
        thread::sleep(5 * END_PERIOD);
        assert!(!next.is_finished(), "it still runs");
        drop(held);
        next.join().unwrap()
    });
    assert!(next.unwrap().is_some_and(|next| is_at(&next.lock, &home.lock_file())));
    assert!(home.hold_after(None).unwrap().is_some(), "nobody runs");
}

#[test]
fn what_a_killed_instance_left_is_cleared_and_files_of_others_stay() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::new(KIND, root.path(), "a");
    // The text of the lock of a killed one is its number.
    for name in ["list", "kept", "lock"] {
        drop(fs::create_dir(home.folder()));
        fs::write(home.file(name), "4194305").unwrap();
    }
    assert!(home.is_left() && home.holder().is_none() && home.clear().unwrap());
    assert!(home.file("kept").exists() && !home.file("list").exists() && !home.is_left());
}

#[test]
fn a_folder_with_an_empty_lock_alone_is_removed_and_no_other() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::new(KIND, root.path(), "a");
    for (lock, other, stays) in [("", false, false), ("4194305", false, true), ("", true, true)] {
        fs::create_dir_all(home.folder()).unwrap();
        fs::write(home.lock_file(), lock).unwrap();
        other.then(|| fs::write(home.file("list"), "").unwrap());
        home.remove_unused();
        assert_eq!(home.lock_file().exists(), stays, "{lock:?}, {other}");
    }
    drop(home.hold().unwrap());
    let held = home.hold().unwrap();
    fs::write(home.lock_file(), "").unwrap();
    home.remove_unused();
    assert!(home.lock_file().exists(), "somebody holds it");
    drop(held);
}

#[test]
fn a_folder_that_others_can_change_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::new(KIND, root.path(), "a");
    fs::create_dir(home.folder()).unwrap();
    fs::set_permissions(home.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(home.hold(), Err(HomeError::Folder { .. })) && !home.is_left());
    fs::remove_dir(home.folder()).unwrap();
    symlink(root.path(), home.folder()).unwrap();
    assert!(matches!(home.hold(), Err(HomeError::Folder { .. })));
}

#[test]
fn a_home_is_taken_while_others_give_it_back() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::new(KIND, root.path(), "a");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    match home.hold() {
                        Ok(_) | Err(HomeError::Held { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert!(!home.folder().exists());
}
