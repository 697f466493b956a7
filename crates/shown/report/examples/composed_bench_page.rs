//! Writes the bench's page with composed data to the file named, and a comparison to a second one, to look at them:
//! `cargo run -p report --example composed_bench_page PAGE COMPARISON`.

#[path = "../tests/composed_bench/mod.rs"]
mod composed_bench;

use model::bench::compare::compare;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args().skip(1);
    let run = composed_bench::run();
    std::fs::write(paths.next().ok_or("which file?")?, report::bench_page(&run)?)?;
    let Some(path) = paths.next() else { return Ok(()) };
    let mut other = run.clone();
    other.modes.iter_mut().flat_map(|m| &mut m.points).filter_map(|p| p.throughput.as_mut()).for_each(|t| {
        t.found[0].lower_pps = t.found[0].lower_pps.map(|pps| 1.2 * pps);
        t.found[0].upper_pps = t.found[0].upper_pps.map(|pps| 1.2 * pps);
    });
    std::fs::write(path, report::bench_compare_page(&compare(&[("a.json".into(), run), ("b.json".into(), other)]))?)?;
    Ok(())
}
