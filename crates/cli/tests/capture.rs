//! `evenkeel capture` from outside: the pipe, the files, bad input, the automatic choice.

use std::{
    io::Read,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use lab::{Lab, Namespace};

struct Wire {
    sender: Namespace,
    receiver: Namespace,
    out: String,
    into: String,
}

fn wire(tag: &str) -> Option<Wire> {
    let made = (|| {
        let lab = Lab::new(tag)?;
        let (sender, receiver) = (lab.namespace("a")?, lab.namespace("b")?);
        let (out, into) = (lab.interface(&format!("{}a", &tag[..2])), lab.interface(&format!("{}b", &tag[..2])));
        lab.veth((&sender, &out), (&receiver, &into), 1)?;
        Ok::<_, lab::LabError>(Wire { sender, receiver, out, into })
    })();
    match made {
        Ok(wire) => Some(wire),
        Err(e) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("a lab is needed: {e}"),
    }
}

impl Wire {
    fn start(&self, args: &[&str]) -> Child {
        self.receiver
            .run(|| {
                Command::new(env!("CARGO_BIN_EXE_evenkeel"))
                    .args(["capture", &self.into])
                    .args(args)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .unwrap()
    }

    fn output(&self, args: &[&str]) -> Output {
        self.start(args).wait_with_output().unwrap()
    }

    /// Sends `packets` UDP frames of the lab's own generator.
    fn send(&self, packets: u32, pps: u32) {
        let status = self
            .sender
            .run(|| {
                Command::new(env!("CARGO_BIN_EXE_evenkeel"))
                    .args(["gen", &self.out, "--udp", "--backend", "tx-ring", "--size", "64"])
                    .args(["--count", &packets.to_string(), "--rate", &pps.to_string()])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .unwrap()
            })
            .unwrap();
        assert!(status.success());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_pipe_flows_and_its_end_is_quiet() {
    let Some(wire) = wire("pipe") else { return };
    let mut child = wire.start(&["-w", "-", "--quiet", "--mode", "packet"]);
    // The head of the file says that the sockets are open.
    let mut stdout = child.stdout.take().unwrap();
    let mut head = [0; 4];
    stdout.read_exact(&mut head).unwrap();
    assert_eq!(head, [0x0a, 0x0d, 0x0d, 0x0a]);
    wire.send(100, 10_000);
    let mut packets = vec![0; 100 * 92];
    stdout.read_exact(&mut packets).unwrap();
    drop(stdout);
    wire.send(100, 10_000);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("evenkeel:"), "{}", text(&output.stderr));
}

#[test]
fn json_counts_and_readers_add_up() {
    let Some(wire) = wire("json") else { return };
    let child = wire.start(&["udp", "--json", "--quiet", "--mode", "ring+fanout", "--members", "3", "--count", "500"]);
    while child_is_deaf(&wire) {
        std::thread::sleep(Duration::from_millis(20));
    }
    wire.send(600, 10_000);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "evenkeel.capture/1");
    assert_eq!((&json["packets"], &json["backend"]), (&500.into(), &"ring+fanout".into()));
    let readers = json["readers"].as_array().unwrap();
    assert_eq!(readers.len(), 3);
    assert_eq!(readers.iter().map(|r| r["packets"].as_u64().unwrap()).sum::<u64>(), 500);
}

/// Whether the receiver has no group of three running sockets yet (/proc/net/packet of its namespace).
fn child_is_deaf(wire: &Wire) -> bool {
    let sockets = wire.receiver.run(|| std::fs::read_to_string("/proc/thread-self/net/packet").unwrap()).unwrap();
    let running = sockets.lines().skip(1).filter(|l| l.split_whitespace().nth(5) == Some("1")).count();
    running < 3
}

#[test]
fn auto_says_why_and_attaches_nothing_unasked() {
    let Some(wire) = wire("auto") else { return };
    let output = wire.output(&["--mode", "auto", "--duration", "0.1", "--quiet"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("chosen: ring:") && told.contains("too little traffic"), "{told}");
    assert!(told.contains("--try-xdp") && !told.lines().any(|l| l.starts_with("tap ")), "{told}");
}

#[test]
fn bad_input_is_named_with_its_code() {
    let Some(wire) = wire("bad") else { return };
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such.pcapng");
    for (args, code, word) in [
        (vec!["udp port port"], 2, "udp port port"),
        (vec!["--mode", "rings"], 2, "ring+fanout"),
        (vec!["--cpus", "4000"], 2, "CPU 4000"),
        (vec!["--block-size", "5000"], 2, "power of two"),
        (vec!["-w", missing.to_str().unwrap()], 2, "no/such.pcapng"),
        (vec!["-w", "/dev/full"], 3, "No space left"),
    ] {
        let output = wire.output(&args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(word), "{args:?}: {told}");
    }
    wire.receiver.run(|| Command::new("ip").args(["link", "set", &wire.into, "down"]).status().unwrap()).unwrap();
    let output = wire.output(&["--mode", "packet"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("is down: bring it up"), "{}", text(&output.stderr));
}

#[test]
fn a_missing_capability_is_named() {
    let output = Command::new("setpriv")
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", env!("CARGO_BIN_EXE_evenkeel"), "capture", "lo"])
        .output()
        .expect("setpriv");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("CAP_NET_RAW"), "{told}");
}

#[test]
fn files_of_a_rotation_are_made_in_a_folder_of_another_user_and_nobody_else_reads_them() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let Some(wire) = wire("fold") else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(folder.path(), Some(65533), Some(65533)).unwrap();
    let base = folder.path().join("a.pcapng");
    let args = ["udp", "-w", base.to_str().unwrap(), "--rotate-count", "5", "--files", "2", "--count", "23", "--quiet"];
    let child = wire.start(&[&args[..], &["--mode", "ring+fanout", "--members", "3"]].concat());
    while child_is_deaf(&wire) {
        std::thread::sleep(Duration::from_millis(20));
    }
    wire.send(40, 1_000);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()).collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    let names: Vec<_> = files.iter().map(std::fs::DirEntry::file_name).collect();
    assert_eq!(names, ["a-00004.pcapng", "a-00005.pcapng"]);
    assert!(files.iter().all(|file| file.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
}
