//! Writes the bench's page with composed data to the file named, to look at it: `cargo run -p report --example composed_bench_page PAGE`.

#[path = "../tests/composed_bench/mod.rs"]
mod composed_bench;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file?")?;
    std::fs::write(path, report::bench_page(&composed_bench::run())?)?;
    Ok(())
}
