//! `bench --dut guest`: a guest that QEMU runs as the box.

use std::{collections::HashSet, path::Path};

use ::bench::guest::{Asked, Plan, carry_out};
use ::guest::{Kernel, Nic};
use anyhow::anyhow;
use host::Host;
use model::{
    bench::guest::{Fares, GuestRun, SCHEMA},
    schema::Document,
};
use report::Look;
use rig::progress::duration_words;
use sys::privilege;

use super::{BenchArgs, saved};
use crate::{
    failure::{Failure, Outcome, note, print},
    long_run::{LAB_CAPABILITIES, OutFile, interrupted, json_text, long_run, put_out},
};

/// The name of the schema.
const NAME: &str = "bench.guest";
/// The page, for people.
pub(crate) const PAGE: &str = "page with the charts";
/// The word for `--dut`.
pub(super) const KEY: &str = "guest";
/// Runs of each burst.
const RUNS: u32 = 3;
/// Seconds that a card model takes.
const CARD_S: f64 = 75.0;

/// Counts, and shows.
pub(super) fn run(args: &BenchArgs, host: &Host) -> Result<Outcome, Failure> {
    if args.dut.len() > 1 {
        return Err(Failure::usage(anyhow!("a guest is measured by itself: name no other box beside `--dut guest`")));
    }
    let (as_json, page) = args.output.for_flood().map_err(|option| {
        Failure::usage(anyhow!("{option} is not for `--dut guest`: its results are text, --json and --html"))
    })?;
    let ignored = [
        (args.neighbour.is_empty(), "--neighbour"),
        (args.sizes.is_none(), "--sizes"),
        (args.datagrams.is_none(), "--datagrams"),
        (!args.imix, "--imix"),
        (args.replay.is_none(), "--pcap"),
        (args.flows.is_none(), "--flows"),
        (!args.ipv6, "--ipv6"),
        (!args.one_way, "--one-way"),
        (args.preset.is_none(), "--preset"),
        (args.test.is_empty(), "--tests"),
        (args.loss_ratio.is_none(), "--loss-ratio"),
        (args.trial.is_none(), "--duration"),
        (args.rules.is_none(), "--rule-count"),
        (args.rule_order.is_none(), "--rule-order"),
        (args.cpus.is_none(), "--cpus"),
        (args.save.is_none(), "--save"),
        (args.resume.is_none(), "--resume"),
    ];
    if let Some((_, option)) = ignored.iter().find(|(unused, _)| !unused) {
        return Err(Failure::usage(anyhow!(
            "{option} is not for `--dut guest`: a guest that is emulated is counted, frame by frame of 64 bytes"
        )));
    }
    let kernel = Kernel::open(args.guest_kernel.as_deref())?;
    let mut nics = if args.nic.is_empty() { Nic::MODELS.to_vec() } else { args.nic.clone() };
    let mut seen = HashSet::new();
    nics.retain(|nic| seen.insert(nic.clone()));
    let runs = args.repeats.unwrap_or(RUNS);
    let plan = Plan::new(Asked { nics, runs, exit_ns: args.exit_ns }, &kernel);
    if plan.asked.nics.is_empty() {
        return Err(Failure::lacking(anyhow!("no card model is left; {}", plan.left_out.join("; "))));
    }
    let about = duration_words(CARD_S * plan.asked.nics.len() as f64);
    if args.dry_run {
        let names: Vec<String> = plan.asked.nics.iter().map(ToString::to_string).collect();
        if as_json {
            let planned = serde_json::json!({
                "kernel": kernel.release,
                "cards": names,
                "runs": runs,
                "seconds": CARD_S * names.len() as f64,
                "left_out": plan.left_out,
            });
            return print(&json_text(&Document::new(&format!("{NAME}.plan"), SCHEMA, &planned))?)
                .map(|()| Outcome::Fine);
        }
        let left_out: String = plan.left_out.iter().map(|left| format!("Left out, {left}.\n")).collect();
        let names = names.join(", ");
        return print(&format!(
            "Linux {} in a guest with {names}, {runs} runs of each burst, about {about}.\n{left_out}",
            kernel.release
        ))
        .map(|()| Outcome::Fine);
    }
    privilege::require_root("bench", &LAB_CAPABILITIES)?;
    let page = OutFile::open(page, PAGE)?;
    let program = std::env::current_exe().map_err(|e| Failure::lacking(anyhow!("cannot find this program: {e}")))?;
    note(format_args!(
        "evenkeel: a guest of Linux {} for each card model ({}), about {about}",
        kernel.release,
        plan.asked.nics.len()
    ));
    let Some(found) = long_run(|stop, bar| carry_out(&plan, (host, &kernel, &program), stop, bar))? else {
        return interrupted("run");
    };
    show(&found, as_json, page)?;
    let all = found.cards.iter().all(|card| card.verbs.iter().all(|verb| verb.fares != Fares::Fails));
    Ok(if all { Outcome::Fine } else { Outcome::No })
}

/// Prints a run, and writes its page.
pub(crate) fn show(run: &GuestRun, as_json: bool, page: Option<OutFile<'_>>) -> Result<(), Failure> {
    let text = match as_json {
        true => json_text(&Document::new(NAME, SCHEMA, run))?,
        false => report::guest_text(run, Look::of_stdout()),
    };
    put_out(&text, page, || report::guest_page(run))
}

/// Whether a file claims to be such a run.
pub(crate) fn is_saved(path: &Path) -> bool {
    saved::is_saved(path, NAME)
}

/// A run out of a file.
pub(crate) fn load(path: &Path) -> Result<GuestRun, Failure> {
    saved::load(path, (NAME, SCHEMA), "`evenkeel bench --dut guest --json`")
}
