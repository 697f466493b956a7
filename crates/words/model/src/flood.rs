//! A run of `evenkeel bench flood`: clients beside a flood of spoofed SYNs, for several protections (`evenkeel.bench.flood/1`).

pub mod compare;

use serde::{Deserialize, Serialize};

use crate::{
    CoreLoad,
    bench::{Delays, Drop},
    run::{Arrangement, Machine},
    share,
};

/// The version of the schema `evenkeel.bench.flood/<version>`.
pub const SCHEMA: u32 = 1;
/// Clients are untouched if at least this share of them finishes …
pub const UNTOUCHED_SUCCESS: f64 = 0.999;
/// … and 99 of 100 connects take at most this long, in nanoseconds.
pub const UNTOUCHED_P99_NS: u64 = 5_000_000;
/// The interval of a share is wrong in so many of all cases.
const WRONG: f64 = 0.05;

/// Settings that all points share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloodSetup {
    /// Connections that the clients try at each point.
    pub connects: u32,
    /// The number that they begin in a second, whatever became of those before.
    pub connects_per_s: f64,
    /// From the beginning of a connection to its answer; what takes longer has failed. In milliseconds.
    #[serde(alias = "patience_ms")]
    pub timeout_ms: u64,
    /// The time of the flood before the first connection, in milliseconds.
    #[serde(alias = "head_start_ms")]
    pub lead_ms: u64,
    /// The length of a frame of the flood in bytes, without FCS.
    pub frame_bytes: u32,
    /// The claimed source of the flood: drawn anew for each frame.
    pub flood_sources: String,
    /// The clients' addresses, one for each connection.
    pub client_sources: String,
    /// The work of each core.
    pub arrangement: Arrangement,
    /// The cores of the host under attack, or of the gateway and the host behind it.
    pub host_cpus: Vec<u32>,
    /// The clients' core; none: it was not kept.
    pub clients_cpu: Option<u32>,
}

/// The ends of the clients' connections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Clients {
    /// Connections that were begun.
    #[serde(alias = "tried")]
    pub attempted: u32,
    /// Connections that were established in time.
    pub connected: u32,
    /// Answered in time.
    #[serde(alias = "finished")]
    pub completed: u32,
    /// Connections that were refused or reset.
    pub refused: u32,
    /// From the first one's beginning until all were to have begun, or to the last answer if that was later; in seconds.
    pub seconds: f64,
    /// Times from the call to the connection, of those that were connected in time; none of none.
    pub connect: Option<Delays>,
    /// Times from the call to the answer; none of none.
    pub answer: Option<Delays>,
    /// SYNs that the clients' kernel sent again (TcpExt TCPSynRetrans).
    #[serde(alias = "syns_again")]
    pub syn_retransmits: u64,
    /// All segments that it sent again (Tcp RetransSegs).
    #[serde(alias = "segments_again")]
    pub segment_retransmits: u64,
    /// Packets of theirs that found no place in the queue before the protection; none: nobody told them from the flood's.
    pub lost_in_queue: Option<u64>,
    /// CPU time of the clients on their core while they ran, in percent; none: the core was not kept.
    pub cpu_percent: Option<f64>,
}

impl Clients {
    /// The share of the connections that had their answer in time, 0 to 1.
    pub fn success_ratio(&self) -> f64 {
        f64::from(self.completed) / f64::from(self.attempted.max(1))
    }

    /// The least and the greatest share that chance leaves possible beside what was seen, 0 to 1: the interval of Clopper and Pearson that
    /// is wrong in 1 of 20 cases.
    pub fn success_interval(&self) -> (f64, f64) {
        share::interval(self.completed.into(), self.attempted.into(), WRONG)
    }

    /// Connections that failed though no packet of the clients is known to have been lost in the queue; none: it is not known.
    pub fn failed_beyond_the_queue(&self) -> Option<u32> {
        let failed = u64::from(self.attempted.saturating_sub(self.completed));
        Some(failed.saturating_sub(self.lost_in_queue?) as u32)
    }

    /// Answers per second.
    pub fn goodput_per_s(&self) -> f64 {
        if self.seconds > 0.0 { f64::from(self.completed) / self.seconds } else { 0.0 }
    }
}

/// A rate of the flood.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FloodPoint {
    /// Frames per second that were asked for; none: as many as the generator can.
    #[serde(alias = "wanted_pps")]
    pub intended_pps: Option<f64>,
    /// The length of the flood, in seconds.
    pub seconds: f64,
    /// Frames that the generator handed to the link.
    pub offered: u64,
    /// Frames that found a place in the queue of the host's interface.
    pub arrived: u64,
    /// Spoofed SYNs that got an answer, as counted at the far end of the link.
    pub answered: u64,
    /// Answers that were counted only after the flood had ended: they had waited.
    #[serde(default)]
    pub answered_late: u64,
    /// The ends of those that got none, in the order in which a frame comes by.
    pub losses: Vec<Drop>,
    /// Offered less answered less all losses. Above 0: nobody counted where they ended; below 0: some were counted twice.
    pub unexplained: i64,
    pub counters: Vec<Drop>,
    pub clients: Clients,
    /// The load of all cores meanwhile.
    pub cores: Vec<CoreLoad>,
    /// Other programs that had the cores meanwhile, by name and share; empty when none did.
    #[serde(default)]
    pub others: String,
}

impl FloodPoint {
    fn per_s(&self, frames: u64) -> f64 {
        if self.seconds > 0.0 { frames as f64 / self.seconds } else { 0.0 }
    }

    /// Frames per second that were offered.
    pub fn offered_pps(&self) -> f64 {
        self.per_s(self.offered)
    }

    /// Frames per second that arrived at the host.
    pub fn arrived_pps(&self) -> f64 {
        self.per_s(self.arrived)
    }

    /// Answers per second to spoofed SYNs while the flood went on.
    pub fn answered_pps(&self) -> f64 {
        self.per_s(self.answered.saturating_sub(self.answered_late))
    }

    /// The load of the host's cores, in percent of one core; none without any.
    pub fn host_percent(&self, host_cpus: &[u32]) -> Option<f64> {
        let of_host = self.cores.iter().filter(|c| host_cpus.contains(&c.cpu));
        let busy: Vec<f64> = of_host.map(CoreLoad::busy_percent).collect();
        (!busy.is_empty()).then(|| busy.iter().sum())
    }

    /// True if the clients noticed nothing of the flood.
    pub fn is_untouched(&self) -> bool {
        self.clients.success_ratio() >= UNTOUCHED_SUCCESS
            && self.clients.connect.as_ref().is_some_and(|c| c.p99_ns <= UNTOUCHED_P99_NS)
    }
}

/// A protection under rising attack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloodMode {
    /// The protection's key on the command line.
    pub key: String,
    pub name: String,
    /// A sentence about the protection.
    pub what: String,
    /// The settings of the host, as commands or lines of files.
    pub settings: Vec<String>,
    /// The points, by rising rate.
    pub points: Vec<FloodPoint>,
}

impl FloodMode {
    /// The highest offered rate up to which, from the lowest on, the clients noticed nothing; none: they always did.
    pub fn untouched_pps(&self) -> Option<f64> {
        self.points.iter().take_while(|p| p.is_untouched()).map(FloodPoint::offered_pps).last()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloodRun {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    pub machine: Machine,
    /// Settings that all points share.
    pub setup: FloodSetup,
    pub modes: Vec<FloodMode>,
    /// True if the run was interrupted.
    pub partial: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        bench::Delays,
        run::{Arrangement, Machine, Sharing},
    };

    /// A protection, and for each rate what was asked for and how many of 1000 clients finished.
    type MadeUp<'a> = (&'a str, &'a [(Option<f64>, u32)]);

    /// A run of some protections.
    pub(crate) fn run(modes: &[MadeUp<'_>]) -> FloodRun {
        let mode = |(key, points): &MadeUp<'_>| FloodMode {
            key: (*key).to_owned(),
            name: (*key).to_owned(),
            what: String::new(),
            settings: vec![],
            points: points
                .iter()
                .map(|&(intended_pps, done)| FloodPoint { intended_pps, ..point(2, done, 1) })
                .collect(),
        };
        FloodRun {
            timestamp: "2026-01-01T00:00:00Z".into(),
            machine: Machine::default(),
            setup: FloodSetup {
                connects: 1000,
                connects_per_s: 500.0,
                timeout_ms: 900,
                lead_ms: 300,
                frame_bytes: 60,
                flood_sources: "10.0.0.0/8".into(),
                client_sources: "198.19.0.0/16".into(),
                arrangement: Arrangement { sharing: Sharing::Apart, roles: vec![] },
                host_cpus: vec![1],
                clients_cpu: Some(1),
            },
            modes: modes.iter().map(mode).collect(),
            partial: false,
        }
    }

    fn point(offered: u64, finished: u32, p99_ns: u64) -> FloodPoint {
        let connect = Delays {
            samples: 1,
            min_ns: 1,
            mean_ns: 1.0,
            p50_ns: 1,
            p90_ns: 1,
            p99_ns,
            p999_ns: p99_ns,
            max_ns: p99_ns,
            jitter_ns: None,
        };
        FloodPoint {
            seconds: 2.0,
            offered,
            arrived: offered / 2,
            clients: Clients {
                attempted: 1000,
                connected: finished,
                completed: finished,
                seconds: 2.0,
                connect: Some(connect),
                ..Clients::default()
            },
            ..FloodPoint::default()
        }
    }

    #[test]
    fn the_clients_are_untouched_up_to_the_first_rate_that_they_notice() {
        let points = vec![point(0, 1000, 1), point(200, 999, 5_000_000), point(400, 998, 1), point(800, 1000, 1)];
        let mut mode =
            FloodMode { key: "plain".into(), name: String::new(), what: String::new(), settings: vec![], points };
        assert_eq!(mode.untouched_pps(), Some(100.0));
        mode.points[1].clients.connect.as_mut().unwrap().p99_ns += 1;
        assert_eq!(mode.untouched_pps(), Some(0.0));
        mode.points[0].clients.completed = 0;
        assert_eq!(mode.untouched_pps(), None);
        assert_eq!(mode.points[0].clients.goodput_per_s(), 0.0);
        assert_eq!(mode.points[3].arrived_pps(), 200.0);
    }

    #[test]
    fn a_share_of_few_trials_has_a_wide_interval() {
        let of = |tried, finished| {
            Clients { attempted: tried, completed: finished, ..Clients::default() }.success_interval()
        };
        // R: binom.test(n, 1000)$conf.int; all of n: 0.05^(1/n).
        for (tried, finished, low, high) in [
            (1000, 1000, 0.997_009, 1.0),
            (3000, 3000, 0.999_002, 1.0),
            (1000, 999, 0.994_441, 0.999_975),
            (1000, 0, 0.0, 0.002_991),
            (10, 5, 0.187_086, 0.812_914),
        ] {
            let (l, h) = of(tried, finished);
            assert!((l - low).abs() < 2e-6 && (h - high).abs() < 2e-6, "{finished} of {tried}: {l} to {h}");
        }
        assert_eq!(of(0, 0), (0.0, 1.0));
    }

    #[test]
    fn what_was_lost_in_the_queue_is_distinguished_from_what_failed_beyond() {
        let clients = Clients { attempted: 1000, completed: 990, lost_in_queue: Some(7), ..Clients::default() };
        assert_eq!(clients.failed_beyond_the_queue(), Some(3));
        assert_eq!(Clients { lost_in_queue: None, ..clients }.failed_beyond_the_queue(), None);
    }
}
