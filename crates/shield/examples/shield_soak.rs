//! Random rules and hurt frames through the kernel program and the reference for a while: `shield_soak SECONDS [SEED]`, as root.
//! Ends with 1 at the first difference, which it prints with the seed that shows it again.

#[path = "../tests/random/mod.rs"]
mod random;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use random::{Kernel, Random, Shape};
use shield::compile::Now;

const FRAMES: usize = 2000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Some(Ok(seconds)), Some(Ok(first))) =
        (arguments.next(), arguments.next().or(Some(Ok(Now::read().monotonic_ns))))
    else {
        eprintln!("usage: shield_soak SECONDS [SEED]");
        return ExitCode::from(2);
    };
    if !random::privileged() {
        return ExitCode::from(3);
    }
    let (begun, mut frames, mut decided) = (Instant::now(), 0, 0);
    let mut seed = first;
    while begun.elapsed() < Duration::from_secs(seconds) {
        let mut random = Random(seed);
        let now = Now::read();
        let rules = if seed.is_multiple_of(4) { 500 } else { 40 };
        let mut kernel = Kernel::load(random::rules(&mut random, Shape { rules, ..Shape::default() }, now.wall), now);
        let run = (0..FRAMES).try_for_each(|_| {
            let mut frame = random::frame(&mut random, &kernel.rules);
            if random.percent(70) {
                random::hurt(&mut random, &mut frame);
            }
            kernel.compare(&frame)
        });
        if let Err(why) = run.and_then(|()| kernel.compare_counts()) {
            eprintln!("seed {seed}: {why}");
            return ExitCode::from(1);
        }
        frames += kernel.frames;
        decided += kernel.decided;
        seed += 1;
    }
    println!("{frames} frames, {decided} of them decided by a rule, {} sets of rules: no difference", seed - first);
    ExitCode::SUCCESS
}
