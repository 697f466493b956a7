//! A run of the bench as one self-contained page.

use model::{
    bench::{BenchRun, FrameSpec, Mode, Point, Trial},
    units,
};

use super::{
    charts,
    conditions::conditions,
    figures::{self, Figures, or_dash, seconds, short},
    tables, text,
};
use crate::page::{Html, PUBLISHED, Page, PageError, Section, cells};

const TRIALS: [&str; 6] = [">No", "Why", ">Offered", ">Came through", ">Loss", ">>Time"];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn bench_page(run: &BenchRun) -> Result<String, PageError> {
    let figures = Figures(run);
    let heading = "What the box forwards, how long it takes and what it costs";
    let verb = format!("bench ({})", run.setup.preset);
    let mut page = Page::new(&verb, heading, (&run.machine, &run.timestamp), "");
    page.title = format!("evenkeel bench on {}", run.machine.hostname);
    let main = &mut page.main;
    let partial = figures.partial();
    if let Some((reason, begun)) = &partial {
        let lines = [Some(reason.to_string()), begun.as_ref().map(ToString::to_string)];
        main.warn_of("Partial:", lines.into_iter().flatten());
    }
    let points = || run.modes.iter().flat_map(|m| &m.points);
    // No box has a throughput of its own, or the run is partial.
    let void = partial.is_some() || points().all(|p| figures::rate_or_least(p).is_none());
    main.conclude(&run.conclusion, void);
    throughputs(main, figures);
    let published = charts::published(figures).map(|chart| (chart, tables::published(figures)));
    let published = published.filter(|(_, table)| !table.rows.is_empty());
    let theory = charts::theory(figures).map(|chart| {
        // One frame size is shown as bars on a linear axis from zero.
        let axis = if figures.frames().len() > 1 { " on a logarithmic axis" } else { "" };
        let what = format!("Units per second{axis}, beside the most that tester and line allow.");
        Section::new(2, "Against what could be offered", what, chart)
    });
    let others = published.as_ref().map(|(chart, _)| {
        let what = "Never measured by evenkeel; look at the shape, not at the length. Mode and frame size, total of both directions; figures of one direction are doubled here.";
        Section::new(2, PUBLISHED, what, chart)
    });
    main.pair(false, theory.into_iter().chain(others));
    delays(main, figures);
    losses(main, figures);
    main.heading(2, "Everything measured");
    for mode in &run.modes {
        let mut html = Html::default();
        html.settings(&mode.settings);
        for table in tables::all(figures, mode, true) {
            html.heading(3, table.title());
            table.on_page(&mut html);
        }
        // Open to begin with: those of the first box.
        let open = figures.searched().next().is_some_and(|first| first.key == mode.key);
        main.details(open, &mode.name, Some(mode.what.clone()), &html);
    }
    main.heading(2, "How it was found");
    main.quiet("What each search did, and every trial; those that do not count are crossed out.");
    for (mode, point) in run.modes.iter().flat_map(|m| m.points.iter().map(move |p| (m, p))) {
        if !point.trials.is_empty() {
            let more = format!("{} trials", point.trials.len());
            main.details(false, &format!("{}, {}", mode.name, point.frame), Some(more), &trials(point));
        }
    }
    if let Some((_, table)) = published {
        main.heading(2, PUBLISHED);
        table.on_page(main);
    }
    page.end_with(&figures::meanings(run), conditions(figures))
}

/// The throughput by frame size: both charts and the table.
fn throughputs(main: &mut Html, figures: Figures<'_>) {
    let total = figures.total_of();
    match (charts::rates(figures), charts::bits(figures)) {
        (Some(rates), Some(bits)) => {
            let units = format!(
                "Units per second by frame size in bytes, {total}, at a loss of at most {}. The line reaches from the least that came through to the load that failed.",
                figures.goal()
            );
            let payload = format!("Bits of UDP payload per second, {total}, at the same loads.");
            main.pair(
                false,
                [
                    Section::new(2, "Throughput in units", units, rates),
                    Section::new(2, "Throughput in bits", payload, bits),
                ],
            );
        }
        _ => main.say("No throughput was found."),
    }
    let mut points = figures.0.modes.iter().flat_map(|m| &m.points);
    if points.any(|p| figures::rate_or_least(p).is_some_and(|(_, limited)| limited)) {
        main.quiet("Hatched, and >= in tables, is tester-limited: the tester could not offer enough more, and the box does at least this.");
    }
    let modes: Vec<&Mode> = figures.searched().collect();
    let of_modes = modes.iter().map(|mode| format!(">{}", mode.name));
    let mut heads = vec!["=Frame".to_owned()];
    heads.extend(of_modes);
    heads.push(">>(Tester's ceiling)".to_owned());
    let row = |frame: &FrameSpec| {
        let of = |mode: &&Mode| or_dash(mode.points.iter().find(|p| p.frame == *frame).and_then(text::throughput_cell));
        let ceiling = or_dash(figures.ceiling_pps(frame).map(units::pps));
        [short(frame)].into_iter().chain(modes.iter().map(of)).chain([ceiling]).collect::<Vec<_>>()
    };
    main.table(&heads, figures.frames().into_iter().map(row));
    figures.datagrams_note().into_iter().for_each(|note| main.quiet(note));
    for (mode, frame, cost) in figures.filter_costs() {
        main.say(text::filter_cost(mode, &frame.label(), cost));
    }
}

/// Round trips, one-way delays and jitter, as far as they were measured.
fn delays(main: &mut Html, figures: Figures<'_>) {
    let scale = if figures.frames().len() > 1 { "; logarithmic" } else { "" };
    let round_trips = charts::round_trips(figures).map(|chart| {
        let what = format!("Of probes through an idle and through a loaded box, by size of the load's frames{scale}.");
        Section::new(2, "Round trip", what, chart)
    });
    let one_way = charts::one_way(figures).map(|chart| {
        let what = format!("Median and percentile 99 at the highest load, by frame size, the worse direction{scale}.");
        Section::new(2, "One-way delay", what, chart)
    });
    let over_load = charts::loaded_frame(figures).map(|frame| {
        let what = format!("Frames of {frame}, load in percent of the throughput, the worse direction; logarithmic.");
        Section::new(2, "One-way delay over the load", what, charts::over_load(figures, frame))
    });
    let jitter = charts::jitter(figures).map(|chart| {
        Section::new(2, "Jitter", "RFC 3550, at the throughput, by frame size, the worse direction.", chart)
    });
    for pair in [[round_trips, one_way], [over_load, jitter]] {
        if pair.iter().any(Option::is_some) {
            main.pair(false, pair.into_iter().flatten());
        }
    }
}

/// The work of the box's cores, and the losses over the offered rate.
fn losses(main: &mut Html, figures: Figures<'_>) {
    let works = [
        ("The load of the box's cores at the throughput, by kind of frame.", charts::cpu_by_frame(figures)),
        ("What it goes to with the first kind of frame.", charts::cpu_by_class(figures)),
    ];
    let works = works.into_iter().filter_map(|(what, chart)| Some(Section::new(3, "", what, chart?)));
    main.pair_below("CPU at the throughput", true, works.collect());
    let losses = charts::losses(figures);
    if losses.is_empty() {
        return;
    }
    main.heading(2, "Loss over the offered rate");
    let own_curve = figures.0.modes.iter().flat_map(|m| &m.points).any(|p| !p.loss_curve.is_empty());
    let from = if own_curve { "" } else { "; from the trials of the searches, the median of each load" };
    main.quiet(format_args!(
        "Percent of the units offered, over the units per second offered, {}{from}.",
        figures.total_of()
    ));
    main.pair(false, losses.into_iter().map(|(mode, chart)| Section::new(3, &mode.name, "", chart)));
}

/// The steps of a search, and all trials.
fn trials(point: &Point) -> Html {
    let mut html = Html::default();
    let steps = point.throughput.as_ref().map_or(&[][..], |t| &t.steps);
    if !steps.is_empty() {
        html.list("ol", steps);
    }
    html.table_of(&TRIALS, &point.trials.iter().map(trial).collect::<String>());
    html
}

fn trial(t: &Trial) -> String {
    let why = match &t.invalid {
        Some(void) => {
            let mut why = Html::within("s", &t.purpose);
            why.push(Html::text(format_args!(" void: {void}")));
            why
        }
        None => Html::from(&t.purpose),
    };
    let lost = units::percent(t.loss_ratio());
    let lost = match t.failed_ratio() - t.loss_ratio() {
        late if late > 0.0 => format!("{lost}, {} late", units::percent(late)),
        _ => lost,
    };
    let row = [
        t.number.into(),
        why,
        units::pps(t.offered_pps).into(),
        units::pps(t.received_pps).into(),
        lost.into(),
        seconds(t.seconds).into(),
    ];
    cells(&TRIALS, "", row)
}
