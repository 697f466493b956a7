//! Records what a lab box loses at many loads, for `tests/simulate.rs`: `record BOX`, with a key such as `bridge`; CSV on stdout.
//!
//! 45 loads from 52 to 130 % of what comes through at full speed, each tried 8 times for 0.2 s, in random order; beside them 8 trials as fast as the
//! sender goes. 64-byte frames of UDP, 256 flows, one direction; filters have 25 rules. A void trial is made again, up to five times.
//! Where other programs have the sender's CPU, start it with `chrt --fifo 10`.

use std::{sync::atomic::AtomicBool, time::Duration};

use bench::{
    BenchError, Cores, Drain, Dut, DutKind, DutOptions, Load, Order, RuleOrder, Stamping, Tester,
    tester::{RealTester, TesterConfig},
};
use lab::{Lab, boxes::Family};
use model::{
    CpuSet,
    bench::{FrameSpec, Trial},
};

const LOAD_COUNT: u32 = 45;
const REPEAT_COUNT: u32 = 8;
const SPAN: std::ops::Range<f64> = 0.52..1.3;
const RETRIES_MAX: u32 = 5;

fn order(load: Load) -> Order {
    Order {
        purpose: "recording".into(),
        frame: FrameSpec::Size { bytes: 64 },
        load,
        duration: Duration::from_millis(200),
        probes: None,
        stamping: Stamping::Sampled,
        drain: Drain { quiet: Duration::from_millis(20), longest: Duration::from_secs(2), slack: 0.03 },
        observe: false,
    }
}

/// A trial that counts; none when others spoil all of them.
fn trial(tester: &mut RealTester<'_>, load: &Load) -> Result<Option<Trial>, BenchError> {
    for _ in 0..RETRIES_MAX {
        let trial = tester.trial(&order(load.clone()), &AtomicBool::new(false))?;
        match &trial.invalid {
            None => return Ok(Some(trial)),
            Some(reason) => eprintln!("void: {reason}"),
        }
    }
    Ok(None)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = std::env::args().nth(1).ok_or("name a box, such as `bridge`")?;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let cores = Cores::split(&CpuSet::parse_list(online.trim())?)?;
    let lab = Lab::new("record")?;
    let options = DutOptions { family: Family::V4, rules: 25, order: RuleOrder::Study, cores: &cores, threaded: false };
    let dut = Dut::lab(&lab, key.parse::<DutKind>()?, &options)?;
    let mut tester = RealTester::new(&dut, &cores, TesterConfig { flows: 256, both_ways: false }, None)?;

    let mut full = Vec::new();
    for _ in 0..REPEAT_COUNT {
        full.extend(trial(&mut tester, &Load::Max)?.map(|t| t.received_pps));
    }
    full.sort_by(f64::total_cmp);
    let came = *full.get(full.len() / 2).ok_or("no trial at full speed counts")?;
    let step = (SPAN.end / SPAN.start).powf(1.0 / f64::from(LOAD_COUNT - 1));
    let loads = (0..LOAD_COUNT).map(|i| Load::Pps((came * SPAN.start * step.powi(i as i32)).round()));
    let mut plan: Vec<Load> = loads.chain([Load::Max]).flat_map(|load| vec![load; REPEAT_COUNT as usize]).collect();
    // Fisher and Yates, by a generator of 64 bits (Knuth's constants).
    let mut state = 1u64;
    for i in (1..plan.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        plan.swap(i, (state >> 33) as usize % (i + 1));
    }

    println!("intended_pps,offered_pps,sent,forwarded");
    for load in plan {
        let wanted = if let Load::Pps(pps) = load { format!("{pps}") } else { "max".to_owned() };
        let Some(trial) = trial(&mut tester, &load)? else {
            eprintln!("{wanted}: no trial counts");
            continue;
        };
        let counts = trial.total();
        println!("{wanted},{:.0},{},{}", trial.offered_pps, counts.sent, counts.received);
    }
    Ok(())
}
