//! What a shield is to be: the options that `shield run` and `shield unit` share.

use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use shield::between::Pair;

use super::RuleArgs;
pub(super) use bpf::XdpMode as Mode;

use crate::args::XDP_MODES;
use crate::time::within;
use crate::{
    failure::Failure,
    numbers::{number, words},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FailArg {
    /// Everything passes.
    Open,
    /// Only what the management allow-list lets in passes.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// A program in the kernel.
    Xdp,
    /// Packet rings, for drivers without XDP: this process carries every frame.
    Ring,
}

/// The options of a shield.
#[derive(Debug, Args)]
pub(super) struct ShieldOptions {
    /// The interface to protect.
    #[arg(required_unless_present = "between", conflicts_with = "between", value_parser = crate::args::interface)]
    pub(super) interface: Option<String>,
    /// Filter between two interfaces, in both directions.
    #[arg(long, value_name = "A,B", value_parser = pair, help_heading = "Operation")]
    pub(super) between: Option<Pair>,
    #[command(flatten)]
    pub(super) rules: RuleArgs,
    /// Mode of the XDP program [default: native].
    #[arg(
        long = "xdp-mode",
        hide_short_help = true,
        value_name = "MODE", value_parser = words(&XDP_MODES),
        help_heading = "Operation"
    )]
    pub(super) xdp: Option<Mode>,
    /// Carry frames between two interfaces by this.
    #[arg(long, hide_short_help = true, value_enum, default_value_t = Backend::Xdp, help_heading = "Operation")]
    pub(super) backend: Backend,
    /// Threads in each direction with --backend ring, 1 to 64 [default: 1].
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Operation", value_parser = number::<u8>("a number of threads", "2", 1..=64))]
    pub(super) threads: Option<u8>,
    /// Verdict on packets when this process dies [default: open; with --backend ring always closed].
    #[arg(long, hide_short_help = true, value_enum, help_heading = "Operation")]
    pub(super) fail: Option<FailArg>,
    /// Fail open or closed this long after the process died or hung, 300ms to 1m.
    #[arg(long = "fail-after", hide_short_help = true, value_name = "TIME", default_value = "700ms", help_heading = "Operation", value_parser = within("300ms", "1m"))]
    pub(super) fail_after: Duration,
}

fn pair(text: &str) -> Result<Pair, String> {
    let Pair { first, second } = Pair::parse(text).map_err(|error| error.to_string())?;
    let real = host::interface::real_name;
    Pair::parse(&format!("{},{}", real(&first), real(&second))).map_err(|error| error.to_string())
}

impl ShieldOptions {
    /// The interface, or both as `A,B`.
    pub(super) fn name(&self) -> String {
        match &self.between {
            Some(pair) => pair.to_string(),
            None => self.interface.clone().unwrap_or_default(),
        }
    }

    /// Refuses what has no meaning beside the rest.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let wrong = match self.backend {
            Backend::Xdp if self.threads.is_some() => "--threads works only with --backend ring (and --between A,B)",
            Backend::Ring if self.xdp.is_some() => "--xdp-mode does not work with --backend ring: remove one of them",
            _ => return Ok(()),
        };
        Err(Failure::usage(anyhow!(wrong)))
    }

    pub(super) fn threads(&self) -> u8 {
        self.threads.unwrap_or(1)
    }

    /// The interface; of two the first, by which the shield goes.
    pub(super) fn first(&self) -> String {
        self.between.as_ref().map_or_else(|| self.interface.clone().unwrap_or_default(), |pair| pair.first.clone())
    }

    /// The source of the rules, in words.
    pub(super) fn file_name(&self) -> String {
        self.rules.rules.as_ref().map_or_else(|| "--rule".to_owned(), |path| path.display().to_string())
    }
}
