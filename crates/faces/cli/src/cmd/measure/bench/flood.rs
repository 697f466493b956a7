//! `evenkeel bench flood`: clients beside a flood of spoofed SYNs.

use std::{path::PathBuf, time::Duration};

use ::bench::flood::{FloodConfig, FloodCores, Rate, protection, run_flood};
use clap::Args;
use host::{Host, Root};
use model::{
    CpuSet,
    flood::{FloodPoint, FloodRun},
};
use rig::cores;
use sys::privilege::{self, Capability};

use super::saved;
use crate::time::within;
use crate::{
    dry_run::DryRun,
    failure::{Failure, Outcome},
    long_run::{Found, interrupted, long_run},
    numbers::number,
    results::OutFile,
};

/// A lab, its programs and pinned threads need these.
const CAPABILITIES: [Capability; 5] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_NICE,
];
/// More than this the clients' addresses do not last for.
const CONNECTS_MAX: u32 = 60_000;
/// Connections of `--quick`.
const QUICK_CONNECTS: u32 = 300;
/// A rate of a protection takes about so many seconds besides its clients: a new host, the flood's start, the drain.
const RATE_S: f64 = 1.5;
/// The protections, for completion.
pub(crate) const MODES: [&str; 8] =
    ["none", "plain", "cookies", "nft-ingress", "synproxy", "shield", "gateway", "gateway-ring"];
/// Before the first client.
const HEAD_START_TIME: Duration = Duration::from_millis(300);

/// Measure what a protection leaves of a service under a SYN flood: clients connect beside spoofed SYNs at rising rates.
///
/// Flood and clients share one link in a lab of network namespaces, which bench removes afterwards. Nothing leaves it. Every rate begins with a
/// new host that has met nobody. A client succeeds when it is connected and has its answer within --timeout. The kernel repeats a lost SYN
/// after one second, so a shorter time-out hides no retry.
///
/// Exit code 1: the last mode's clients noticed a flood below the maximum. Less than 99.9 % succeeded, or 1 in 100 took more than 5 ms to
/// connect.
#[derive(Debug, Args)]
pub(crate) struct FloodArgs {
    /// Protections: none, plain, cookies, nft-ingress, synproxy, shield, gateway, gateway-ring (the shield between two interfaces).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "none,plain,cookies,nft-ingress,synproxy,shield",
        help_heading = "The flood"
    )]
    modes: Vec<String>,
    /// Rates of the flood in frames/s, such as 100k or 1.5M, or max.
    #[arg(
        long,
        value_name = "RATE",
        value_delimiter = ',',
        value_parser = rate,
        default_value = "0,100k,500k,1M,2M,max",
        help_heading = "The flood"
    )]
    rates: Vec<Rate>,
    /// Use IPv6; each frame of the flood comes from another /64.
    #[arg(long, help_heading = "The flood")]
    ipv6: bool,

    /// Connections at each rate; 3000 can show a success of 99.9 %, 1000 can show 99.7 %.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = number::<u32>("a number of connections", "1000", 1..=CONNECTS_MAX),
        help_heading = "The clients"
    )]
    connects: u32,
    /// Connections begun each second (1 to 20000).
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        value_parser = number::<u32>("connections per second", "500", 1..=20_000),
        help_heading = "The clients"
    )]
    per_second: u32,
    /// The longest that a connection may take to its answer, 10ms to 1m.
    #[arg(
        long = "timeout",
        value_name = "TIME",
        default_value = "900ms",
        value_parser = within("10ms", "1m"),
        help_heading = "The clients"
    )]
    patience: Duration,
    /// Run the clients on the flood's core: an upper bound, since the flood pauses while they send.
    #[arg(long, hide_short_help = true, help_heading = "The clients")]
    beside_flood: bool,

    /// A first look: 0, 100k and max, 300 connections.
    #[arg(long, conflicts_with_all = ["rates", "connects"], help_heading = "The tester")]
    quick: bool,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "The tester")]
    dry_run: bool,
    /// CPUs, such as 2,3: flood, host, server, clients; the last ones share [default: all online, not isolated].
    #[arg(long, value_name = "CPUS", help_heading = "The tester")]
    cpus: Option<CpuSet>,

    /// Save the run in this file (schema evenkeel.bench.flood/1).
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    save: Option<PathBuf>,
    /// Show a saved run instead of measuring.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["modes", "rates", "connects", "per_second", "patience", "ipv6", "beside_flood", "cpus", "save"],
        help_heading = "Results"
    )]
    show: Option<PathBuf>,
    /// Write an HTML page with the curves.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Print JSON (schema evenkeel.bench.flood/1) instead of text.
    #[arg(long, help_heading = "Results")]
    json: bool,
}

/// A rate out of an argument.
fn rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        Ok(traffic::Rate::Max) => Ok(Rate::Max),
        Ok(traffic::Rate::Packets(pps)) if pps <= bpf::r#gen::PACED_PPS_MAX => Ok(Rate::Pps(pps)),
        _ if text == "0" => Ok(Rate::Pps(0.0)),
        _ => Err(format!(
            "`{text}` is no rate: write frames/s as 0, 100k or 1.5M, up to {:.0}M, or max",
            bpf::r#gen::PACED_PPS_MAX / 1e6
        )),
    }
}

pub(crate) fn run(args: &FloodArgs) -> Result<Outcome, Failure> {
    if let Some(path) = &args.show {
        let run: FloodRun = saved::load(path)?;
        run.show(args.json, OutFile::open(args.html.as_deref(), FloodRun::PAGE)?)?;
        return Ok(outcome(&run));
    }
    let host = Host::read(&Root::live())?;
    let config = args.config(&host)?;
    let modes = args.modes.iter().map(|key| protection(key)).collect::<Result<Vec<_>, _>>()?;
    if args.dry_run {
        let clients_s = f64::from(config.connects) / config.connects_per_s + config.patience.as_secs_f64();
        let rates = config.rates.len();
        let seconds = (clients_s + HEAD_START_TIME.as_secs_f64() + RATE_S) * (modes.len() * rates) as f64;
        let steps =
            args.modes.iter().map(|mode| format!("{mode}: {} clients at each of {rates} rates", config.connects));
        return DryRun { steps: steps.collect(), seconds }.print("bench.flood.plan", args.json);
    }
    privilege::require_root("bench flood", &CAPABILITIES)?;
    let saved = OutFile::open(args.save.as_deref(), "run")?;
    let page = OutFile::open(args.html.as_deref(), FloodRun::PAGE)?;
    let run = long_run(|control| run_flood(&config, &modes, &host, control))?;
    if let Some(file) = saved {
        file.write(run.document()?)?;
    }
    run.show(args.json, page)?;
    if run.partial {
        return interrupted("bench");
    }
    Ok(outcome(&run))
}

impl FloodArgs {
    /// Checks everything that can be checked before anything is made.
    fn config(&self, host: &Host) -> Result<FloodConfig, Failure> {
        let cpus = cores::usable(host, self.cpus.as_ref())?;
        let cores = FloodCores::split(&cpus)?;
        let (rates, connects) = match self.quick {
            true => (vec![Rate::Pps(0.0), Rate::Pps(1e5), Rate::Max], QUICK_CONNECTS),
            false => (self.rates.clone(), self.connects),
        };
        Ok(FloodConfig {
            rates,
            connects,
            connects_per_s: f64::from(self.per_second),
            patience: self.patience,
            head_start: HEAD_START_TIME,
            ipv6: self.ipv6,
            cores: if self.beside_flood { cores.with_clients_beside_the_flood() } else { cores },
        })
    }
}

/// True if the clients of the last mode noticed no flood but the highest.
fn outcome(run: &FloodRun) -> Outcome {
    let bears = |point: &FloodPoint| point.intended_pps.is_none() || point.is_untouched();
    match run.modes.last() {
        Some(mode) if mode.points.iter().all(bears) => Outcome::Fine,
        _ => Outcome::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_with_k_or_m_or_max() {
        assert_eq!(rate("max"), Ok(Rate::Max));
        for (text, pps) in [("0", 0.0), ("100k", 1e5), ("1.5M", 1.5e6), ("250", 250.0)] {
            assert_eq!(rate(text), Ok(Rate::Pps(pps)), "{text}");
        }
        for text in ["", "k", "-1", "1G", "NaN", "60M"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
