//! `shield run`: the shield in the foreground, and `shield unit`: the same under systemd.

use std::{
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use bpf::{XdpError, XdpMode};
use clap::Args;
use host::session;
use model::{
    schema::Document,
    shield::{Fail, ShieldStatus},
};
use rules::requester::Requester;
use serve::{
    Signals,
    control::{ANSWER_TIMEOUT, Listener},
};
use shield::{
    ShieldError,
    between::ring,
    run::{Command, Control, Ended, Message, Paths, Request, Settings, Upkeep, control::judged, unit as systemd},
};
use sys::privilege::{self, Capability};

use super::{
    ask::with_rates,
    event,
    options::{Backend, FailArg, Mode, ShieldOptions},
};
use crate::{
    failure::{Failure, Outcome, note, print},
    output::{Output, Who, end_soon},
    terminal::is_interactive,
    time::interval,
};

const WHO: Who = Who { name: "the shield", stop: "evenkeel shield stop" };

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
    let asked = Requester { sessions, force: args.force };
    judged(&asked, &file)?.iter().for_each(|told| note(format_args!("{}: {told}", options.file_name())));
    privilege::require(
        format!("a shield in front of {name}"),
        &[Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON],
    )?;
    let first = options.first();
    host::interface::index(&first)?;
    let signals = Signals::catch().context("cannot catch signals").map_err(Failure::internal)?;
    let settings = Settings {
        interface: first.clone(),
        between: options.between.clone(),
        mode: options.xdp.unwrap_or(XdpMode::Native),
        source: options.rules.source(),
        fail: match (options.fail, options.backend) {
            (Some(FailArg::Open), _) | (None, Backend::Xdp) => Fail::Open,
            (Some(FailArg::Closed), _) | (None, Backend::Ring) => Fail::Closed,
        },
        patience: options.patience,
        paths: Paths::of(&first),
        sessions: asked.sessions.clone(),
    };
    match options.backend {
        Backend::Xdp => {
            control(args, &signals, &asked, shield::run::xdp::start(&settings, &file).map_err(say_generic)?)
        }
        Backend::Ring => control(args, &signals, &asked, ring::start(settings, file, options.threads().into())?),
    }
}

/// Runs the shield until it ends, and shows it meanwhile.
fn control<P: Upkeep + 'static>(
    args: &RunArgs,
    signals: &Signals,
    asked: &Requester,
    mut control: Control<P>,
) -> Result<Outcome, Failure> {
    let name = control.name();
    let interactive = is_interactive() && !args.json && !args.quiet;
    let output = Arc::new(Output::start(WHO, args.json)?);
    // Before and behind the view there is place for lines, and a terminal takes them.
    let say = |line: String| if interactive { note(line) } else { output.message(&line) };
    control.take_notes().into_iter().for_each(say);
    let (to, requests) = mpsc::channel();
    let listener = Listener::start(&control.paths().socket(), to.clone())?;
    say(control.up());
    if let Err(error) = serve::notify_ready() {
        note(format_args!("cannot tell systemd that the shield is up: {error}"));
    }
    let done = Arc::new(AtomicBool::new(false));
    let running = {
        let (signals, done, leave, json) = (signals.clone(), Arc::clone(&done), args.leave, args.json);
        // On the screen of the view there is no place for lines.
        let output = Arc::clone(&output);
        let emit = move |message: Message| match message {
            _ if interactive => {}
            Message::Text(text) => output.message(&text),
            Message::Event(event) if json => output.event(shield::events::line(&event)),
            Message::Event(event) => output.message(&event::text(&event)),
        };
        thread::spawn(move || {
            // Also when it breaks off: then nobody controls the shield any more, and the process is to end.
            let _done = Done(done);
            control.run(&requests, &signals, leave, emit)
        })
    };
    let shown = match interactive {
        true => view(args, &to, asked, &done),
        false => {
            show(args, &to, &output, &done);
            Ok(())
        }
    };
    signals.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(listener);
    let ended = running.join().map_err(|_| Failure::internal(anyhow!("the thread that controls the shield broke off")));
    let ended = ended.and_then(|ended| ended.map_err(Failure::from));
    let failed = ended.as_ref().err().or(shown.as_ref().err());
    end_soon(failed.map_or(0, Failure::exit_code));
    let said = match ended? {
        Ended::Stopped => "shield removed",
        Ended::Left => "the shield stays, and no process runs it",
    };
    say(format!("{name}: {said}"));
    shown?;
    Ok(Outcome::Fine)
}

/// Says how to have generic mode, where that is the way out.
fn say_generic(error: ShieldError) -> Failure {
    match error {
        ShieldError::Xdp(XdpError::NoNative { .. }) => {
            Failure::from(error).after("Ask for it with `--xdp-mode generic`")
        }
        error => error.into(),
    }
}

/// Says that the shield has ended, however it did.
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Samples of the shield that this process runs.
struct Samples<'a> {
    to: &'a mpsc::Sender<Request>,
    last: Option<(Instant, ShieldStatus)>,
}

impl Samples<'_> {
    /// None: the shield is gone.
    fn next(&mut self) -> Option<ShieldStatus> {
        let (to, answers) = mpsc::channel();
        self.to.send((Command::Status, to)).ok()?;
        let mut status = answers.recv_timeout(ANSWER_TIMEOUT).ok()?.status?;
        let now = Instant::now();
        if let Some((at, before)) = &self.last {
            with_rates(&mut status, before, (now - *at).as_secs_f64());
        }
        self.last = Some((now, status.clone()));
        Some(status)
    }
}

/// The view, until `done` or a key.
fn view(args: &RunArgs, to: &mpsc::Sender<Request>, asked: &Requester, done: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut samples = Samples { to, last: None };
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let reload = || drop(to.send((Command::Reload(asked.clone()), mpsc::channel().0)));
    let view = tui::shield::View::new(args.interval, colour, args.leave, reload);
    let gone = || Failure::lacking(anyhow!("the shield has ended")).message();
    let next = || samples.next().ok_or_else(|| Gone(gone()));
    match tui::live::live(view, next, done, None) {
        Err(tui::live::LiveError::Sample(_)) if done.load(std::sync::atomic::Ordering::Relaxed) => Ok(()),
        other => Ok(other?),
    }
}

/// JSON lines, text, or nothing, until `done`.
fn show(args: &RunArgs, to: &mpsc::Sender<Request>, output: &Output, done: &Arc<AtomicBool>) {
    let interval = args.interval;
    let mut samples = Samples { to, last: None };
    samples.next();
    let mut next = Instant::now() + interval;
    while !done.load(std::sync::atomic::Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50).min(interval));
        if Instant::now() < next {
            continue;
        }
        next += interval;
        if args.quiet || output.is_unheard() {
            continue;
        }
        let Some(status) = samples.next() else { continue };
        output.show(match args.json {
            // Numbers and texts: there is nothing in it that JSON has not.
            true => serde_json::to_string(&Document::new("shield.status", 1, &status)).unwrap_or_default() + "\n",
            false => format!("{}\n", report::shield_line(&status)),
        });
    }
}

/// The shield ended while it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Gone(String);

impl model::Classified for Gone {
    fn class(&self) -> model::ErrorClass {
        model::ErrorClass::Lacking
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
    let program = crate::unit::program()?;
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
    if options.patience != Duration::from_millis(700) {
        words.extend(["--fail-after".to_owned(), options.patience.as_secs_f64().to_string()]);
    }
    let rings = options.backend == Backend::Ring;
    print(&systemd::text(&program, &options.name(), &words, rings, &file.detection))?;
    Ok(Outcome::Fine)
}
