//! Files of any link type, and protocols beside TCP and UDP, as `evenkeel capture -r` shows them: tcpdump is the oracle.

use std::{path::Path, process::Command, time::Duration};

use testbed::Ip;

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

const ETHERNET: u32 = 1;
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// A pcap file of these packets, a quarter of a second apart.
fn pcap(path: &Path, link_type: u32, packets: &[Vec<u8>]) {
    let time = |n: u64| Duration::from_millis(1_800_000_000_000 + 250 * n);
    let packets = (0..).zip(packets).map(|(n, packet)| (time(n), packet, packet.len() as u32));
    std::fs::write(path, testbed::pcap(link_type, packets)).unwrap();
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An IPv4 packet with this fragment field.
fn v4(fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ip { id: 7, fragment, ..Ip::new([198, 18, 0, 1], [198, 18, 0, 2], protocol) }.packet(&[], payload)
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let [from, to] = [1, 2].map(|last| [0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    Ip::new(from, to, next).packet(&[], payload)
}

/// A UDP header of a datagram of that length, and what is there of its payload.
fn udp(length: u16, there: usize) -> Vec<u8> {
    join(&[&[0x0f, 0xa0, 0x18, 0xd1], &length.to_be_bytes(), &[0, 0], &vec![0; there]])
}

/// A SYN to a port that tcpdump knows no protocol of.
fn syn() -> Vec<u8> {
    join(&[&[0x0f, 0xa0, 0x1f, 0x41, 0, 0, 0, 5, 0, 0, 0, 0, 0x50, 2, 0, 100, 0, 0, 0, 0]])
}

fn arp() -> Vec<u8> {
    join(&[&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 198, 18, 0, 2]])
}

/// A message of a spanning tree behind its LLC header.
fn stp(version: u8, kind: u8, flags: u8) -> Vec<u8> {
    let id = |last| [0x80, 0, 2, 0, 0, 0, 0, last];
    let head = [0x42, 0x42, 3, 0, 0, version, kind, flags];
    let rest = [0x80, 2, 0, 0, 20, 0, 2, 0, 15, 0];
    let message = join(&[&head, &id(9), &[0, 0, 0, 4], &id(1), &rest]);
    if version == 2 { join(&[&message, &[0]]) } else { message }
}

fn lines(program: &str, args: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    // tcpdump shows the bytes of what it does not know.
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.starts_with('\t')).map(|line| line.trim_end().to_owned()).collect()
}

/// tcpdump's lines of a file, and ours.
fn both(path: &Path, flags: &[&str]) -> Vec<(String, String)> {
    let path = path.to_str().unwrap();
    let theirs = lines("tcpdump", &[&["-n", "-S", "-r", path], flags].concat());
    let ours = lines(EVENKEEL, &[&["capture", "-n", "-S", "-r", path], flags].concat());
    assert_eq!(ours.len(), theirs.len(), "{path} {flags:?}: {ours:#?} {theirs:#?}");
    theirs.into_iter().zip(ours).collect()
}

/// Our line begins with tcpdump's, as far as that does not decode what is inside.
#[track_caller]
fn same(path: &Path, flags: &[&str], inside: &[&str]) {
    for (theirs, ours) in both(path, flags) {
        let cut = inside.iter().filter_map(|word| theirs.find(word)).min().unwrap_or(theirs.len());
        assert!(
            ours.starts_with(theirs[..cut].trim_end()),
            "{} {flags:?}\nours:   {ours}\ntheirs: {theirs}",
            path.display()
        );
    }
}

const ALL_FLAGS: [&[&str]; 4] = [&["-t"], &["-t", "-e"], &["-t", "-q"], &["-t", "-q", "-e"]];

/// One UDP packet of each IP version, and what the header of each link type is for them.
#[test]
fn packets_of_every_link_type_are_those_that_tcpdump_shows() {
    let folder = tempfile::tempdir().unwrap();
    let (four, six) = (v4(0, 17, &udp(13, 5)), v6(17, &udp(13, 5)));
    let sll = |kind: u16, payload: &[u8], direction: u8| {
        join(&[&[0, direction, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &kind.to_be_bytes(), payload])
    };
    let sll2 = |kind: u16, payload: &[u8], direction: u8| {
        let head = [0, 0, 0, 0, 0x10, 0x92, 0, 1, direction, 6, 2, 0, 0, 0, 0, 1, 0, 0];
        join(&[&kind.to_be_bytes(), &head, payload])
    };
    let behind = |head: &[u8], packet: &[u8]| join(&[head, packet]);
    let files: Vec<(u32, Vec<Vec<u8>>)> = vec![
        (
            ETHERNET,
            vec![behind(&[&MACS[..], &[8, 0]].concat(), &four), behind(&[&MACS[..], &[0x86, 0xdd]].concat(), &six)],
        ),
        (101, vec![four.clone(), six.clone()]),
        (12, vec![four.clone(), six.clone()]),
        (228, vec![four.clone()]),
        (229, vec![six.clone()]),
        (
            0,
            vec![
                behind(&[2, 0, 0, 0], &four),
                behind(&[0, 0, 0, 2], &four),
                behind(&[30, 0, 0, 0], &six),
                behind(&[0, 0, 0, 24], &six),
            ],
        ),
        (108, vec![behind(&[0, 0, 0, 2], &four), behind(&[0, 0, 0, 24], &six)]),
        (9, vec![behind(&[0xff, 3, 0, 0x21], &four), behind(&[0xff, 3, 0, 0x57], &six), behind(&[0x21], &four)]),
        (
            113,
            vec![
                sll(0x0800, &four, 0),
                sll(0x86dd, &six, 1),
                sll(0x0806, &arp(), 2),
                sll(4, &stp(0, 0, 0), 4),
                sll(0x0800, &v4(0, 6, &syn()), 3),
            ],
        ),
        (276, vec![sll2(0x0800, &four, 0), sll2(0x86dd, &six, 1), sll2(0x0806, &arp(), 2), sll2(4, &stp(0, 0, 0), 4)]),
    ];
    for (link_type, packets) in files {
        let path = folder.path().join(format!("{link_type}.pcap"));
        pcap(&path, link_type, &packets);
        for flags in ALL_FLAGS {
            for (theirs, ours) in both(&path, flags) {
                // tcpdump has the name of the interface with that number on this machine.
                let named = |line: &str| line.split_once(' ').map(|(_, rest)| rest.trim_start().to_owned());
                match link_type {
                    276 => assert_eq!(named(&ours), named(&theirs), "{flags:?}"),
                    _ => assert_eq!(ours, theirs, "{link_type} {flags:?}"),
                }
            }
        }
        // Filters are compiled for that link type.
        let args = ["-n", "-t", "-r", path.to_str().unwrap(), "udp"];
        let ours = lines(EVENKEEL, &[&["capture"], &args[..]].concat());
        assert_eq!(ours.len(), lines("tcpdump", &args).len(), "{link_type}");
    }
    // Cisco's HDLC; of PPP in HDLC tcpdump names the protocol twice.
    let path = folder.path().join("50.pcap");
    pcap(&path, 50, &[behind(&[0x0f, 0, 8, 0], &four), behind(&[0xff, 3, 0, 0x57], &six)]);
    let ours = lines(EVENKEEL, &["capture", "-t", "-r", path.to_str().unwrap()]);
    let theirs = lines("tcpdump", &["-n", "-t", "-r", path.to_str().unwrap()]);
    assert_eq!((&ours[0], format!("IP6: {}", ours[1])), (&theirs[0], theirs[1].clone()));
    // One that is not known is said not to be.
    pcap(&path, 105, &[vec![0; 40]]);
    assert_eq!(
        lines(EVENKEEL, &["capture", "-t", "-r", path.to_str().unwrap()]),
        ["link type 105, not looked into, length 40"]
    );
}

#[test]
fn fragments_and_ports_are_those_that_tcpdump_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.pcap");
    let fragment = |next: u8, field: u16| [&[next, 0][..], &field.to_be_bytes(), &[0, 0, 0, 99]].concat();
    let echo = |kind: u8| [&[kind, 0, 0, 0, 0, 1, 0, 2][..], &[0; 100]].concat();
    let sctp = [&[0x0b, 0x59, 0x0b, 0x5a, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20][..], &[0; 16]].concat();
    let four = |packet: Vec<u8>| join(&[&MACS, &[8, 0], &packet]);
    let six = |packet: Vec<u8>| join(&[&MACS, &[0x86, 0xdd], &packet]);
    let packets = [
        four(v4(0x2000, 17, &udp(2008, 1392))),
        four(v4(0x2000, 6, &[syn(), vec![0; 100]].concat())),
        four(v4(0x2000, 1, &echo(8))),
        four(v4(0x2000, 132, &sctp)),
        four(v4(0, 132, &sctp)),
        six(v6(132, &sctp)),
        six(v6(44, &[fragment(17, 1), udp(2008, 1392)].concat())),
        six(v6(44, &[fragment(17, 1400), vec![0; 608]].concat())),
        six(v6(44, &[fragment(6, 1), syn(), vec![0; 100]].concat())),
        six(v6(44, &[fragment(58, 1), echo(128)].concat())),
        // An atomic fragment is a whole packet.
        six(v6(44, &[fragment(6, 0), syn()].concat())),
    ];
    pcap(&path, ETHERNET, &packets);
    for flags in ALL_FLAGS {
        same(&path, flags, &[" [init tag"]);
    }
    // tcpdump has an IPv4 fragment's place with -v alone.
    pcap(&path, ETHERNET, &[four(v4(175, 17, &[0; 608])), four(v4(0x2000 | 20, 6, &[0; 80]))]);
    let ours = lines(EVENKEEL, &["capture", "-t", "-r", path.to_str().unwrap()]);
    let hosts = "IP 198.18.0.1 > 198.18.0.2:";
    assert_eq!(ours, [format!("{hosts} frag (1400|608) UDP"), format!("{hosts} frag (160|80) TCP")]);
}

#[test]
fn frames_of_802_3_and_all_tags_are_those_that_tcpdump_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.pcap");
    let llc = |bytes: &[u8]| {
        let mut frame = join(&[&MACS, &(bytes.len() as u16).to_be_bytes(), bytes]);
        frame.resize(frame.len().max(60), 0);
        frame
    };
    let udp = v4(0, 17, &udp(13, 5));
    let tagged = |tag: u16| join(&[&MACS, &tag.to_be_bytes(), &[0xb0, 5, 8, 0], &udp]);
    let packets = [
        llc(&stp(0, 0, 0)),
        llc(&stp(2, 2, 0x3e)),
        llc(&[0x42, 0x42, 3, 0, 0, 0, 0x80]),
        llc(&join(&[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &udp])),
        llc(&[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0, 2, 0xb4, 0, 0]),
        llc(&[0, 1, 0xaf, 0x81, 1, 0]),
        llc(&[0xf0, 0xf0, 0x7f]),
    ];
    pcap(&path, ETHERNET, &packets);
    for flags in ALL_FLAGS {
        // What CDP and XID say of themselves is not decoded.
        same(&path, flags, &["CDPv2", ", Flags [Response]", ", Flags [Poll]"]);
    }
    let packets = [tagged(0x8100), tagged(0x88a8), tagged(0x9100), tagged(0x9200)];
    pcap(&path, ETHERNET, &packets);
    for flags in [&["-t", "-e"][..], &["-t", "-q", "-e"]] {
        same(&path, flags, &[]);
    }
    // Without -e tcpdump leaves tags out; here they are always shown.
    let ours = lines(EVENKEEL, &["capture", "-t", "-r", path.to_str().unwrap()]);
    let line = "vlan 5, p 5, DEI, IP 198.18.0.1.4000 > 198.18.0.2.6353: UDP, length 5";
    assert_eq!(ours, [line; 4]);
}

#[test]
fn times_have_tcpdumps_forms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pcap");
    let packet = v4(0, 17, &udp(13, 5));
    pcap(&path, 101, &vec![packet; 20]);
    // One that goes back, and one hours later: from a day on tcpdump begins again at 0.
    let mut bytes = std::fs::read(&path).unwrap();
    let record = 16 + 33;
    for (n, seconds) in [(5, 1_799_999_990u32), (7, 1_800_080_000)] {
        bytes[24 + n * record..24 + n * record + 4].copy_from_slice(&seconds.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    for flags in [&[][..], &["-t"], &["-tt"], &["-ttt"], &["-tttt"], &["-ttttt"]] {
        for (theirs, ours) in both(&path, flags) {
            assert_eq!(ours, theirs, "{flags:?}");
        }
    }
}

#[test]
fn a_file_that_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pcap");
    pcap(&path, 101, &[v4(0, 17, &udp(13, 5))]);
    let before = std::fs::read(&path).unwrap();
    std::os::unix::fs::symlink("t.pcap", folder.path().join("link")).unwrap();
    for to in ["t.pcap", "link"] {
        let mut capture = Command::new(EVENKEEL);
        let done = capture.args(["capture", "-r"]).arg(&path).arg("-w").arg(folder.path().join(to)).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{}", testbed::printed(&done));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
