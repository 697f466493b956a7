//! A box that loses a known number of packets: sender - box - receiver, and `evenkeel ledger` inside the box.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::IpAddr,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use lab::{Lab, LabError, Namespace, VethEnd};
use model::stations::{LedgerReport, StationLoss};

pub(crate) const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

pub(crate) const SENDER: &str = "198.18.0.1";
pub(crate) const BOX: &str = "198.18.0.2";
pub(crate) const BOX_OUT: &str = "198.19.0.2";
pub(crate) const RECEIVER: &str = "198.19.0.1";
/// How much is sent, and how fast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) rate: &'static str,
    pub(crate) duration: &'static str,
}

/// A load that any machine carries, and a flood.
pub(crate) const LOADS: [Load; 2] = [Load { rate: "20k", duration: "500ms" }, FLOOD];
/// As much as one core sends.
pub(crate) const FLOOD: Load = Load { rate: "max", duration: "1s" };
/// How long a ledger counts, in seconds.
const INTERVAL_S: f64 = 2.5;

/// One test at a time: each fills the cores.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a loss, and the rest that nothing explains, may be apart from the truth.
pub(crate) const PRECISION: f64 = 0.001;

/// Says why a test does not run; in CI that is a failure.
pub(crate) fn skip(why: impl std::fmt::Display) {
    assert!(std::env::var_os("CI").is_none(), "skipped, which CI must not: {why}");
    eprintln!("skipped: {why}");
}

/// Sender, box and receiver in a row, each in a namespace. The box routes between its two interfaces.
pub(crate) struct Road {
    pub(crate) sender: Namespace,
    pub(crate) inside: Namespace,
    pub(crate) receiver: Namespace,
    pub(crate) from: VethEnd,
    pub(crate) entry: VethEnd,
    pub(crate) exit: VethEnd,
    pub(crate) to: VethEnd,
    pub(crate) folder: tempfile::TempDir,
}

/// Builds the road; none, and a word why, without the privilege.
pub(crate) fn road(tag: &str) -> Option<Road> {
    road_with(tag, 1)
}

/// The same with so many queues on each interface.
pub(crate) fn road_with(tag: &str, queues: u32) -> Option<Road> {
    build(tag, queues).map_err(skip).ok()
}

fn build(tag: &str, queues: u32) -> Result<Road, LabError> {
    let lab = Lab::new(tag)?;
    let (sender, inside, receiver) = (lab.namespace("a")?, lab.namespace("b")?, lab.namespace("c")?);
    let name = |end: &str| lab.interface(&format!("{}{end}", &tag[tag.len() - 2..]));
    let (from, entry) = lab.veth((&sender, &name("a")), (&inside, &name("b")), queues)?;
    let (exit, to) = lab.veth((&inside, &name("c")), (&receiver, &name("d")), queues)?;
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let ends = [
        (&sender, &from, SENDER, BOX, entry.mac),
        (&inside, &entry, BOX, SENDER, from.mac),
        (&inside, &exit, BOX_OUT, RECEIVER, to.mac),
        (&receiver, &to, RECEIVER, BOX_OUT, exit.mac),
    ];
    for (namespace, end, own, other, mac) in ends {
        namespace.add_address(&end.name, address(own), 24)?;
        namespace.add_neighbour(&end.name, address(other), mac)?;
    }
    let road = Road { sender, inside, receiver, from, entry, exit, to, folder: tempfile::tempdir().expect("a folder") };
    road.set("net/ipv4/ip_forward", "1");
    for namespace in [&road.sender, &road.receiver] {
        let via = if namespace.name() == road.sender.name() { BOX } else { BOX_OUT };
        run_in(namespace, "ip", &format!("route add default via {via}"));
    }
    // The receiver swallows everything without an answer.
    load_rules(
        &road.receiver,
        "table ip ekt {\n chain in {\n type filter hook prerouting priority -300;\n drop\n }\n }\n",
    );
    Ok(road)
}

impl Road {
    /// Sets a sysctl of the box.
    pub(crate) fn set(&self, path: &str, value: &str) {
        let path = format!("/proc/sys/{path}");
        let wrote = self.inside.run(|| std::fs::write(&path, value)).expect("the box is there");
        wrote.unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Gives the box netfilter rules.
    pub(crate) fn rules(&self, rules: &str) {
        load_rules(&self.inside, rules);
    }

    /// Runs a program in the box.
    pub(crate) fn run(&self, program: &str, args: &str) -> String {
        run_in(&self.inside, program, args)
    }

    /// `evenkeel gen` from the sender with these arguments; the number of frames that arrived at the box.
    pub(crate) fn generate(&self, what: &[&str], load: Load) -> u64 {
        let before = self.arrived();
        let fixed = [
            "gen",
            &self.from.name,
            "--rate",
            load.rate,
            "--duration",
            load.duration,
            "--backend",
            "tx-ring",
            "--cpus",
            "0",
        ];
        let output = self.sender.run(|| Command::new(EVENKEEL).args(fixed).args(what).output()).expect("a namespace");
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{what:?}: {}", String::from_utf8_lossy(&output.stderr));
        self.arrived() - before
    }

    /// Frames that the box's entry has received (/proc/net/dev).
    pub(crate) fn arrived(&self) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let table = self.inside.run(read).expect("a namespace").expect("/proc is mounted");
        let mut lines = table.lines().filter_map(|line| line.split_once(':'));
        let (_, numbers) = lines.find(|(name, _)| name.trim() == self.entry.name).expect("the interface");
        numbers.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }

    /// Small UDP datagrams of one flow to a port of an address; the number that arrived at the box.
    pub(crate) fn send_udp(&self, to: &str, port: u16, load: Load) -> u64 {
        let (mac, port) = (self.entry.mac.to_string(), port.to_string());
        let what =
            ["--udp", "--src", SENDER, "--dst", to, "--src-port", "5000", "--dst-port", &port, "--dst-mac", &mac];
        self.generate(&what, load)
    }

    /// One frame as it is, again and again; the number that arrived at the box.
    pub(crate) fn send_frame(&self, frame: &[u8], load: Load) -> u64 {
        let file = self.folder.path().join("frame.pcap");
        std::fs::write(&file, pcap(frame)).expect("a file can be written");
        self.generate(&["--pcap", file.to_str().expect("a name in UTF-8")], load)
    }

    /// A UDP frame for the box or beyond, for tests to damage.
    pub(crate) fn udp_frame(&self, source: &str, destination: &str, port: u16) -> Vec<u8> {
        let template = wire::Template {
            destination: self.entry.mac,
            source: self.from.mac,
            tags: [None; 2],
            kind: wire::Kind::Udp,
        };
        let flow = wire::FlowKey {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            source_port: 5000,
            destination_port: port,
        };
        template.build(&flow, wire::FrameSize::MIN, 0).expect("a frame")
    }

    /// Does `work` while `evenkeel ledger` counts in the box. Another time, if the machine was so slow that the ledger ended
    /// before the work.
    pub(crate) fn measure<T>(&self, work: impl Fn() -> T) -> (Found, T) {
        self.measure_with(&[], work)
    }

    /// The same with more arguments for the ledger.
    pub(crate) fn measure_with<T>(&self, args: &[&str], work: impl Fn() -> T) -> (Found, T) {
        for _ in 0..3 {
            let ledger = self.ledger(INTERVAL_S, args);
            let begun = Instant::now();
            let result = work();
            let in_time = begun.elapsed().as_secs_f64() < INTERVAL_S - 0.3;
            let found = ledger.finish();
            if in_time {
                return (found, result);
            }
            eprintln!("the packets took {:?}: once more", begun.elapsed());
        }
        panic!("sending takes longer than the ledger counts, three times");
    }

    /// Starts `evenkeel ledger` in the box and comes back once it counts.
    fn ledger(&self, seconds: f64, args: &[&str]) -> Counting {
        let run = || {
            Command::new(EVENKEEL)
                .args(["ledger", "--json", "--once", "--check", "--interval", &seconds.to_string()])
                .args(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        let mut child = self.inside.run(run).expect("a namespace").expect("the program runs");
        let mut stdout = child.stdout.take().expect("a pipe");
        let out = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains("counting") {
            assert_ne!(stderr.read_line(&mut said).expect("text"), 0, "the ledger does not start: {said}");
        }
        let err = std::thread::spawn(move || {
            let mut rest = String::new();
            let _ = stderr.read_to_string(&mut rest);
            said + &rest
        });
        Counting { child, out: Some(out), err: Some(err) }
    }
}

fn load_rules(namespace: &Namespace, rules: &str) {
    let load = || {
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("the program nft");
        nft.stdin.take().expect("a pipe").write_all(rules.as_bytes()).expect("nft reads");
        nft.wait().expect("nft ends").success()
    };
    assert!(namespace.run(load).expect("a namespace"), "{rules}");
}

/// Runs a program in a namespace.
pub(crate) fn run_in(namespace: &Namespace, program: &str, args: &str) -> String {
    let output =
        namespace.run(|| Command::new(program).args(args.split(' ')).output()).expect("a namespace").expect(program);
    assert!(output.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A capture file of one frame (pcap, microseconds, Ethernet).
fn pcap(frame: &[u8]) -> Vec<u8> {
    let length = frame.len() as u32;
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1, 0, 0, length, length];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).chain(frame.iter().copied()).collect()
}

/// A ledger under way.
struct Counting {
    child: Child,
    out: Option<JoinHandle<std::io::Result<String>>>,
    err: Option<JoinHandle<String>>,
}

impl Counting {
    /// What it found.
    fn finish(mut self) -> Found {
        let status = self.child.wait().expect("it ends");
        let err = self.err.take().and_then(|e| e.join().ok()).unwrap_or_default();
        let out = self.out.take().expect("taken once").join().expect("no panic").expect("text");
        assert!(matches!(status.code(), Some(0 | 1)), "{status}: {err}");
        let report = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
        Found { report, finding: status.code() == Some(1) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a ledger found.
pub(crate) struct Found {
    /// What `--check` said.
    pub(crate) finding: bool,
    pub(crate) report: LedgerReport,
}

impl Found {
    /// The losses of a station whose place contains `place`.
    pub(crate) fn at(&self, station: &str, place: &str) -> Vec<&StationLoss> {
        let losses = self.report.stations.iter().filter(|s| s.name == station).flat_map(|s| &s.losses);
        losses.filter(|l| l.place.contains(place)).collect()
    }

    /// Packets lost there.
    pub(crate) fn packets(&self, station: &str, place: &str) -> u64 {
        self.at(station, place).iter().map(|l| l.packets).sum()
    }

    /// Whether a drop reason, a counter or a process is named for the losses there.
    pub(crate) fn names(&self, station: &str, place: &str, word: &str) -> bool {
        self.at(station, place).iter().any(|l| {
            l.counter.contains(word)
                || l.place.contains(word)
                || l.causes
                    .iter()
                    .any(|c| c.reason.contains(word) || c.process.as_deref().is_some_and(|p| p.contains(word)))
        })
    }

    /// The injected loss stands at its station, is named, and nothing else is missing.
    #[track_caller]
    pub(crate) fn holds(&self, station: &str, place: &str, word: &str, injected: u64) {
        let shown = self.shown();
        assert!(injected > 0, "nothing was injected\n{shown}");
        let found = self.packets(station, place);
        let apart = found.abs_diff(injected) as f64 / injected as f64;
        assert!(apart <= PRECISION, "{station}, `{place}`: found {found}, injected {injected}\n{shown}");
        assert!(self.names(station, place, word), "{station}, `{place}`: `{word}` is not named\n{shown}");
        assert!(self.at(station, place).iter().all(|l| l.agrees), "counter and trace disagree\n{shown}");
        self.closes();
    }

    /// Nothing was lost, and `--check` says so.
    #[track_caller]
    pub(crate) fn lost_nothing(&self) {
        let shown = self.shown();
        assert_eq!((self.report.lost, self.finding), (0, false), "{shown}");
        self.closes();
    }

    /// What nothing explains is below 0.1 %, in all and in each direction.
    #[track_caller]
    pub(crate) fn closes(&self) {
        let shown = self.shown();
        for (what, offered, unexplained) in [
            ("all", self.report.offered, self.report.unexplained),
            ("receive", self.report.receive.offered_packets(), self.report.receive.unexplained),
            ("transmit", self.report.transmit.offered_packets(), self.report.transmit.unexplained),
        ] {
            let share = unexplained.unsigned_abs() as f64 / offered.max(1) as f64;
            assert!(share < PRECISION, "{what}: {unexplained} of {offered} unexplained\n{shown}");
        }
    }

    /// The report for a failed test.
    pub(crate) fn shown(&self) -> String {
        serde_json::to_string_pretty(&self.report).expect("plain data")
    }
}
