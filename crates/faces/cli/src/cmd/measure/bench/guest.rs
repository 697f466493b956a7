//! `bench --dut guest`: a guest that QEMU runs as the box.

use std::path::Path;

use ::bench::{
    guest::{Options, Plan, carry_out},
    run::{GuestBoxes, TAPS},
};
use ::guest::{Kernel, Nic};
use anyhow::anyhow;
use host::Host;
use model::units::duration_words;
use model::{
    bench::guest::{GuestRun, SCHEMA, VerbOutcome},
    schema::Document,
};
use sys::privilege;

use super::BenchArgs;
use crate::{
    cmd::measure::once,
    failure::{Failure, Outcome, note, print},
    long_run::{Found, LAB_CAPABILITIES, measure},
    results::{OutFile, json_text},
    unit::program,
};

/// The word for `--dut`.
pub(super) const KEY: &str = "guest";
/// The lab's boxes that a guest can be, and that are laid beside it.
const KINDS: [&str; 3] = ["router", "stateful", "stateless"];
/// Runs of each burst.
const RUN_COUNT: u32 = 3;
/// Seconds that a card model takes, and each of its runs besides.
const CARD_S: f64 = 45.0;
const RUN_S: f64 = 6.0;

/// The decision for `--dut guest`.
pub(super) enum Chosen {
    /// The run was counted in emulation, and shown.
    Counted(Outcome),
    /// KVM carries a guest: these boxes are to be measured.
    Measured(GuestBoxes),
}

/// Counts, and shows; or says which boxes are to be measured.
pub(super) fn run(args: &BenchArgs, host: &Host) -> Result<Chosen, Failure> {
    let kinds: Vec<&str> = args.dut.iter().map(String::as_str).filter(|&dut| dut != KEY).collect();
    if let Some(wrong) = kinds.iter().find(|kind| !KINDS.contains(*kind)) {
        return Err(Failure::usage(anyhow!(
            "{wrong} is not measured beside a guest: name {} with `--dut guest`",
            KINDS.join(", ")
        )));
    }
    let unfit = [(!args.ipv6, "--ipv6"), (args.resume.is_none(), "--resume")];
    if let Some((_, option)) = unfit.iter().find(|(unused, _)| !unused) {
        return Err(Failure::usage(anyhow!("{option} is not for `--dut guest`")));
    }
    let kernel = Kernel::open(args.guest_kernel.as_deref())?;
    let nics = if args.nic.is_empty() { Nic::MODELS.to_vec() } else { args.nic.clone() };
    let nics = once(nics);
    let runs = args.repeats.unwrap_or(RUN_COUNT);
    let plan = Plan::new(Options { nics, runs, exit_ns: args.exit_ns }, &kernel);
    let Some(first) = plan.options.nics.first() else {
        return Err(Failure::lacking(anyhow!("no card model is left; {}", plan.skipped.join("; "))));
    };
    let program = program()?;
    let why = match args.emulated {
        true => Some("--emulated was given".to_owned()),
        false => ::bench::guest::emulation_reason(&kernel, first, &program)?,
    };
    let Some(why) = why else {
        for left in &plan.skipped {
            note(format_args!("evenkeel: left out, {left}"));
        }
        // A neighbour is laid beside each box: what there is without a guest is measured only where it was named.
        let compared = args.neighbour.is_empty();
        let bare: Vec<&str> = if compared && kinds.is_empty() { vec![KINDS[0]] } else { kinds.clone() };
        let kinds = if kinds.is_empty() { vec![KINDS[0]] } else { kinds };
        let mut modes: Vec<String> = compared.then(|| TAPS.to_owned()).into_iter().collect();
        for kind in kinds {
            modes.extend(bare.contains(&kind).then(|| kind.to_owned()));
            modes.extend(plan.options.nics.iter().map(|nic| format!("{}:{kind}", nic.key())));
        }
        return Ok(Chosen::Measured(GuestBoxes { modes, kernel: kernel.image, evenkeel: program, emulated: false }));
    };
    count(args, host, (&kernel, &program), &plan, &why).map(Chosen::Counted)
}

/// Counts in emulation, since `why`.
fn count(
    args: &BenchArgs,
    host: &Host,
    (kernel, program): (&Kernel, &Path),
    plan: &Plan,
    why: &str,
) -> Result<Outcome, Failure> {
    // What stands in its way is told by a run of `--dut guest` alone.
    let emulated = if args.emulated { "--emulated was given" } else { "KVM carries no guest here" };
    let emulated = format!("{emulated}: the guest is emulated and counted, frame by frame, and has no rate");
    if args.dut.iter().any(|dut| dut != KEY) {
        return Err(Failure::lacking(anyhow!("{emulated}; name `--dut guest` alone")));
    }
    let (as_json, page) = args.output.for_flood().map_err(|option| {
        Failure::usage(anyhow!("{emulated}; its results are text, --json and --html, not {option}"))
    })?;
    let ignored = [
        (args.neighbour.is_empty(), "--neighbour"),
        (args.sizes.is_none(), "--sizes"),
        (args.datagrams.is_none(), "--datagrams"),
        (!args.imix, "--imix"),
        (args.replay.is_none(), "--pcap"),
        (args.flows.is_none(), "--flows"),
        (!args.one_way, "--one-way"),
        (args.preset.is_none(), "--preset"),
        (args.test.is_empty(), "--tests"),
        (args.loss_ratio.is_none(), "--loss-ratio"),
        (args.trial.is_none(), "--duration"),
        (args.rules.is_none(), "--rule-count"),
        (args.rule_order.is_none(), "--rule-order"),
        (args.cpus.is_none(), "--cpus"),
    ];
    if let Some((_, option)) = ignored.iter().find(|(unused, _)| !unused) {
        return Err(Failure::lacking(anyhow!("{emulated}; leave {option} out")));
    }
    if args.save.is_some() {
        return Err(Failure::usage(anyhow!(
            "{emulated}; instead of --save FILE write `--json > FILE`, which `evenkeel report show` reads"
        )));
    }
    let runs = plan.options.runs;
    let seconds = (CARD_S + RUN_S * f64::from(runs)) * plan.options.nics.len() as f64;
    let about = duration_words(seconds);
    if args.dry_run {
        let names: Vec<String> = plan.options.nics.iter().map(ToString::to_string).collect();
        if as_json {
            let planned = serde_json::json!({
                "kernel": kernel.release,
                "cards": names,
                "runs": runs,
                "seconds": seconds,
                "skipped": plan.skipped,
            });
            return print(&json_text(&Document::new("bench.guest.plan", SCHEMA, &planned))?).map(|()| Outcome::Fine);
        }
        let skipped: String = plan.skipped.iter().map(|left| format!("Left out, {left}.\n")).collect();
        let names = names.join(", ");
        return print(&format!(
            "Linux {} in an emulated guest with {names}, {runs} runs of each burst, about {about}.\n{skipped}",
            kernel.release
        ))
        .map(|()| Outcome::Fine);
    }
    privilege::require_root("bench", &LAB_CAPABILITIES)?;
    let page = OutFile::open(page, GuestRun::PAGE)?;
    note(format_args!(
        "evenkeel: an emulated guest of Linux {} for each card model ({}), about {about}",
        kernel.release,
        plan.options.nics.len()
    ));
    let all_work = |found: &GuestRun| {
        found.cards.iter().all(|card| card.verbs.iter().all(|verb| verb.outcome != VerbOutcome::Fails))
    };
    measure("run", (as_json, page), all_work, |control| carry_out(plan, (host, kernel, program), why, control))
}
