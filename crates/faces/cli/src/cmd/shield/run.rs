//! `shield run`: the shield in the foreground, and `shield unit`: the same under systemd.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use bpf::{XdpError, XdpMode};
use clap::Args;
use host::session;
use model::shield::Fail;
use rules::requester::Requester;
use serve::Server;
use shield::{
    ShieldError,
    between::ring,
    run::{
        Command, Control, Ended, Message, Paths, Settings, ShieldService, Upkeep, control::check_lockout,
        unit as systemd,
    },
};
use sys::privilege::{self, Capability};

use super::{
    ask::with_rates,
    event,
    options::{Backend, FailArg, Mode, ShieldOptions},
};
use crate::{
    failure::{Failure, Outcome, note, print},
    output::{Who, end_soon},
    shown::{self, Samples, Show, has_colour, view},
    time::interval,
};

/// Put a shield in front of an interface, and remove it at Ctrl-C.
///
/// On a terminal this shows a live view; `?` lists its keys, `q` asks before it ends the shield. SIGHUP reads the rules again, as
/// `evenkeel shield reload` does: all rules are replaced at once, and after an error the old rules stay active. A shield that an earlier
/// process left behind (kill -9, `shield stop --leave`) is taken over: its rules stay active until the new ones are ready, and counters go on.
#[derive(Debug, Args)]
#[command(
    override_usage = "evenkeel shield run [OPTIONS] <INTERFACE>\n       evenkeel shield run [OPTIONS] --between <A,B>"
)]
pub(super) struct RunArgs {
    #[command(flatten)]
    options: ShieldOptions,
    /// Length of an interval of the view, 100ms to 1h.
    #[arg(long, hide_short_help = true, short, help_heading = "Output", value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print JSON (schema evenkeel.shield.status/1), one document per line and interval. The shield goes on when nobody reads it any more.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Show no view: print only events and messages, on stderr.
    #[arg(long, hide_short_help = true, short, help_heading = "Output", conflicts_with = "json")]
    quiet: bool,
    /// At the end leave the shield on the interface. It fails open or closed unless another `shield run` takes it over within --fail-after.
    /// So `--leave` alone does not protect.
    #[arg(long, hide_short_help = true, help_heading = "Operation")]
    leave: bool,
    /// Start even if a rule would cut off the ssh session you are typing in.
    #[arg(long, hide_short_help = true, help_heading = "Rules")]
    force: bool,
}

/// Print a systemd unit that runs this shield in a sandbox with the fewest capabilities.
///
/// Put all rules into the file: --rule and --set are refused.
#[derive(Debug, Args)]
#[command(
    override_usage = "evenkeel shield unit [OPTIONS] <INTERFACE>\n       evenkeel shield unit [OPTIONS] --between <A,B>"
)]
pub(super) struct UnitArgs {
    #[command(flatten)]
    options: ShieldOptions,
}

pub(super) fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    let options = &args.options;
    options.check()?;
    if args.leave && options.backend == Backend::Ring {
        return Err(Failure::usage(anyhow!(
            "--leave does not work with --backend ring: packet rings end with their process"
        )));
    }
    let file = options.rules.read()?;
    // Sessions with this machine do not go through a gateway.
    let sessions = if options.between.is_some() { Vec::new() } else { session::sessions() };
    let name = options.name();
    let requester = Requester { sessions, force: args.force };
    check_lockout(&requester, &file)?
        .iter()
        .for_each(|warning| note(format_args!("{}: {warning}", options.file_name())));
    privilege::require(
        format!("a shield in front of {name}"),
        &[Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON],
    )?;
    let first = options.first();
    host::interface::index(&first)?;
    let server = shown::server()?;
    let settings = Settings {
        interface: first.clone(),
        between: options.between.clone(),
        mode: options.xdp.unwrap_or(XdpMode::Native),
        source: options.rules.source(),
        fail: match (options.fail, options.backend) {
            (Some(FailArg::Open), _) | (None, Backend::Xdp) => Fail::Open,
            (Some(FailArg::Closed), _) | (None, Backend::Ring) => Fail::Closed,
        },
        fail_after: options.fail_after,
        paths: Paths::of(&first),
        sessions: requester.sessions.clone(),
    };
    match options.backend {
        Backend::Xdp => {
            control(args, server, &requester, shield::run::xdp::start(&settings, &file).map_err(explain_generic)?)
        }
        Backend::Ring => control(args, server, &requester, ring::start(settings, file, options.threads().into())?),
    }
}

/// Runs the shield until it ends, and shows it meanwhile.
fn control<P: Upkeep + 'static>(
    args: &RunArgs,
    mut server: Server,
    requester: &Requester,
    mut control: Control<P>,
) -> Result<Outcome, Failure> {
    let name = control.name();
    let who = Who { name: "the shield", stop: format!("evenkeel shield stop {name}") };
    let show = Show::start(who, args.interval, args.json, args.quiet)?;
    // Before and behind the view there is place for lines, and a terminal takes them.
    let say = |line: String| if show.interactive { note(line) } else { show.output.message(&line) };
    control.take_notes().into_iter().for_each(say);
    let up = control.up();
    let shield = server.add(ShieldService::new(control, args.leave, emit(&show)))?;
    say(up);
    let client = shield.client();
    let shown = show.run(&mut server, |over| {
        let samples = Samples::of(client, with_rates);
        if !show.interactive {
            show.lines(samples, over, "shield.status", report::shield_line);
            return Ok(());
        }
        let reload = || client.send(Command::Reload(requester.clone()));
        view(tui::shield::View::new(args.interval, has_colour(), args.leave, reload), samples, over)
    });
    let broken = || Failure::internal(anyhow!("the thread that controls the shield panicked"));
    let ended = shield.ended().ok_or_else(broken).and_then(|ended| ended.map_err(Failure::from));
    let failed = ended.as_ref().err().or(shown.as_ref().err());
    end_soon(failed.map_or(0, Failure::exit_code));
    let state = match ended? {
        Ended::Stopped => "shield removed",
        Ended::Left => "the shield stays, and no process runs it",
    };
    say(format!("{name}: {state}"));
    shown?;
    Ok(Outcome::Fine)
}

/// Tells what happens without having been asked for.
fn emit(show: &Show) -> impl FnMut(Message) + 'static {
    let (output, json, interactive) = (Arc::clone(&show.output), show.json, show.interactive);
    move |message| match message {
        // On the screen of the view there is no place for lines.
        _ if interactive => {}
        Message::Text(text) => output.message(&text),
        Message::Event(event) if json => output.event(shield::events::line(&event)),
        Message::Event(event) => output.message(&event::text(&event)),
    }
}

/// Says how to have generic mode, where that is the way out.
fn explain_generic(error: ShieldError) -> Failure {
    match error {
        ShieldError::Xdp(XdpError::NoNative { .. }) => {
            Failure::from(error).after("Ask for it with `--xdp-mode generic`")
        }
        error => error.into(),
    }
}

pub(super) fn unit(args: &UnitArgs) -> Result<Outcome, Failure> {
    let options = &args.options;
    options.check()?;
    let file = options.rules.read()?;
    options.name().split(',').try_for_each(|name| host::interface::index(name).map(drop))?;
    if !options.rules.rule.is_empty() || !options.rules.set.is_empty() {
        return Err(Failure::usage(anyhow!("a unit takes its rules from a file: move --rule and --set there")));
    }
    let written = [("events", &file.detection.events), ("metrics.file", &file.detection.metrics.file)];
    if let Some((key, path)) =
        written.iter().find_map(|(key, path)| Some((key, path.as_ref()?))).filter(|(_, p)| p.is_relative())
    {
        return Err(Failure::usage(anyhow!(
            "`detection.{key}` is the relative path {}, and a unit has no folder to start from: write the whole path",
            path.display()
        )));
    }
    let program = crate::unit::exec_start()?;
    let mut words = Vec::new();
    if let Some(path) = &options.rules.rules {
        let path = std::path::absolute(path).context("cannot find the file of rules").map_err(Failure::lacking)?;
        let files = written.iter().filter_map(|(_, path)| path.as_deref()).chain([&*path]);
        crate::unit::warn_of_hidden(files, "/etc/evenkeel");
        words.extend(["--rules".to_owned(), path.display().to_string()]);
    }
    if options.xdp == Some(Mode::Generic) {
        words.extend(["--xdp-mode".to_owned(), "generic".to_owned()]);
    }
    if options.fail == Some(FailArg::Closed) {
        words.extend(["--fail".to_owned(), "closed".to_owned()]);
    }
    if options.backend == Backend::Ring {
        words.extend([
            "--backend".to_owned(),
            "ring".to_owned(),
            "--threads".to_owned(),
            options.threads().to_string(),
        ]);
    }
    if options.fail_after != Duration::from_millis(700) {
        words.extend(["--fail-after".to_owned(), options.fail_after.as_secs_f64().to_string()]);
    }
    let rings = options.backend == Backend::Ring;
    print(&systemd::text(&program, &options.name(), &words, rings, &file.detection))?;
    Ok(Outcome::Fine)
}
