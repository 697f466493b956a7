//! The request that `plan`, `apply` and `watch` share, from arguments to validated options.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use host::{Root, knob::CoalesceField};
use model::CpuSet;
use spread::{Options, Steer};

use crate::{failure::Failure, numbers::number};

/// A means of steering.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SteerArg {
    /// Where it helps.
    Auto,
    /// Everywhere.
    On,
    /// Nowhere: what is set is taken away.
    Off,
}

impl From<SteerArg> for Steer {
    fn from(arg: SteerArg) -> Self {
        match arg {
            SteerArg::Auto => Self::Auto,
            SteerArg::On => Self::On,
            SteerArg::Off => Self::Off,
        }
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// The size of the rings.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RingArg {
    /// The largest the driver has.
    Max,
}

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
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_enum, default_value = "auto")]
    rps: SteerArg,
    /// Receive flow steering with a table of N flows (0: off; rounded up to a power of two) [default: left as it is].
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_name = "N", value_parser = number::<u32>("a number of flows", "32768", ..))]
    rfs: Option<u32>,
    /// Transmit queues bound to CPUs; `auto`: for interfaces with several transmit queues.
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_enum, default_value = "auto")]
    xps: SteerArg,
    /// NAPI in kernel threads, each pinned to the CPU of its queue [default: left as it is].
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_enum)]
    threaded: Option<Switch>,
    /// Interrupt coalescing, such as rx-usecs=50,adaptive-rx=off (names as in ethtool -C).
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_name = "NAME=VALUE,…", value_delimiter = ',')]
    coalesce: Vec<String>,
    /// Ring size [default: left as it is].
    #[arg(long, hide_short_help = true, help_heading = "Settings", value_enum)]
    ring: Option<RingArg>,
}

impl RequestArgs {
    /// Nothing was asked for in particular.
    pub(crate) fn is_empty(&self) -> bool {
        self.scope.interfaces.is_empty()
            && self.scope.cpus.is_none()
            && self.scope.except.is_none()
            && self.rfs.is_none()
            && self.threaded.is_none()
            && self.coalesce.is_empty()
            && self.ring.is_none()
            && matches!((self.rps, self.xps), (SteerArg::Auto, SteerArg::Auto))
    }

    /// The validated options. `root` is asked for what the picture of the machine does not hold.
    pub(crate) fn options(&self, root: &Root) -> Result<Options, Failure> {
        let flows = root.read_opt("proc/sys/net/core/rps_sock_flow_entries").ok().flatten();
        Ok(Options {
            nics: self.scope.interfaces.clone(),
            cpus: self.scope.cpus.clone(),
            except: self.scope.except.clone().unwrap_or_default(),
            rps: self.rps.into(),
            rfs: self.rfs,
            rfs_now: flows.and_then(|text| text.trim().parse().ok()),
            xps: self.xps.into(),
            threaded: self.threaded.map(|s| s == Switch::On),
            coalesce: self.coalesce.iter().map(|text| coalescing(text)).collect::<Result<_, _>>()?,
            max_rings: self.ring.is_some(),
        })
    }
}

fn coalescing(text: &str) -> Result<(CoalesceField, String), Failure> {
    let names = || CoalesceField::ALL.map(CoalesceField::as_str).join(", ");
    let bad = |why: String| Failure::usage(anyhow!("--coalesce {text}: {why}"));
    let (name, value) =
        text.split_once('=').ok_or_else(|| bad("it should read NAME=VALUE, such as rx-usecs=50".into()))?;
    let field = CoalesceField::ALL
        .into_iter()
        .find(|f| f.as_str() == name.trim())
        .ok_or_else(|| bad(format!("there is no `{name}`; there are {}", names())))?;
    let value = value.trim().to_owned();
    let is_switch = matches!(field, CoalesceField::AdaptiveRx | CoalesceField::AdaptiveTx);
    match is_switch {
        true if value != "on" && value != "off" => Err(bad(format!("`{value}` is neither on nor off"))),
        false if value.parse::<u32>().is_err() => Err(bad(format!("`{value}` is not a number"))),
        _ => Ok((field, value)),
    }
}
