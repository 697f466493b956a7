//! Records a profile of the live machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bpf::{CpuProfile, ProfileError, ProfileOptions, StackCount};
use host::{
    Root, RootError,
    counters::{Counters, CountersError, CpuTime, Sampler},
    interface::NoInterface,
    symbols::{KernelSymbols, Symbol, SymbolError},
};
use model::{CpuSet, CpuSetError, profile::Profile, run::Machine};

use crate::{
    packets::{self, PerPacket},
    tally::{Seen, SetApart, StatTime, Tally},
};

/// The kernel's list of CPUs that are online.
const ONLINE: &str = "sys/devices/system/cpu/online";
/// The most samples per second and CPU that are taken; beyond it the sampling itself is what is measured.
pub const FREQUENCY_HZ_MAX: u32 = 10_000;
/// More different stacks than this are named and added up before the end, so that a long profile does not grow.
const STACKS_MAX: usize = 50_000;

/// A profile could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Samples(#[from] ProfileError),
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    #[error(transparent)]
    Counters(#[from] CountersError),
    #[error("cannot learn which CPUs are online: {0}")]
    Online(#[from] RootError),
    #[error("{ONLINE} holds no list of CPUs: {0}")]
    List(#[from] CpuSetError),
    #[error("CPU {missing} is not online; online are {online}")]
    Offline {
        /// The CPUs that were asked for and are not there.
        missing: CpuSet,
        online: CpuSet,
    },
    #[error("the list of CPUs is empty; name at least one")]
    NoCpu,
    #[error("{0} samples per second are not possible; 1 to {FREQUENCY_HZ_MAX} are")]
    Frequency(u32),
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
}

model::classified!(RecordError: Usage, Internal: List; within: Samples Symbols Counters Online NoInterface);

#[derive(Debug, Clone, Default)]
pub struct RecorderOptions {
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// The CPUs; none: all that are online.
    pub cpus: Option<CpuSet>,
    /// The packets that a cost is divided by.
    pub per_packet: PerPacket,
    /// Programs kept out of the classes.
    pub set_apart: SetApart,
    /// Keep whole stacks, for a flame graph.
    pub keep_stacks: bool,
    /// The machine that the profile names.
    pub machine: Machine,
}

/// A profile and the sums it was made of.
#[derive(Debug, Clone)]
pub struct Recording {
    pub profile: Profile,
    /// The sums, with the stacks if they were to be kept.
    pub tally: Tally,
    /// The sampled cores' time in the same window, by /proc/stat.
    pub times: BTreeMap<u32, StatTime>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    ours: bool,
    cpu: u32,
    comm: String,
    kernel: Vec<u64>,
    user: bool,
}

/// Samples until [`finish`](Self::finish).
#[derive(Debug)]
pub struct Recorder {
    options: RecorderOptions,
    cpus: CpuSet,
    uppers: BTreeSet<String>,
    sampler: Sampler,
    begin: Counters,
    before: KernelSymbols,
    samples: Option<CpuProfile>,
    seen: HashMap<Key, u64>,
    tally: Tally,
    /// Samples lost by now: before the profile began, and in it.
    lost_before: u64,
    lost: u64,
    /// The end: counters, and symbols if they could be read.
    end: Option<(Counters, Option<KernelSymbols>)>,
}

impl Recorder {
    /// Begins with `frequency_hz` samples per second on every CPU that is online.
    pub fn start(frequency_hz: u32) -> Result<Self, RecordError> {
        Self::with(RecorderOptions { frequency_hz, ..RecorderOptions::default() })
    }

    /// Begins as the options say.
    pub fn with(options: RecorderOptions) -> Result<Self, RecordError> {
        if !(1..=FREQUENCY_HZ_MAX).contains(&options.frequency_hz) {
            return Err(RecordError::Frequency(options.frequency_hz));
        }
        let root = Root::live();
        let online = CpuSet::parse_list(&root.read_trimmed(ONLINE)?)?;
        let cpus = options.cpus.clone().unwrap_or_else(|| online.clone());
        let missing = cpus.difference(&online);
        if !missing.is_empty() {
            return Err(RecordError::Offline { missing, online });
        }
        if cpus.is_empty() {
            return Err(RecordError::NoCpu);
        }
        let mut sampler = Sampler::open()?;
        let counters = sampler.read()?;
        if let PerPacket::Interfaces(names) = &options.per_packet
            && let Some(name) = names.iter().find(|n| counters.links.values().all(|l| l.name != **n))
        {
            return Err(NoInterface::here(name).into());
        }
        // Everything that takes time comes before the first sample.
        let before = KernelSymbols::load(&root)?;
        let uppers = counters.links.values().map(|l| l.name.clone()).filter(|name| is_upper(&root, name)).collect();
        let wanted = ProfileOptions { frequency_hz: options.frequency_hz, cpus: cpus.iter().collect() };
        let samples = CpuProfile::open(&wanted)?;
        let begin = sampler.read()?;
        let tally = empty(&options);
        Ok(Self {
            options,
            cpus,
            uppers,
            sampler,
            begin,
            before,
            samples: Some(samples),
            seen: HashMap::new(),
            tally,
            lost_before: 0,
            lost: 0,
            end: None,
        })
    }

    /// Forgets what was sampled so far and begins anew, at once: everything that takes time was done before.
    pub fn restart(&mut self) -> Result<(), RecordError> {
        self.poll()?;
        self.seen.clear();
        self.tally = empty(&self.options);
        if let Some(samples) = &self.samples {
            self.lost_before = samples.counts()?.lost();
        }
        self.begin = self.sampler.read()?;
        Ok(())
    }

    /// Ends the sampling. Reads the kernel's symbols too (some ten milliseconds), so that kernel programs may go from now on.
    pub fn stop(&mut self) -> Result<(), RecordError> {
        if self.end.is_some() {
            return Ok(());
        }
        let end = self.sampler.read()?;
        self.poll()?;
        if let Some(samples) = self.samples.take() {
            self.lost = samples.counts()?.lost().saturating_sub(self.lost_before);
        }
        self.end = Some((end, KernelSymbols::load(&Root::live()).ok()));
        Ok(())
    }

    /// Takes what was sampled so far out of the kernel, which keeps 16384 different stacks only. To be called every few seconds in
    /// a long profile.
    pub fn poll(&mut self) -> Result<(), RecordError> {
        let Some(samples) = &mut self.samples else { return Ok(()) };
        for StackCount { cpu, pid, comm, kernel, user, samples, .. } in samples.read()? {
            let ours = pid == std::process::id();
            *self.seen.entry(Key { ours, cpu, comm, kernel, user }).or_default() += samples;
        }
        if self.seen.len() > STACKS_MAX {
            let now = KernelSymbols::load(&Root::live()).ok();
            add_up(&mut self.seen, &self.before, now.as_ref(), &mut self.tally);
        }
        Ok(())
    }

    /// Ends, with the profile and the sums.
    pub fn finish(mut self) -> Result<Recording, RecordError> {
        self.stop()?;
        let (end, after) = self.end.take().unwrap_or_default();
        let seconds = end.at.saturating_sub(self.begin.at).as_secs_f64();
        let mut tally = self.tally;
        add_up(&mut self.seen, &self.before, after.as_ref(), &mut tally);
        let times = stat_times(&self.begin, &end, &self.cpus);
        let expected = seconds * f64::from(self.options.frequency_hz);
        tally.fill_idle(expected, &times);
        let packets = packets::base(&self.options.per_packet, &self.uppers, &self.begin, &end);
        let mut about = Profile::new(self.begin.when.clone(), self.options.machine.clone(), self.options.frequency_hz);
        about.lost = self.lost;
        about.notes.extend(notes(&tally, expected, &times, &self.begin, &end));
        Ok(Recording { profile: tally.profile(seconds, &times, packets, about), tally, times })
    }
}

fn empty(options: &RecorderOptions) -> Tally {
    let mut tally = Tally::new().setting_apart(options.set_apart);
    if options.keep_stacks {
        tally = tally.keeping_stacks();
    }
    tally
}

/// Names what was seen, adds it to the sums and forgets it.
fn add_up(seen: &mut HashMap<Key, u64>, before: &KernelSymbols, after: Option<&KernelSymbols>, tally: &mut Tally) {
    for (key, samples) in seen.drain() {
        let frames = names(&key.kernel, before, after);
        let Key { ours, cpu, ref comm, user, .. } = key;
        tally.add(&Seen { ours, cpu, comm, frames, user, samples });
    }
}

/// The functions of a stack; empty where there is none. A kernel program that came is in the later table, one that went in the earlier
/// one, and the other table has a neighbour that begins farther below: the nearer beginning is right.
fn names<'a>(stack: &[u64], before: &'a KernelSymbols, after: Option<&'a KernelSymbols>) -> Vec<&'a str> {
    let later = after.map_or_else(|| vec![None; stack.len()], |table| table.stack(stack));
    let nearer = |(later, earlier): (Option<Symbol<'a>>, Option<Symbol<'a>>)| {
        [later, earlier].into_iter().flatten().min_by_key(|s| s.offset).map_or("", |s| s.name)
    };
    later.into_iter().zip(before.stack(stack)).map(nearer).collect()
}

/// True if an interface stands on another one of this namespace.
fn is_upper(root: &Root, name: &str) -> bool {
    root.list(&format!("sys/class/net/{name}"))
        .is_ok_and(|entries| entries.iter().any(|e| e.starts_with("lower_") || e == "bridge"))
}

/// The time of each sampled CPU between two readings.
fn stat_times(begin: &Counters, end: &Counters, cpus: &CpuSet) -> BTreeMap<u32, StatTime> {
    let time = |cpu: u32| {
        let (b, e) = (begin.cpus.get(&cpu)?, end.cpus.get(&cpu)?);
        let spent = |get: fn(&CpuTime) -> u64| get(e).saturating_sub(get(b)) as f64;
        let all = spent(|t| t.user + t.system + t.idle + t.irq + t.softirq + t.steal).max(1.0);
        let (idle, steal) = (spent(|t| t.idle), spent(|t| t.steal));
        Some((cpu, StatTime { idle_percent: 100.0 * idle / all, steal_percent: 100.0 * steal / all }))
    };
    cpus.iter().filter_map(time).collect()
}

fn notes(
    tally: &Tally,
    expected: f64,
    times: &BTreeMap<u32, StatTime>,
    begin: &Counters,
    end: &Counters,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (&cpu, time) in times {
        let taken = tally.samples_of(cpu) as f64;
        let awake = expected * (100.0 - time.steal_percent) / 100.0;
        if taken < 0.8 * awake && awake >= 20.0 {
            notes.push(format!(
                "CPU {cpu} gave {taken:.0} of the {awake:.0} samples that were due: interrupts were off for long, or the \
                 hypervisor took more than it says"
            ));
        }
    }
    let changed: Vec<String> = begin
        .links
        .iter()
        .filter(|(index, link)| end.links.get(index).is_none_or(|l| l.name != link.name))
        .map(|(_, link)| link.name.clone())
        .collect();
    if !changed.is_empty() {
        notes.push(format!("went or were renamed meanwhile: {}; their packets are not counted", changed.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(lines: &str) -> KernelSymbols {
        KernelSymbols::load(&Root::from_files([("proc/kallsyms".to_owned(), lines.to_owned())].into())).unwrap()
    }

    #[test]
    fn programs_that_came_and_went_keep_their_names() {
        let went = symbols("0000000000001000 T ip_rcv\n0000000000002000 t bpf_prog_old\t[bpf]\n");
        let came = symbols("0000000000001000 T ip_rcv\n0000000000002800 t bpf_prog_new\t[bpf]\n");
        let stack = [0x2010, 0x2810, 0x1010];
        assert_eq!(names(&stack, &went, Some(&came)), ["bpf_prog_old", "bpf_prog_new", "ip_rcv"]);
        assert_eq!(names(&[0x10, 0x2010], &went, None), ["", "bpf_prog_old"]);
    }

    #[test]
    fn what_is_added_up_is_forgotten() {
        let table = symbols("0000000000001000 T ip_rcv\n");
        let key = |cpu| Key { ours: false, cpu, comm: "ek".into(), kernel: vec![0x1010], user: false };
        let mut seen = HashMap::from([(key(0), 3), (key(1), 4)]);
        let mut tally = Tally::new();
        add_up(&mut seen, &table, None, &mut tally);
        assert!(seen.is_empty());
        add_up(&mut seen, &table, None, &mut tally);
        assert_eq!((tally.samples(), tally.samples_of(1)), (7, 4));
    }
}
