//! All modes and rates, one after the other, each point in a lab of its own.

use std::{
    fmt,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use host::Host;
use host::machine;
use model::{
    CpuSet,
    flood::{FloodMode, FloodPoint, FloodRun, FloodSetup},
    units,
};
use rig::{
    experiment::{self, Control, End, Experiment, Facts, Planned},
    window::LoadMeter,
};

use super::{
    account::{Snapshot, account, since},
    addresses::Addresses,
    attack::{Attack, frame_bytes},
    bed::Bed,
    clients::{Visit, visit},
    cores::FloodCores,
    protection::{About, Place, Protecting, Protection},
    server::Server,
};
use crate::BenchError;

/// After the flood the box is empty when so long no more than so many answers have arrived; it is not waited longer than this.
const SETTLE_PERIOD: Duration = Duration::from_millis(100);
const SETTLED_ANSWERS_MAX: u64 = 10;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// From this share of a core on another program is named.
const OTHERS_MIN: f64 = 0.05;

/// Frames per second of the flood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// So many; 0 is no flood.
    Pps(f64),
    /// As many as the generator can.
    Max,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pps(0.0) => f.write_str("no flood"),
            Self::Pps(pps) => f.write_str(&units::pps(*pps)),
            Self::Max => f.write_str("as much as can be sent"),
        }
    }
}

/// The rates from the lowest to the highest, as the conclusion of a run reads its points.
fn rising(rates: &[Rate]) -> Vec<Rate> {
    let pps = |rate: &Rate| match rate {
        Rate::Pps(pps) => *pps,
        Rate::Max => f64::INFINITY,
    };
    let mut rates = rates.to_vec();
    rates.sort_by(|a, b| pps(a).total_cmp(&pps(b)));
    rates
}

#[derive(Debug, Clone)]
pub struct FloodConfig {
    /// The rates, in any order: a run takes them from the lowest to the highest.
    pub rates: Vec<Rate>,
    pub connects: u32,
    pub connects_per_s: f64,
    /// Time from the beginning of a connection to its answer.
    pub patience: Duration,
    /// The time from the start of the flood to the first connection.
    pub head_start: Duration,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    pub cores: FloodCores,
}

/// Floods each of `modes` at each rate. When the stop flag is set the run ends and says that it is partial.
///
/// # Errors
/// The first thing that failed, with the mode it failed in.
pub fn run_flood(
    config: &FloodConfig,
    modes: &[Box<dyn Protection>],
    host: &Host,
    control: &mut Control<'_>,
) -> Result<FloodRun, BenchError> {
    let found = modes.iter().map(|mode| {
        let About { key, name, what } = mode.about();
        let settings = mode.settings(config.ipv6);
        FloodMode { key: key.to_owned(), name: name.to_owned(), what, settings, points: Vec::new() }
    });
    let (rates, setup) = (rising(&config.rates), setup(config)?);
    let floods = Floods { config, modes, rates, setup, bed: None, found: found.collect() };
    // Each point names the other programs on its cores.
    experiment::carry_out(floods, machine::describe(host), &CpuSet::new(), control)
}

/// All points: each mode at each rate.
struct Floods<'a> {
    config: &'a FloodConfig,
    modes: &'a [Box<dyn Protection>],
    rates: Vec<Rate>,
    setup: FloodSetup,
    bed: Option<Protected>,
    found: Vec<FloodMode>,
}

/// A lab with the service, and the protection in front of it.
struct Protected {
    protection: Box<dyn Protecting>,
    server: Server,
    bed: Bed,
}

impl Experiment for Floods<'_> {
    type Step = (usize, Rate);
    type Found = FloodRun;
    type Error = BenchError;

    fn plan(&self) -> Vec<Planned<(usize, Rate)>> {
        let of_mode = |mode| self.rates.iter().map(move |&rate| Planned::new((mode, rate)));
        (0..self.modes.len()).flat_map(of_mode).collect()
    }

    fn name(&self, &(mode, rate): &(usize, Rate)) -> Option<String> {
        Some(format!("{}, {rate}", self.modes[mode].about().name))
    }

    fn build(&mut self, &(mode, _): &(usize, Rate), _: &mut Control<'_>) -> Result<(), BenchError> {
        // New namespaces: the host's kernel has met nobody, and remembers nothing (tcp_metrics).
        self.bed = Some(Protected::new(self.config, self.modes[mode].as_ref())?);
        Ok(())
    }

    fn round(&mut self, &(mode, rate): &(usize, Rate), control: &mut Control<'_>) -> Result<(), BenchError> {
        let bed = self.bed.take().ok_or(BenchError::Panicked("lab"))?;
        let point = bed.point(self.config, rate, control.stop)?;
        control
            .progress
            .update(&format!("{} of {} clients have their answer", point.clients.completed, point.clients.attempted));
        self.found[mode].points.push(point);
        Ok(())
    }

    fn conclude(mut self, facts: Facts, end: End<BenchError>) -> Result<FloodRun, BenchError> {
        let partial = !end.is_whole()?;
        self.found.retain(|mode| !mode.points.is_empty());
        let Facts { timestamp, machine, .. } = facts;
        Ok(FloodRun { timestamp, machine, setup: self.setup, modes: self.found, partial })
    }
}

fn setup(config: &FloodConfig) -> Result<FloodSetup, BenchError> {
    let prefix = |(network, len): (IpAddr, u8)| format!("{network}/{len}");
    let addresses = Addresses::new(config.ipv6);
    Ok(FloodSetup {
        connects: config.connects,
        connects_per_s: config.connects_per_s,
        timeout_ms: config.patience.as_millis() as u64,
        lead_ms: config.head_start.as_millis() as u64,
        frame_bytes: frame_bytes(&addresses)?,
        flood_sources: prefix(addresses.spoofed),
        client_sources: prefix(addresses.clients),
        arrangement: config.cores.arrangement(),
        host_cpus: config.cores.of_host(),
        clients_cpu: Some(config.cores.clients),
    })
}

impl Protected {
    fn new(config: &FloodConfig, mode: &dyn Protection) -> Result<Self, BenchError> {
        let cores = &config.cores;
        let addresses = Addresses::new(config.ipv6);
        let bed = Bed::new(cores, &addresses, mode.layout())?;
        let server = Server::start(&bed.host, addresses.server, &[cores.server])?;
        let cpus = cores.of_host();
        let (host, interface, inner) = bed.protected();
        let protection = mode.start(&Place {
            host,
            interface: &interface.name,
            inner: inner.map(|end| end.name.as_str()),
            server: addresses.server,
            cpus: &cpus,
        })?;
        bed.pin_receivers(cores)?;
        Ok(Self { protection, server, bed })
    }

    fn point(self, config: &FloodConfig, rate: Rate, stop: &AtomicBool) -> Result<FloodPoint, BenchError> {
        // The lab is dropped last.
        let Self { bed, server, mut protection } = self;
        let (cores, addresses) = (&config.cores, Addresses::new(config.ipv6));
        let who = rig::others::Tasks::read();
        let before = Snapshot::take(&bed)?;
        let counted = protection.counters()?;
        let start = Instant::now();
        let macs = (bed.near.mac, bed.far.mac);
        let way = bed.relay.as_ref().map_or(&bed.near, |relay| &relay.entry);
        let flood = |pps| Attack::start(&bed.net, &way.name, macs, &addresses, pps, cores.generator);
        let attack = match rate {
            Rate::Pps(0.0) => None,
            Rate::Pps(pps) => Some(flood(Some(pps))?),
            Rate::Max => Some(flood(None)?),
        };
        thread::sleep(config.head_start);
        let meter = LoadMeter::start()?;
        let what = Visit {
            addresses,
            connects: config.connects,
            per_s: config.connects_per_s,
            patience: config.patience,
            cpu: cores.clients,
        };
        let visited = visit(&bed.net, &what, stop);
        let loads = meter.finish()?;
        let sent = attack.map(Attack::stop).transpose()?.unwrap_or_default();
        let at_end = bed.end.syn_acks()?;
        let others = who.since(&cores.all(), OTHERS_MIN);
        let clients = visited?;
        let seconds = if sent.elapsed_ns > 0 { sent.elapsed_ns as f64 / 1e9 } else { start.elapsed().as_secs_f64() };
        settle(&bed, stop)?;
        let after = Snapshot::take(&bed)?;
        let counters = since(&counted, protection.counters()?);
        protection.stop()?;
        server.stop()?;
        let point = FloodPoint {
            intended_pps: match rate {
                Rate::Pps(pps) => Some(pps),
                Rate::Max => None,
            },
            seconds,
            offered: sent.sent,
            clients,
            cores: loads,
            others,
            ..FloodPoint::default()
        };
        let late = after.syn_acks().saturating_sub(at_end);
        Ok(account(FloodPoint { answered_late: late, ..point }, &before, &after, counters))
    }
}

/// Waits until no answer to the flood arrives any more: a protection may have kept frames of it.
fn settle(bed: &Bed, stop: &AtomicBool) -> Result<(), BenchError> {
    let begun = Instant::now();
    let mut seen = bed.end.syn_acks()?;
    while begun.elapsed() < SETTLE_TIMEOUT && !stop.load(Ordering::Relaxed) {
        thread::sleep(SETTLE_PERIOD);
        let now = bed.end.syn_acks()?;
        // The kernel sends SYN-ACKs again to whom it has not forgotten, for minutes, and slowly.
        if now - seen <= SETTLED_ANSWERS_MAX {
            break;
        }
        seen = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_from_the_lowest_to_the_highest() {
        let rates = [Rate::Max, Rate::Pps(1e6), Rate::Pps(0.0), Rate::Pps(1e5)];
        assert_eq!(rising(&rates), [Rate::Pps(0.0), Rate::Pps(1e5), Rate::Pps(1e6), Rate::Max]);
    }
}
