//! A box that loses a known number of packets: sender - box - receiver, and `evenkeel ledger` inside the box.

use std::{
    fs,
    ops::Deref,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use model::stations::{LedgerReport, StationLoss};
use nix::sys::signal::Signal;

use crate::{Bed, End, Running, log, printed, text, wait_reporting};

pub const SENDER: &str = "198.18.0.1";
pub const BOX: &str = "198.18.0.2";
const BOX_OUT: &str = "198.19.0.2";
pub const RECEIVER: &str = "198.19.0.1";

/// How much is sent, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub rate: &'static str,
    pub duration: &'static str,
}

/// A load that any machine carries, and a flood.
pub const LOADS: [Load; 2] = [Load { rate: "20k", duration: "500ms" }, FLOOD];
/// As much as one core sends.
pub const FLOOD: Load = Load { rate: "max", duration: "500ms" };
/// A ledger counts no longer than this. It is ended before.
const INTERVAL_MAX_S: &str = "60";
/// Time for the last packets on their way.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// What a loss, and the rest that nothing explains, may be apart from the truth.
const PRECISION: f64 = 0.001;

/// Sender, box and receiver in a row, each in a namespace. The box routes between its two interfaces, `entry` and `exit`.
pub struct Road {
    pub from: End,
    pub entry: End,
    pub exit: End,
    pub to: End,
    program: &'static str,
    bed: Bed,
}

impl Deref for Road {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

/// Builds the road, `program` is evenkeel; none, and a word why, without the privilege.
pub fn road(program: &'static str, tag: &str) -> Option<Road> {
    let bed = Bed::new(tag, &["sender", "box", "receiver"])?;
    let ([from, entry], [exit, to]) = (bed.join(["sender", "box"], 1), bed.join(["box", "receiver"], 1));
    for (end, own, other, owner) in [
        (&from, SENDER, BOX, &entry),
        (&entry, BOX, SENDER, &from),
        (&exit, BOX_OUT, RECEIVER, &to),
        (&to, RECEIVER, BOX_OUT, &exit),
    ] {
        end.address(&format!("{own}/24"));
        end.knows(other, owner);
    }
    entry.set("net.ipv4.ip_forward", "1");
    for (end, via) in [(&from, BOX), (&to, BOX_OUT)] {
        end.output(&format!("ip route add default via {via}"));
    }
    // The receiver swallows everything without an answer.
    to.nft("table ip ekt {\n chain in {\n type filter hook prerouting priority -300;\n drop\n }\n }\n");
    Some(Road { from, entry, exit, to, program, bed })
}

impl Road {
    /// `evenkeel gen` from the sender with these arguments; the number of frames that arrived at the box.
    pub fn generate(&self, what: &[&str], load: Load) -> u64 {
        let before = self.entry.received();
        let mut command = Command::new(self.program);
        command.args(["gen", self.from.interface(), "--rate", load.rate, "--duration", load.duration]);
        command.args(["--backend", "tx-ring", "--cpus", "0"]).args(what);
        let output = self.from.run(|| command.output()).expect("the program runs");
        assert!(output.status.success(), "{what:?}: {}", printed(&output));
        self.entry.received() - before
    }

    /// Small UDP datagrams of one flow to a port of an address; the number that arrived at the box.
    pub fn send_udp(&self, to: &str, port: u16, load: Load) -> u64 {
        let (mac, port) = (self.entry.link.mac.to_string(), port.to_string());
        let what =
            ["--udp", "--src", SENDER, "--dst", to, "--src-port", "5000", "--dst-port", &port, "--dst-mac", &mac];
        self.generate(&what, load)
    }

    /// One frame as it is, again and again; the number that arrived at the box.
    pub fn send_frame(&self, frame: &[u8], load: Load) -> u64 {
        self.generate(&["--pcap", &self.pcap("frame.pcap", [frame])], load)
    }

    /// A UDP frame for the box or beyond, for tests to damage.
    pub fn udp_frame(&self, source: &str, destination: &str, port: u16) -> Vec<u8> {
        let template = wire::Template {
            destination: self.entry.link.mac,
            source: self.from.link.mac,
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

    /// Does `work` while `evenkeel ledger` counts in the box.
    pub fn measure<T>(&self, work: impl Fn() -> T) -> (Found, T) {
        self.measure_with(&[], work)
    }

    /// The same with more arguments for the ledger.
    pub fn measure_with<T>(&self, args: &[&str], work: impl Fn() -> T) -> (Found, T) {
        let ledger = self.ledger(args);
        let result = work();
        thread::sleep(SETTLE_TIME);
        ledger.signal(Signal::SIGINT);
        (Found::of(&ledger.output(), &log(&self.path("ledger"))), result)
    }

    /// Starts `evenkeel ledger` in the box and comes back once it counts.
    fn ledger(&self, args: &[&str]) -> Running {
        let path = self.path("ledger");
        let mut command = Command::new(self.program);
        command.args(["ledger", "--json", "--once", "--check", "--interval", INTERVAL_MAX_S]).args(args);
        command.stdout(Stdio::piped()).stderr(fs::File::create(&path).expect("a file"));
        let running = self.entry.run(|| Running::start(&mut command));
        wait_reporting("the ledger counts", || log(&path).contains("counting"), || log(&path));
        running
    }
}

/// What a ledger found.
pub struct Found {
    /// What `--check` said.
    pub finding: bool,
    pub report: LedgerReport,
}

impl Found {
    fn of(output: &Output, errors: &str) -> Self {
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1)), "{code:?}: {errors}");
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stdout)));
        Self { report, finding: code == Some(1) }
    }

    /// The losses of a station whose place contains `place`.
    pub fn at(&self, station: &str, place: &str) -> Vec<&StationLoss> {
        let losses = self.report.stations.iter().filter(|s| s.name == station).flat_map(|s| &s.losses);
        losses.filter(|l| l.place.contains(place)).collect()
    }

    /// Packets lost there.
    pub fn packets(&self, station: &str, place: &str) -> u64 {
        self.at(station, place).iter().map(|l| l.packets).sum()
    }

    /// A drop reason, a counter or a process is named for the losses there.
    pub fn names(&self, station: &str, place: &str, word: &str) -> bool {
        self.at(station, place).iter().any(|l| {
            l.counter.contains(word)
                || l.place.contains(word)
                || l.causes
                    .iter()
                    .any(|c| c.reason.contains(word) || c.process.as_deref().is_some_and(|p| p.contains(word)))
        })
    }

    /// The tolerance of a loss, as a share: where the trace took samples, twice the precision that the report states (19 of 20 are within it once).
    pub fn precision(&self) -> f64 {
        PRECISION.max(self.report.trace.as_ref().map_or(0.0, |trace| 2.0 * trace.precision))
    }

    /// The injected loss stands at its station, is named, and nothing else is missing.
    #[track_caller]
    pub fn holds(&self, station: &str, place: &str, word: &str, injected: u64) {
        let shown = self.shown();
        assert!(injected > 0, "nothing was injected\n{shown}");
        let found = self.packets(station, place);
        let apart = found.abs_diff(injected) as f64 / injected as f64;
        assert!(apart <= self.precision(), "{station}, `{place}`: found {found}, injected {injected}\n{shown}");
        assert!(self.names(station, place, word), "{station}, `{place}`: `{word}` is not named\n{shown}");
        assert!(self.at(station, place).iter().all(|l| l.agrees), "counter and trace disagree\n{shown}");
        self.closes();
    }

    /// Nothing was lost, and `--check` says so.
    #[track_caller]
    pub fn lost_nothing(&self) {
        let shown = self.shown();
        assert_eq!((self.report.lost, self.finding), (0, false), "{shown}");
        self.closes();
    }

    /// What nothing explains is below 0.1 %, in all and in each direction.
    #[track_caller]
    pub fn closes(&self) {
        let shown = self.shown();
        for (what, offered, unexplained) in [
            ("all", self.report.offered, self.report.unexplained),
            ("receive", self.report.receive.offered_packets(), self.report.receive.unexplained),
            ("transmit", self.report.transmit.offered_packets(), self.report.transmit.unexplained),
        ] {
            let share = unexplained.unsigned_abs() as f64 / offered.max(1) as f64;
            assert!(share < self.precision(), "{what}: {unexplained} of {offered} unexplained\n{shown}");
        }
    }

    /// The report for a failed test.
    pub fn shown(&self) -> String {
        serde_json::to_string_pretty(&self.report).expect("plain data")
    }
}
