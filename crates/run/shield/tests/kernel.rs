//! The kernel program decides as the rules say, on random rules and frames, whole and hurt.

use std::net::{IpAddr, Ipv4Addr};

use rules::{Action, Match, Place, Prefix, PrefixSet, Rule, Rules, compile::Now};
use testbed::random::{self, Kernel, Random, Shape};

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
    let Some(()) = testbed::privileged() else { return };
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
    let Some(()) = testbed::privileged() else { return };
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
    let Some(()) = testbed::privileged() else { return };
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
    let Some(()) = testbed::privileged() else { return };
    if !random::splits() {
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
        // More than a length field can say.
        for _ in 0..20 {
            let mut spec = random::spec(&mut random, &kernel.rules);
            spec.payload = 65_400 + random.below(300);
            let mut frame = spec.bytes();
            let at = if frame[12..14] == [8, 0] { 16 } else { 18 };
            frame[at..at + 2].copy_from_slice(&[0, 0]);
            must(seed, kernel.compare(&frame));
        }
        must(seed, kernel.compare_counts());
    }
}

#[test]
fn no_rules_and_rules_without_conditions() {
    let Some(()) = testbed::privileged() else { return };
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

#[test]
fn addresses_among_hundreds_of_thousands_of_prefixes() {
    let Some(()) = testbed::privileged() else { return };
    // One prefix of 24 to 32 bits in each of so many /20, so that neither those nor the /22 say the class of all addresses.
    let mut random = Random(7);
    let within = |random: &mut Random, n: u32| (n << 12) + random.below(1 << 12) as u32;
    let prefixes = (0..400_000u32).map(|n| {
        let (address, len) = (within(&mut random, n), 24 + random.below(9) as u8);
        let kept = !(u32::MAX.checked_shr(len.into()).unwrap_or(0));
        Prefix { address: Ipv4Addr::from_bits(address & kept).into(), len }
    });
    let set = PrefixSet { prefixes: prefixes.collect() };
    let edges: Vec<u32> = set.prefixes.iter().map(first_v4).collect();
    let when = Match { source: vec![Place::Set("many".into())], ..Match::default() };
    let rule = Rule { name: "many".into(), when, action: Action::Drop, ..Rule::default() };
    let rules = Rules { rules: vec![rule], sets: [("many".into(), set.into())].into(), ..Rules::default() };
    let mut kernel = Kernel::load(rules, Now::read());
    for n in 0..200 {
        let edge = edges[random.below(edges.len())];
        let source = match n % 3 {
            0 => edge,
            1 => edge.wrapping_sub(1 + random.below(300) as u32),
            _ => random.draw() as u32,
        };
        let mut spec = random::spec(&mut random, &kernel.rules);
        (spec.source, spec.destination) = (Ipv4Addr::from_bits(source).into(), Ipv4Addr::new(198, 18, 0, 7).into());
        must(7, kernel.compare(&spec.bytes()).map_err(|why| why.chars().take(2000).collect()));
    }
    assert!(kernel.decided > 60 && kernel.decided < 140, "{} of {}", kernel.decided, kernel.frames);
}

fn first_v4(prefix: &Prefix) -> u32 {
    match prefix.address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(_) => unreachable!("only IPv4 was asked for"),
    }
}
