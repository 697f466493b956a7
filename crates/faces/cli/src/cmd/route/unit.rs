//! `route unit`: a router under systemd.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use bpf::XdpMode;
use clap::{Args, ValueEnum};
use host::interface;
use model::route::CtMark;

use super::{Mode, RouterArgs};
use crate::{
    failure::{Failure, Outcome, print},
    unit::{exec_start, warn_of_hidden},
};

/// Print a systemd unit that runs this router in a sandbox with the fewest capabilities.
///
///     evenkeel route unit eth0 eth1 >/etc/systemd/system/evenkeel-route.service
#[derive(Debug, Args)]
pub(super) struct UnitArgs {
    #[command(flatten)]
    router: RouterArgs,
}

pub(super) fn run(args: &UnitArgs) -> Result<Outcome, Failure> {
    let RouterArgs { interfaces, outputs, rules, .. } = &args.router;
    interfaces.iter().try_for_each(|name| interface::index(name).map(drop))?;
    let named = [
        ("rules", rules),
        ("events", &outputs.events),
        ("hook", &outputs.hook),
        ("metrics-file", &outputs.metrics_file),
    ];
    let named: Vec<(&str, &Path)> = named.iter().filter_map(|(flag, path)| Some((*flag, path.as_deref()?))).collect();
    if let Some((flag, path)) = named.iter().find(|(_, path)| path.is_relative()) {
        return Err(Failure::usage(anyhow!(
            "--{flag} has the relative path {}, and a unit has no folder to start from: write the whole path",
            path.display()
        )));
    }
    warn_of_hidden(named.iter().map(|(_, path)| *path), "/etc/evenkeel");
    if args.router.xdp_mode == XdpMode::Generic && args.router.cpus.is_some() {
        return Err(route::RouteError::CpusInGeneric.into());
    }
    let program = exec_start()?;
    let files: Vec<PathBuf> = [&outputs.events, &outputs.metrics_file].into_iter().flatten().cloned().collect();
    print(&route::unit::text(&program, interfaces, &words(&args.router), rules.is_some(), &files))?;
    Ok(Outcome::Fine)
}

/// The options, as far as they differ from what holds without them.
fn words(router: &RouterArgs) -> Vec<String> {
    let RouterArgs {
        interfaces: _,
        mode,
        trial,
        rules,
        pin_rules,
        force,
        mark,
        cpus,
        cpu_queue,
        no_auto_return,
        xdp_mode,
        remember,
        outputs,
    } = router;
    let mut words = Vec::new();
    let mut add = |flag: &str, value: Option<String>| {
        words.extend(value.into_iter().flat_map(|value| [format!("--{flag}"), value]));
    };
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let seconds = |time: std::time::Duration| format!("{}s", time.as_secs_f64());
    let name = mode.to_possible_value().map(|value| value.get_name().to_owned());
    add("mode", name.filter(|_| *mode != Mode::Routed));
    add("trial", Some(seconds(*trial)).filter(|trial| trial != "3s"));
    add("mark", (*mark != CtMark::default()).then(|| mark.to_string()));
    add("cpus", cpus.as_ref().map(ToString::to_string));
    add("cpu-queue", Some(cpu_queue.to_string()).filter(|_| *cpu_queue != super::CPU_QUEUE));
    add("xdp-mode", (*xdp_mode == XdpMode::Generic).then(|| "generic".to_owned()));
    add("remember", remember.map(|slots| slots.to_string()));
    add("rules", path(rules));
    add("events", path(&outputs.events));
    add("hook", path(&outputs.hook));
    add("hook-timeout", outputs.hook.as_ref().map(|_| seconds(outputs.hook_timeout)).filter(|time| time != "10s"));
    add("metrics-file", path(&outputs.metrics_file));
    add("metrics-port", outputs.metrics_port.map(|port| port.to_string()));
    let set = [("--pin-rules", *pin_rules), ("--force", *force), ("--no-auto-return", *no_auto_return)];
    words.extend(set.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| (*flag).to_owned()));
    words
}
