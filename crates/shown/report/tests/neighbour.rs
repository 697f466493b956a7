//! The page of a run beside noisy neighbours.

use model::{
    bench::{FrameSpec, neighbour::NeighbourRun},
    run::Machine,
};
use report::neighbour_page;

fn run(conclusions: &[&str]) -> NeighbourRun {
    NeighbourRun {
        when: "2026-01-02T03:04:05Z".into(),
        version: "0".into(),
        machine: Machine::default(),
        load_average: 0.25,
        preset: "quick".into(),
        frame: FrameSpec::Size { bytes: 64 },
        cores: Vec::new(),
        rounds: 3,
        trial_s: 1.0,
        seed: 7,
        stolen: 0,
        boxes: Vec::new(),
        partial: None,
        left_out: vec!["cache on sibling: there is none".into()],
        conclusions: conclusions.iter().map(|&said| said.to_owned()).collect(),
        notes: Vec::new(),
        sources: Vec::new(),
    }
}

#[test]
fn the_verdict_stands_first_and_is_amber_where_there_is_none() {
    let judged =
        run(&["router, cpu on box: one-way delay +1 ms (+80 %)", "router, io on box: nothing could be judged"]);
    let page = neighbour_page(&judged).unwrap();
    let (verdict, left_out) = (page.find("class=\"conclusion\""), page.find("Left out"));
    assert!(verdict.is_some() && verdict < left_out, "{verdict:?} {left_out:?}");
    assert!(page.contains("cpu on box: one-way delay +1 ms (+80 %).</p>"));
    let partial = NeighbourRun { partial: Some("interrupted".into()), ..judged };
    let unjudged = run(&["router, io on box: nothing could be judged"]);
    for void in [partial, unjudged, run(&[])] {
        let page = neighbour_page(&void).unwrap();
        assert!(page.contains("class=\"conclusion void\""), "{:?}", void.conclusions);
    }
    assert!(neighbour_page(&run(&[])).unwrap().contains("No verdict: no neighbour was measured."));
}
