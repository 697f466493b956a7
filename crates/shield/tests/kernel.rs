//! The kernel program decides as the rules say, on random rules and frames, whole and hurt.

mod random;

use random::{Kernel, Random, Shape};
use shield::{
    compile::Now,
    rules::{Rule, Rules},
};

/// Rules of this seed in the kernel, and what draws frames for them.
fn kernel(seed: u64, shape: Shape) -> (Kernel, Random) {
    let mut random = Random(seed);
    let now = Now::read();
    let rules = random::rules(&mut random, shape, now.wall);
    (Kernel::load(rules, now), random)
}

fn must(seed: u64, result: Result<(), String>) {
    if let Err(why) = result {
        panic!("seed {seed}: {why}");
    }
}

#[test]
fn the_kernel_decides_as_the_rules_say() {
    if !random::privileged() {
        return;
    }
    let (mut frames, mut decided) = (0, 0);
    for seed in 0..30 {
        // Some have more rules than one word of 64 holds.
        let rules = if seed % 5 == 0 { 300 } else { 40 };
        let (mut kernel, mut random) = kernel(seed, Shape { rules, ..Shape::default() });
        for _ in 0..300 {
            let frame = random::frame(&mut random, &kernel.rules);
            must(seed, kernel.compare(&frame));
        }
        must(seed, kernel.compare_counts());
        frames += kernel.frames;
        decided += kernel.decided;
    }
    assert!(decided > frames / 4 && decided < frames, "{decided} of {frames} were decided by a rule");
}

#[test]
fn frames_cut_at_every_length() {
    if !random::privileged() {
        return;
    }
    for seed in 100..105 {
        let (mut kernel, mut random) = kernel(seed, Shape::default());
        for _ in 0..10 {
            let mut spec = random::spec(&mut random, &kernel.rules);
            spec.payload = spec.payload.min(20);
            let frame = spec.bytes();
            for len in 0..=frame.len() {
                must(seed, kernel.compare(&frame[..len]));
            }
        }
        must(seed, kernel.compare_counts());
    }
}

#[test]
fn frames_with_changed_bytes() {
    if !random::privileged() {
        return;
    }
    for seed in 200..210 {
        let (mut kernel, mut random) = kernel(seed, Shape::default());
        for _ in 0..500 {
            let mut frame = random::frame(&mut random, &kernel.rules);
            random::hurt(&mut random, &mut frame);
            must(seed, kernel.compare(&frame));
        }
        must(seed, kernel.compare_counts());
    }
}

#[test]
fn frames_of_several_buffers() {
    if !random::privileged() || !random::splits() {
        return;
    }
    for seed in 300..306 {
        let (mut kernel, mut random) = kernel(seed, Shape::default());
        for _ in 0..10 {
            let mut spec = random::spec(&mut random, &kernel.rules);
            spec.payload = spec.payload.min(20);
            let frame = spec.bytes();
            for first in 14..=frame.len() {
                must(seed, kernel.compare_split(&frame, first));
            }
        }
        // More than a page, which the kernel splits by itself.
        for _ in 0..100 {
            let mut spec = random::spec(&mut random, &kernel.rules);
            spec.payload = 3400 + random.below(6000);
            let frame = spec.bytes();
            must(seed, kernel.compare(&frame));
        }
        must(seed, kernel.compare_counts());
    }
}

#[test]
fn no_rules_and_rules_without_conditions() {
    if !random::privileged() {
        return;
    }
    let watch = |n| Rule { name: format!("r{n}"), shadow: true, ..Rule::default() };
    for rules in [0, 1, 64, 66] {
        let rules = Rules { rules: (0..rules).map(watch).collect(), ..Rules::default() };
        let (mut kernel, mut random) = (Kernel::load(rules, Now::read()), Random(1));
        for _ in 0..50 {
            let frame = random::frame(&mut random, &kernel.rules);
            must(0, kernel.compare(&frame));
        }
        must(0, kernel.compare_counts());
    }
}
