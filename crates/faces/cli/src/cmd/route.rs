//! `evenkeel route`: a router's fast path.

mod rules;

use std::{
    io,
    str::FromStr,
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use bpf::XdpMode;
use clap::{Args, Subcommand, ValueEnum};
use model::{
    CpuSet,
    route::{CtMark, RouteMode, RouteStatus},
    schema::Document,
};
use report::Look;
use route::{
    RouteError, RouteEvent, RouteSettings, Router,
    control::{self, Answer, Command, Paths},
};
use serve::{ServeError, Signals, control::Listener};
use sys::privilege::{self, Capability};

use crate::{
    args::XDP_MODES,
    failure::{Failure, Outcome, note, print, print_json},
    numbers::words,
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
    Cpus(CpusArgs),
    Check(CheckArgs),
    Rules(rules::RulesArgs),
    Stop(StopArgs),
}

/// A mode, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The kernel alone forwards.
    Standard,
    /// The fast path forwards what it can, the kernel the rest.
    Routed,
    /// The fast path forwards established connections that a rule of nftables marked, NAT included; the kernel decides about all others.
    Stateful,
    /// The kernel forwards; the fast path decides, and its decisions are compared with what the kernel did.
    Shadow,
}

impl From<Mode> for RouteMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Standard => Self::Standard,
            Mode::Routed => Self::Routed,
            Mode::Stateful => Self::Stateful,
            Mode::Shadow => Self::Shadow,
        }
    }
}

/// Put the fast path on the ports of this router, and take it off at Ctrl-C.
///
///     evenkeel route run eth0 eth1
///
/// It begins in shadow: for some seconds the kernel goes on forwarding and each decision of the fast path is compared with what the kernel did.
/// Only when no frame would have left otherwise does the fast path forward.
#[derive(Debug, Args)]
struct RunArgs {
    /// Ports to forward between. What leaves by another interface goes up to the kernel.
    #[arg(value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// Mode once the trial is over.
    #[arg(long, value_enum, default_value = "routed", help_heading = "Operation")]
    mode: Mode,
    /// Length of the trial in shadow; 0 means none.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time, help_heading = "Operation")]
    trial: Duration,
    /// Mark of the connections that mode stateful takes: VALUE or VALUE/MASK.
    #[arg(long, value_name = "MARK", default_value_t = CtMark::default(), value_parser = CtMark::from_str, help_heading = "Operation")]
    mark: CtMark,
    /// CPUs that forward, such as 2-3 [default: those that receive].
    ///
    /// The core that receives a frame for this router hands it to one of them: each flow to one, both directions to the same. Worth it where an
    /// interface has fewer queues than there are cores for it.
    #[arg(long, value_name = "CPUS", help_heading = "Operation")]
    cpus: Option<CpuSet>,
    /// Frames that the queue of each port to each of these CPUs holds.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(8..=i64::from(bpf::ROUTE_QUEUE_MAX)),
        help_heading = "Operation"
    )]
    cpu_queue: u32,
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
        default_value_t = 32768,
        value_parser = clap::value_parser!(u32).range(64..=1 << 22),
        help_heading = "Operation"
    )]
    remember: u32,
    /// Interval of the lines, 100ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = interval, help_heading = "Output")]
    interval: Duration,
    /// Print JSON (schema evenkeel.route.status/1), one document per line and interval.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print only events and messages, on stderr.
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

/// Change the CPUs that forward. No packet is lost.
///
///     evenkeel route cpus 2-3
///     evenkeel route cpus none
#[derive(Debug, Args)]
struct CpusArgs {
    /// CPUs that forward from now on, such as 2-3; `none`: those that receive.
    #[arg(value_name = "CPUS", value_parser = cpus_or_none)]
    cpus: CpuSet,
    /// Print JSON (schema evenkeel.route.cpus/1).
    #[arg(long)]
    json: bool,
}

fn cpus_or_none(text: &str) -> Result<CpuSet, String> {
    let set = if text == "none" { Ok(CpuSet::new()) } else { CpuSet::parse_list(text) };
    match set {
        Ok(set) if set.is_empty() && text != "none" => Err("name a CPU, or `none`".to_owned()),
        other => other.map_err(|e| e.to_string()),
    }
}

/// Show what stands against the fast path here, and what to do about it.
#[derive(Debug, Args)]
struct CheckArgs {
    /// Ports to forward between.
    #[arg(value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// Mode to check for.
    #[arg(long, value_enum, default_value = "routed")]
    mode: Mode,
    /// Mark of the connections that mode stateful takes: VALUE or VALUE/MASK.
    #[arg(long, value_name = "MARK", default_value_t = CtMark::default(), value_parser = CtMark::from_str)]
    mark: CtMark,
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
        Action::Rules(args) => return rules::run(args),
        Action::Status(args) => status(args),
        Action::Mode(args) => switch(args),
        Action::Cpus(args) => change_cpus(args),
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

fn change_cpus(args: &CpusArgs) -> Result<Result<Outcome, Failure>, RouteError> {
    let answer = control::ask(&Command::Cpus(args.cpus.clone()))?;
    Ok(conclude("route.cpus", args.json, &answer, &by_whom(&args.cpus)))
}

/// Who forwards, of the CPUs.
fn by_whom(cpus: &CpuSet) -> String {
    match cpus.is_empty() {
        true => "each CPU forwards what it receives".to_owned(),
        false => format!("CPU {cpus} forwards"),
    }
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
    let check = route::audit::check(&args.interfaces, args.mode.into(), args.mark)?;
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
    let paths = Paths::here();
    let held = paths.lock()?;
    let signals = Signals::catch().context("cannot catch signals").map_err(Failure::internal)?;
    let mut router = Router::start(RouteSettings {
        ports: args.interfaces.clone(),
        xdp: args.xdp_mode,
        slots: args.remember,
        mode: RouteMode::Standard,
        returns: !args.stay,
        trial: args.trial,
        mark: args.mark,
        cpus: args.cpus.clone().unwrap_or_default(),
        queue: args.cpu_queue,
    })?;
    if !router.unwatched().is_empty() {
        note(format_args!(
            "this kernel does not let these functions be followed: {}. What they change is heard of by netlink, some milliseconds later",
            router.unwatched().join(", ")
        ));
    }
    router.set_mode(args.mode.into())?;
    for it in router.notes() {
        note(format_args!("{} ({}). {}", it.what, it.code, it.remedy));
    }
    note(format_args!("{}: mode {} ({} XDP)", args.interfaces.join(", "), router.mode().name(), router.xdp_mode()));
    let (to, requests) = mpsc::channel();
    let listener = Listener::start(&paths.socket(), to)?;
    if let Err(error) = serve::notify_ready() {
        note(format_args!("cannot tell systemd that the router is up: {error}"));
    }
    let mut shown = Shown { args, before: router.status()?, at: Instant::now(), failed: None };
    let ran = control::run(&mut router, &held, &requests, &signals.stop, |router, event| match event {
        Some(event) => tell(event),
        None => shown.look(router),
    });
    drop(router);
    drop(listener);
    note("the fast path is gone; the kernel forwards");
    ran?;
    match shown.failed {
        Some(failure) if !failure.is_broken_pipe() => Err(failure),
        _ => Ok(Outcome::Fine),
    }
}

/// Lines at intervals, as long as somebody reads them.
struct Shown<'a> {
    args: &'a RunArgs,
    before: RouteStatus,
    at: Instant,
    failed: Option<Failure>,
}

impl Shown<'_> {
    fn look(&mut self, router: &Router) {
        let seconds = self.at.elapsed();
        if self.args.quiet || self.failed.is_some() || seconds < self.args.interval {
            return;
        }
        // What cannot be read now is told of by the loop.
        let Ok(status) = router.status() else { return };
        let line = match self.args.json {
            true => serde_json::to_string(&Document::new("route.status", 1, &status)).unwrap_or_default(),
            false => report::route_line(&status, &self.before, seconds.as_secs_f64()),
        };
        self.failed = print(&(line + "\n")).err();
        (self.before, self.at) = (status, Instant::now());
    }
}

fn tell(event: &RouteEvent) {
    match event {
        RouteEvent::Mode(mode, why) => note(format_args!("mode {}: {why}", mode.name())),
        RouteEvent::Obstacle(it) => note(format_args!("in the way: {} ({}). {}", it.what, it.code, it.remedy)),
        RouteEvent::Cleared(it) => note(format_args!("not in the way any more: {} ({})", it.what, it.code)),
        RouteEvent::PortEnded(why) => note(format_args!("a port ended: {why}")),
        RouteEvent::Cpus(cpus) => note(format_args!("CPUs went offline or came back: {}", by_whom(cpus))),
        RouteEvent::Compared(result) => {
            note(report::shadow_text(result));
            result.examples.iter().for_each(|example| note(format_args!("  {example}")));
        }
    }
}
