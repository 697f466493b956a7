//! A run of the demo as one self-contained page.

use model::{
    run::{DemoRun, SourceFigure, Stage},
    units,
};

use crate::{
    charts, conditions, demo_text,
    page::{Html, PUBLISHED, Page, PageError, Section, cells, table},
};

const WORK: [&str; 6] = ["=Stage", "Top class", "Second", ">Locks", ">of it waiting", "~Mostly taken by"];
const LEDGER: [&str; 3] = ["Where", ">Packets", ">Share"];
const SOURCES: [&str; 4] = ["Beside stage", ">Mpps", "What", "<Who, on what"];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn demo_page(run: &DemoRun) -> Result<String, PageError> {
    let heading = format!("A flood of {}-byte frames, received {} ways", run.frame_bytes, run.stages.len());
    let mut page = Page::new("demo", heading, (&run.machine, &run.timestamp), "");
    let main = &mut page.main;
    main.busy(run.disturbed.as_deref());
    main.conclude(&run.conclusion, run.disturbed.is_some());
    let rates = "Packets per second: offered by the generator, and captured.";
    let published = "Never measured by evenkeel; look at the shape, not at the length.";
    let published = charts::published(run).map(|chart| Section::new(2, PUBLISHED, published, chart));
    main.pair(false, [Section::new(2, "Measured here", rates, charts::rates(run))].into_iter().chain(published));
    main.heading(2, "Where the packets went");
    main.quiet("Percent of the packets offered in each stage.");
    main.chart(&charts::fates(run));
    main.heading(2, "Load of every core");
    main.quiet("Percent of time neither idle nor taken by other guests.");
    main.chart(&charts::heat(run));
    if run.stages.iter().any(|s| s.work.is_some()) {
        main.heading(2, "What the CPU time went to");
        main.quiet(format_args!(
            "The two largest classes of work in each stage, and the locks with the part spent waiting for another core: {}.",
            demo_text::WORK_NOTE
        ));
        let row = |s: &Stage| {
            let ([first, second], [locks, waiting, by]) = (demo_text::dearest(s), demo_text::locks(s));
            [s.name.clone(), first, second, locks, waiting, by]
        };
        main.table(&WORK, run.stages.iter().map(row));
    }
    main.heading(2, "Stages");
    stages(main, run);
    main.heading(2, "Ledger of every stage");
    main.quiet("Offered = captured + every named loss + unexplained. Open a stage to see how it was arranged.");
    for (at, stage) in run.stages.iter().enumerate() {
        let (share, unexplained) = (demo_text::share(stage), stage.ledger.unexplained_ratio());
        let more = format!("{} captured, {} unexplained", units::percent(share), units::percent(unexplained));
        main.details(at == 0 || at + 1 == run.stages.len(), &stage.name, Some(more), &ledger(stage));
    }
    if !run.sources.is_empty() {
        main.heading(2, PUBLISHED);
        let row = |f: &SourceFigure| {
            let stage = run.stages.iter().find(|s| s.key == f.stage).map_or(&f.stage, |s| &s.name);
            [stage.clone(), demo_text::range_mpps(f.low_mpps, f.high_mpps), f.label.clone(), f.citation.clone()]
        };
        main.table(&SOURCES, run.sources.iter().map(row));
    }
    page.end(demo_text::conditions(run))
}

fn stages(main: &mut Html, run: &DemoRun) {
    let repeats = run.stages.iter().map(|s| s.repeats.count).max().unwrap_or(0);
    let range = if repeats > 1 { format!(">>Lowest to highest of\u{a0}{repeats}") } else { ">>Spread".to_owned() };
    let columns = [
        "=Stage",
        ">Offered",
        ">Captured",
        ">Share",
        ">CPU\u{a0}ns per captured packet",
        ">>per offered packet",
        &range,
        ">>Steal",
    ];
    let ns = |cost: Option<f64>| cost.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
    let row = |s: &Stage| {
        [
            s.name.clone(),
            units::pps(s.offered_pps),
            units::pps(s.delivered_pps),
            units::percent(demo_text::share(s)),
            ns(s.ns_per_packet.per_delivered_ns),
            ns(s.ns_per_packet.per_offered_ns),
            if s.repeats.count > 1 {
                format!("{} to {}", units::pps(s.repeats.lowest_pps), units::pps(s.repeats.highest_pps))
            } else {
                "measured once".to_owned()
            },
            format!("{:.1} %", s.steal_percent),
        ]
    };
    main.table(&columns, run.stages.iter().map(row));
}

/// Fate of the packets of a stage, and its arrangement.
fn ledger(stage: &Stage) -> Html {
    let ledger = &stage.ledger;
    let mut html = Html::default();
    html.say(&stage.what);
    let mut offered = Html::from("offered ");
    offered.push(Html::quiet_span(format_args!("({})", ledger.offered_by)));
    let first = [offered, units::grouped(ledger.offered).into(), "100 %".into()];
    let mut rows = cells(&LEDGER, "sum", first);
    for (place, packets) in demo_text::parts(stage) {
        let sign = if packets < 0 { "-" } else { "" };
        let share = units::percent(packets as f64 / ledger.offered.max(1) as f64);
        rows += &cells(&LEDGER, "", [place, format!("{sign}{}", units::grouped(packets.unsigned_abs())), share]);
    }
    html.push(table(&LEDGER, &rows));
    let attached = stage.attached_mode.as_ref().map_or_else(String::new, |mode| format!(", attached {mode}"));
    let notes = stage.notes.iter().map(|note| ("Note", note.clone()));
    let about = [("Backend", format!("{}{attached}", stage.backend)), conditions::cores(&stage.arrangement)];
    html.terms(about.into_iter().chain(notes));
    html
}
