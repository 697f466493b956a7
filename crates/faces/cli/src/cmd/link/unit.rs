//! `link unit`: a broker under systemd.

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use host::interface;

use super::serve::{Mode, Over, ServeArgs};
use crate::{
    failure::{Failure, Outcome, print},
    unit::{exec_start, warn_of_hidden},
};

/// Print a systemd unit that runs this broker in a sandbox with the fewest capabilities.
///
///     evenkeel link unit eth0 --cluster 10.0.0.0/24 >/etc/systemd/system/evenkeel-link.service
#[derive(Debug, Args)]
pub(super) struct UnitArgs {
    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: &UnitArgs) -> Result<Outcome, Failure> {
    let serve = &args.serve;
    if serve.json {
        return Err(Failure::usage(anyhow!(
            "a unit is no JSON: leave out --json. For events as JSON add it to ExecStart"
        )));
    }
    let settings = serve.settings()?;
    interface::index(&serve.interface)?;
    let receives = match &serve.receive {
        Some(folder) if !folder.is_dir() => {
            return Err(Failure::usage(anyhow!("--receive {} is no folder: make it first", folder.display())));
        }
        Some(folder) => {
            Some(folder.canonicalize().context("cannot find the folder of --receive").map_err(Failure::lacking)?)
        }
        None => None,
    };
    warn_of_hidden(receives.as_deref(), "/srv/incoming");
    let program = exec_start()?;
    let mut words = Vec::new();
    let mut add = |flag: &str, value: String| words.extend([format!("--{flag}"), value]);
    if let Some(name) = &serve.name {
        add("name", name.clone());
    }
    if serve.over == Over::Udp {
        add("over", "udp".to_owned());
    }
    serve.peer.iter().for_each(|peer| add("peer", peer.to_string()));
    serve.cluster.iter().for_each(|prefix| add("cluster", prefix.to_string()));
    serve.allow.iter().for_each(|allow| add("allow", allow.to_string()));
    if let Some(folder) = &receives {
        add("receive", folder.display().to_string());
    }
    if let Some(bytes) = serve.receive_free {
        add("receive-free", bytes.to_string());
    }
    if let Some(group) = &serve.group {
        add("group", group.clone());
    }
    if serve.xdp_mode != Mode::Auto
        && let Some(mode) = serve.xdp_mode.to_possible_value()
    {
        add("xdp-mode", mode.get_name().to_owned());
    }
    print(&link::unit::text(&program, &settings, &words, !serve.cluster.is_empty(), receives.as_deref()))?;
    Ok(Outcome::Fine)
}
