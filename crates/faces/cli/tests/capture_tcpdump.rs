//! What tcpdump's users expect of a live capture: filters that the kernel does not run, directions, files of a rotation.

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use testbed::{Running, Wire, ended, json, refused, text, wait, write_pcap};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

fn start(wire: &Wire, args: &[&str]) -> Running {
    wire.receiver.starts(EVENKEEL, &[&["capture"], args].concat())
}

/// Sends the packets of a file to so many sockets.
fn replay(wire: &Wire, file: &Path, sockets: usize) {
    wire.hears(sockets);
    wire.sender.replay(file, 2000);
}

/// A frame of IPv6 whose headers these are, each behind the number of the one before.
fn v6(tag: bool, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(if tag { &[0x81, 0, 0, 100, 0x86, 0xdd] } else { &[0x86, 0xdd] });
    frame.extend([0x60, 0, 0, 0, 0, rest.len() as u8, next, 64]);
    for last in [1, 2] {
        frame.extend([0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Packets of which the filter takes some: behind an extension header, with and without a tag.
fn mixed() -> Vec<Vec<u8>> {
    let udp = [0x0f, 0xa0, 0x18, 0xd1, 0, 12, 0, 0, 1, 2, 3, 4];
    let behind = |next: u8| [&[next, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat();
    let kinds = [
        v6(false, 17, &udp),
        v6(false, 0, &behind(17)),
        v6(false, 60, &behind(17)),
        v6(true, 60, &behind(17)),
        v6(true, 17, &udp),
        v6(false, 58, &[128, 0, 0, 0, 0, 1, 0, 2]),
        v6(false, 60, &behind(6)),
    ];
    kinds.into_iter().cycle().take(70).collect()
}

fn packets_in(path: &Path, filter: &str) -> usize {
    let output = Command::new("tcpdump").args(["-n", "-t", "-r"]).arg(path).arg(filter).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().filter(|line| !line.starts_with('\t')).count()
}

#[test]
fn a_filter_that_the_kernel_does_not_run_is_run_here_and_reported_so() {
    let Some(wire) = Wire::new("here") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (sent, kept) = (folder.path().join("in.pcap"), folder.path().join("out.pcapng"));
    write_pcap(&sent, mixed());
    let interface = wire.receiver.interface();
    for (filter, backend, sockets) in [
        // Frames whose tag the kernel took out are no IPv6 frames: the tag is in its place again.
        ("ip6 protochain 17", &["--backend", "ring"][..], 1),
        ("ip6 protochain 17", &["--backend", "packet"], 1),
        ("ip6 protochain 17", &["--backend", "ring+fanout", "--members", "2"], 2),
    ] {
        let expected = packets_in(&sent, filter);
        assert!(expected > 0 && expected < 70, "{filter}: {expected}");
        let out = kept.to_str().unwrap();
        let child = start(&wire, &[&["-i", interface, "-w", out, "-s", "70", "--json"], backend, &[filter]].concat());
        replay(&wire, &sent, sockets);
        std::thread::sleep(Duration::from_millis(300));
        let output = child.interrupt();
        ended(&output, 0);
        let (counts, message) = (json(&output), text(&output.stderr).to_owned());
        assert!(message.contains("the kernel does not run the filter"), "{message}");
        let got = ["packets", "received", "dropped"].map(|key| counts[key].as_u64().unwrap());
        assert_eq!(got, [expected as u64, expected as u64, 0], "{filter} {backend:?} {counts}");
        // Neighbour discovery comes by itself.
        assert!(counts["filtered_out"].as_u64().unwrap() >= 70 - expected as u64, "{counts}");
        assert_eq!(packets_in(&kept, filter), expected, "{filter} {backend:?}");
        let lengths = Command::new("tshark").args(["-r", out, "-T", "fields", "-e", "frame.cap_len"]).output().unwrap();
        assert!(text(&lengths.stdout).lines().all(|n| n.parse::<u32>().unwrap() <= 74), "{}", text(&lengths.stdout));
    }
    // Lines, a number of packets, and the sentence in the totals.
    let child = start(&wire, &["-i", interface, "-n", "-c", "3", "ip6 protochain 17"]);
    replay(&wire, &sent, 1);
    let output: Output = child.output();
    ended(&output, 0);
    assert_eq!(text(&output.stdout).lines().count(), 3, "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("the filter ran in this process"), "{}", text(&output.stderr));
    // An XDP program cannot; a filter that the kernel runs is not spoken of.
    let tap = start(&wire, &["-i", interface, "--backend", "tap", "ip6 protochain 17"]).output();
    refused(&tap, 3, &["an XDP program cannot run the filter", "--backend ring or packet"]);
    let nowhere = start(&wire, &["-i", interface, "outbound and ip6 protochain 17"]).output();
    refused(&nowhere, 3, &["runs nowhere"]);
    let quiet = start(&wire, &["-i", interface, "--duration", "10ms", "udp"]).output();
    ended(&quiet, 0);
    assert!(!text(&quiet.stderr).contains("filter ran") && !text(&quiet.stderr).contains("does not run"));
}

/// The lines of a capture of `any`, sorted: several readers have none.
fn sorted(lines: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(lines).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn any_prints_directions_as_tcpdump_does() {
    let Some(wire) = Wire::new("dirs") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (came, left) = (folder.path().join("came.pcap"), folder.path().join("left.pcap"));
    let udp = [0x0f, 0xa0, 0x18, 0xd1, 0, 12, 0, 0, 1, 2, 3, 4];
    let to = |address: [u8; 6]| [&address[..], &v6(false, 17, &udp)[6..]].concat();
    let mine = wire.receiver.link.mac;
    write_pcap(&came, &[to(mine.0), to([0xff; 6]), to([0x33, 0x33, 0, 0, 0, 9]), to([2, 9, 9, 9, 9, 9])]);
    write_pcap(&left, &[to([2, 0, 0, 0, 0, 7])]);
    for backend in ["ring", "packet"] {
        let filter = "udp port 6353";
        let ours = start(&wire, &["-i", "any", "-n", "-t", "--backend", backend, "-c", "6", filter]);
        let tcpdump = wire.receiver.run(|| {
            let mut command = Command::new("tcpdump");
            Running::piped(command.args(["-i", "any", "-n", "-t", "--immediate-mode", "-c", "6", filter]))
        });
        // Ours has one for each of the two interfaces.
        replay(&wire, &came, 3);
        wire.receiver.replay(&left, 2000);
        wire.receiver
            .run(|| std::net::UdpSocket::bind("127.0.0.1:4000").unwrap().send_to(b"a", "127.0.0.1:6353").unwrap());
        let (ours, tcpdump) = (ours.output(), tcpdump.output());
        ended(&ours, 0);
        let lines = sorted(&ours.stdout);
        assert_eq!(lines, sorted(&tcpdump.stdout), "{backend}\n{}\n{}", text(&ours.stderr), text(&tcpdump.stderr));
        let mut directions: Vec<_> = lines.iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
        directions.sort_unstable();
        assert_eq!(directions, ["B", "In", "In", "M", "Out", "P"], "{lines:?}");
    }
}

/// The files in a folder by name, with their sizes.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> =
        entries.map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().len())).collect();
    files.sort();
    files
}

fn names(folder: &Path) -> Vec<String> {
    files(folder).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn files_of_a_size_have_the_names_and_the_unit_of_tcpdump() {
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("in.pcap");
    write_pcap(&sent, vec![vec![7; 1000]; 5000]);
    for (case, (name, args)) in [
        ("x.pcap", &["-C", "1"][..]),
        ("x.pcap", &["-C", "1", "-W", "3"]),
        ("x.pcap", &["-C", "1", "-W", "11"]),
        ("x.pcap", &["-C", "2", "-W", "1"]),
        // Without -G a percent sign is one.
        ("x-%H.pcap", &["-C", "3"]),
        ("x-%H.pcap", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let [theirs, ours] = ["theirs", "ours"].map(|who| folder.path().join(format!("{who}{case}")));
        for (program, more, folder) in [("tcpdump", &["-Z", "root"][..], &theirs), (EVENKEEL, &["capture"], &ours)] {
            std::fs::create_dir(folder).unwrap();
            let mut command = Command::new(program);
            command.args(more).arg("-r").arg(&sent).arg("-w").arg(folder.join(name)).args(args);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        }
        assert_eq!(names(&ours), names(&theirs), "{args:?}");
        if args == ["-C", "1"] {
            let sizes: Vec<_> = files(&ours).into_iter().map(|(_, size)| size).collect();
            let (_last, full) = sizes.split_last().unwrap();
            assert!(full.iter().all(|size| (1_000_000..1_002_000).contains(size)), "{sizes:?}");
        }
    }
}

#[test]
fn files_of_a_time_have_the_names_of_tcpdump_and_their_number_ends_the_capture() {
    let Some(wire) = Wire::new("time") else { return };
    let bed = tempfile::tempdir().unwrap();
    let sent = bed.path().join("in.pcap");
    write_pcap(&sent, vec![vec![7; 100]; 20]);
    let round = |name: &str, args: &[&str]| {
        let [theirs, ours] = [(); 2].map(|()| tempfile::tempdir_in(bed.path()).unwrap());
        let interface = wire.receiver.interface();
        let start = |program: &str, more: &[&str], folder: &Path| {
            wire.receiver.run(|| {
                let mut command = Command::new(program);
                command.args(more).args(["-i", interface, "-w"]).arg(folder.join(name)).args(args);
                Running::piped(command.env("TZ", "Asia/Kolkata"))
            })
        };
        let mut tcpdump = start("tcpdump", &["-Z", "root", "-U"], theirs.path());
        let mut evenkeel = start(EVENKEEL, &["capture"], ours.path());
        wait("the end of both", || {
            wire.sender.replay(&sent, 100);
            tcpdump.ended().is_some() && evenkeel.ended().is_some()
        });
        let (tcpdump, evenkeel) = (tcpdump.output(), evenkeel.output());
        ended(&tcpdump, 0);
        ended(&evenkeel, 0);
        (theirs, ours)
    };
    // The hour may change between the two.
    let same = (0..2).any(|_| {
        let (theirs, ours) = round("x-%Y-%m-%d_%H.%j %a %b %y %%.pcap", &["-G", "7200", "-c", "3"]);
        assert_eq!(names(ours.path()).len(), 1);
        names(theirs.path()) == names(ours.path())
    });
    assert!(same);
    let (theirs, ours) = round("x-%s.pcap", &["-G", "1", "-W", "2"]);
    let (theirs, ours) = (names(theirs.path()), names(ours.path()));
    assert_eq!((theirs.len(), ours.len()), (2, 2), "{theirs:?} {ours:?}");
    let began = |name: &str| name["x-".len()..].trim_end_matches(".pcap").parse::<u64>().unwrap();
    assert!(began(&ours[1]) > began(&ours[0]), "{ours:?}");
    // One file has no other to be written over.
    let (theirs, ours) = round("x.pcap", &["-G", "1", "-W", "1"]);
    assert_eq!(names(theirs.path()), names(ours.path()));
}

#[test]
fn directions_are_chosen_and_interfaces_numbered_as_in_tcpdump() {
    let Some(wire) = Wire::new("ways") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (came, left) = (folder.path().join("came.pcap"), folder.path().join("left.pcap"));
    let udp = [0x0f, 0xa0, 0x18, 0xd1, 0, 12, 0, 0, 1, 2, 3, 4];
    let frame = |last: u8| [&[2, 0, 0, 0, 0, last][..], &v6(false, 17, &udp)[6..]].concat();
    write_pcap(&came, &[frame(1), frame(2)]);
    write_pcap(&left, &[frame(3), frame(4)]);
    let interface = wire.receiver.interface();
    for (direction, count, expected) in
        [("in", "2", &["01", "02"][..]), ("out", "2", &["03", "04"]), ("inout", "4", &["01", "02", "03", "04"])]
    {
        let words = ["-n", "-t", "-e", "-Q", direction, "-c", count, "udp port 6353"];
        let ours = start(&wire, &[&["-i", interface], &words[..]].concat());
        let tcpdump = wire.receiver.run(|| {
            let mut command = Command::new("tcpdump");
            Running::piped(command.args(["-i", interface, "--immediate-mode"]).args(words))
        });
        // What is not wanted comes first: it would be among so many packets.
        let (first, then) = if direction == "in" { (&left, &came) } else { (&came, &left) };
        let send = |file: &Path, sockets| {
            if file == left {
                wire.hears(sockets);
                wire.receiver.replay(file, 2000);
            } else {
                replay(&wire, file, sockets);
            }
        };
        send(first, 2);
        send(then, 2);
        let (ours, tcpdump) = (ours.output(), tcpdump.output());
        ended(&ours, 0);
        let lines = sorted(&ours.stdout);
        assert_eq!(lines, sorted(&tcpdump.stdout), "{direction}\n{}\n{}", text(&ours.stderr), text(&tcpdump.stderr));
        let to: Vec<_> = lines
            .iter()
            .map(|line| line.split(' ').nth(2).unwrap().trim_matches([':', ',']).rsplit(':').next().unwrap())
            .collect();
        assert_eq!(to, expected, "{lines:?}");
    }
    let list = start(&wire, &["-D"]).output();
    ended(&list, 0);
    let list = text(&list.stdout);
    let line = list.lines().find(|line| line.contains(interface)).unwrap_or_else(|| panic!("{list}"));
    assert!(line.ends_with("[up]") && list.contains(".any ["), "{list}");
    let number = line.split('.').next().unwrap();
    let by_number = start(&wire, &["-i", number, "--duration", "10ms", "--json"]).output();
    ended(&by_number, 0);
    assert_eq!(json(&by_number)["interface"], *interface);
    refused(&start(&wire, &["-i", "99"]).output(), 2, &["99", "capture -D"]);
}
