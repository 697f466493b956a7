//! `shield status`, `shield reload`, `shield stop`: a shield that another process tends, or nobody.

use std::{thread, time::Duration};

use anyhow::anyhow;
use clap::Args;
use model::{
    schema::Document,
    shield::{Rates, ShieldStatus},
};
use report::Look;
use shield::{
    ShieldError,
    run::{Asked, Command, Places, control, status as state, whose::whose},
};

use crate::{
    failure::{Failure, Outcome, note, print},
    periods::seconds,
};

/// Show the shield of an interface: rules, counters, rates, whether somebody tends it.
///
/// Ends with 1 if the shield has failed open or closed because nobody tends it.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// The interface.
    interface: String,
    /// Length of the interval for rates in seconds (0.1 to 3600).
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Print JSON (schema evenkeel.shield.status/1).
    #[arg(long)]
    json: bool,
}

/// Have the shield of an interface read its rules again; an error leaves those that hold.
///
/// The ssh session you are typing in is added to the management allow-list, unless the file says session = false.
#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    /// The interface.
    interface: String,
    /// Also when a rule would cut off the session you are typing in.
    #[arg(long)]
    force: bool,
}

/// Take the shield of an interface away.
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// The interface.
    interface: String,
    /// End the process that tends it, and leave the shield as it is: within its patience another is to take it over, or it fails open or
    /// closed.
    #[arg(long)]
    leave: bool,
}

/// How a shield is, asked of its process or read from its pins.
pub(super) fn look(interface: &str, places: &Places) -> Result<ShieldStatus, ShieldError> {
    match control::ask(places, &Command::Status)?.and_then(|answer| answer.status) {
        Some(status) => Ok(status),
        None => state::of_pins(interface, places),
    }
}

/// What went wrong, said to whom it happened: an interface that is not there, a user who may not ask.
fn told(interface: &str, failure: Failure) -> Failure {
    // Of an interface that went away the shield may still be asked.
    if failure.message().contains("has no shield") && sys::packet::interface_index(interface).is_none() {
        return port::members::unknown_interface(interface).into();
    }
    if !nix::unistd::geteuid().is_root() && failure.message().contains("Permission denied") {
        return Failure::lacking(anyhow!("{}; ask as root, as whom the shield runs", failure.message()));
    }
    failure
}

pub(super) fn status(args: &StatusArgs) -> Result<Outcome, Failure> {
    show(args).map_err(|failure| told(&args.interface, failure))
}

fn show(args: &StatusArgs) -> Result<Outcome, Failure> {
    let places = Places::of(&args.interface);
    let before = look(&args.interface, &places)?;
    thread::sleep(Duration::from_secs_f64(args.interval));
    let mut now = look(&args.interface, &places)?;
    with_rates(&mut now, &before, args.interval);
    let text = match args.json {
        true => serde_json::to_string(&Document::new("shield.status", 1, &now)).map_err(Failure::internal)? + "\n",
        false => report::shield_text(&now, Look::of_stdout()),
    };
    print(&text)?;
    Ok(if now.has_failed() { Outcome::No } else { Outcome::Fine })
}

/// Puts the rates since `before` into `now`.
pub(super) fn with_rates(now: &mut ShieldStatus, before: &ShieldStatus, seconds: f64) {
    now.rates = Some(Rates::between(&before.totals, &now.totals, seconds));
    for rule in &mut now.rules {
        let earlier = before.rules.iter().find(|other| other.name == rule.name);
        rule.pps = earlier.map(|earlier| rule.packets.saturating_sub(earlier.packets) as f64 / seconds);
    }
}

pub(super) fn reload(args: &ReloadArgs) -> Result<Outcome, Failure> {
    ask_to_reload(args).map_err(|failure| told(&args.interface, failure))
}

fn ask_to_reload(args: &ReloadArgs) -> Result<Outcome, Failure> {
    let places = Places::of(&args.interface);
    let answer = control::ask(&places, &Command::Reload(Asked::here(args.force)))?;
    answer.iter().flat_map(|answer| &answer.warnings).for_each(note);
    match answer {
        Some(answer) if answer.done => {
            print(&format!("{}\n", answer.said))?;
            Ok(Outcome::Fine)
        }
        Some(answer) => Err(Failure::usage(anyhow!(answer.said))),
        None => {
            state::of_pins(&args.interface, &places)?;
            Err(Failure::usage(anyhow!(
                "nobody tends the shield of {0}: `evenkeel shield run {0} --rules FILE` takes it over with new rules",
                args.interface
            )))
        }
    }
}

pub(super) fn stop(args: &StopArgs) -> Result<Outcome, Failure> {
    ask_to_stop(args).map_err(|failure| told(&args.interface, failure))
}

fn ask_to_stop(args: &StopArgs) -> Result<Outcome, Failure> {
    let places = Places::of(&args.interface);
    let command = if args.leave { Command::Leave } else { Command::Stop };
    match control::ask(&places, &command)? {
        Some(answer) if answer.done => {}
        Some(answer) => return Err(Failure::lacking(anyhow!(answer.said))),
        None => {
            // What belongs to another, or cannot be seen, is left alone.
            let gone = !places.pins.exists() && !places.state.exists();
            let none = || gone.then(|| ShieldError::None { interface: args.interface.clone() });
            if let Some(error) = whose(&args.interface, &places).or_else(none) {
                return Err(error.into());
            }
            if !args.leave {
                places.remove()?;
            }
        }
    }
    let said = if args.leave { "nobody tends the shield any more" } else { "the shield is gone" };
    print(&format!("{}: {said}\n", args.interface))?;
    Ok(Outcome::Fine)
}
