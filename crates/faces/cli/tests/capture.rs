//! `evenkeel capture` from outside: the pipe, the files, bad input, the automatic choice.

use std::{io::Read, process::Command, time::Duration};

use testbed::{Running, Wire, ended, json, pcap, refused, text, tshark};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A capture at the receiver's interface.
fn start(wire: &Wire, args: &[&str]) -> Running {
    start_any(wire, &[&[wire.receiver.interface()], args].concat())
}

/// A capture whose arguments name the interface.
fn start_any(wire: &Wire, args: &[&str]) -> Running {
    wire.receiver.starts(EVENKEEL, &[&["capture"], args].concat())
}

/// Sends `packets` UDP frames of the lab's own generator.
fn send(wire: &Wire, packets: u32, pps: u32) {
    let (count, rate) = (packets.to_string(), pps.to_string());
    let flags = ["gen", wire.sender.interface(), "--udp", "--backend", "tx-ring", "--sizes", "64"];
    ended(&wire.sender.ran(EVENKEEL, &[&flags[..], &["--count", &count, "--rate", &rate]].concat()), 0);
}

#[test]
fn a_pipe_flows_and_its_end_is_quiet() {
    let Some(wire) = Wire::new("pipe") else { return };
    let mut child = start(&wire, &["-w", "-", "--quiet", "--backend", "packet"]);
    // The head of the file says that the sockets are open.
    let mut stdout = child.child().stdout.take().unwrap();
    let mut head = [0; 4];
    stdout.read_exact(&mut head).unwrap();
    assert_eq!(head, [0x0a, 0x0d, 0x0d, 0x0a]);
    send(&wire, 100, 10_000);
    let mut packets = vec![0; 100 * 92];
    stdout.read_exact(&mut packets).unwrap();
    drop(stdout);
    send(&wire, 100, 10_000);
    let output = child.output();
    ended(&output, 0);
    assert!(!text(&output.stderr).contains("evenkeel:"), "{}", text(&output.stderr));
}

#[test]
fn json_counts_and_readers_add_up() {
    let Some(wire) = Wire::new("json") else { return };
    let child =
        start(&wire, &["udp", "--json", "--quiet", "--backend", "ring+fanout", "--members", "3", "--count", "500"]);
    wire.hears(3);
    send(&wire, 600, 10_000);
    let output = child.output();
    ended(&output, 0);
    let json = json(&output);
    assert_eq!(json["schema"], "evenkeel.capture/1");
    assert_eq!((&json["packets"], &json["backend"]), (&500.into(), &"ring+fanout".into()));
    let readers = json["readers"].as_array().unwrap();
    assert_eq!(readers.len(), 3);
    assert_eq!(readers.iter().map(|r| r["packets"].as_u64().unwrap()).sum::<u64>(), 500);
}

#[test]
fn auto_says_why_and_attaches_nothing_by_itself() {
    let Some(wire) = Wire::new("auto") else { return };
    let output = start(&wire, &["--backend", "auto", "--duration", "0.1", "--quiet"]).output();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("chosen: ring:") && message.contains("too little traffic"), "{message}");
    assert!(message.contains("--try-xdp") && !message.lines().any(|l| l.starts_with("tap ")), "{message}");
}

#[test]
fn bad_input_is_named_with_its_code() {
    let Some(wire) = Wire::new("bad") else { return };
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such.pcapng");
    for (args, code, word) in [
        (vec!["udp port port"], 2, "udp port port"),
        (vec!["--backend", "rings"], 2, "ring+fanout"),
        (vec!["--cpus", "4000"], 2, "CPU 4000"),
        (vec!["--block-size", "5000"], 2, "power of two"),
        (vec!["-w", missing.to_str().unwrap()], 2, "no/such.pcapng"),
        (vec!["-w", "/dev/full"], 3, "No space left"),
    ] {
        refused(&start(&wire, &args).output(), code, &[word]);
    }
    wire.receiver.link_set("down");
    let output = start(&wire, &["--backend", "packet"]).output();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("is down: bring it up"), "{}", text(&output.stderr));
}

#[test]
fn a_missing_capability_is_named() {
    let output = Command::new("setpriv")
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", EVENKEEL, "capture", "lo"])
        .output()
        .expect("setpriv");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("CAP_NET_RAW"), "{message}");
}

#[test]
fn files_of_a_rotation_are_made_in_a_folder_of_another_user_and_nobody_else_reads_them() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let Some(wire) = Wire::new("fold") else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(folder.path(), Some(65533), Some(65533)).unwrap();
    let base = folder.path().join("a.pcapng");
    let args = ["udp", "-w", base.to_str().unwrap(), "--rotate-count", "5", "--files", "2", "--count", "23", "--quiet"];
    let child = start(&wire, &[&args[..], &["--backend", "ring+fanout", "--members", "3"]].concat());
    wire.hears(3);
    send(&wire, 40, 1_000);
    ended(&child.output(), 0);
    let mut files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()).collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    let names: Vec<_> = files.iter().map(std::fs::DirEntry::file_name).collect();
    assert_eq!(names, ["a-00004.pcapng", "a-00005.pcapng"]);
    assert!(files.iter().all(|file| file.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
}

/// What tcpdump's users look for in a line: protocol, both ends, and the values behind these words.
fn fields(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    let mut fields: Vec<String> = words.iter().take(4).map(|w| w.trim_end_matches(':').to_owned()).collect();
    for pair in words.windows(2) {
        if ["Flags", "seq", "ack", "win", "length", "who-has", "is-at", "mss", "wscale"].contains(&pair[0]) {
            fields.push(format!("{} {}", pair[0], pair[1].trim_end_matches([',', ']', ':'])));
        }
    }
    fields
}

/// Real packets of several kinds from the sender to the receiver: ARP, TCP with data, UDP of 200 bytes, ICMP, IPv6.
fn talk(wire: &Wire) {
    for (end, number) in [(&wire.sender, 1), (&wire.receiver, 2)] {
        end.address(&format!("198.18.7.{number}/24"));
        end.address(&format!("2001:2:0:7::{number}/64"));
    }
    let listener = wire.receiver.run(|| std::net::TcpListener::bind("198.18.7.2:8080").unwrap());
    wire.sender.run(|| {
        use std::{io::Write as _, net::*};
        let mut stream = TcpStream::connect("198.18.7.2:8080").unwrap();
        stream.write_all(&[b'x'; 300]).unwrap();
        drop(listener.accept().unwrap());
        let udp = UdpSocket::bind("198.18.7.1:4000").unwrap();
        // Nobody listens: an ICMP message comes back.
        udp.send_to(&[7; 200], "198.18.7.2:4001").unwrap();
        let udp = UdpSocket::bind("[2001:2:0:7::1]:4000").unwrap();
        udp.send_to(&[7; 1000], "[2001:2:0:7::2]:4001").unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn lines_say_what_those_of_tcpdump_say() {
    let Some(wire) = Wire::new("line") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    let path = file.to_str().unwrap();
    let child = start(&wire, &["-w", path, "--quiet"]);
    wire.hears(1);
    talk(&wire);
    assert!(child.interrupt().status.success());
    let lines = |program: &str, args: &[&str]| -> Vec<String> {
        let output = Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{program}: {}", text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect()
    };
    for filter in [&[][..], &["tcp"], &["udp", "port", "4001"]] {
        let theirs = lines("tcpdump", &[&["-n", "-S", "-t", "-r", path], filter].concat());
        let ours = lines(EVENKEEL, &[&["capture", "-n", "-t", "-r", path], filter].concat());
        assert!(theirs.len() >= 2, "{theirs:?}");
        assert_eq!(ours.len(), theirs.len(), "{ours:#?}\n{theirs:#?}");
        for (our, their) in ours.iter().zip(&theirs) {
            assert_eq!(fields(our), fields(their), "ours:   {our}\ntheirs: {their}");
        }
    }
    let udp = lines(EVENKEEL, &["capture", "-t", "-r", path, "udp", "and", "dst", "port", "4001", "and", "ip"]);
    assert_eq!(udp, ["IP 198.18.7.1.4000 > 198.18.7.2.4001: UDP, length 200"]);
    // Bytes and link headers, as tcpdump shows them.
    for flags in [&["-e"][..], &["-X"], &["-XX"], &["-x"], &["-A"]] {
        let filter = ["ip", "and", "udp", "and", "dst", "port", "4001"];
        let theirs = lines("tcpdump", &[&["-n", "-t", "-r", path], flags, &filter].concat());
        let ours = lines(EVENKEEL, &[&["capture", "-t", "-r", path], flags, &filter].concat());
        // Blanks at the end of a line of bytes are nobody's field.
        let trimmed = |lines: &[String]| lines.iter().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(trimmed(&ours), trimmed(&theirs), "{flags:?}");
    }
    let some = lines(EVENKEEL, &["capture", "-r", path, "-c", "2"]);
    assert_eq!(some.len(), 2);
    let read = json(&Command::new(EVENKEEL).args(["capture", "-r", path, "--json", "tcp"]).output().unwrap());
    assert!(read["packets"].as_u64() < read["packets_read"].as_u64(), "{read}");
}

#[test]
fn a_pipe_gets_lines_and_the_end_counts() {
    let Some(wire) = Wire::new("tail") else { return };
    let child = start(&wire, &["-n", "udp"]);
    wire.hears(1);
    send(&wire, 50, 1000);
    std::thread::sleep(Duration::from_millis(400));
    let output = child.interrupt();
    let (lines, message) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(lines.lines().filter(|l| l.contains(": UDP, length ")).count(), 50, "{lines}");
    assert!(message.contains("50 packets captured, 50 received by filter, 0 dropped by kernel"), "{message}");
    // Too few packets for a cost of each.
    assert!(!message.contains("CPU time"), "{message}");
}

#[test]
fn any_takes_all_interfaces_and_names_them() {
    let Some(wire) = Wire::new("anyi") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    let any = |args: &[&str]| start_any(&wire, &[&["-i", "any", "-n"], args].concat());
    let talks = || {
        send(&wire, 10, 1000);
        wire.receiver
            .run(|| std::net::UdpSocket::bind("127.0.0.1:4000").unwrap().send_to(b"abc", "127.0.0.1:4001").unwrap());
        std::thread::sleep(Duration::from_millis(400));
    };
    let child = any(&["udp"]);
    wire.hears(1);
    std::thread::sleep(Duration::from_millis(200));
    talks();
    let output = child.interrupt();
    let lines = text(&output.stdout);
    let of = |interface: &str| lines.lines().filter(|l| l.split(' ').nth(1) == Some(interface)).count();
    assert_eq!(of(wire.receiver.interface()), 10, "{lines}\n{}", text(&output.stderr));
    assert!(of("lo") >= 1, "{lines}");
    let child = any(&["udp", "--quiet", "-w", file.to_str().unwrap()]);
    wire.hears(1);
    std::thread::sleep(Duration::from_millis(200));
    talks();
    assert!(child.interrupt().status.success());
    let output = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-T", "fields", "-e", "frame.interface_name"])
        .output()
        .unwrap();
    let names = text(&output.stdout);
    assert_eq!(
        names.lines().filter(|n| *n == wire.receiver.interface()).count(),
        10,
        "{names}{}",
        text(&output.stderr)
    );
    assert!(names.lines().any(|n| n == "lo"), "{names}");
}

#[test]
fn signals_that_ask_get_the_counts_and_the_capture_goes_on() {
    let Some(wire) = Wire::new("usr1") else { return };
    let mut child = start(&wire, &["-n", "udp"]);
    wire.hears(1);
    send(&wire, 5, 1000);
    let pid = nix::unistd::Pid::from_raw(child.child().id() as i32);
    for signal in [nix::sys::signal::Signal::SIGUSR1, nix::sys::signal::Signal::SIGALRM] {
        std::thread::sleep(Duration::from_millis(500));
        nix::sys::signal::kill(pid, signal).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    send(&wire, 5, 1000);
    std::thread::sleep(Duration::from_millis(400));
    let output = child.interrupt();
    ended(&output, 0);
    let message = text(&output.stderr);
    assert_eq!(message.matches("5 packets captured, 5 received by filter").count(), 2, "{message}");
    assert_eq!(message.matches("10 packets captured, 10 received by filter").count(), 1, "{message}");
}

/// `nsenter --net` leaves /sys as it is: it shows the interfaces of another namespace.
#[test]
fn any_takes_the_interfaces_of_its_own_namespace() {
    let Some(wire) = Wire::new("anyn") else { return };
    let mut command = wire.receiver.command(EVENKEEL);
    let child = Running::piped(command.args(["capture", "-i", "any", "-n", "udp"]));
    wire.hears(1);
    std::thread::sleep(Duration::from_millis(200));
    send(&wire, 10, 1000);
    std::thread::sleep(Duration::from_millis(400));
    let output = child.interrupt();
    let lines = text(&output.stdout);
    let of = lines.lines().filter(|l| l.split(' ').nth(1) == Some(wire.receiver.interface())).count();
    assert_eq!(of, 10, "{lines}\n{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("without"), "{}", text(&output.stderr));
}

#[test]
fn filters_on_length_take_that_on_the_wire_and_times_go_on_after_2038() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("a.pcap"), folder.path().join("b.pcapng"));
    let packets = [72u32, 1400, 72, 1400, 1500]
        .map(|wire| (Duration::from_secs(2_208_988_800), vec![0; wire.min(96) as usize], wire));
    std::fs::write(&file, pcap(1, packets)).unwrap();
    let lines = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        text(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let path = file.to_str().unwrap();
    for filter in ["greater 1000", "less 200", "len > 1000", "len = 1500", "greater 73"] {
        let theirs = lines("tcpdump", &["-n", "-t", "-r", path, filter]).len();
        assert_eq!(lines(EVENKEEL, &["capture", "-n", "-t", "-r", path, filter]).len(), theirs, "{filter}");
    }
    assert!(lines(EVENKEEL, &["capture", "-tt", "-r", path])[0].starts_with("2208988800.000000 "));
    ended(
        &Command::new(EVENKEEL).args(["capture", "-q", "-r", path, "-w", copy.to_str().unwrap()]).output().unwrap(),
        0,
    );
    let times = lines("tshark", &["-r", copy.to_str().unwrap(), "-T", "fields", "-e", "frame.time_epoch"]);
    assert!(times.len() == 5 && times.iter().all(|time| time.starts_with("2208988800.")), "{times:?}");
}

/// tcpdump prints such a time as it stands, and marks it as invalid.
#[test]
fn a_fraction_that_is_no_part_of_a_second_is_reported_and_added() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("a.pcap"), folder.path().join("b.pcapng"));
    std::fs::write(&file, pcap(1, [100, 200].map(|time| (Duration::from_secs(time), [0; 60], 60)))).unwrap();
    let read = |args: &[&str]| {
        let output =
            Command::new(EVENKEEL).args(["capture", "-r", file.to_str().unwrap()]).args(args).output().unwrap();
        ended(&output, 0);
        output
    };
    assert!(!text(&read(&["-tt"]).stderr).contains("not valid"));
    // The microseconds of the first packet, behind the header of the file and its seconds.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[28..32].copy_from_slice(&1_500_000u32.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
    let output = read(&["-tt"]);
    assert!(text(&output.stdout).starts_with("101.500000 "), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("the times of 1 packets"), "{}", text(&output.stderr));
    read(&["-w", copy.to_str().unwrap()]);
    assert_eq!(tshark(&copy, &["frame.time_epoch"], 'f'), [["101.500000000"], ["200.000000000"]]);
}

#[test]
fn what_the_kernel_would_cut_is_refused_before() {
    let Some(wire) = Wire::new("refu") else { return };
    let lo = |args: &[&str]| start_any(&wire, &[&["-i", "lo", "--duration", "10ms"], args].concat()).output();
    refused(&lo(&["--block-size", "4096"]), 2, &["MTU is 65536", "--block-size 131072", "-s 3936"]);
    ended(&lo(&["--block-size", "4096", "-s", "3936"]), 0);
}

/// Blocks of a pcapng file, in one byte order.
fn blocks(big: bool, blocks: &[(u32, Vec<u32>)]) -> Vec<u8> {
    let word = |word: &u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let block = |(kind, body): &(u32, Vec<u32>)| {
        let length = body.len() as u32 * 4 + 12;
        [&[*kind, length], body.as_slice(), &[length]].concat()
    };
    blocks.iter().flat_map(block).flat_map(|it| word(&it)).collect()
}

#[test]
fn good_files_that_libpcap_does_not_read_are_not_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    // The version is two half words: 1 and 0.
    let section = |big: bool| (0x0a0d_0d0a, vec![0x1a2b_3c4d, if big { 1 << 16 } else { 1 }, u32::MAX, u32::MAX]);
    let interface = |link: u32, big: bool| (1, vec![if big { link << 16 } else { link }, 262_144]);
    let packet = (6, [&[0, 0, 0, 60, 60][..], &[0; 15]].concat());
    let cases = [
        (
            "links",
            blocks(false, &[section(false), interface(1, false), interface(101, false), packet.clone()]),
            "several link types",
        ),
        (
            "orders",
            [
                blocks(false, &[section(false), interface(1, false), packet.clone()]),
                blocks(true, &[section(true), interface(1, true), packet]),
            ]
            .concat(),
            "tshark -r FILE -F pcap",
        ),
    ];
    for (name, bytes, word) in cases {
        let path = folder.path().join(format!("{name}.pcapng"));
        std::fs::write(&path, bytes).unwrap();
        let (path, rules) = (path.to_str().unwrap(), folder.path().join("rules.toml"));
        std::fs::write(&rules, "[[rule]]\nname = \"u\"\naction = \"drop\"\nprotocol = \"udp\"\n").unwrap();
        for args in [
            &["capture", "-r", path][..],
            &["gen", "lo", "--pcap", path, "--count", "1"],
            &["shield", "explain", path, "--rules", rules.to_str().unwrap()],
        ] {
            let output = Command::new(EVENKEEL).args(args).output().unwrap();
            refused(&output, 2, &["libpcap does not read", word]);
        }
    }
}

#[test]
fn the_habits_of_tcpdump_get_no_misleading_tip() {
    let run = |args: &[&str]| Command::new(EVENKEEL).arg("capture").args(args).output().unwrap();
    let output = run(&["-D"]);
    ended(&output, 0);
    assert!(text(&output.stdout).lines().any(|line| line.starts_with("1.")), "{}", text(&output.stdout));
    ended(&run(&["-r", "/no/such/file"]), 2);
    let output = run(&["-r", "/no/such/file", "--backend", "ring"]);
    refused(&output, 2, &["--read"]);
}
