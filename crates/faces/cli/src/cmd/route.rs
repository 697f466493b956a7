//! `evenkeel route`: a router's fast path.

mod outputs;
mod show;
mod unit;

use std::{io, sync::mpsc, time::Duration};

use anyhow::{Context, anyhow};
use bpf::XdpMode;
use clap::{Args, Subcommand, ValueEnum};
use model::route::RouteMode;
use report::Look;
use route::{
    RouteError, RouteSettings, Router,
    control::{self, Answer, Command, Paths},
    seen::Seen,
};
use serve::{ServeError, Signals, control::Listener};
use sys::privilege::{self, Capability};

use crate::{
    args::XDP_MODES,
    failure::{Failure, Outcome, note, print, print_json},
    numbers::words,
    output::end_soon,
    time::{interval, time},
};

/// Forward packets in the kernel's earliest hook (XDP), by the kernel's own routes.
///
/// The kernel's configuration is the only one: routes, neighbours, rules, any routing daemon. What the fast path cannot do goes up to the
/// kernel. It turns itself off when something appears that it cannot honour, such as a rule of nftables. See what stands against it with
/// `route check`.
#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(RunArgs),
    Status(StatusArgs),
    Mode(ModeArgs),
    Check(CheckArgs),
    Stop(StopArgs),
    Unit(unit::UnitArgs),
}

/// Next hops that each CPU remembers, unless another number is asked for.
const REMEMBER: u32 = 32768;

/// A mode, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The kernel alone forwards.
    Standard,
    /// The fast path forwards what it can, the kernel the rest.
    Routed,
    /// The kernel forwards; the fast path decides, and its decisions are compared with what the kernel did.
    Shadow,
}

impl From<Mode> for RouteMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Standard => Self::Standard,
            Mode::Routed => Self::Routed,
            Mode::Shadow => Self::Shadow,
        }
    }
}

/// What a router is to be: the options that `route run` and `route unit` share.
#[derive(Debug, Args)]
struct RouterArgs {
    /// Ports to forward between. What leaves by another interface goes up to the kernel.
    #[arg(value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// Mode once the trial is over.
    #[arg(long, value_enum, default_value = "routed", help_heading = "Operation")]
    mode: Mode,
    /// Length of the trial in shadow; 0 means none.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time, help_heading = "Operation")]
    trial: Duration,
    /// After an obstacle is gone stay in mode standard until `route mode` says otherwise.
    #[arg(long, help_heading = "Operation")]
    stay: bool,
    /// Mode of the XDP program.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "MODE",
        default_value = "native",
        value_parser = words(&XDP_MODES),
        help_heading = "Operation"
    )]
    xdp_mode: XdpMode,
    /// Next hops that each CPU remembers, of each IP version. Twice the number of destinations in use serves well.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = REMEMBER,
        value_parser = clap::value_parser!(u32).range(64..=1 << 22),
        help_heading = "Operation"
    )]
    remember: u32,
    #[command(flatten)]
    outputs: outputs::OutputArgs,
}

/// Put the fast path on the ports of this router, and take it off at Ctrl-C.
///
///     evenkeel route run eth0 eth1
///
/// On a terminal this shows a live view; `?` lists its keys, `q` asks before it ends the fast path.
///
/// It begins in shadow: for some seconds the kernel goes on forwarding and each decision of the fast path is compared with what the kernel did.
/// Only when no frame would have left otherwise does the fast path forward.
#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    router: RouterArgs,
    /// Interval of the view or of the lines, 100ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = interval, help_heading = "Output")]
    interval: Duration,
    /// Print JSON (schema evenkeel.route.status/1), one document per line and interval.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Show no view: print only events and messages, on stderr.
    #[arg(long, short, conflicts_with = "json", help_heading = "Output")]
    quiet: bool,
}

/// Show who forwards, what went up to the kernel and why.
#[derive(Debug, Args)]
struct StatusArgs {
    /// Print JSON (schema evenkeel.route.status/1).
    #[arg(long)]
    json: bool,
}

/// Switch who forwards. No packet is lost, and no ring of a card is reset.
#[derive(Debug, Args)]
struct ModeArgs {
    /// The mode from now on.
    #[arg(value_enum)]
    mode: Mode,
    /// Print JSON (schema evenkeel.route.mode/1).
    #[arg(long)]
    json: bool,
}

/// Show what stands against the fast path here, and what to do about it.
#[derive(Debug, Args)]
struct CheckArgs {
    /// Ports to forward between.
    #[arg(value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// Print JSON (schema evenkeel.route.check/1).
    #[arg(long)]
    json: bool,
}

/// End the fast path. The kernel forwards.
#[derive(Debug, Args)]
struct StopArgs {
    /// Print JSON (schema evenkeel.route.stop/1).
    #[arg(long)]
    json: bool,
}

/// Does what the action says.
pub(crate) fn run(args: &RouteArgs) -> Result<Outcome, Failure> {
    let done = match &args.action {
        Action::Run(args) => return tend(args),
        Action::Check(args) => return check(args),
        Action::Unit(args) => return unit::run(args),
        Action::Status(args) => status(args),
        Action::Mode(args) => switch(args),
        Action::Stop(args) => stop(args),
    };
    match done {
        Err(RouteError::None) => {
            note(RouteError::None);
            Ok(Outcome::No)
        }
        Err(error) if is_denied(&error) => {
            Err(Failure::lacking(anyhow!("cannot see whether a router runs here: run as root")))
        }
        other => other?,
    }
}

fn status(args: &StatusArgs) -> Result<Result<Outcome, Failure>, RouteError> {
    Ok(match control::ask(&Command::Status)? {
        Answer::Status(status) if args.json => print_json("route.status", &status).map(|()| Outcome::Fine),
        Answer::Status(status) => print(&report::route_text(&status, Look::of_stdout())).map(|()| Outcome::Fine),
        other => Err(unexpected(&other)),
    })
}

fn switch(args: &ModeArgs) -> Result<Result<Outcome, Failure>, RouteError> {
    let mode = RouteMode::from(args.mode);
    let answer = control::ask(&Command::Mode(mode))?;
    let done = match control::ask(&Command::Status)? {
        Answer::Status(status) if status.mode != mode => {
            format!(
                "mode {}: a trial; {} follows if no frame would have left otherwise",
                status.mode.name(),
                mode.name()
            )
        }
        _ => format!("mode {}", mode.name()),
    };
    Ok(conclude("route.mode", args.json, &answer, &done))
}

fn stop(args: &StopArgs) -> Result<Result<Outcome, Failure>, RouteError> {
    let answer = control::stop()?;
    Ok(conclude("route.stop", args.json, &answer, "the fast path is gone; the kernel forwards"))
}

fn conclude(verb: &str, json: bool, answer: &Answer, done: &str) -> Result<Outcome, Failure> {
    let (is_done, message) = match answer {
        Answer::Done => (true, done),
        Answer::Refused(why) => (false, why.as_str()),
        Answer::Status(_) => return Err(unexpected(answer)),
    };
    match (json, is_done) {
        (true, _) => print_json(verb, serde_json::json!({ "done": is_done, "message": message }))?,
        (false, true) => print(&format!("{message}\n"))?,
        (false, false) => note(message),
    }
    Ok(if is_done { Outcome::Fine } else { Outcome::No })
}

/// Whether another user could have asked.
fn is_denied(error: &RouteError) -> bool {
    let RouteError::Serve(ServeError::File { source, .. }) = error else { return false };
    source.kind() == io::ErrorKind::PermissionDenied
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::internal(anyhow!("the router answered something else: {answer:?}"))
}

fn check(args: &CheckArgs) -> Result<Outcome, Failure> {
    privilege::require("a look at the rules of nftables", &[Capability::CAP_NET_ADMIN])?;
    let check = route::audit::check(&args.interfaces)?;
    let outcome = if check.obstacles.is_empty() { Outcome::Fine } else { Outcome::No };
    match args.json {
        true => print_json("route.check", &check)?,
        false => print(&report::route_check_text(&check, Look::of_stdout()))?,
    }
    Ok(outcome)
}

fn tend(args: &RunArgs) -> Result<Outcome, Failure> {
    privilege::require(
        "a router's fast path",
        &[Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON],
    )?;
    let RouterArgs { interfaces, mode, trial, stay, xdp_mode, remember, outputs } = &args.router;
    let paths = Paths::here();
    let _held = paths.lock()?;
    let signals = Signals::catch().context("cannot catch signals").map_err(Failure::internal)?;
    let mut seen = Seen::open(&outputs.settings())?;
    let mut router = Router::start(RouteSettings {
        ports: interfaces.clone(),
        xdp: *xdp_mode,
        slots: *remember,
        mode: RouteMode::Standard,
        returns: !stay,
        trial: *trial,
    })?;
    if !router.unwatched().is_empty() {
        note(format_args!(
            "this kernel does not let these functions be followed: {}. What they change is heard of by netlink, some milliseconds later",
            router.unwatched().join(", ")
        ));
    }
    router.set_mode((*mode).into())?;
    note(format_args!("{}: {} XDP", interfaces.join(", "), router.xdp_mode()));
    let (to, requests) = mpsc::channel();
    let listener = Listener::start(&paths.socket(), to.clone())?;
    if let Err(error) = serve::notify_ready() {
        note(format_args!("cannot tell systemd that the router is up: {error}"));
    }
    let show = show::Show { interval: args.interval, json: args.json, quiet: args.quiet, wanted: (*mode).into() };
    let show::Ended { ran, shown } = show.while_it_runs(&to, &signals, |emit| {
        // It goes with its loop: what was asked too late is not waited for.
        let requests = requests;
        control::run(&mut router, &requests, &signals.stop, &mut seen, emit)
    })?;
    drop(router);
    drop(listener);
    seen.end();
    let failed = ran.as_ref().err().map(model::Classified::class);
    end_soon(failed.map_or(0, model::ErrorClass::exit_code));
    note("the fast path is gone; the kernel forwards");
    ran?;
    shown?;
    Ok(Outcome::Fine)
}
