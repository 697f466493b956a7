//! `evenkeel route`: a router's fast path.

mod consent;
mod outputs;
mod show;
mod unit;

use std::{io, path::PathBuf, str::FromStr, time::Duration};

use anyhow::anyhow;
use bpf::XdpMode;
use clap::{Args, Subcommand, ValueEnum};
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
};
use report::Look;
use route::{
    RouteError, RouteService, RouteSettings,
    control::{self, Answer, Command},
    home,
    rules::RouteRules,
};
use rules::requester::Requester;
use serve::ServeError;
use sys::privilege::{self, Capability};

use crate::{
    args::XDP_MODES,
    failure::{Failure, Outcome, note, print, print_json},
    numbers::words,
    output::end_soon,
    shown::{self, Show},
    time::{interval, time},
};

/// Forward packets in XDP, by the kernel's own routes.
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
    Reload(ReloadArgs),
    Rules(consent::RulesArgs),
    #[cfg(feature = "measure")]
    Compare(super::measure::CompareArgs),
    Stop(StopArgs),
    Unit(unit::UnitArgs),
}

/// Frames that the queue to a CPU holds, unless another number is asked for.
const CPU_QUEUE: u32 = 2048;

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

/// What a router is to be: the options that `route run` and `route unit` share.
#[derive(Debug, Args)]
struct RouterArgs {
    /// Ports to forward between. What leaves by another interface goes up to the kernel.
    #[arg(value_name = "INTERFACE", required = true, value_parser = crate::args::interface)]
    interfaces: Vec<String>,
    /// Mode once the trial is over.
    #[arg(long, value_enum, default_value = "routed", help_heading = "Operation")]
    mode: Mode,
    /// Length of the trial in shadow; 0: none.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time, help_heading = "Operation")]
    trial: Duration,
    /// Mark of the connections that mode stateful takes: VALUE or VALUE/MASK.
    #[arg(long, hide_short_help = true, value_name = "MARK", default_value_t = CtMark::default(), value_parser = CtMark::from_str, help_heading = "Operation")]
    mark: CtMark,
    /// CPUs that forward, such as 2-3 [default: those that receive].
    ///
    /// The core that receives a frame for this router hands it to one of them: each flow to one, both directions to the same. Worth it where an
    /// interface has fewer queues than there are cores for it. In native mode only.
    #[arg(long, value_name = "CPUS", help_heading = "Operation")]
    cpus: Option<CpuSet>,
    /// Frames that the queue of each port to each of these CPUs holds.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = CPU_QUEUE,
        value_parser = clap::value_parser!(u32).range(8..=i64::from(bpf::ROUTE_QUEUE_MAX)),
        help_heading = "Operation"
    )]
    cpu_queue: u32,
    /// Rules (TOML) for what comes in by a port, in each mode.
    ///
    /// The file is one as for `shield run`.
    #[arg(long, short, value_name = "FILE", help_heading = "Rules")]
    rules: Option<PathBuf>,
    /// Pin the rules: they stay active until `route stop`.
    ///
    /// The rules outlive this process, even one that was killed. The kernel forwards what they pass.
    #[arg(long, requires = "rules", help_heading = "Rules")]
    pin_rules: bool,
    /// Start even if a rule would cut off the ssh session you are typing in.
    #[arg(long, hide_short_help = true, requires = "rules", help_heading = "Rules")]
    force: bool,
    /// Stay in mode standard after an obstacle.
    ///
    /// `route mode` then starts the fast path again.
    #[arg(long, help_heading = "Operation")]
    no_auto_return: bool,
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
    /// Next hops that each CPU remembers, of each IP version; in mode stateful four times as many connections too [default: twice the routes
    /// there are, 65536 to 1048576, and 524288 connections]. Twice the number of destinations in use serves well.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(64..=1 << 22),
        help_heading = "Operation"
    )]
    remember: Option<u32>,
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
    #[arg(value_name = "INTERFACE", required = true, value_parser = crate::args::interface)]
    interfaces: Vec<String>,
    /// Mode to check for.
    #[arg(long, value_enum, default_value = "routed")]
    mode: Mode,
    /// Mark of the connections that mode stateful takes: VALUE or VALUE/MASK.
    #[arg(long, value_name = "MARK", default_value_t = CtMark::default(), value_parser = CtMark::from_str)]
    mark: CtMark,
    /// Mode of the XDP program to check for.
    #[arg(long, value_name = "MODE", default_value = "native", value_parser = words(&XDP_MODES))]
    xdp_mode: XdpMode,
    /// Print JSON (schema evenkeel.route.check/1).
    #[arg(long)]
    json: bool,
}

/// Read the file of rules again. Each packet meets the old rules or the new ones; after an error the old ones go on.
///
/// The ssh session you are typing in is added to the management allow-list, unless the file says session = false.
#[derive(Debug, Args)]
struct ReloadArgs {
    /// Load the rules even if one would cut off the ssh session you are typing in.
    #[arg(long)]
    force: bool,
    /// Print JSON (schema evenkeel.route.reload/1).
    #[arg(long)]
    json: bool,
}

/// End the fast path. The kernel forwards. A process that does not answer for two seconds is killed.
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
        Action::Rules(args) => return consent::run(args),
        #[cfg(feature = "measure")]
        Action::Compare(args) => return args.run(),
        Action::Status(args) => status(args),
        Action::Mode(args) => switch(args),
        Action::Cpus(args) => change_cpus(args),
        Action::Reload(args) => reload(args),
        Action::Stop(args) => stop(args),
    };
    match done {
        Err(starts @ RouteError::Starting { .. }) => {
            note(starts);
            Ok(Outcome::No)
        }
        Err(RouteError::NotRunning) => {
            note(RouteError::NotRunning);
            let left = route::pinned::interfaces();
            if !left.is_empty() {
                note(format_args!(
                    "rules of an earlier router are still active on {}; `evenkeel route stop` removes them",
                    left.join(", ")
                ));
            }
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
                "mode {}: a trial; {} follows if the kernel sends each frame as the fast path would",
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

/// Names the CPUs that forward.
fn by_whom(cpus: &CpuSet) -> String {
    match cpus.len() {
        0 => "each CPU forwards what it receives".to_owned(),
        1 => format!("CPU {cpus} forwards"),
        _ => format!("CPUs {cpus} forward"),
    }
}

fn reload(args: &ReloadArgs) -> Result<Result<Outcome, Failure>, RouteError> {
    let requester = Requester { sessions: host::session::sessions(), force: args.force };
    let answer = control::ask(&Command::Reload(requester))?;
    let message = control::reload_message(&answer);
    let reloaded = match &answer {
        Answer::Reloaded(reloaded) => Some(reloaded),
        Answer::Refused(_) => None,
        other => return Ok(Err(unexpected(other))),
    };
    if args.json {
        let body = serde_json::json!({ "done": reloaded.is_some(), "message": message, "reloaded": reloaded });
        if let Err(failure) = print_json("route.reload", body) {
            return Ok(Err(failure));
        }
    }
    let Some(reloaded) = reloaded else { return Ok(Err(Failure::usage(anyhow!(message)))) };
    reloaded.warnings.iter().for_each(note);
    Ok(match args.json {
        true => Ok(Outcome::Fine),
        false => print(&format!("{message}\n")).map(|()| Outcome::Fine),
    })
}

fn stop(args: &StopArgs) -> Result<Result<Outcome, Failure>, RouteError> {
    let (answer, killed) = control::stop()?;
    if let Some(pid) = killed {
        note(format_args!("process {pid} did not answer and was killed"));
    }
    Ok(conclude("route.stop", args.json, &answer, "stopped; the kernel forwards"))
}

fn conclude(verb: &str, json: bool, answer: &Answer, done: &str) -> Result<Outcome, Failure> {
    let (is_done, message) = match answer {
        Answer::Done => (true, done),
        Answer::Refused(why) => (false, why.as_str()),
        Answer::Status(_) | Answer::Reloaded(_) => return Err(unexpected(answer)),
    };
    match (json, is_done) {
        (true, _) => print_json(verb, serde_json::json!({ "done": is_done, "message": message }))?,
        (false, true) => print(&format!("{message}\n"))?,
        (false, false) => note(message),
    }
    Ok(if is_done { Outcome::Fine } else { Outcome::No })
}

/// True if another user could have asked.
fn is_denied(error: &RouteError) -> bool {
    let RouteError::Serve(ServeError::File { source, .. }) = error else { return false };
    source.kind() == io::ErrorKind::PermissionDenied
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::internal(anyhow!("the router answered something else: {answer:?}"))
}

fn check(args: &CheckArgs) -> Result<Outcome, Failure> {
    privilege::require("a look at the rules of nftables", &[Capability::CAP_NET_ADMIN])?;
    let check = route::audit::check(&args.interfaces, args.mode.into(), args.mark, args.xdp_mode)?;
    let outcome = if check.obstacles.is_empty() && check.can_forward() { Outcome::Fine } else { Outcome::No };
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
    let RouterArgs {
        interfaces,
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
    } = &args.router;
    let rules = rules.as_deref().map(|file| {
        let requester = Requester { sessions: host::session::sessions(), force: *force };
        let (rules, warnings) = RouteRules::read(file, &requester)?;
        Ok::<_, RouteError>((if *pin_rules { rules.into_pinned() } else { rules }, warnings))
    });
    let (rules, warnings) = rules.transpose()?.unzip();
    warnings.iter().flatten().for_each(note);
    let held = home::hold(&home::here())?;
    if let Err(error) = route::leftovers::clear(Some(&held)) {
        note(format_args!("{error}"));
    }
    let mut server = shown::server()?;
    let settings = RouteSettings {
        ports: interfaces.clone(),
        xdp: *xdp_mode,
        slots: *remember,
        mode: (*mode).into(),
        auto_return: !no_auto_return,
        trial: *trial,
        mark: *mark,
        cpus: cpus.clone().unwrap_or_default(),
        queue: *cpu_queue,
    };
    let pinned = *pin_rules && rules.is_some();
    let show = Show::start(show::who(), args.interval, args.json, args.quiet)?;
    let service = RouteService::open(held, settings, rules, &outputs.settings(), note, show::emit(&show))?;
    let router = server.add(service)?;
    let client = router.client();
    let shown = show.run(&mut server, |over| show::show(&show, client, (*mode).into(), over));
    drop(show);
    let ran = router.ended().transpose();
    let failed = ran.as_ref().err().map(model::Classified::class);
    end_soon(failed.map_or(0, model::ErrorClass::exit_code));
    note(match pinned {
        true => "fast path removed; the kernel forwards what the rules pass, and they stay until `evenkeel route stop`",
        false => "fast path removed; the kernel forwards",
    });
    ran?;
    shown?;
    Ok(Outcome::Fine)
}
