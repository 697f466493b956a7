//! `evenkeel spread watch`.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::Args;
use host::{
    Host, interface,
    journal::Moves,
    knob::{Change, Live},
};
use model::{CpuSet, units};
use report::Look;
use serde::Serialize;
use spread::{
    Options,
    plan::allowed,
    watch::{Decision, Meter, Move, Note, Sample, Settings, State, decide},
};
use sys::{
    packet::PacketSocket,
    privilege::{self, Capability},
};

use super::{live_root, request::Scope};
use crate::{
    args::StateArg,
    cmd::changes::command_line,
    failure::{Failure, Outcome, caution, json_line, note, print},
    numbers::number,
    periods::sleep_until,
    signals::{Second, stop_flag},
    time::within,
};

/// Arguments of `spread watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    scope: Scope,
    /// Load of a hot core in percent.
    #[arg(long, help_heading = "Moves", value_name = "PERCENT", default_value_t = 80, value_parser = number::<u32>("a percentage", "80", 1..=100))]
    threshold: u32,
    /// Hot samples in a row before work is moved.
    #[arg(long, help_heading = "Moves", value_name = "N", default_value_t = 3, value_parser = number::<u32>("a number of samples", "3", 1..))]
    hot_samples: u32,
    /// Length of a sample, 50ms to 1h.
    #[arg(long, short, help_heading = "Intervals", value_name = "TIME", default_value = "1s", value_parser = within("50ms", "1h"))]
    interval: Duration,
    /// End after this number of samples [default: at Ctrl-C].
    #[arg(long, hide_short_help = true, help_heading = "Intervals", value_name = "N", conflicts_with = "once", value_parser = number::<u64>("a number of samples", "60", ..))]
    count: Option<u64>,
    /// Print the cost of each queue in one sample.
    #[arg(long, help_heading = "Intervals")]
    once: bool,
    /// Print the moves and make none.
    #[arg(long, help_heading = "Moves")]
    dry_run: bool,
    /// Do not take the moves back at the end.
    #[arg(long, help_heading = "Moves")]
    keep: bool,
    /// Hold the named interfaces in promiscuous mode meanwhile, by packet membership.
    #[arg(long, hide_short_help = true, requires = "interfaces", help_heading = "Moves")]
    promisc: bool,
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (schema evenkeel.spread.watch/1), a line per sample.
    #[arg(long, hide_short_help = true, help_heading = "Intervals")]
    json: bool,
}

/// A sample as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    sample: &'a Sample,
    decision: &'a Decision,
}

/// The moves of this watch, and what becomes of them at its end.
struct Mover {
    moves: Moves<Live>,
    keep: bool,
    /// The flag that names the journal's folder, for commands in messages.
    state: String,
}

/// Watches until Ctrl-C, the count, or a failure; the moves are taken back in each case, unless they are to be kept.
pub(crate) fn run(args: &WatchArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&live_root()?)?;
    for name in &crate::args::interfaces(&args.scope.interfaces, false) {
        host.named(name)?;
    }
    let except = args.scope.except.clone().unwrap_or_default();
    let allowed = allowed(&host, &Options { cpus: args.scope.cpus.clone(), except, ..Options::default() })?;
    privilege::require_root(
        "spread watch",
        &[Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_NET_ADMIN, Capability::CAP_SYS_NICE],
    )?;
    if let Some(pid) = host.irqbalance_pid {
        caution(format_args!(
            "irqbalance (process {pid}) is running and will rewrite what is moved; stop it: systemctl disable --now irqbalance"
        ));
    }
    let stop = stop_flag(Second::IsIgnored)?;
    let _promiscuous = hold_promiscuous(args)?;
    let moves = Moves::new(args.state.journal(), Live, command_line());
    let mut mover = Mover { moves, keep: args.keep, state: args.state.flag() };
    let mut meter = Meter::start(host, allowed, crate::args::interfaces(&args.scope.interfaces, false))?;
    let watched = watch(args, &mut meter, &mut mover, &stop);
    let restored = mover.end();
    match (watched, restored) {
        (Err(watched), Err(restored)) => Err(watched.after(&restored.message())),
        (watched, restored) => watched.and(restored).map(|()| Outcome::Fine),
    }
}

fn watch(args: &WatchArgs, meter: &mut Meter, mover: &mut Mover, stop: &AtomicBool) -> Result<(), Failure> {
    let settings =
        Settings { threshold_percent: f64::from(args.threshold), hot_samples: args.hot_samples, ..Settings::default() };
    let mut state = State::default();
    let samples = if args.once { 1 } else { args.count.unwrap_or(u64::MAX) };
    if !args.once && !args.json {
        note(format_args!("watching for cores at {} % or more; Ctrl-C ends it", args.threshold));
    }
    for _ in 0..samples {
        if !sleep_until(Instant::now() + args.interval, stop) {
            break;
        }
        let mut sample = meter.sample()?;
        for work in &mut sample.work {
            if work.knob.as_ref().is_some_and(|k| mover.moves.is_refused(k)) {
                work.knob = None;
            }
        }
        let decision = decide(&mut state, &settings, &sample);
        let text = if args.json {
            json_line("spread.watch", Report { sample: &sample, decision: &decision })?
        } else {
            let costs = if args.once { table(&sample) } else { String::new() };
            costs + &lines(&decision, meter.host())
        };
        match print(&text) {
            Ok(()) => {}
            // Nobody watches the watch any more. A closed pipe is an ordinary end.
            Err(failure) if failure.is_unread() => break,
            Err(failure) if args.once => return Err(failure),
            Err(failure) => return Err(failure.after("The watch ends")),
        }
        if !args.dry_run && !args.once {
            for made in decision.moves {
                if mover.make(&made)? {
                    state.made(&made);
                }
            }
        }
    }
    Ok(())
}

/// Describes a decision, a line for each change.
fn lines(decision: &Decision, host: &Host) -> String {
    let notes = decision.notes.iter().map(|note| match (note, host.irqbalance_pid) {
        (Note::Rewritten { .. }, Some(pid)) => {
            format!("{note}; irqbalance (process {pid}) is running, and likely did it\n")
        }
        _ => format!("{note}\n"),
    });
    notes.chain(decision.moves.iter().map(|m| format!("{} -> CPU {}: {}\n", m.name, m.to, m.reason))).collect()
}

impl Mover {
    /// Makes a move, or says why it is refused. Whether it was made.
    fn make(&mut self, wanted: &Move) -> Result<bool, Failure> {
        let new = wanted.knob.cpus_value(&CpuSet::single(wanted.to));
        let change = Change { knob: wanted.knob.clone(), old: String::new(), new, reason: wanted.reason.clone() };
        let refused = self.moves.make(change)?;
        refused.iter().for_each(caution);
        Ok(refused.is_none())
    }

    /// Takes the moves back, or leaves them as they are if they are to be kept; a second call does nothing.
    fn end(&mut self) -> Result<(), Failure> {
        if self.keep {
            let moves = match self.moves.keep() {
                0 => return Ok(()),
                1 => "1 move stays; take it back".to_owned(),
                many => format!("{many} moves stay; take them back"),
            };
            note(format_args!("{moves}: evenkeel undo --all{}", self.state));
            return Ok(());
        }
        let undone = self.moves.roll_back()?;
        undone.steps.iter().for_each(note);
        match undone.left.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(Failure::lacking(anyhow!(
                "not every move was taken back, or not noted as such ({first}); see `evenkeel undo --list{}`",
                self.state
            ))),
        }
    }
}

/// A panic, too, takes the moves back.
impl Drop for Mover {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            failure.report();
        }
    }
}

fn table(sample: &Sample) -> String {
    let look = Look::of_stdout();
    let cores = sample.cores.iter().map(|c| {
        let network: f64 = sample.work.iter().filter_map(|w| w.percent.get(&c.cpu)).sum::<f64>() + 0.0;
        vec![c.cpu.to_string(), c.node.to_string(), format!("{:.1}", c.busy_percent), format!("{network:.1}")]
    });
    let cores = look.table(&[">CPU", ">NODE", ">LOAD %", ">PACKET WORK %"], cores);
    let mut work: Vec<_> = sample.work.iter().collect();
    work.sort_by(|a, b| b.pps.total_cmp(&a.pps));
    let work = work.into_iter().filter(|w| w.pps > 0.0 || w.runs_on().is_some()).map(|w| {
        let total: f64 = w.percent.values().sum();
        // A percent of a core is 10 million nanoseconds in a second.
        let each = if w.pps > 0.0 { units::nanoseconds(total * 1e7 / w.pps) } else { "-".to_owned() };
        let written = w.written.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let cpu = w.runs_on().map_or_else(|| "-".to_owned(), |c| c.to_string());
        vec![w.name.clone(), cpu, written, format!("{total:.2}"), units::pps(w.pps.round()), each]
    });
    let work: Vec<_> = work.collect();
    if work.is_empty() {
        return format!("{cores}\nNo packet work was seen.\n");
    }
    format!("{cores}\n{}", look.table(&["WORK", ">RUNS ON", ">WRITTEN", ">% OF A CORE", ">PACKETS", ">EACH"], work))
}

/// Opens a socket for each interface; the membership ends with it.
fn hold_promiscuous(args: &WatchArgs) -> Result<Vec<PacketSocket>, Failure> {
    let mut sockets = Vec::new();
    for name in crate::args::interfaces(&args.scope.interfaces, false).iter().filter(|_| args.promisc) {
        let index = interface::index(name)?;
        let socket = PacketSocket::open().map_err(Failure::lacking)?;
        socket.set_promiscuous(index).map_err(Failure::lacking)?;
        sockets.push(socket);
    }
    Ok(sockets)
}
