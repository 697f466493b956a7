//! Answers, refusals and silence of a process at its socket.

use super::*;
use crate::wake::Wakes;

#[test]
fn a_command_is_answered_and_what_is_none_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    assert_eq!(ask::<u32, u32>(&path, &7).unwrap(), None, "nobody listens");
    let (to, requests) = mpsc::channel::<Request<u32, u32>>();
    let listener = Listener::start(&path, Requests { to, waker: Wakes::new().unwrap().waker() }).unwrap();
    let answers = thread::spawn(move || requests.iter().for_each(|(command, to)| to.send(2 * command).unwrap()));
    assert_eq!(ask(&path, &7).unwrap(), Some(14));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"not\": \"a number\"}\n").unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "closed without an answer");
    drop(listener);
    answers.join().unwrap();
    assert_eq!(ask::<u32, u32>(&path, &7).unwrap(), None, "nobody listens any more");
}

#[test]
fn one_that_works_long_is_waited_for_and_one_that_says_nothing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let (to, requests) = mpsc::channel::<Request<u32, u32>>();
    let listener = Listener::start(&path, Requests { to, waker: Wakes::new().unwrap().waker() }).unwrap();
    let slow = thread::spawn(move || {
        let (command, to) = requests.recv().unwrap();
        thread::sleep(SILENCE_TIMEOUT + KEEPALIVE_PERIOD);
        to.send(2 * command).unwrap();
    });
    assert_eq!(ask(&path, &7).unwrap(), Some(14));
    slow.join().unwrap();
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    let _hangs = UnixListener::bind(&path).unwrap();
    match ask::<u32, u32>(&path, &7) {
        Err(ServeError::Silent { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_queue_that_is_full_is_silence_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let hangs = UnixListener::bind(&path).unwrap();
    nix::sys::socket::listen(&hangs, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _waits = UnixStream::connect(&path).unwrap();
    assert!(matches!(ask::<u32, u32>(&path, &7), Err(ServeError::Silent { pid: None, .. })));
    let _lock = crate::lock(&path.with_file_name(LOCK)).unwrap();
    match ask::<u32, u32>(&path, &7) {
        Err(ServeError::Silent { pid, .. }) => {
            assert_eq!(pid, Some(std::process::id()), "the kernel names the holder");
        }
        other => panic!("{other:?}"),
    }
}
