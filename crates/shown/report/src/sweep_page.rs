//! A sweep as one self-contained page: the CPU time of the box by class over the offered load, both configurations side by side.

use model::{
    sweep::{Setup, Sweep},
    units,
};

use crate::{
    load_areas,
    page::{Html, Page, PageError, Section},
    sweep,
};

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn sweep_page(sweep: &Sweep) -> Result<String, PageError> {
    let setups: Vec<&Setup> = sweep.setups.iter().collect();
    let areas = load_areas::areas(&setups);
    let heading = format!("What the CPU time of a {} goes to", sweep.box_name);
    let mut page = Page::new("profile sweep", heading, (&sweep.machine, &sweep.timestamp), "");
    page.title = format!("evenkeel profile sweep: {} on {}", sweep.box_name, sweep.machine.hostname);
    let main = &mut page.main;
    main.busy(sweep.disturbed.as_deref());
    // There is no verdict, or other programs had a part in it.
    let inconclusive = sweep.disturbed.is_some() || !sweep.gain.as_ref().is_some_and(|gain| gain.significant);
    main.conclude(&sweep.conclusion, inconclusive);
    main.quiet(
        "Share of the time of the box's core by class of work (areas), and what came out of the box (line), over the offered load.",
    );
    main.push(load_areas::legend(&areas));
    let panel = |s: &&Setup| {
        let heading = format!("{}: {}", s.key, s.name);
        Section::new(2, heading, &s.what, load_areas::panel(&setups, s, &areas)).with(&s.settings)
    };
    main.pair(false, setups.iter().map(panel));
    let costs = sweep::costs_of(sweep);
    if !costs.is_empty() {
        main.heading(2, "What a packet costs");
        main.quiet(format_args!("{}.", sweep::COSTS_OF_WHAT));
        load_areas::costs(main, &setups, costs);
    }
    main.heading(2, "Steps");
    for setup in &sweep.setups {
        let mut steps = Html::default();
        load_areas::steps(&mut steps, &setup.steps, true);
        let ceiling = format!("ceiling {}", units::pps(setup.ceiling_pps));
        main.details(true, &format!("{}: {}", setup.key, setup.name), Some(ceiling), &steps);
    }
    main.published("Never measured by evenkeel.", &load_areas::SOURCES, &sweep.sources);
    page.end(sweep::conditions(sweep))
}
