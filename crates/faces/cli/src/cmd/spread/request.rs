//! The request that `plan`, `apply` and `watch` share, from arguments to validated options.

use anyhow::anyhow;
use clap::Args;
use host::{Root, knob::CoalesceField};
use model::CpuSet;
use spread::{Options, Steer};

use crate::{
    failure::Failure,
    numbers::{number, words},
};

const STEER: [(&str, &str, Steer); 3] = [
    ("auto", "Where it helps", Steer::Auto),
    ("on", "Everywhere", Steer::On),
    ("off", "Nowhere: what is set is taken away", Steer::Off),
];
const SWITCH: [(&str, &str, bool); 2] = [("on", "In kernel threads", true), ("off", "In softirq", false)];
const RING: [(&str, &str, bool); 1] = [("max", "The largest the driver has", true)];

/// Interfaces, and the CPUs for their packet work.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// Interfaces [default: all that have queue interrupts].
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
    /// CPUs for network work, such as 0-7,16 [default: all].
    ///
    /// All means those that are online and not isolated.
    #[arg(long, value_name = "CPUS", help_heading = "CPUs")]
    pub(crate) cpus: Option<CpuSet>,
    /// CPUs kept free of network work.
    #[arg(long, value_name = "CPUS", help_heading = "CPUs")]
    pub(crate) except: Option<CpuSet>,
}

/// The placement that is asked for.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    scope: Scope,
    /// Receive packet steering; `auto`: for interfaces with one receive queue.
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_parser = words(&STEER), default_value = "auto")]
    rps: Steer,
    /// Receive flow steering with a table of N flows (0: off; rounded up to a power of two) [default: left as it is].
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_name = "N", value_parser = number::<u32>("a number of flows", "32768", ..))]
    rfs: Option<u32>,
    /// Transmit queues bound to CPUs; `auto`: for interfaces with several transmit queues.
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_parser = words(&STEER), default_value = "auto")]
    xps: Steer,
    /// NAPI in kernel threads, each pinned to the CPU of its queue [default: left as it is].
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_parser = words(&SWITCH))]
    threaded: Option<bool>,
    /// Interrupt coalescing, such as rx-usecs=50,adaptive-rx=off (names as in ethtool -C).
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_name = "NAME=VALUE,…", value_delimiter = ',')]
    coalesce: Vec<String>,
    /// Ring size [default: left as it is].
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_parser = words(&RING))]
    ring: Option<bool>,
}

impl RequestArgs {
    /// The interfaces of the command line.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        self.scope.interfaces.clone()
    }

    /// The validated options. `root` is asked for what the picture of the machine does not hold.
    pub(crate) fn options(&self, root: &Root) -> Result<Options, Failure> {
        let flows = root.read_opt("proc/sys/net/core/rps_sock_flow_entries").ok().flatten();
        Ok(Options {
            nics: crate::args::interfaces(&self.scope.interfaces, !root.is_live()),
            cpus: self.scope.cpus.clone(),
            except: self.scope.except.clone().unwrap_or_default(),
            rps: self.rps,
            rfs: self.rfs,
            rfs_now: flows.and_then(|text| text.trim().parse().ok()),
            xps: self.xps,
            threaded: self.threaded,
            coalesce: self.coalesce.iter().map(|text| coalescing(text)).collect::<Result<_, _>>()?,
            max_rings: self.ring.is_some(),
        })
    }
}

fn coalescing(text: &str) -> Result<(CoalesceField, String), Failure> {
    host::knob::coalescing(text).map_err(|why| Failure::usage(anyhow!("--coalesce {text}: {why}")))
}
