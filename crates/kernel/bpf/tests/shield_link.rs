//! The shield's program on an interface: replaced while packets come, pinned, and taken over by another process.

use std::{env, fs, net::UdpSocket, path::PathBuf, process::Command};

use bpf::{
    XdpError, XdpMode, chain,
    filter::{Shield, ShieldConfig, ShieldLink, ShieldShared},
};
use rules::tables::{Field, RuleAction};
use testbed::{
    filter::{Tables, in_pair},
    run, wait,
};

const PORT: u16 = 7777;
/// The variable that names what this process pinned to the other one.
const PIN: &str = "EK_SHIELD_TEST_PIN";

/// A program that counts datagrams to [`PORT`] under `counter` and drops them.
fn dropping(counter: u16, shared: &ShieldShared, links: &[&ShieldLink]) -> Shield {
    let mut tables = Tables::new(1);
    tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[PORT.into()]).set(|r| r.counter = counter);
    let slots = links.iter().map(|link| link.maps()).collect();
    Shield::load(&tables.build(), &ShieldConfig { slots, ..ShieldConfig::default() }, shared).unwrap()
}

fn send(datagrams: usize) {
    let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
    for _ in 0..datagrams {
        socket.send_to(&[0; 18], ("198.18.0.2", PORT)).unwrap();
    }
}

fn dropped(shared: &ShieldShared) -> [u64; 2] {
    let rules = shared.counts().rules;
    [rules[0].packets, rules[1].packets]
}

/// A directory of a BPF file system that is gone afterwards.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_is_replaced_without_a_gap() {
    in_pair(|| {
        let shared = ShieldShared::create().unwrap();
        let mut link = ShieldLink::take("ekB", XdpMode::Native).unwrap();
        let programs = [dropping(0, &shared, &[&link]), dropping(1, &shared, &[&link])];
        assert_eq!(bpf::link::attached("ekB").unwrap(), None, "nothing is there before the first program");
        link.put(&programs[0]).unwrap();
        assert_eq!((link.mode(), link.interface()), (XdpMode::Native, "ekB"));
        match ShieldLink::take("ekB", XdpMode::Native) {
            Err(XdpError::Taken { id, .. }) => assert_eq!(id, link.program_id()),
            other => panic!("{other:?}"),
        }
        let refused = link.put(&dropping(0, &shared, &[])).unwrap_err().to_string();
        assert!(refused.contains("not loaded for the chain of ekB"), "{refused}");
        let mut sent = 0;
        for turn in 0..20 {
            send(50);
            sent += 50;
            let id = link.program_id();
            link.put(&programs[(turn + 1) % 2]).unwrap();
            assert_ne!(link.program_id(), id);
        }
        // A veth's other end is served before the sender's system call returns, or shortly after.
        wait("all are counted", || dropped(&shared).iter().sum::<u64>() == sent);
        let [first, second] = dropped(&shared);
        assert_eq!(first + second, sent);
        assert!(first > 0 && second > 0, "{first} and {second}");
        drop(link);
        send(1);
        assert_eq!(dropped(&shared), [first, second], "it is off");
    });
}

#[test]
fn what_is_pinned_is_taken_over_by_another_process() {
    in_pair(|| {
        let bpffs = PathBuf::from(format!("/sys/fs/bpf/ek-test-{}", std::process::id()));
        fs::create_dir_all(&bpffs).expect("a BPF file system at /sys/fs/bpf");
        let pins = Pins(bpffs.join("one"));
        let _all = Pins(bpffs);
        let mut shared = ShieldShared::create().unwrap();
        let mut link = ShieldLink::take("ekB", XdpMode::Native).unwrap();
        let shield = dropping(0, &shared, &[&link]);
        shared.pin(&pins.0).unwrap();
        link.put(&shield).unwrap();
        link.pin(&pins.0.join("link")).unwrap();
        send(3);
        let id = link.program_id();
        drop((link, shield));
        send(4);
        let this = env::current_exe().unwrap();
        let child = Command::new(this)
            .args(["--exact", "the_other_process", "--include-ignored", "--nocapture"])
            .env(PIN, &pins.0)
            .env("EK_SHIELD_TEST_ID", id.to_string())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && printed.contains("taken over"), "{printed}");
        // It is gone, its program is not.
        send(5);
        assert_eq!(dropped(&shared), [7, 5]);
        // Ended by a process that did not pin it, the place is empty while its names, by which the kernel would keep it, are still there.
        ShieldLink::open(&pins.0.join("link")).unwrap().end();
        let entry = bpf::link::attached("ekB").unwrap().unwrap().id;
        assert!(chain::users(entry).is_empty());
        send(1);
        assert_eq!(dropped(&shared), [7, 5]);
        fs::remove_dir_all(&pins.0).unwrap();
        assert!(!pins.0.exists());
        // The kernel lets go of what had the name a little later.
        wait("the name is free", || bpf::link::attached("ekB").unwrap().is_none());
        send(6);
        assert_eq!(dropped(&shared), [7, 5], "it is off");
        let missing = ShieldShared::open(&pins.0).expect_err("nothing is there").to_string();
        assert!(missing.contains("cannot open") && missing.contains("sh_counts"), "{missing}");
    });
}

#[test]
fn two_interfaces_are_replaced_both_or_not_at_all() {
    in_pair(|| {
        run("ip link add ekC type veth peer name ekD");
        run("ip link set ekD up");
        let shared = ShieldShared::create().unwrap();
        let [mut first, mut second] = ["ekB", "ekD"].map(|name| ShieldLink::take(name, XdpMode::Native).unwrap());
        let programs = [0, 1].map(|counter| dropping(counter, &shared, &[&first, &second]));
        ShieldLink::put_both(&mut first, &mut second, &programs[0]).unwrap();
        ShieldLink::put_both(&mut first, &mut second, &programs[1]).unwrap();
        assert_eq!(first.program_id(), second.program_id());
        let before = first.program_id();
        run("ip link del ekC");
        let refused = ShieldLink::put_both(&mut first, &mut second, &programs[0]).unwrap_err().to_string();
        assert!(refused.contains("ekD") && !refused.contains("put back"), "{refused}");
        assert_eq!(first.program_id(), before);
        assert!(first.is_alive() && first.is_here() && !second.is_alive());
        // Linux 6.1 renames only what is down.
        run("ip link set ekB down");
        run("ip link set ekB name ekE");
        assert_eq!((first.renamed(), second.renamed()), (Some("ekE"), None));
        assert_eq!(first.renamed(), None);
        assert_eq!(first.interface(), "ekE");
    });
}

#[test]
fn maps_are_pinned_all_or_none() {
    let Some(()) = testbed::privileged() else { return };
    let pins = Pins(PathBuf::from(format!("/sys/fs/bpf/ek-half-{}", std::process::id())));
    let mut first = ShieldShared::create().unwrap();
    first.pin(&pins.0).unwrap();
    let names = || {
        let entries = fs::read_dir(&pins.0).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let all = names();
    assert_eq!(all.len(), 5);
    // Only one of them is in the way of another's, and not the first.
    let stays = "sh_beat";
    all.iter().filter(|name| *name != stays).for_each(|name| fs::remove_file(pins.0.join(name)).unwrap());
    let refused = ShieldShared::create().unwrap().pin(&pins.0).unwrap_err().to_string();
    assert!(refused.contains(stays), "{refused}");
    assert_eq!(names(), [stays], "nothing of the other's");
}

#[test]
#[ignore = "the second process of the test above"]
fn the_other_process() {
    let Some(dir) = env::var_os(PIN).map(PathBuf::from) else { return };
    let shared = ShieldShared::open(&dir).unwrap();
    assert_eq!(dropped(&shared), [7, 0]);
    let mut link = ShieldLink::open(&dir.join("link")).unwrap();
    assert_eq!((link.mode(), link.interface()), (XdpMode::Native, "ekB"));
    assert_eq!(link.program_id().to_string(), env::var("EK_SHIELD_TEST_ID").unwrap());
    link.put(&dropping(1, &shared, &[&link])).unwrap();
    println!("taken over");
}
