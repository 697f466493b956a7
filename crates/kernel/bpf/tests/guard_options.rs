//! Options of AF_PACKET on the sockets of one network namespace: root's alone.

use std::{
    env, fs, io,
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    process::{Command, Stdio},
};

use bpf::{LinkOptionsGuard, ProgramError};
use sys::{
    packet::{PacketSocket, RingLayout, RxRing},
    socket_kind::network_namespace,
};
use testbed::Bed;

const USER: u32 = 65_532;

/// Not a test: the process of [`ring_by`], whose standard input is the socket.
#[test]
#[ignore = "another test starts it"]
fn makes_a_ring() {
    if env::var_os("EK_TEST_RING").is_none() {
        return;
    }
    let socket: PacketSocket = io::stdin().as_fd().try_clone_to_owned().unwrap().into();
    let layout = RingLayout { block_bytes: 1 << 16, blocks: 16, retire_ms: 10, rx_hash: false, node: None };
    match RxRing::new(socket, layout) {
        Ok(_) => println!("a ring of {} bytes", layout.bytes()),
        Err(error) => println!("no ring: {error}"),
    }
}

/// Errno of a process of that user that makes a ring of a socket which it was given.
fn ring_by(user: u32, socket: &PacketSocket) -> String {
    let folder = tempfile::Builder::new().prefix("ek-options-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("options");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "makes_a_ring", "--ignored", "--nocapture"]).env("EK_TEST_RING", "1");
    command.stdin(Stdio::from(socket.as_fd().try_clone_to_owned().unwrap())).uid(user).gid(user);
    testbed::printed(&command.output().unwrap())
}

#[test]
fn root_alone_makes_rings_of_the_sockets_of_that_namespace() {
    let Some(bed) = Bed::new("opts", &["in", "out"]) else { return };
    let [inside, outside] = ["in", "out"].map(|name| bed.space(name).run(|| PacketSocket::open().unwrap()));
    let guard = LinkOptionsGuard::attach(network_namespace(&inside).unwrap());
    let guard = match guard {
        Err(ProgramError::Load { source, .. }) if source.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            // Lockdown: no program of this type loads. `link serve --group` says so.
            println!("this kernel takes no program of type fmod_ret: {source}");
            assert!(ring_by(USER, &inside).contains("a ring of 1048576 bytes"));
            return;
        }
        guard => guard.unwrap(),
    };
    let refused = ring_by(USER, &inside);
    assert!(refused.contains("no ring: ") && refused.contains("Operation not permitted"), "{refused}");
    let other = ring_by(USER, &outside);
    assert!(other.contains("a ring of 1048576 bytes"), "another namespace: {other}");
    let root = ring_by(0, &inside);
    assert!(root.contains("a ring of 1048576 bytes"), "root: {root}");
    drop(guard);
    let socket = bed.space("in").run(|| PacketSocket::open().unwrap());
    let after = ring_by(USER, &socket);
    assert!(after.contains("a ring of 1048576 bytes"), "after it: {after}");
}
