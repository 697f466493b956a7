//! `evenkeel spread status`.

use std::{collections::BTreeMap, thread, time::Duration, time::Instant};

use clap::Args;
use host::{Host, counters::interrupts};
use model::CpuSet;
use report::Look;
use serde::Serialize;
use spread::status::{StatusRow, status};

use super::live_root;
use crate::args::StateArg;
use crate::failure::{Failure, Outcome, caution, json, print_verdict};
use crate::time::within;

/// Arguments of `spread status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Interfaces [default: all that have queue interrupts].
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Count interrupts for this time, 50ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = within("50ms", "1h"))]
    interval: Duration,
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (schema evenkeel.spread.status/1).
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    irqbalance_pid: Option<u32>,
    queues: Vec<StatusRow>,
}

/// Measures for an interval and prints the table. The answer is "no" when a queue is not where it was put.
pub(crate) fn run(args: &StatusArgs) -> Result<Outcome, Failure> {
    let root = live_root()?;
    let host = Host::read(&root)?;
    let named = crate::args::interfaces(&args.interfaces, false);
    for name in &named {
        host.named(name)?;
    }
    let journal = args.state.journal();
    let mut sessions = journal.sessions()?;
    let mut of_this_boot = Vec::new();
    for session in sessions.drain(..) {
        if session.is_of_this_boot()? {
            of_this_boot.push(session);
        }
    }
    let (earlier, began) = (interrupts(&root.read("proc/interrupts")?), Instant::now());
    thread::sleep(args.interval);
    let (later, seconds) = (interrupts(&root.read("proc/interrupts")?), began.elapsed().as_secs_f64());
    let rows = status(&Host::read(&root)?, &of_this_boot, &named, &earlier, &later, seconds);
    let outcome = if rows.iter().any(|r| r.finding.is_some()) { Outcome::No } else { Outcome::Fine };
    if args.json {
        let text = json("spread.status", Report { irqbalance_pid: host.irqbalance_pid, queues: rows })?;
        return print_verdict(&(text + "\n"), outcome);
    }
    if let Some(pid) = host.irqbalance_pid {
        caution(format_args!("irqbalance (process {pid}) is running; stop it: systemctl disable --now irqbalance"));
    }
    let text = match rows.as_slice() {
        [] => "No interrupt here is known to serve a queue; `evenkeel spread plan` says why.\n".to_owned(),
        rows => table(rows, Look::of_stdout()),
    };
    print_verdict(&text, outcome)
}

fn table(rows: &[StatusRow], look: Look) -> String {
    let heads = [
        "NIC",
        "QUEUE",
        ">IRQ",
        ">PLANNED CPU",
        ">ALLOWED CPUS",
        ">CURRENT CPU",
        ">MASK",
        ">IRQ/S",
        "COUNTED ON",
        "FINDING",
    ];
    // A mask is the set that was written, as the file has it.
    let first_to_go = ["MASK", "IRQ", "CURRENT CPU"];
    let set = |s: &Option<CpuSet>| s.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let cells = rows.iter().map(|r| {
        let (total, cpus) = total(&r.interrupts_per_second);
        vec![
            r.nic.clone(),
            r.queue.clone(),
            r.irq.to_string(),
            set(&r.planned),
            r.affinity.to_string(),
            set(&r.effective),
            r.mask.clone(),
            format!("{total:.0}"),
            if cpus.is_empty() { "-".to_owned() } else { cpus.to_string() },
            r.finding.clone().unwrap_or_default(),
        ]
    });
    look.table_within(&heads, cells.collect(), &first_to_go)
}

fn total(rates: &BTreeMap<u32, f64>) -> (f64, CpuSet) {
    (rates.values().sum::<f64>() + 0.0, rates.keys().copied().collect())
}
