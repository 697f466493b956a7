//! Decides which work moves to which CPU. Pure: a state and a sample make a decision.

use std::collections::{BTreeMap, BTreeSet};

use host::knob::Knob;
use model::CpuSet;
use serde::Serialize;

/// Limits for a move.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Settings {
    /// A core at or over this load is hot, in percent.
    pub threshold_percent: f64,
    /// Hot samples in a row before anything moves.
    pub hot_samples: u32,
    /// Samples for which a moved instance rests.
    pub cooldown: u32,
    /// After so many samples work that still runs where it was is reported.
    pub follow: u32,
    /// A move must leave both cores at least this much below the hot one's load now, in percentage points.
    pub gain_points: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { threshold_percent: 80.0, hot_samples: 3, cooldown: 10, follow: 3, gain_points: 5.0 }
    }
}

/// Work below this share of a core is not worth a move, in percent.
const SMALL_PERCENT: f64 = 1.0;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Core {
    pub cpu: u32,
    pub node: u32,
    /// Load of any kind in percent.
    pub busy_percent: f64,
    /// Network work may be moved here.
    pub allowed: bool,
}

/// Work that is moved together: the NAPI instances behind one interrupt, or one NAPI thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Work {
    /// Name of the work for people, such as `eth0 rxtx 3`.
    pub name: String,
    /// The setting that moves it; none when nothing does (a backlog, an interrupt that the kernel keeps).
    pub knob: Option<Knob>,
    /// The CPUs where it may run, as written; none when not known.
    pub written: Option<CpuSet>,
    pub node: Option<u32>,
    /// The share of each core that it took, in percent.
    pub percent: BTreeMap<u32, f64>,
    pub pps: f64,
}

impl Work {
    /// CPU on which it ran most.
    pub fn runs_on(&self) -> Option<u32> {
        let most = self.percent.iter().max_by(|a, b| a.1.total_cmp(b.1));
        most.filter(|(_, percent)| **percent > 0.0).map(|(cpu, _)| *cpu)
    }

    fn on(&self, cpu: u32) -> f64 {
        self.percent.get(&cpu).copied().unwrap_or(0.0)
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Sample {
    /// The cores that are online.
    pub cores: Vec<Core>,
    pub work: Vec<Work>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Move {
    pub knob: Knob,
    pub name: String,
    pub from: u32,
    pub to: u32,
    /// Load on its core, in percent.
    pub percent: f64,
    /// Reason of the move, in one sentence.
    pub reason: String,
}

/// Something the user should know. Each is printed once, until it changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// A single queue makes the core hot: moving it only moves the problem.
    Elephant { cpu: u32, name: String },
    /// The core is hot by something else than network work.
    OtherWork { cpu: u32 },
    /// The load of a hot core cannot be moved.
    Unmovable { cpu: u32, name: String },
    /// No allowed core has room.
    NoRoom { cpu: u32 },
    /// The affinity is written, and the work still runs where it was.
    NotFollowed { name: String, wanted: u32, runs_on: u32 },
    /// Somebody else wrote an affinity that we had written.
    Rewritten { name: String, ours: u32, found: CpuSet },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    to: u32,
    age: u32,
    followed: bool,
}

/// State between samples.
#[derive(Debug, Clone, Default)]
pub struct State {
    hot: BTreeMap<u32, u32>,
    moved: BTreeMap<Knob, Moved>,
    reported: BTreeSet<Note>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Decision {
    pub moves: Vec<Move>,
    pub notes: Vec<Note>,
}

impl State {
    /// Remembers that a move was made: its work then rests, and is followed. A move that was only proposed is not told here.
    pub fn made(&mut self, made: &Move) {
        self.moved.insert(made.knob.clone(), Moved { to: made.to, age: 0, followed: false });
    }
}

/// Decides. The state must be of the same watch; the caller tells it which of the moves it has made.
pub fn decide(state: &mut State, settings: &Settings, sample: &Sample) -> Decision {
    let mut notes = BTreeSet::new();
    follow_up(state, settings, sample, &mut notes);

    let mut load: BTreeMap<u32, f64> = sample.cores.iter().map(|c| (c.cpu, c.busy_percent)).collect();
    for core in &sample.cores {
        let count = state.hot.entry(core.cpu).or_default();
        *count = if core.busy_percent >= settings.threshold_percent { *count + 1 } else { 0 };
    }
    let mut hot: Vec<&Core> =
        sample.cores.iter().filter(|c| state.hot[&c.cpu] >= settings.hot_samples.max(1)).collect();
    hot.sort_by(|a, b| b.busy_percent.total_cmp(&a.busy_percent).then(a.cpu.cmp(&b.cpu)));
    let mut moves: Vec<Move> = Vec::new();
    for core in hot {
        let here: Vec<&Work> = sample.work.iter().filter(|w| w.on(core.cpu) >= SMALL_PERCENT).collect();
        let chosen_now = |k: &Knob| moves.iter().any(|m: &Move| m.knob == *k);
        let rests = |k: &Knob| chosen_now(k) || state.moved.get(k).is_some_and(|m| m.age < settings.cooldown);
        let resting = |w: &Work| w.knob.as_ref().is_some_and(rests);
        // Work that was told to leave and has not left yet: its going is what will cool this core.
        let leaves =
            |k: &Knob| chosen_now(k) || state.moved.get(k).is_some_and(|m| !m.followed && m.age < settings.cooldown);
        if here.iter().any(|w| w.knob.as_ref().is_some_and(leaves)) {
            continue;
        }
        let movable: Vec<&Work> = here.iter().copied().filter(|w| w.knob.is_some() && !resting(w)).collect();
        match best_move(core, &movable, sample, &load, settings) {
            Some(chosen) => {
                *load.entry(chosen.from).or_default() -= chosen.percent;
                *load.entry(chosen.to).or_default() += chosen.percent;
                state.hot.insert(core.cpu, 0);
                moves.push(chosen);
            }
            None if here.iter().any(|w| resting(w)) => {}
            None => notes.extend([why_not(core, &here, settings)]),
        }
    }
    let new = notes.difference(&state.reported).cloned().collect();
    state.reported = notes;
    Decision { moves, notes: new }
}

/// Ages what was moved; sees whether it followed and whether somebody rewrote it.
fn follow_up(state: &mut State, settings: &Settings, sample: &Sample, notes: &mut BTreeSet<Note>) {
    let work_of = |knob: &Knob| sample.work.iter().find(|w| w.knob.as_ref() == Some(knob));
    let mut forget = Vec::new();
    for (knob, moved) in &mut state.moved {
        moved.age += 1;
        let Some(work) = work_of(knob) else {
            forget.push(knob.clone());
            continue;
        };
        if let Some(found) = work.written.as_ref().filter(|w| **w != CpuSet::single(moved.to)) {
            let found = found.clone();
            notes.insert(Note::Rewritten { name: work.name.clone(), ours: moved.to, found });
            forget.push(knob.clone());
            continue;
        }
        match work.runs_on() {
            Some(cpu) if cpu == moved.to => moved.followed = true,
            Some(cpu) if !moved.followed && moved.age >= settings.follow => {
                let name = work.name.clone();
                notes.insert(Note::NotFollowed { name, wanted: moved.to, runs_on: cpu });
            }
            _ => {}
        }
    }
    for knob in forget {
        state.moved.remove(&knob);
    }
}

/// The move that evens out best: the lowest load of the hotter one of the two cores afterwards; near the NIC if equal.
fn best_move(
    core: &Core,
    movable: &[&Work],
    sample: &Sample,
    load: &BTreeMap<u32, f64>,
    settings: &Settings,
) -> Option<Move> {
    let from_load = load[&core.cpu];
    let mut best: Option<((f64, bool, u32), Move)> = None;
    for work in movable {
        let percent = work.on(core.cpu);
        for target in sample.cores.iter().filter(|t| t.allowed && t.cpu != core.cpu) {
            let after = (from_load - percent).max(load[&target.cpu] + percent);
            if load[&target.cpu] + percent >= settings.threshold_percent || after > from_load - settings.gain_points {
                continue;
            }
            // Loads within a point are the same: a measurement is not more exact.
            let key = (after.round(), work.node.is_some_and(|n| n != target.node), target.cpu);
            let better =
                best.as_ref().is_none_or(|(b, _)| key.0.total_cmp(&b.0).then((key.1, key.2).cmp(&(b.1, b.2))).is_lt());
            if let (true, Some(knob)) = (better, &work.knob) {
                let reason = format!(
                    "CPU {} was at {from_load:.0} %: {} takes {percent:.0} % there; CPU {} was at {:.0} %",
                    core.cpu, work.name, target.cpu, load[&target.cpu]
                );
                let (knob, name) = (knob.clone(), work.name.clone());
                best = Some((key, Move { knob, name, from: core.cpu, to: target.cpu, percent, reason }));
            }
        }
    }
    best.map(|(_, chosen)| chosen)
}

fn why_not(core: &Core, here: &[&Work], settings: &Settings) -> Note {
    let cpu = core.cpu;
    let largest = here.iter().max_by(|a, b| a.on(cpu).total_cmp(&b.on(cpu)));
    let Some(largest) = largest.filter(|w| w.on(cpu) >= settings.gain_points) else {
        return Note::OtherWork { cpu };
    };
    let network: f64 = here.iter().map(|w| w.on(cpu)).sum();
    if core.busy_percent - network >= settings.threshold_percent {
        return Note::OtherWork { cpu };
    }
    let name = largest.name.clone();
    if largest.knob.is_none() {
        return Note::Unmovable { cpu, name };
    }
    // Wherever it went, it would fill that core just as well.
    if largest.on(cpu) >= settings.threshold_percent - settings.gain_points
        || network - largest.on(cpu) < settings.gain_points
    {
        return Note::Elephant { cpu, name };
    }
    Note::NoRoom { cpu }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Elephant { cpu, name } => write!(
                f,
                "CPU {cpu} is hot by one queue, {name}: moving it would only move the heat. More queues (ethtool -L), or \
                 RPS for it (evenkeel spread apply --rps on), share it out"
            ),
            Self::OtherWork { cpu } => {
                write!(f, "CPU {cpu} is hot by other work than packets; moving interrupts would not cool it")
            }
            Self::Unmovable { cpu, name } => write!(
                f,
                "CPU {cpu} is hot by {name}, which cannot be moved: its interrupt is not known or is managed by the kernel"
            ),
            Self::NoRoom { cpu } => write!(f, "CPU {cpu} is hot, and no allowed core has room for one of its queues"),
            Self::NotFollowed { name, wanted, runs_on } => write!(
                f,
                "{name} is written to CPU {wanted} and still runs on CPU {runs_on}: a queue that is never empty is polled \
                 where it is until its next interrupt"
            ),
            Self::Rewritten { name, ours, found } => {
                write!(f, "somebody rewrote {name}: we wrote CPU {ours}, there is {found}")
            }
        }
    }
}
