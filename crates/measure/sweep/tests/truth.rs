//! Shares of a core's time against an independent clock: /proc/stat, read beside it by a thread of the test.

use std::{
    fs,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use host::{Host, Root};
use model::{CpuSet, profile::Class, sweep::Step};
use profile::{Recorder, RecorderOptions};
use rig::{
    experiment::Control,
    progress::{self, Progress},
};
use sweep::{SweepBox, SweepConfig};
use testbed::privileged;

/// Points of a percent that both may differ; half of what was stolen comes on top, in which no sample is taken.
const TOLERANCE_PERCENT: f64 = 5.0;
/// The time between two readings of /proc/stat: it counts no finer.
const READ_PERIOD: Duration = Duration::from_millis(10);

fn online() -> CpuSet {
    fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap()
}

/// Ticks of a CPU by kind, as /proc/stat has them: user, nice, system, idle, iowait, irq, softirq, steal.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    at: Instant,
    kinds: [u64; 8],
}

impl Ticks {
    fn read(cpu: u32) -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let name = format!("cpu{cpu} ");
        let line = text.lines().find(|l| l.starts_with(&name)).unwrap();
        let mut kinds = [0; 8];
        line.split_ascii_whitespace().skip(1).zip(&mut kinds).for_each(|(word, kind)| *kind = word.parse().unwrap());
        Self { at: Instant::now(), kinds }
    }
}

/// /proc/stat of one CPU over time.
struct Clock {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Ticks>>,
}

impl Clock {
    fn start(cpu: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                seen.push(Ticks::read(cpu));
                thread::sleep(READ_PERIOD);
            }
            seen.push(Ticks::read(cpu));
            seen
        });
        Self { stop, thread }
    }

    fn finish(self) -> Vec<Ticks> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Idle and stolen share of a time, in percent.
fn stat(seen: &[Ticks], time: &Range<Instant>) -> [f64; 2] {
    let distance = |at: Instant, to: Instant| at.max(to) - at.min(to);
    let nearest = |to: Instant| seen.iter().min_by_key(|t| distance(t.at, to)).unwrap().kinds;
    let (begin, end) = (nearest(time.start), nearest(time.end));
    let spent: Vec<f64> = begin.iter().zip(end).map(|(b, e)| e.saturating_sub(*b) as f64).collect();
    let all = spent.iter().sum::<f64>().max(1.0);
    [100.0 * (spent[3] + spent[4]) / all, 100.0 * spent[7] / all]
}

/// Fails if `idle` or `steal` is not what /proc/stat says; busy is what both leave.
fn agree(what: &str, idle: f64, steal: f64, of_stat: [f64; 2]) {
    eprintln!("{what}: idle {idle:.1} %, steal {steal:.1} %; /proc/stat: {:.1} %, {:.1} %", of_stat[0], of_stat[1]);
    let tolerance = TOLERANCE_PERCENT + of_stat[1] / 2.0;
    for (name, ours, theirs) in [("idle", idle, of_stat[0]), ("steal", steal, of_stat[1])] {
        assert!((ours - theirs).abs() <= tolerance, "{what}: {name} {ours:.1} %, and /proc/stat says {theirs:.1} %");
    }
}

/// Shows nothing.
struct Quiet;

impl Progress for Quiet {
    fn begin(&mut self, _step: &progress::Step) {}
    fn update(&mut self, _text: &str) {}
    fn line(&mut self, _text: &str) {}
}

#[test]
fn a_sweep_agrees_with_proc_stat_at_every_load() {
    let Some(()) = privileged() else { return };
    let cpus = online();
    let clock = Clock::start(cpus.iter().last().unwrap());
    let what = SweepBox::Router;
    let config = SweepConfig {
        what,
        steps: 3,
        duration: Duration::from_millis(1500),
        repeats: 1,
        cpus,
        compared: sweep::configurations(what)[..1].to_vec(),
    };
    let mut measured: Vec<(Step, Range<Instant>)> = Vec::new();
    let host = Host::read(&Root::live()).unwrap();
    let mut on_step = |step: &Step, time| measured.push((step.clone(), time));
    let control = &mut Control { stop: &AtomicBool::new(false), progress: &mut Quiet };
    let sweep = sweep::run(&config, &host, control, &mut on_step).unwrap().unwrap();
    let seen = clock.finish();
    assert_eq!((measured.len(), sweep.setups[0].steps.len()), (4, 4), "three loads, and the ceiling");
    for (step, time) in &measured {
        let what = format!("{:.0} pps", step.offered_pps);
        agree(&what, step.percent(Class::Idle), step.percent(Class::Steal), stat(&seen, time));
    }
}

#[test]
fn a_profile_agrees_with_proc_stat_at_three_loads() {
    let Some(()) = privileged() else { return };
    let cpu = online().iter().last().unwrap();
    for percent in [10, 50, 100] {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let burner = thread::spawn(move || {
            sys::affinity::pin_current_thread(cpu).unwrap();
            let round = Duration::from_millis(10);
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < round * percent / 100 {}
                thread::sleep(round.saturating_sub(begun.elapsed()));
            }
        });
        let clock = Clock::start(cpu);
        let options = RecorderOptions {
            frequency_hz: 499,
            cpus: Some([cpu].into_iter().collect()),
            ..RecorderOptions::default()
        };
        let mut recorder = Recorder::with(options).unwrap();
        recorder.restart().unwrap();
        let begun = Instant::now();
        thread::sleep(Duration::from_millis(1500));
        let ended = Instant::now();
        recorder.stop().unwrap();
        let profile = recorder.finish().unwrap().profile;
        stop.store(true, Ordering::Relaxed);
        burner.join().unwrap();
        let of_stat = stat(&clock.finish(), &(begun..ended));
        let share = |class| profile.cores[0].percent.get(&class).copied().unwrap_or(0.0);
        agree(&format!("a program that takes {percent} %"), share(Class::Idle), share(Class::Steal), of_stat);
    }
}
