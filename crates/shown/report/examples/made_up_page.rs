//! Writes the demo's page with made-up data to the file named, to look at it: `cargo run -p report --example made_up_page PAGE CPUS`.

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use report::{Look, demo_page, demo_text, top_text};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file?")?;
    let cpus = arguments.next().map_or(Ok(2), |n| n.parse())?;
    std::fs::write(path, demo_page(&made_up::run(cpus))?)?;
    print!("{}", demo_text(&made_up::run(cpus), Look { width: 100, lines: true }));
    print!("{}", top_text(&made_up::sample(cpus), Look { width: 100, lines: true }));
    Ok(())
}
