//! `keep add`: a new file of intents.

use anyhow::anyhow;
use clap::{Args, Subcommand};
use host::{Root, knob::CoalesceField};
use keep::intent::{Coalescing, Doctor, Drift, Intents, Pattern, RingSize, Spread, Steering, Switch};
use model::{CpuSet, doctor::Role};
use spread::{Options, Steer};
use sys::privilege::{self, Capability};

use super::{EtcArg, keeping::Keeping, note_nobody, told};
use crate::{
    cmd::{doctor::ROLES, spread::RequestArgs},
    failure::{Failure, Lines, Outcome},
    numbers::words,
};

const DRIFTS: [(&str, &str, Drift); 2] =
    [("restore", "Write the kept value again", Drift::Restore), ("leave", "Report it and leave it", Drift::Leave)];

/// Write a file of settings to keep.
///
///     evenkeel keep add spread eth0 --cpus 0-3
///     evenkeel keep add doctor rings governor
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Spread(SpreadArgs),
    Doctor(DoctorArgs),
}

/// Arguments of `keep add spread` and `keep add doctor`.
#[derive(Debug, Args)]
struct FileArgs {
    /// Name the file, without its ending [default: spread-INTERFACE or doctor-CHECK].
    #[arg(long, value_name = "NAME", help_heading = "Files")]
    name: Option<String>,
    /// Do this with a setting that another program writes.
    #[arg(long, value_parser = words(&DRIFTS), default_value = "restore", help_heading = "Files")]
    drift: Drift,
    #[command(flatten)]
    etc: EtcArg,
}

/// Keep the packet work spread over the cores. Interfaces may be globs such as 'ens*'.
///
///     evenkeel keep add spread eth0 --cpus 0-3
#[derive(Debug, Args)]
struct SpreadArgs {
    #[command(flatten)]
    request: Box<RequestArgs>,
    #[command(flatten)]
    file: FileArgs,
}

/// Keep the fixes of these checks.
///
///     evenkeel keep add doctor rings
#[derive(Debug, Args)]
struct DoctorArgs {
    /// Keep the fixes of these checks, such as rings or rings:eth0; `evenkeel doctor --list` names them.
    #[arg(value_name = "CHECK", required = true)]
    checks: Vec<String>,
    /// Check for this role of the machine [default: guessed].
    #[arg(long, value_name = "ROLE", value_parser = words(&ROLES), help_heading = "Machine")]
    role: Option<Role>,
    #[command(flatten)]
    file: FileArgs,
}

pub(super) fn run(args: &AddArgs) -> Result<Outcome, Failure> {
    privilege::require_root("keep add", &[Capability::CAP_NET_ADMIN])?;
    let (file, intents, name) = match &args.what {
        What::Spread(args) => {
            let options = args.request.options(&Root::live())?;
            let intents = spread_intents(&args.request.interfaces(), &options, args.file.drift)?;
            (&args.file, intents, default_name("spread", &args.request.interfaces()))
        }
        What::Doctor(args) => {
            let intents = doctor_intents(args.checks.clone(), args.role, args.file.drift);
            (&args.file, intents, default_name("doctor", &args.checks))
        }
    };
    let mut keeping = Keeping::new(&file.etc, file.name.as_deref().unwrap_or(&name), &intents)?;
    let mut lines = Lines::default();
    keeping.write()?;
    lines.print(format_args!(
        "{} is {}: {}. Take it back: {}",
        keeping.path().display(),
        keeping.done(),
        intents.phrases().join("; "),
        keeping.way_back(None)
    ));
    if !told()? {
        note_nobody();
    }
    lines.end(false, Outcome::Fine)
}

/// Refuses the name of an unknown check.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    doctor::Selection::parse(&[name.to_owned()]).map(drop).map_err(|error| error.to_string())
}

/// Intents with one table `[[doctor]]`.
pub(super) fn doctor_intents(checks: Vec<String>, role: Option<Role>, drift: Drift) -> Intents {
    let doctor = Doctor { checks, role, interfaces: Vec::new() };
    Intents { drift, doctor: vec![doctor], ..Intents::default() }
}

/// The kind and the first of the names, such as `spread-eth0`; characters that a file's name cannot have become `_`.
pub(super) fn default_name(kind: &str, of: &[String]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let first = of.first().map(|name| name.chars().map(plain).collect::<String>());
    first.map_or_else(|| kind.to_owned(), |first| format!("{kind}-{first}"))
}

/// Intents with one table `[[spread]]` of these options.
pub(super) fn spread_intents(interfaces: &[String], options: &Options, drift: Drift) -> Result<Intents, Failure> {
    let patterns = interfaces.iter().map(|name| Pattern::try_from(name.clone()));
    let interfaces = patterns.collect::<Result<_, _>>().map_err(|why| Failure::usage(anyhow!(why)))?;
    let except = Some(options.except.clone()).filter(|cpus: &CpuSet| !cpus.is_empty());
    let coalesce =
        options.coalesce.iter().map(|(field, value): &(CoalesceField, String)| Coalescing(*field, value.clone()));
    let spread = Spread {
        interfaces,
        cpus: options.cpus.clone(),
        except,
        rps: steering(options.rps),
        rfs: options.rfs,
        xps: steering(options.xps),
        threaded: options.threaded.map(|on| if on { Switch::On } else { Switch::Off }),
        coalesce: coalesce.collect(),
        ring: options.max_rings.then_some(RingSize::Max),
        ..Spread::default()
    };
    Ok(Intents { drift, spread: vec![spread], doctor: Vec::new() })
}

fn steering(steer: Steer) -> Steering {
    match steer {
        Steer::Auto => Steering::Auto,
        Steer::On => Steering::On,
        Steer::Off => Steering::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_its_first_interface() {
        let of =
            |names: &[&str]| default_name("spread", &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), "spread");
        assert_eq!(of(&["eth0", "eth1"]), "spread-eth0");
        assert_eq!(of(&["ens*"]), "spread-ens_");
        assert!(check_name("rings:eth0").is_ok() && check_name("no-such").is_err());
    }
}
