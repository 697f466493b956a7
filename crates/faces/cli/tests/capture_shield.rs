//! A capture, a shield and a bench's receiver on one interface.

use std::{
    net::UdpSocket,
    path::{Path, PathBuf},
    process::Command,
};

use bpf::{BenchReceiver, BenchRxConfig, XdpMode, chain, chain::Place, link::attached};
use nix::sys::signal::Signal;
use testbed::{CLIENT, DROP_9, Running, SERVER, ShieldBed, ended, json, printed, tshark, wait};

mod places;

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A tap on the shield's interface, which is in its place.
fn capture(bed: &ShieldBed, place: &str, file: &Path) -> Running {
    let mut command = bed.host.command(EVENKEEL);
    command.args(["capture", &bed.interface, "--backend", "tap", place, "--quiet", "-w"]).arg(file);
    let capture = Running::piped(&mut command);
    wait("the capture is in its place", || {
        places(bed).contains(&if place == "--behind" { Place::Behind } else { Place::Before })
    });
    capture
}

/// The places that are taken.
fn places(bed: &ShieldBed) -> Vec<Place> {
    let runs = bed.host.run(|| attached(&bed.interface).unwrap());
    let users = runs.map_or_else(Vec::new, |runs| chain::users(runs.id));
    users.into_iter().map(|(place, _)| place).collect()
}

fn send(bed: &ShieldBed, port: u16, datagrams: usize) {
    bed.client.run(|| {
        let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
        for _ in 0..datagrams {
            socket.send_to(b"keel", (SERVER, port)).unwrap();
        }
    });
}

/// Destination ports and comments of the datagrams in a file, as others read it.
fn verdicts(file: &Path) -> Vec<[String; 2]> {
    let rows = tshark(file, &["udp.dstport", "frame.comment"], 'f');
    rows.into_iter().filter(|row| !row[0].is_empty()).map(|row| [row[0].clone(), row[1].clone()]).collect()
}

#[test]
fn captures_before_and_behind_a_shield_show_its_verdicts_and_rules() {
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "capsh") else { return };
    bed.protect(DROP_9, &[]);
    let files: [PathBuf; 2] = ["before.pcapng", "behind.pcapng"].map(|name| bed.path(name));
    let before = capture(&bed, "--before", &files[0]);
    let behind = capture(&bed, "--behind", &files[1]);
    for _ in 0..10 {
        send(&bed, 9, 1);
        send(&bed, 10, 1);
    }
    wait("the shield has counted them", || bed.status()["totals"]["dropped"] == 10);
    // A second one in the same place is refused, and what runs goes on.
    let mut second = bed.host.command(EVENKEEL);
    ended(&second.args(["capture", &bed.interface, "--backend", "tap", "--count-only"]).output().unwrap(), 3);
    // The shield's rules are replaced, by one of another name.
    bed.rules(&DROP_9.replace("\"nine\"", "\"niner\""));
    bed.reload();
    send(&bed, 9, 5);
    wait("the shield has counted them", || bed.status()["totals"]["dropped"] == 15);
    let messages = [before, behind].map(|capture| printed(&capture.interrupt()));
    let seen = verdicts(&files[0]);
    let of =
        |port: &str| seen.iter().filter(|[to, _]| to == port).map(|[_, comment]| comment.clone()).collect::<Vec<_>>();
    let dropped = |name: &str| format!("shield: dropped by rule \"{name}\"");
    assert_eq!(of("9"), [vec![dropped("nine"); 10], vec![dropped("niner"); 5]].concat());
    assert_eq!(of("10"), vec!["shield: passed by default: no rule applies".to_owned(); 10]);
    let passed = verdicts(&files[1]);
    assert_eq!(passed.len(), 10, "{messages:?}");
    assert!(passed.iter().all(|[to, comment]| to == "10" && comment.starts_with("shield: passed")), "{passed:?}");
    assert_eq!(places(&bed), [Place::Filter]);
    bed.stop();
    assert_eq!(bed.host.run(|| attached(&bed.interface).unwrap()), None, "the chain goes with its last user");
}

#[test]
fn a_shield_and_a_capture_that_were_taken_out_of_their_places_are_put_back_and_say_so() {
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "capback") else { return };
    bed.protect(DROP_9, &[]);
    let file = bed.path("back.pcapng");
    let before = capture(&bed, "--before", &file);
    assert_eq!(bed.status()["reattached"], 0);
    let entry = bed.host.run(|| attached(&bed.interface).unwrap()).expect("a chain").id;
    for place in ["ek_filter", "ek_before"] {
        places::empty(entry, place);
    }
    wait("the shield is put back", || bed.status()["reattached"] == 1);
    wait("both are in their places", || places(&bed) == [Place::Before, Place::Filter]);
    send(&bed, 9, 3);
    wait("it judges again", || bed.status()["totals"]["dropped"] == 3);
    let warnings = bed.status()["warnings"].to_string();
    assert!(warnings.contains("put back"), "{warnings}");
    let message = printed(&before.interrupt());
    assert!(message.contains("frames passed unseen"), "{message}");
    bed.stop();
}

#[test]
fn a_capture_a_shield_and_a_receiver_end_in_every_order() {
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "caporder") else { return };
    let rules = bed.rules(DROP_9);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        bed.run(&rules, &[]);
        let file = bed.path("order.pcapng");
        let mut tap = Some(capture(&bed, "--before", &file));
        let receiver = || BenchReceiver::attach(&bed.interface, XdpMode::Native, &BenchRxConfig::default());
        let mut receiver = Some(bed.host.run(receiver).unwrap());
        assert_eq!(places(&bed), [Place::Before, Place::Filter, Place::End]);
        send(&bed, 10, 3);
        for who in order {
            match who {
                0 => {
                    let output = tap.take().unwrap().interrupt();
                    assert!(output.status.success(), "{order:?}: {}", printed(&output));
                }
                1 => bed.stop(),
                _ => drop(receiver.take()),
            }
            send(&bed, 10, 1);
        }
        wait("the chain is gone", || bed.host.run(|| attached(&bed.interface).unwrap()).is_none());
        let seen = verdicts(&file).len();
        let expected = 3 + order.iter().position(|who| *who == 0).unwrap();
        assert_eq!(seen, expected, "{order:?}");
        let _ = std::fs::remove_file(&file);
    }
}

#[test]
fn kill_9_of_each_owner_leaves_the_others() {
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "capkill") else { return };
    let rules = bed.protect(DROP_9, &["--fail", "closed"]);
    let files: [PathBuf; 2] = ["before.pcapng", "behind.pcapng"].map(|name| bed.path(name));
    let before = capture(&bed, "--before", &files[0]);
    let behind = capture(&bed, "--behind", &files[1]);
    behind.kill();
    wait("its place is empty", || !places(&bed).contains(&Place::Behind));
    send(&bed, 9, 1);
    wait("the shield goes on", || bed.status()["totals"]["dropped"] == 1);
    // The shield's program stays for one who takes over, and says what it does meanwhile.
    bed.kill();
    wait("it fails closed", || {
        send(&bed, 10, 1);
        bed.status()["totals"]["failed_closed"].as_u64() > Some(0)
    });
    bed.run(&rules, &[]);
    before.stop(Signal::SIGINT);
    let comments: Vec<String> = verdicts(&files[0]).into_iter().map(|[_, comment]| comment).collect();
    assert!(
        comments.iter().any(|comment| comment.contains("dropped: the shield's control process is gone")),
        "{comments:?}"
    );
    // The tap made here is killed while the shield ends.
    let before = capture(&bed, "--before", &bed.path("again.pcapng"));
    bed.stop();
    assert_eq!(places(&bed), [Place::Before], "also the place that the process before pinned");
    before.kill();
    wait("the chain goes with its last user", || bed.host.run(|| attached(&bed.interface).unwrap()).is_none());
}

#[test]
fn a_program_of_another_tool_is_left_alone_and_named() {
    let Some(bed) = ShieldBed::host(EVENKEEL, "capforeign") else { return };
    // A namespace may have a BPF file system of its own for as long as a command runs.
    let tool = |line: &str| {
        let output = bed.host.run(|| Command::new("sh").args(["-c", line]).output().expect("a shell"));
        assert!(output.status.success(), "{line}: {}", printed(&output));
    };
    bed.host.output("ip link add ekcf0 type veth peer name ekcf1");
    // One by the name of a later version's chain, and libxdp's dispatcher.
    for (name, hint) in [("ek_chain9", "another version"), ("xdp_dispatcher", "xdp-loader")] {
        let source = bed.file(
            "p.c",
            format!(
                "__attribute__((section(\"xdp\"), used)) int {name}(void *ctx) {{ return 2; }}\n\
             char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n"
            ),
        );
        let object = bed.path("p.o");
        let clang = Command::new("clang").args(["-O2", "-target", "bpf", "-c", &source, "-o"]).arg(&object).status();
        assert!(clang.unwrap().success());
        let object = object.display();
        let interface = &bed.interface;
        let pin = format!("/sys/fs/bpf/ek-foreign-{}", std::process::id());
        tool(&format!(
            "bpftool prog load {object} {pin} type xdp && bpftool net attach xdpgeneric pinned {pin} dev {interface} && rm {pin}"
        ));
        let before = bed.host.run(|| attached(interface).unwrap()).expect("it runs");
        let mut command = bed.host.command(EVENKEEL);
        let refused = command.args(["capture", interface, "--backend", "tap", "--count-only"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(3));
        assert!(printed(&refused).contains(hint) && printed(&refused).contains(name), "{}", printed(&refused));
        let checked =
            bed.host.command(EVENKEEL).args(["route", "check", interface, "ekcf0", "--json"]).output().unwrap();
        let checked: serde_json::Value =
            serde_json::from_slice(&checked.stdout).unwrap_or_else(|e| panic!("{e}: {}", printed(&checked)));
        let obstacle =
            checked["obstacles"].as_array().unwrap().iter().find(|it| it["code"] == "xdp").expect("it is named");
        assert!(
            obstacle["what"].as_str().unwrap().contains(name) && obstacle["remedy"].as_str().unwrap().contains(hint)
        );
        assert_eq!(bed.host.run(|| attached(interface).unwrap()), Some(before));
        tool(&format!("bpftool net detach xdpgeneric dev {interface}"));
    }
}

#[test]
fn a_capture_whose_program_another_tool_took_off_says_so() {
    let Some(bed) = ShieldBed::host(EVENKEEL, "captaken") else { return };
    let capture = capture(&bed, "--before", &bed.path("taken.pcapng"));
    let entry = bed.host.run(|| attached(&bed.interface).unwrap()).expect("it runs").id;
    let links = Command::new("bpftool").args(["-j", "link", "show"]).output().unwrap();
    let links = json(&links);
    let link = links.as_array().unwrap().iter().find(|link| link["prog_id"] == entry).expect("the chain's link");
    let detached = Command::new("bpftool").args(["link", "detach", "id", &link["id"].to_string()]).status().unwrap();
    assert!(detached.success());
    let output = capture.output();
    assert_eq!(output.status.code(), Some(3));
    assert!(printed(&output).contains("another tool took"), "{}", printed(&output));
    assert!(bed.host.run(|| host_has(&bed.interface)), "the interface is still there");
}

fn host_has(interface: &str) -> bool {
    Path::new("/sys/class/net").join(interface).exists()
}
