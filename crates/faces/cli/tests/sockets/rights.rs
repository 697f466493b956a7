//! The capabilities of a broker's threads.

use std::{fs, path::Path, process::Command};

use nix::sys::signal::Signal;
use testbed::printed;

use crate::{
    cluster::{Cluster, Network, PLAIN},
    hostile::{is_served, let_in, server},
};

/// A program of the group `daemon` that asks for ports.
const MEMBER: &str = "
import os, socket
os.setgroups([])
os.setresgid(1, 1, 1)
os.setresuid(1, 1, 1)
asks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asks.connect(f'/run/evenkeel-link/{os.stat(\"/proc/self/ns/net\").st_ino}/claims')
asks.send(b'\"Ports\"')
print(socket.recv_fds(asks, 4096, 8)[0])
";

/// Of a thread of a broker: its name, and its capabilities and whether its programs get no more, as the kernel has them.
fn rights(task: &Path) -> (String, [u64; 3], bool) {
    let status = fs::read_to_string(task.join("status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let set = |name| u64::from_str_radix(&field(name), 16).unwrap();
    (field("Name:"), ["CapEff:", "CapPrm:", "CapBnd:"].map(set), field("NoNewPrivs:") == "1")
}

#[test]
fn a_broker_keeps_few_rights() {
    /// Bits of `linux/capability.h`.
    const CHOWN: u64 = 1;
    const DAC_OVERRIDE: u64 = 1 << 1;
    const SETGID_SETUID: u64 = 1 << 6 | 1 << 7;
    const NET_ADMIN_RAW: u64 = 1 << 12 | 1 << 13;
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON_BPF: u64 = 1 << 38 | 1 << 39;
    const GROUP: [&str; 4] = ["--receive", "/srv", "--group", "daemon"];
    for (tag, more, with, in_unit) in [
        ("lkhcaps", &["--receive", "/tmp"][..], DAC_OVERRIDE, false),
        ("lkhcapg", &GROUP, DAC_OVERRIDE | CHOWN | SYS_ADMIN, false),
        ("lkhunit", &GROUP, DAC_OVERRIDE | CHOWN | SYS_ADMIN, true),
    ] {
        let Some(mut cluster) = Cluster::on(Network { more, in_unit, ..PLAIN }, tag) else { return };
        let _server = server(&cluster);
        let_in(&cluster);
        is_served(&cluster);
        if with & SYS_ADMIN != 0 {
            let member = cluster.plain(0, Command::new("python3").args(["-c", MEMBER]));
            assert!(printed(&member).starts_with("b'{\"Ports\":"), "{member:?}");
        }
        let kept = NET_ADMIN_RAW | PERFMON_BPF | (with & SYS_ADMIN);
        let pid = cluster.broker(0).pid();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let all: Vec<_> = tasks.map(|task| rights(&task.path())).collect();
        for (name, [effective, permitted, bounding], gets_no_more) in &all {
            let expected = match name.as_str() {
                "ek-sockets" | "ek-pairs" | "ek-close" | "ek-dispose" | "ek-output" => 0,
                "ek-copy" => DAC_OVERRIDE,
                _ => kept,
            };
            assert_eq!((*effective, *permitted), (expected, expected), "{name}: {effective:x} {permitted:x}");
            assert_eq!(*bounding, kept | with | SETGID_SETUID | SYS_ADMIN, "{name}: {bounding:x}");
            assert!(gets_no_more, "{name}");
        }
        // A process of a thread's effective user may keep it from running.
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let scheduled = Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "renice", "-n", "19"])
                .arg(task.file_name())
                .output()
                .unwrap();
            assert!(!scheduled.status.success(), "{task:?}: {}", printed(&scheduled));
        }
        for name in ["ek-sockets", "ek-pairs", "ek-close", "ek-output", "ek-copy", "ek-claims", "ek-claim"] {
            assert!(all.iter().any(|(of, ..)| of == name), "no {name}: {all:?}");
        }
        for broker in &mut cluster.brokers {
            broker.take().unwrap().stop(Signal::SIGTERM);
        }
        let left = cluster.plain(0, Command::new("ip").args(["-br", "link"]));
        assert!(!printed(&left).contains("ek-link"), "the pair of the group's sockets is gone: {}", printed(&left));
    }
}

/// A user of the group `daemon` that holds as many connections as it may, and one more.
const GREEDY: &str = "
import os, socket
os.setgroups([])
os.setresgid(1, 1, 1)
os.setresuid(1, 1, 1)
def one():
    asks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asks.settimeout(3)
    asks.connect(f'/run/evenkeel-link/{os.stat(\"/proc/self/ns/net\").st_ino}/claims')
    return asks
held = [one() for _ in range(64)]
print(one().recv(4096))
";

#[test]
fn a_connection_too_many_is_refused_by_name() {
    let Some(cluster) = Cluster::on(Network { more: &["--group", "daemon"], ..PLAIN }, "lkhmany") else { return };
    let greedy = cluster.plain(0, Command::new("python3").args(["-c", GREEDY]));
    assert!(printed(&greedy).contains("this user has too many connections"), "{greedy:?}");
}
