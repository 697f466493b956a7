//! Random rules and hurt frames through the kernel program and the reference, and hurt SYNs against its cookies, for a while:
//! `shield_soak SECONDS [SEED]`, as root. Ends with 1 at the first difference, which it prints with the seed that shows it again.

use std::{
    net::TcpListener,
    process::ExitCode,
    time::{Duration, Instant},
};

use bpf::filter::GatewayCookies;
use rules::{compile::Now, packet::Part};
use testbed::{
    cookies::{
        CookieBed, Mode, PORT, SERVER,
        hurt::{self, Tried},
    },
    random::{self, Kernel, Random, Shape},
};

/// Frames through each set of rules.
const FRAME_COUNT: usize = 2000;
/// SYNs and ACKs beside them, for each kind of cookies.
const SYN_COUNT: u64 = 2000;

/// The work that was done.
#[derive(Default)]
struct Done {
    frames: u64,
    decided: u64,
    /// In several buffers.
    split: u64,
    sets: u64,
    host: Tried,
    gateway: Tried,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Some(Ok(seconds)), Some(Ok(first))) =
        (arguments.next(), arguments.next().or(Some(Ok(Now::read().monotonic_ns))))
    else {
        eprintln!("usage: shield_soak SECONDS [SEED]");
        return ExitCode::from(2);
    };
    let Some(()) = testbed::privileged() else { return ExitCode::from(3) };
    let splits = random::splits();
    let host = CookieBed::new("soakh", Mode::Host(|_| ())).expect("a lab");
    let gateway = CookieBed::new("soakg", Mode::Gateway(GatewayCookies::default())).expect("a lab");
    let listen = |address| host.server.run(|| TcpListener::bind((address, PORT)));
    let _listeners = SERVER.map(|address| listen(address).expect("a listener"));
    let (begun, mut done, mut seed) = (Instant::now(), Done::default(), first);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let mut random = Random(seed);
        let run = rules(seed, &mut random, splits, &mut done)
            .and_then(|()| hurt::attack(&host, &mut random, SYN_COUNT, splits, &mut done.host))
            .and_then(|()| hurt::attack(&gateway, &mut random, SYN_COUNT, splits, &mut done.gateway));
        if let Err(why) = run {
            eprintln!("seed {seed}: {why}");
            return ExitCode::from(1);
        }
        seed += 1;
    }
    let Done { frames, decided, split, sets, host, gateway } = done;
    println!(
        "{frames} frames ({split} in several buffers), {decided} decided by a rule, {sets} sets of rules: no difference"
    );
    println!(
        "{} segments to a host: {} answered, {} of the answers longer (by an MSS option), {} right ACKs",
        host.frames, host.answered, host.longer, host.finished
    );
    println!("{} segments to a gateway: {} answered, {} longer", gateway.frames, gateway.answered, gateway.longer);
    ExitCode::SUCCESS
}

/// Frames of all kinds through one set of rules.
fn rules(seed: u64, random: &mut Random, splits: bool, done: &mut Done) -> Result<(), String> {
    let now = Now::read();
    let rules = if seed.is_multiple_of(4) { 500 } else { 40 };
    let mut kernel = Kernel::load(random::rules(random, Shape { rules, ..Shape::default() }, now.wall), now);
    for number in 0..FRAME_COUNT {
        let mut frame = any(random, &kernel);
        // A few at each length, and what fits the headers in each split.
        if number % 200 == 0 {
            for len in 14..=frame.len().min(200) {
                kernel.compare(&frame[..len])?;
                if splits {
                    kernel.compare_split(&frame, len)?;
                    done.split += 1;
                }
            }
        }
        if random.percent(70) {
            random::hurt(random, &mut frame);
        }
        if splits && frame.len() > 14 && random.percent(15) {
            let first = 14 + random.below(frame.len().min(300) - 13);
            kernel.compare_split(&frame, first)?;
            done.split += 1;
        } else {
            kernel.compare(&frame)?;
            done.split += u64::from(frame.len() > random::LINEAR_MAX);
        }
    }
    (done.frames, done.decided, done.sets) =
        (done.frames + kernel.frames, done.decided + kernel.decided, done.sets + 1);
    kernel.compare_counts()
}

/// A frame for these rules; some with long chains of extension headers, some larger than a page.
fn any(random: &mut Random, kernel: &Kernel) -> Vec<u8> {
    let mut spec = random::spec(random, &kernel.rules);
    if spec.source.is_ipv6() && random.percent(20) {
        // Eight are walked, the fragment header of a fragment included.
        let most = if spec.part == Part::Whole { 8 } else { 7 };
        spec.extensions = (0..random.below(most + 3)).map(|_| random.pick(&[0, 43, 51, 60])).collect();
    }
    if random.percent(3) {
        spec.payload = 3000 + random.below(6000);
    }
    spec.bytes()
}
