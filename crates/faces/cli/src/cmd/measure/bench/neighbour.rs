//! `bench --neighbour`: what noisy neighbours cost a box, and what protects it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::bench::{
    BenchError, Cores,
    benches::RealBenches,
    neighbour::{self, Form, Guests, Options, Plan, Remedy, Spot},
    run::{Boxes, GuestBoxes, Request},
};
use ::guest::Kernel;
use anyhow::anyhow;
use host::Host;
use model::units::duration_words;
use model::{
    CpuSet,
    bench::{
        FrameSpec,
        neighbour::{NeighbourRun, SCHEMA},
    },
    schema::Document,
};
use sys::privilege;

use super::{BenchArgs, config};
use crate::{
    cmd::measure::once,
    failure::{Failure, Outcome, note, print},
    long_run::{Found, LAB_CAPABILITIES, end_interrupted, long_run},
    results::{OutFile, json_text},
    unit::program,
};

/// The frames, when none are named: where the cost per frame is most.
const FRAME_BYTES: u32 = 64;
/// Rounds and the length of a trial of each preset.
const PRESETS: [(&str, u32, Duration); 4] = [
    ("quick", 5, Duration::from_secs(1)),
    ("study", 3, Duration::from_secs(600)),
    ("rfc2544", 5, Duration::from_secs(60)),
    ("mlr", 5, Duration::from_secs(10)),
];
/// The fewest rounds that give an interval.
const ROUNDS_MIN: u32 = 2;
/// Seconds of a trial besides its length, of the start of a neighbour, and of the search for the throughput and the tester's ceiling.
const TRIAL_MORE_S: f64 = 0.6;
const START_S: f64 = 0.7;
const SEARCH_S: f64 = 40.0;
/// Seconds until a guest is up, where it is emulated.
const BOOT_S: f64 = 6.0;

/// Measures, and shows; beside `boxes`, if they are guests.
pub(super) fn run(args: &BenchArgs, host: &Host, boxes: Option<GuestBoxes>) -> Result<Outcome, Failure> {
    let (as_json, page) = args.output.for_flood().map_err(|option| {
        Failure::usage(anyhow!("{option} is not for --neighbour: its results are text, --json, --html and --save"))
    })?;
    let remedy = boxes.as_ref().and_then(|_| args.remedy.iter().find(|&&remedy| remedy == Remedy::ThreadedNapi));
    if let Some(remedy) = remedy {
        return Err(Failure::usage(anyhow!("{} is not for a guest, which has no thread of NAPI here", remedy.key())));
    }
    let (mut request, _) = config::request(args, host, boxes.map(Boxes::Guests))?;
    if args.sizes.is_none() {
        request.frames = vec![FrameSpec::Size { bytes: FRAME_BYTES }];
    }
    if request.frames.len() > 1 {
        return Err(Failure::usage(anyhow!("--neighbour measures frames of one size: name one with --sizes")));
    }
    if args.dut.is_empty() {
        request.boxes = Boxes::Lab(vec!["router".into()]);
    }
    let preset = PRESETS.iter().find(|(name, ..)| *name == request.preset);
    let Some(&(_, rounds, trial)) = preset else {
        // Names the presets.
        config::settings(&request)?;
        return Err(Failure::usage(anyhow!("there is no preset `{}`", request.preset)));
    };
    let (rounds, trial) = (args.repeats.unwrap_or(rounds), args.trial.unwrap_or(trial));
    if rounds < ROUNDS_MIN {
        return Err(Failure::usage(anyhow!(
            "--repeats takes at least {ROUNDS_MIN} rounds here: one gives no interval"
        )));
    }
    // Both belong to the rounds here, not to the search for the throughput.
    (request.repeats, request.trial_s) = (None, None);
    let settings = config::settings(&request)?;
    let plan = plan(args, host, &request, rounds)?;
    let seconds = seconds(&request, &plan, trial);
    if args.dry_run {
        let skipped: String = plan.skipped.iter().map(|left| format!("Left out, {left}.\n")).collect();
        let boxes = request.boxes.modes().join(", ");
        let conditions = plan.conditions();
        if as_json {
            let planned = serde_json::json!({
                "boxes": request.boxes.modes(),
                "rounds": rounds,
                "conditions": plan.words(),
                "trial_s": trial.as_secs_f64(),
                "seconds": seconds,
                "skipped": plan.skipped,
            });
            return print(&json_text(&Document::new("bench.neighbour.plan", SCHEMA, &planned))?)
                .map(|()| Outcome::Fine);
        }
        return print(&format!(
            "{boxes}: {rounds} rounds of {conditions} conditions, 3 trials of {trial:?} each, about {}.\n{}{skipped}",
            duration_words(seconds),
            plan.words().iter().map(|condition| format!("- {condition}\n")).collect::<String>()
        ))
        .map(|()| Outcome::Fine);
    }
    privilege::require_root("bench", &LAB_CAPABILITIES)?;
    neighbour::check(&plan)?;
    let guests = guests(args, &plan)?;
    let guests = guests.as_ref();
    let page = OutFile::open(page, NeighbourRun::PAGE)?;
    let file = args.save.clone().unwrap_or_else(|| config::default_file("bench-neighbour"));
    let save = OutFile::open(Some(&file), "run")?;
    let mut run = neighbour::begun(host, &request, (&plan, guests), trial)?;
    note(format_args!(
        "evenkeel: {rounds} rounds of {} conditions, about {}; load average {:.2}",
        plan.conditions(),
        duration_words(seconds),
        run.load_average
    ));
    let result = long_run(|control| -> Result<_, Failure> {
        let mut benches = RealBenches::new(&request, &settings)?.threaded(plan.threaded());
        Ok(neighbour::measure((&request, &settings, &plan, trial), guests, &mut benches, &mut run, control))
    })?;
    let nothing = run.boxes.is_empty();
    if !nothing {
        let printed = run.show(as_json, page);
        if let Some(save) = save {
            save.write(run.document()?)?;
        }
        printed?;
    }
    match result {
        Ok(()) => Ok(Outcome::Fine),
        Err(BenchError::Interrupted) => {
            Ok(end_interrupted(if nothing { "Nothing was measured" } else { "The whole rounds are kept" }))
        }
        Err(e) if nothing => Err(e.into()),
        Err(e) => Err(Failure::from(e).after(&format!("The whole rounds are in {}", file.display()))),
    }
}

fn plan(args: &BenchArgs, host: &Host, request: &Request, rounds: u32) -> Result<Plan, Failure> {
    let cores = Cores::split(&request.cpus)?;
    let of_box = |cpu: &&host::picture::Cpu| cores.of_box.contains(&cpu.id);
    let siblings = host.cpus.iter().filter(of_box).flat_map(|cpu| cpu.siblings.iter().collect::<Vec<_>>());
    let siblings: CpuSet = siblings.filter(|cpu| !cores.of_box.contains(cpu) && request.cpus.contains(*cpu)).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let wanted = Options {
        neighbours: once(args.neighbour.iter().copied()),
        forms: if args.neighbour_as.is_empty() { vec![Form::Process] } else { once(args.neighbour_as.iter().copied()) },
        spots: if args.neighbour_on.is_empty() { vec![Spot::Box] } else { args.neighbour_on.clone() },
        remedies: args.remedy.clone(),
        rounds,
        seed: args.seed.unwrap_or(now),
    };
    Ok(Plan::new(wanted, &cores, &request.cpus, &siblings)?)
}

/// The kernel and programs of neighbours that are guests; none if none is.
fn guests(args: &BenchArgs, plan: &Plan) -> Result<Option<Guests>, Failure> {
    if !plan.options.forms.contains(&Form::Guest) {
        return Ok(None);
    }
    let kernel = Kernel::open(args.guest_kernel.as_deref())?;
    let program = program()?;
    Ok(Some(Guests::prepare(kernel, &program)?))
}

fn seconds(request: &Request, plan: &Plan, trial: Duration) -> f64 {
    let condition = 3.0 * (trial.as_secs_f64() + TRIAL_MORE_S) + START_S;
    let round = condition * plan.conditions() as f64 + BOOT_S * plan.guests() as f64;
    let boxes = request.boxes.modes().len() as f64;
    SEARCH_S + boxes * (SEARCH_S + round * f64::from(plan.options.rounds))
}
