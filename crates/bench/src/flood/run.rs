//! All modes and rates, one after the other, each point in a lab of its own.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use host::counters::{CpuTime, core_load, cpu_times};
use model::{
    CpuSet,
    bench::Drop as Dropped,
    flood::{FloodMode, FloodPoint, FloodRun, FloodSetup},
    run::{Arrangement, CoreRole, Machine, Sharing},
};

use super::{
    attack::{Attack, FRAME_BYTES},
    bed::{Bed, CLIENTS, SERVER, SPOOFED},
    clients::{Visit, visit},
    counters::Counters,
    protection::{Counter, Place, Protection},
    server::Server,
};
use crate::BenchError;

/// What is still under way when the flood has ended has this long to arrive.
const SETTLE: Duration = Duration::from_millis(100);

/// Frames per second of the flood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// So many; 0 is no flood.
    Pps(f64),
    /// As many as the generator can.
    Max,
}

/// Which core does what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloodCores {
    /// The generator and the far end of the link.
    pub generator: u32,
    /// The clients.
    pub clients: u32,
    /// What the host receives.
    pub receive: u32,
    /// The host's server.
    pub server: u32,
}

impl FloodCores {
    /// Divides the usable CPUs: the first is the flood's, the second what the host receives. A third is the server's, a fourth the
    /// clients'; where they are missing, clients share the server's, and both that of what is received.
    ///
    /// Clients do not share the flood's core: it pauses while one of them sends, and leaves it room in a queue that is full in truth.
    /// On the host's core they send while it takes nothing from its queue, so that under overload they lose more than the flood does: a
    /// lower bound.
    ///
    /// # Errors
    /// [`BenchError::Setting`] with less than two: generator and host would take turns, and no flood would be more than the host can bear.
    pub fn split(usable: &CpuSet) -> Result<Self, BenchError> {
        let all: Vec<u32> = usable.iter().collect();
        match all[..] {
            [] | [_] => Err(BenchError::Setting(format!(
                "bench flood needs two CPUs, one for the flood and one for the host, and may use {} ({usable})",
                all.len()
            ))),
            [a, b] => Ok(Self { generator: a, clients: b, receive: b, server: b }),
            [a, b, c] => Ok(Self { generator: a, clients: c, receive: b, server: c }),
            [a, b, c, d, ..] => Ok(Self { generator: a, clients: d, receive: b, server: c }),
        }
    }

    /// The same with the clients on the flood's core, which gives an upper bound: see [`FloodCores::split`].
    pub fn with_clients_beside_the_flood(self) -> Self {
        Self { clients: self.generator, ..self }
    }

    /// The host's cores.
    pub fn of_host(&self) -> Vec<u32> {
        if self.receive == self.server { vec![self.receive] } else { vec![self.receive, self.server] }
    }

    fn arrangement(&self) -> Arrangement {
        let clients = if self.clients == self.generator {
            "the clients (nice -20; while one of them sends the flood pauses, so that under overload they lose less than it does)"
        } else if self.clients == self.receive {
            "the clients (nice -20; while one of them sends the host receives nothing, so that under overload they lose more than the \
             flood does)"
        } else {
            "the clients (nice -20)"
        };
        let mut does: Vec<(u32, Vec<&str>)> = Vec::new();
        for (cpu, what) in [
            (self.generator, "the generator"),
            (self.generator, "the far end of the link, which ends answers to spoofed sources"),
            (self.receive, "what the host receives (a NAPI thread of normal priority)"),
            (self.server, "the server and the protection's processes"),
            (self.clients, clients),
        ] {
            match does.iter_mut().find(|(of, _)| *of == cpu) {
                Some((_, all)) => all.push(what),
                None => does.push((cpu, vec![what])),
            }
        }
        let role = |(cpu, all): (u32, Vec<&str>)| CoreRole { cpus: [cpu].into_iter().collect(), does: all.join(", ") };
        Arrangement { sharing: Sharing::Apart, roles: does.into_iter().map(role).collect() }
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct FloodConfig {
    /// The rates, in the order in which they are wanted.
    pub rates: Vec<Rate>,
    /// Connections at each.
    pub connects: u32,
    /// How many begin in a second.
    pub connects_per_s: f64,
    /// From the beginning of a connection to its answer.
    pub patience: Duration,
    /// How long the flood goes on before the first connection.
    pub head_start: Duration,
    /// Which core does what.
    pub cores: FloodCores,
}

/// Somebody who watches a run.
pub trait FloodWatch {
    /// A point begins: the mode, the rate, its number from 1, of how many.
    fn begins(&mut self, mode: &str, rate: Rate, number: usize, of: usize);
    /// It ended.
    fn ended(&mut self, point: &FloodPoint);
}

/// Floods each of `modes` at each rate. When `stop` is set the run ends and says that it is partial.
///
/// # Errors
/// The first thing that failed, with the mode it failed in.
pub fn run_flood(
    config: &FloodConfig,
    modes: &[&dyn Protection],
    (when, machine): (String, Machine),
    stop: &AtomicBool,
    watch: &mut dyn FloodWatch,
) -> Result<FloodRun, BenchError> {
    let mut run = FloodRun { when, machine, setup: setup(config), modes: Vec::new(), partial: false };
    let of = modes.len() * config.rates.len();
    let mut number = 0;
    for mode in modes {
        run.modes.push(FloodMode {
            key: mode.key().to_owned(),
            name: mode.name().to_owned(),
            what: mode.what(),
            settings: mode.settings(),
            points: Vec::new(),
        });
        for &rate in &config.rates {
            number += 1;
            watch.begins(mode.name(), rate, number, of);
            match point(config, *mode, rate, stop) {
                Ok(point) => {
                    watch.ended(&point);
                    run.modes.last_mut().expect("just pushed").points.push(point);
                }
                Err(_) if stop.load(Ordering::Relaxed) => {
                    run.partial = true;
                    run.modes.retain(|mode| !mode.points.is_empty());
                    return Ok(run);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(run)
}

fn setup(config: &FloodConfig) -> FloodSetup {
    let prefix = |(network, len): (Ipv4Addr, u8)| format!("{network}/{len}");
    FloodSetup {
        connects: config.connects,
        connects_per_s: config.connects_per_s,
        patience_ms: config.patience.as_millis() as u64,
        head_start_ms: config.head_start.as_millis() as u64,
        frame_bytes: FRAME_BYTES,
        flood_sources: prefix(SPOOFED),
        client_sources: prefix(CLIENTS),
        arrangement: config.cores.arrangement(),
        host_cpus: config.cores.of_host(),
    }
}

/// One rate.
fn point(config: &FloodConfig, mode: &dyn Protection, rate: Rate, stop: &AtomicBool) -> Result<FloodPoint, BenchError> {
    let cores = &config.cores;
    // New namespaces: the host's kernel has met nobody, and remembers nothing (tcp_metrics).
    let bed = Bed::new(cores)?;
    let server = Server::start(&bed.host, SERVER, &[cores.server])?;
    let cpus = cores.of_host();
    let mut protection =
        mode.start(&Place { host: &bed.host, interface: &bed.far.name, server: SERVER, cpus: &cpus })?;
    // A program on the interface may have started NAPI anew.
    bed.host.thread_napi(&bed.far.name, &[cores.receive])?;
    let before = Look::take(&bed)?;
    let counted = protection.counters()?;
    let start = Instant::now();
    let macs = (bed.near.mac, bed.far.mac);
    let flood = |pps| Attack::start(&bed.net, &bed.near.name, macs, SERVER, pps, cores.generator);
    let attack = match rate {
        Rate::Pps(0.0) => None,
        Rate::Pps(pps) => Some(flood(Some(pps))?),
        Rate::Max => Some(flood(None)?),
    };
    thread::sleep(config.head_start);
    let cores_before = cpu_load()?;
    let (network, _) = CLIENTS;
    let what = Visit {
        server: SERVER,
        // The network's own address is nobody's.
        first: Ipv4Addr::from_bits(network.to_bits() + 1),
        connects: config.connects,
        per_s: config.connects_per_s,
        patience: config.patience,
        cpu: cores.clients,
    };
    let visited = visit(&bed.net, &what, stop);
    let cores_after = cpu_load()?;
    let sent = attack.map(Attack::stop).transpose()?.unwrap_or_default();
    let mut clients = visited?;
    let seconds = if sent.elapsed_ns > 0 { sent.elapsed_ns as f64 / 1e9 } else { start.elapsed().as_secs_f64() };
    thread::sleep(SETTLE);
    let after = Look::take(&bed)?;
    let counters = since(&counted, protection.counters()?);
    protection.stop()?;
    server.stop()?;
    clients.syns_again = after.net.grown(&before.net, "TcpExt:TCPSynRetrans");
    clients.segments_again = after.net.grown(&before.net, "Tcp:RetransSegs");
    let point = FloodPoint {
        wanted_pps: match rate {
            Rate::Pps(pps) => Some(pps),
            Rate::Max => None,
        },
        seconds,
        offered: sent.sent,
        arrived: 0,
        answered: 0,
        losses: Vec::new(),
        unexplained: 0,
        counters: Vec::new(),
        clients,
        cores: cores_after
            .iter()
            .filter_map(|(&cpu, now)| Some(core_load(cpu, cores_before.get(&cpu)?, now)))
            .collect(),
    };
    Ok(account(point, &before, &after, counters))
}

/// All counters at one moment.
struct Look {
    net: Counters,
    host: Counters,
    end: bpf::FloodEndCounts,
}

impl Look {
    fn take(bed: &Bed) -> Result<Self, BenchError> {
        Ok(Self {
            net: Counters::read(&bed.net, &bed.near.name)?,
            host: Counters::read(&bed.host, &bed.far.name)?,
            end: bed.end.counts()?,
        })
    }
}

fn cpu_load() -> Result<BTreeMap<u32, CpuTime>, BenchError> {
    let text =
        fs::read_to_string("/proc/stat").map_err(|e| BenchError::Machine(format!("cannot read /proc/stat: {e}")))?;
    Ok(cpu_times(&text))
}

/// Counters less what they were.
fn since(before: &[Counter], after: Vec<Counter>) -> Vec<Counter> {
    let was = |what: &str| before.iter().find(|c| c.what == what).map_or(0, |c| c.packets);
    after.into_iter().map(|c| Counter { packets: c.packets.saturating_sub(was(&c.what)), ..c }).collect()
}

/// Says where the flood's frames ended.
fn account(mut point: FloodPoint, before: &Look, after: &Look, counters: Vec<Counter>) -> FloodPoint {
    let of_net = |name: &str| after.net.grown(&before.net, name);
    let of_host = |name: &str| after.host.grown(&before.host, name);
    let full = of_net("tx_queue_0_xdp_xmit_errors");
    // The kernel sends SYN-ACKs again to whom it has not forgotten.
    let again = of_host("Tcp:RetransSegs");
    let back = after.end.syn_acks.saturating_sub(before.end.syn_acks);
    point.arrived = point.offered.saturating_sub(full);
    point.answered = back.saturating_sub(again);
    let mut losses = vec![
        ("queue of the interface, before XDP".to_owned(), full),
        ("receive path before the stack (no memory)".to_owned(), of_host("rx_queue_0_drops")),
    ];
    let (ended, beside): (Vec<Counter>, Vec<Counter>) = counters.into_iter().partition(|c| c.ended);
    losses.extend(ended.into_iter().map(|c| (c.what, c.packets)));
    losses.extend([
        ("listener (TcpExt ListenDrops)".to_owned(), of_host("TcpExt:ListenDrops")),
        (
            "way back: full queue at the far end".to_owned(),
            // Those of XDP_TX and redirects among them (veth_get_stats64).
            of_host("tx_dropped"),
        ),
    ]);
    point.losses =
        losses.into_iter().filter(|(_, n)| *n > 0).map(|(place, packets)| Dropped { place, packets }).collect();
    point.counters = beside.into_iter().map(|c| Dropped { place: c.what, packets: c.packets }).collect();
    let lost: u64 = point.losses.iter().map(|l| l.packets).sum();
    point.unexplained = point.offered.cast_signed() - point.answered.cast_signed() - lost.cast_signed();
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_the_floods_core_only_if_told() {
        for (list, generator, clients, host) in
            [("0-1", 0, 1, vec![1]), ("1-3", 1, 3, vec![2, 3]), ("0-7", 0, 3, vec![1, 2])]
        {
            let cores = FloodCores::split(&list.parse().unwrap()).unwrap();
            assert_eq!((cores.generator, cores.clients, cores.of_host()), (generator, clients, host), "{list}");
            assert!(!cores.arrangement().roles[0].does.contains("clients"));
            let beside = cores.with_clients_beside_the_flood();
            assert!(beside.clients == generator && beside.arrangement().roles[0].does.contains("clients"));
        }
        assert!(FloodCores::split(&"1".parse().unwrap()).is_err());
    }
}
