//! `evenkeel link` as an operator uses it: two nodes on a wire, files, and what goes wrong.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant, SystemTime},
};

use link::{Claim, State};
use nix::sys::{signal::Signal, statvfs::statvfs};
use testbed::{Bed, End, LinkNode, Running, ended, json, printed, refused, wait};

mod places;

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
/// Room that stays free: a disk of the tests may have less than the default leaves.
const FREE: &str = "64M";

/// Two nodes that see each other, the second of which receives files in a folder, and leaves that much free.
struct Receiving {
    a: LinkNode,
    b: LinkNode,
    folder: PathBuf,
    ends: [End; 2],
    bed: Bed,
}

fn receiving(tag: &str, free: &str) -> Option<Receiving> {
    let (bed, ends) = Bed::pair(tag)?;
    let folder = bed.path("in");
    fs::create_dir(&folder).unwrap();
    let more = ["--receive", folder.to_str().unwrap(), "--receive-free", free];
    let [a, b] = LinkNode::pair(EVENKEEL, &bed, &ends, &more);
    Some(Receiving { a, b, folder, ends, bed })
}

fn attached(end: &End) -> Option<u32> {
    end.run(|| bpf::link::attached(end.interface()).unwrap()).map(|program| program.id)
}

#[test]
fn a_broker_that_was_taken_out_of_its_place_is_put_back_and_says_so() {
    let Some((bed, ends)) = Bed::pair("linkback") else { return };
    let [a, _b] = LinkNode::pair(EVENKEEL, &bed, &ends, &[]);
    let entry = attached(&ends[0]).expect("a chain");
    places::empty(entry, "ek_link");
    wait("it says so", || a.log().contains("put back"));
    let message = a.log();
    assert!(message.lines().any(|line| line.contains(ends[0].interface()) && line.contains("put back")), "{message}");
    let users = bpf::chain::users(entry);
    assert!(users.iter().any(|(place, _)| *place == bpf::chain::Place::Link), "{users:?}");
    ended(&a.ask(&["ping", "beta", "--count", "1"]), 0);
}

#[test]
fn a_broker_joins_an_interface_whose_xdp_hook_another_process_filled() {
    let Some((bed, [left, _right])) = Bed::pair("linkjoin") else { return };
    let mut capture = Command::new(EVENKEEL);
    capture.args(["capture", "-i", left.interface(), "--backend", "tap", "-w"]).arg(bed.path("joined.pcap"));
    let mut capture = left.run(|| Running::logged(&mut capture, &bed.path("capture.log")));
    wait("the capture's program is there", || attached(&left).is_some());
    let node = LinkNode::start(EVENKEEL, &bed, &left, "alpha", &[]);
    assert!(node.status()["delivery"].is_object(), "frames come by rings: {}", node.status());
    let entry = attached(&left).expect("a chain");
    let places: Vec<_> = bpf::chain::users(entry).into_iter().map(|(place, _)| place).collect();
    assert!(places.contains(&bpf::chain::Place::Link), "{places:?}");
    assert!(capture.ended().is_none(), "the capture goes on");
}

#[test]
fn nodes_see_each_other_and_copy_a_file() {
    let Some(Receiving { a, mut b, folder, ends, bed }) = receiving("linkcp", FREE) else { return };
    assert_eq!(b.status()["programs"][0]["listening_ports"], serde_json::json!([1]));

    let check = a.ask(&["check", "--json"]);
    ended(&check, 0);
    assert_eq!(
        (&json(&check)["nodes"][0]["name"], &json(&check)["nodes"][0]["path_mtu"]),
        (&"beta".into(), &1500.into())
    );

    let ping = a.ask(&["ping", "beta", "-c", "3", "-i", "10ms", "--json"]);
    ended(&ping, 0);
    assert_eq!((&json(&ping)["sent"], json(&ping)["round_trips_ns"].as_array().unwrap().len()), (&3.into(), 3));
    refused(&a.ask(&["ping", "beta", "-c", "1", "-s", "9000"]), 2, &["9000", "1468"]);
    assert_eq!(a.ask(&["ping", "gamma", "-c", "1"]).status.code(), Some(3));

    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = bed.file("file", &bytes);
    let copied = a.ask(&["copy", &file, "beta:", "--json"]);
    ended(&copied, 0);
    assert_eq!(fs::read(folder.join("file")).unwrap(), bytes);
    let sum = Command::new("sha256sum").arg(folder.join("file")).output().unwrap();
    assert_eq!(json(&copied)["sha256"].as_str(), String::from_utf8(sum.stdout).unwrap().split(' ').next());
    ended(&a.ask(&["copy", &bed.file("none", ""), "beta:empty"]), 0);
    assert_eq!(fs::read(folder.join("empty")).unwrap(), b"");

    refused(&a.ask(&["copy", &file, "beta:../out"]), 3, &["../out"]);
    refused(&a.ask(&["copy", &file, "beta:no/such/folder"]), 3, &["folder does not exist"]);
    refused(&a.ask(&["copy", &file, "gamma:x"]), 3, &["gamma", "link nodes"]);
    refused(&b.ask(&["copy", &file, "alpha:x"]), 3, &["--receive"]);
    refused(&a.ask(&["copy", &file, "beta"]), 2, &["beta"]);
    refused(&a.ask(&["copy", "/no/such", "beta:x"]), 2, &["/no/such"]);
    let left_over: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left_over.len(), 2, "nothing of what was refused is left: {left_over:?}");

    assert_eq!(a.ask(&["serve", ends[0].interface()]).status.code(), Some(3), "one broker for a network namespace");
    // On a veth the broker answers, and not the program in the XDP hook, whose answers a bridge would lose.
    b.broker.as_ref().unwrap().signal(Signal::SIGSTOP);
    assert_eq!(a.ask(&["ping", "beta", "-c", "1"]).status.code(), Some(1), "it is stopped");
    b.broker.as_ref().unwrap().signal(Signal::SIGCONT);
    assert_eq!(a.ask(&["ping", "beta", "-c", "1"]).status.code(), Some(0));
    refused(&a.ask(&["ping", "alpha", "-c", "1"]), 3, &["alpha is this node"]);
    ended(&b.ask(&["stop"]), 0);
    assert!(b.broker.take().unwrap().end().success());
    assert_eq!(b.ask(&["status"]).status.code(), Some(1));
    assert_eq!(a.ask(&["ping", "beta", "-c", "1", "-W", "100ms"]).status.code(), Some(1), "nobody answers");
    refused(&a.ask(&["copy", &file, "beta:x"]), 3, &[]);
}

#[test]
fn files_leave_room_on_the_file_system() {
    let Some(Receiving { a, b, folder, bed, .. }) = receiving("linkrm", "1000000G") else { return };
    refused(&a.ask(&["copy", &bed.file("file", "content"), "beta:x"]), 3, &["no room for 7 bytes", "--receive-free"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    wait("the other node says so", || b.log().contains("a file was refused: there is no room"));
}

#[test]
fn files_of_one_node_leave_half_of_the_room_to_others() {
    let Some(Receiving { a, folder, ends, bed, b: _b }) = receiving("linkhf", FREE) else { return };
    let stat = statvfs(&folder).unwrap();
    let room = stat.blocks_available() * stat.fragment_size() - (64 << 20);
    let file = bed.file("file", "content");
    let large = |share: u64| {
        let path = bed.file("large", "");
        fs::File::options().write(true).open(&path).unwrap().set_len(room / 100 * share).unwrap();
        path
    };
    let of_node = "one node may have half of the";
    refused(&a.ask(&["copy", &large(70), "beta:x"]), 3, &[of_node]);
    ends[0].run(|| {
        let (claim, mut engine) = Claim::take().unwrap();
        let holds = engine.connect(claim.find("beta").unwrap(), 1, true).unwrap();
        let head = format!("{{\"path\":\"held\",\"bytes\":{}}}\n", room / 100 * 30);
        wait("it is named", || {
            engine.wait(Duration::ZERO, Duration::from_millis(5)).unwrap();
            engine.state(holds) == Some(State::Open) && engine.write(holds, head.as_bytes()).unwrap() == head.len()
        });
        wait("it is promised", || {
            engine.wait(Duration::ZERO, Duration::from_millis(5)).unwrap();
            fs::read_dir(&folder).unwrap().count() == 1
        });
        // Before it is given up.
        let held = format!("{} bytes are promised to 1 file that is being received", room / 100 * 30);
        refused(&a.ask(&["copy", &large(40), "beta:x"]), 3, &[of_node, &held]);
        ended(&a.ask(&["copy", &file, "beta:x"]), 0);
    });
}

#[test]
fn files_of_which_nothing_comes_keep_others_away_for_a_while_alone() {
    let Some(Receiving { a, b, ends, bed, .. }) = receiving("linkst", FREE) else { return };
    let file = bed.file("file", "content");
    ends[0].run(|| {
        let (claim, mut engine) = Claim::take().unwrap();
        let beta = claim.find("beta").unwrap();
        let silent: Vec<_> = (0..64).map(|_| engine.connect(beta, 1, true).unwrap()).collect();
        let mut named = BTreeSet::new();
        wait("all are named", || {
            engine.wait(Duration::ZERO, Duration::from_millis(5)).unwrap();
            for (at, &stream) in silent.iter().enumerate() {
                if !named.contains(&at) && engine.state(stream) == Some(State::Open) {
                    let head = format!("{{\"path\":\"silent{at}\",\"bytes\":1000000}}\n");
                    assert_eq!(engine.write(stream, head.as_bytes()).unwrap(), head.len());
                    named.insert(at);
                }
            }
            named.len() == silent.len()
        });
        let began = Instant::now();
        refused(
            &a.ask(&["copy", &file, "beta:late"]),
            3,
            &["64 files of your node are arriving already", "again later"],
        );
        let (mut reply, mut reply_to_slow) = (Vec::new(), Vec::new());
        wait("they have ended", || {
            engine.wait(Duration::ZERO, Duration::from_millis(50)).unwrap();
            // One of them is not silent, and as slow as can be.
            let _ = engine.write(silent[0], b"x");
            let _ = engine.read(silent[0], |bytes| reply_to_slow.extend_from_slice(bytes));
            let _ = engine.read(silent[1], |bytes| reply.extend_from_slice(bytes));
            silent.iter().all(|&stream| engine.state(stream) != Some(State::Open))
        });
        assert!(began.elapsed() > Duration::from_secs(15), "{:?}: a slow sender has time", began.elapsed());
        let [reply, reply_to_slow] = [reply, reply_to_slow].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(reply.contains("no data for 30 s"), "{reply}");
        assert!(reply_to_slow.contains("fewer than 64 KiB/s"), "{reply_to_slow}");
    });
    ended(&a.ask(&["copy", &file, "beta:late"]), 0);
    let message = b.log();
    assert!(message.contains("no data for 30 s") && message.lines().count() < 40, "{message}");
}

#[test]
fn a_broker_that_was_killed_is_followed_by_the_next() {
    let Some((bed, ends)) = Bed::pair("linkkl") else { return };
    let [mut a, b] = LinkNode::pair(EVENKEEL, &bed, &ends, &[]);
    a.broker.take().unwrap().stop(Signal::SIGKILL);
    assert_eq!(a.ask(&["status"]).status.code(), Some(1));
    a.serve("alpha", &[]);
    a.meets("beta");
    b.meets("alpha");
}

#[test]
fn the_folder_of_a_killed_broker_is_cleaned_and_that_of_a_live_one_is_not() {
    let Some((bed, ends)) = Bed::pair("linkdead") else { return };
    let [mut a, b] = LinkNode::pair(EVENKEEL, &bed, &ends, &[]);
    let folder = |end: &End| {
        let namespace = end.run(|| fs::metadata("/proc/thread-self/ns/net").unwrap()).ino();
        format!("/run/evenkeel-link/{namespace}")
    };
    let [dead, alive] = ends.each_ref().map(folder);
    a.broker.take().unwrap().stop(Signal::SIGKILL);
    let clean = |more: &[&str]| {
        let shown = Command::new(EVENKEEL).args(["clean", "--json"]).args(more).output().unwrap();
        ended(&shown, 0);
        json(&shown)["brokers"].as_array().unwrap().iter().map(|b| b.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(!clean(&["--dry-run"]).contains(&dead), "one that has just begun may take it over");
    for folder in [&dead, &alive] {
        let lock = fs::File::options().append(true).open(format!("{folder}/lock")).unwrap();
        lock.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
    let found = clean(&["--dry-run"]);
    assert!(found.contains(&dead) && !found.contains(&alive), "{found:?}");
    clean(&[]);
    assert!(!Path::new(&dead).join("lock").exists() && Path::new(&alive).join("lock").exists());
    assert!(b.ask(&["status"]).status.success());
}

#[test]
fn two_nodes_of_one_name_are_reported() {
    let Some((bed, [left, right])) = Bed::pair("linknm") else { return };
    let a = LinkNode::start(EVENKEEL, &bed, &left, "same", &[]);
    let b = LinkNode::start(EVENKEEL, &bed, &right, "same", &[]);
    for node in [&a, &b] {
        wait("the other is told", || node.status()["duplicate_names"].as_array().is_some_and(|all| all.len() == 1));
        wait("it says so", || node.log().contains("--name"));
        assert!(printed(&node.ask(&["status"])).contains("has the name same too"));
        let check = node.ask(&["check", "--json"]);
        ended(&check, 1);
        let what = json(&check)["problems"][0]["problem"].as_str().unwrap().to_owned();
        for end in [&left, &right] {
            assert!(what.contains(&end.link.mac.to_string()), "{what}");
        }
    }
}

#[test]
fn what_is_wrong_between_nodes_is_found() {
    let Some((bed, [left, right])) = Bed::pair("linkck") else { return };
    right.link_set("mtu 1400");
    let a = LinkNode::start(EVENKEEL, &bed, &left, "alpha", &[]);
    let problem = |check: &Output| json(check)["problems"][0].clone();
    let alone = a.ask(&["check", "--json"]);
    ended(&alone, 1);
    let what = problem(&alone)["problem"].as_str().unwrap().to_owned();
    assert!(what.contains("switch or cloud drops EtherType 0x88B5"), "{what}");

    let b = LinkNode::start(EVENKEEL, &bed, &right, "beta", &[]);
    a.meets("beta");
    b.meets("alpha");
    let check = a.ask(&["check", "--json"]);
    ended(&check, 1);
    let found = json(&check);
    let passes = found["nodes"][0]["path_mtu"].as_u64().unwrap();
    assert_eq!((&found["problems"][0]["node"], &found["mtu"]), (&"beta".into(), &1500.into()));
    // A veth lets a VLAN tag more pass than its MTU.
    assert!((1400..=1404).contains(&passes), "{passes}");
    let check = b.ask(&["check"]);
    ended(&check, 0);
    assert!(printed(&check).contains("The other node answers"), "{}", printed(&check));
    refused(&a.ask(&["check", "-oProxyCommand=x"]), 2, &["-o"]);
    refused(&a.ask(&["check", "a;reboot"]), 2, &["a;reboot"]);
}

#[test]
fn bad_input_is_named_with_its_code() {
    let Some((_bed, [left, _right])) = Bed::pair("linkbi") else { return };
    let ask = |args: &[&str]| left.run(|| Command::new(EVENKEEL).arg("link").args(args).output().unwrap());
    refused(&ask(&["serve", "ek-none"]), 3, &["ek-none"]);
    refused(&ask(&["serve", "lo"]), 3, &["lo", "Ethernet"]);
    refused(&ask(&["serve", left.interface(), "--name", "a b"]), 2, &["a b"]);
    refused(&ask(&["serve", left.interface(), "--group", "ek-none"]), 2, &["ek-none"]);
    refused(&ask(&["serve", left.interface(), "--receive", "/no/such"]), 3, &["/no/such"]);
    assert_eq!(ask(&["status"]).status.code(), Some(1), "nothing is left of those");
    assert_eq!(ask(&["nodes", left.interface(), "--wait", "50ms"]).status.code(), Some(1));
}
