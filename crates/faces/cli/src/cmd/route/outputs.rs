//! What a router tells others: events for a file and a program, metrics.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serve::OutputSettings;

use crate::{numbers::number, time::within};

/// Named as in a shield's file of rules.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Append each event to this file, as a line of JSON (schema evenkeel.route.event/1). Rename it to rotate.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(super) events: Option<PathBuf>,
    /// Run this program for each event, which comes on its standard input and in EVENKEEL_*.
    #[arg(long, hide_short_help = true, value_name = "PROGRAM")]
    pub(super) hook: Option<PathBuf>,
    /// End the hook's program after so long, 100ms to 24h.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "10s", value_parser = within("100ms", "24h"))]
    pub(super) hook_timeout: Duration,
    /// Write metrics for Prometheus to this file, once a second.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(super) metrics_file: Option<PathBuf>,
    /// Give metrics for Prometheus on this port of 127.0.0.1.
    #[arg(long, hide_short_help = true, value_name = "PORT", value_parser = number::<u16>("a port", "9464", 1..=65535))]
    pub(super) metrics_port: Option<u16>,
}

impl OutputArgs {
    pub(super) fn settings(&self) -> OutputSettings {
        let hook = self.hook.as_ref().map(|program| vec![program.display().to_string()]);
        OutputSettings {
            events: self.events.clone(),
            hook: hook.map(|run| (run, self.hook_timeout)),
            metrics_file: self.metrics_file.clone(),
            metrics_port: self.metrics_port,
        }
    }
}
