//! A run of the demo as text.

use std::fmt::Write;

use model::{
    CoreLoad,
    profile::Class,
    run::{DemoRun, Stage},
    units,
};

use crate::{
    conditions::{self, Conditions},
    page::PUBLISHED,
    table::Look,
};

/// The whole run: conclusion, stages, ledgers, published figures, conditions.
pub fn demo_text(run: &DemoRun, look: Look) -> String {
    let mut out = conditions::disturbed(run.disturbed.as_deref(), look);
    out += &look.paragraph(&run.conclusion);
    let _ = write!(out, "\nStages\n{}", stages(run, look));
    if run.stages.iter().any(|s| s.work.is_some()) {
        let heading = look.paragraph(&format!("What the CPU time went to: {WORK_NOTE}"));
        let _ = write!(out, "\n{heading}{}", work(run, look));
    }
    for stage in &run.stages {
        let _ = write!(out, "\n{}", ledger(stage, look));
    }
    if !run.sources.is_empty() {
        let heading = look.paragraph(&format!("{PUBLISHED}: never measured by evenkeel"));
        let _ = write!(out, "\n{heading}{}", sources(run, look));
    }
    out + "\n" + &conditions::paragraphs(&conditions(run), look)
}

/// The row of numbers of every stage.
pub fn stages(run: &DemoRun, look: Look) -> String {
    let heads = ["STAGE", ">OFFERED", ">CAPTURED", ">LOST", ">ns/PKT", ">STEAL", "CORES %"];
    look.table(&heads, run.stages.iter().map(row))
}

/// The numbers of one stage, in the order of the heads of [`stages`].
fn row(stage: &Stage) -> Vec<String> {
    vec![
        stage.name.clone(),
        units::pps(stage.offered_pps),
        units::pps(stage.delivered_pps),
        units::pps((stage.offered_pps - stage.delivered_pps).max(0.0)),
        stage.ns_per_packet.per_delivered_ns.map_or_else(|| "-".into(), |ns| format!("{ns:.0}")),
        format!("{:.1} %", stage.steal_percent),
        loads(&stage.cores),
    ]
}

/// More cores than this are summed up: the page shows each.
const CORES_IN_A_ROW: usize = 8;

/// The load of each core in percent, or their range and mean where there are many.
fn loads(cores: &[CoreLoad]) -> String {
    let busy: Vec<f64> = cores.iter().map(CoreLoad::busy_percent).collect();
    if busy.len() <= CORES_IN_A_ROW {
        return busy.iter().map(|b| format!("{b:.0}")).collect::<Vec<_>>().join(" ");
    }
    let (least, most) = busy.iter().fold((f64::MAX, 0.0f64), |(least, most), &b| (least.min(b), most.max(b)));
    format!("{least:.0}-{most:.0}, mean {:.0} of {}", busy.iter().sum::<f64>() / busy.len() as f64, busy.len())
}

/// Delivered of offered packets, by the ledger.
pub(crate) fn share(stage: &Stage) -> f64 {
    if stage.ledger.offered == 0 { 0.0 } else { stage.ledger.delivered as f64 / stage.ledger.offered as f64 }
}

/// Base of the shares of work.
pub(crate) const WORK_NOTE: &str = "percent of the busy time, that of the generator left out";

/// The two largest classes of work of every stage, and its locks.
fn work(run: &DemoRun, look: Look) -> String {
    let rows = run.stages.iter().map(|s| {
        let [first, second] = dearest(s);
        let [locks, waiting, taker] = locks(s);
        vec![s.name.clone(), first, second, locks, waiting, taker]
    });
    look.table(&["STAGE", "TOP CLASS", "SECOND", ">LOCKS", ">WAITING", "MOSTLY TAKEN BY"], rows)
}

/// The two largest classes with their shares; empty where there is none.
pub(crate) fn dearest(stage: &Stage) -> [String; 2] {
    let share = |i: usize| {
        let work = stage.work.as_ref().and_then(|w| w.classes.get(i));
        work.map_or_else(String::new, |w| format!("{} {:.0}", w.class, w.percent))
    };
    [share(0), share(1)]
}

/// The share of locks, how much of it is waiting for another core, and who takes the most of them.
pub(crate) fn locks(stage: &Stage) -> [String; 3] {
    let Some(work) = &stage.work else { return [NOT_SAMPLED.into(), NOT_SAMPLED.into(), String::new()] };
    let percent = work.percent(Class::Locks);
    let taker = work.locks.first().filter(|_| percent >= 1.0);
    let taker = taker.map_or_else(String::new, |l| format!("{} {:.1}", l.caller, l.percent));
    [format!("{percent:.1}"), format!("{:.1}", work.waiting_percent()), taker]
}

const NOT_SAMPLED: &str = "-";

/// Fate of the packets of a stage; the parts add up to the packets offered.
pub fn ledger(stage: &Stage, look: Look) -> String {
    let offered = stage.ledger.offered.max(1) as f64;
    let mut rows = vec![vec![
        format!("offered ({})", stage.ledger.offered_by),
        units::grouped(stage.ledger.offered),
        units::percent(stage.ledger.offered as f64 / offered),
    ]];
    rows.extend(parts(stage).into_iter().map(|(place, n)| {
        let sign = if n < 0 { "-" } else { "" };
        vec![
            format!("- {place}"),
            format!("{sign}{}", units::grouped(n.unsigned_abs())),
            units::percent(n as f64 / offered),
        ]
    }));
    let mut out = look.paragraph(&format!("{}: {}", stage.name, stage.what));
    for note in &stage.notes {
        out.push_str(&look.paragraph(note));
    }
    out + &look.table(&["WHERE THE PACKETS WENT", ">PACKETS", ">SHARE"], rows)
}

/// The parts of a ledger with their names: captured, each loss, unexplained.
pub(crate) fn parts(stage: &Stage) -> Vec<(String, i64)> {
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut parts = vec![("captured".to_owned(), count(stage.ledger.delivered))];
    parts.extend(stage.ledger.losses.iter().map(|l| (format!("lost: {}", l.place), count(l.packets))));
    parts.push(("unexplained".to_owned(), stage.ledger.unexplained()));
    parts
}

fn sources(run: &DemoRun, look: Look) -> String {
    let mut citations: Vec<&str> = Vec::new();
    let rows: Vec<_> = run
        .sources
        .iter()
        .map(|s| {
            let number = citations.iter().position(|c| *c == s.citation).unwrap_or_else(|| {
                citations.push(&s.citation);
                citations.len() - 1
            });
            let stage = run.stages.iter().find(|x| x.key == s.stage).map_or(s.stage.as_str(), |x| x.name.as_str());
            let label = format!("{} [{}]", s.label, number + 1);
            vec![stage.to_owned(), range_mpps(s.low_mpps, s.high_mpps), label]
        })
        .collect();
    let mut out = look.table(&["BESIDE STAGE", ">Mpps", "WHAT"], rows);
    for (i, citation) in citations.iter().enumerate() {
        out.push_str(&look.paragraph(&format!("[{}] {citation}", i + 1)));
    }
    out
}

/// `3.6-3.9`, or one number when both are the same.
pub(crate) fn range_mpps(low: f64, high: f64) -> String {
    if low == high { format!("{low}") } else { format!("{low}-{high}") }
}

/// Conditions of the numbers, as pairs of name and text.
pub(crate) fn conditions(run: &DemoRun) -> Conditions {
    let g = &run.generator;
    let limited: Vec<&str> = run.stages.iter().filter(|s| g.limits(s.offered_pps)).map(|s| s.name.as_str()).collect();
    let limit = match limited.len() {
        0 => "No stage was offered that much: the generator was not the limit of any.".to_owned(),
        n if n == run.stages.len() => {
            "Every stage was offered all that the generator can make: a stage that loses nothing could do more."
                .to_owned()
        }
        _ => format!(
            "The generator was at its limit in: {}. Where such a stage loses nothing, it could do more.",
            limited.join(", ")
        ),
    };
    vec![
        conditions::machine(&run.machine),
        ("When", run.timestamp.clone()),
        (
            "Wire",
            "veth; a full receive queue can make its reader slower, so that an overloaded stage may capture less here than behind a \
             network card"
                .to_owned(),
        ),
        ("Frames", format!("{} bytes without checksum, {} s per measurement", run.frame_bytes, run.seconds_per_stage)),
        ("Generator", format!("{} on CPU {}", g.backend, g.cpus)),
        ("Generator's ceiling", format!("{} ({}). {limit}", units::pps(g.ceiling_pps), g.ceiling_conditions)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_cores_are_summed_up() {
        let core = |busy: f64| CoreLoad { system_percent: busy, idle_percent: 100.0 - busy, ..CoreLoad::default() };
        assert_eq!(loads(&[core(100.0), core(20.4)]), "100 20");
        let many: Vec<CoreLoad> = (0..24).map(|i| core(f64::from(i))).collect();
        assert_eq!(loads(&many), "0-23, mean 12 of 24");
    }

    #[test]
    fn no_lock_waits_for_nothing() {
        let waiting = model::run::Work::default().waiting_percent();
        assert_eq!(format!("{waiting:.1}"), "0.0");
    }
}
