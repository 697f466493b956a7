//! Card by card.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use guest::{Accel, Guest, GuestError, Kernel, Nic, Root, Settings};
use host::{Host, machine};
use model::{
    CpuSet,
    bench::{
        PublishedRate,
        guest::{self as recorded, Burst, GuestRun, PerFrame, VerbOutcome},
    },
    sources,
};
use rig::{
    experiment::{self, Control, End, Experiment, Facts, Planned},
    repeat::{middle, sorted},
};

use super::{
    bed::{Bed, Ends},
    inside,
    plan::{BURSTS, LENGTHS, Plan},
    trace::Trace,
};
use crate::BenchError;

/// A guest that is emulated answers within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const CPU_COUNT: u32 = 2;
const MEMORY_MIB: u32 = 1024;
/// The trace is whole so long after the last frame.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Why KVM carries no guest with such a card here, in a line; none: it does. A guest is booted to see.
pub fn emulation_reason(kernel: &Kernel, nic: &Nic, evenkeel: &Path) -> Result<Option<String>, BenchError> {
    let root = Root::make(kernel, nic, evenkeel)?;
    Ok(guest::trial(kernel, &root).err().map(|why| host::ssh::last_words(&why.to_string())))
}

/// Counts what was planned in guests that are emulated, since `emulation_reason`; nothing if it was stopped.
pub fn carry_out(
    plan: &Plan,
    (host, kernel, evenkeel): (&Host, &Kernel, &Path),
    emulation_reason: &str,
    control: &mut Control<'_>,
) -> Result<Option<GuestRun>, BenchError> {
    let cards = Cards { plan, kernel, evenkeel, emulation_reason, qemu: version()?, root: None, found: Vec::new() };
    experiment::carry_out(cards, machine::describe(host), &CpuSet::new(), control)
}

struct Cards<'a> {
    plan: &'a Plan,
    kernel: &'a Kernel,
    evenkeel: &'a Path,
    emulation_reason: &'a str,
    qemu: String,
    /// The root that the guest of the next card boots.
    root: Option<Root>,
    found: Vec<recorded::Card>,
}

impl Experiment for Cards<'_> {
    type Step = Nic;
    type Found = Option<GuestRun>;
    type Error = BenchError;

    fn plan(&self) -> Vec<Planned<Nic>> {
        self.plan.options.nics.iter().cloned().map(Planned::new).collect()
    }

    fn name(&self, nic: &Nic) -> Option<String> {
        Some(nic.to_string())
    }

    fn build(&mut self, nic: &Nic, _: &mut Control<'_>) -> Result<(), BenchError> {
        self.root = Some(Root::make(self.kernel, nic, self.evenkeel)?);
        Ok(())
    }

    fn round(&mut self, nic: &Nic, control: &mut Control<'_>) -> Result<(), BenchError> {
        let root = self.root.take().ok_or(BenchError::Panicked("root of the guest"))?;
        self.found.push(card(self.plan, nic, self.kernel, &root, control)?);
        Ok(())
    }

    fn conclude(self, facts: Facts, end: End<BenchError>) -> Result<Option<GuestRun>, BenchError> {
        let options = &self.plan.options;
        Ok(end.is_whole()?.then(|| GuestRun {
            timestamp: facts.timestamp,
            machine: facts.machine,
            emulation_reason: self.emulation_reason.to_owned(),
            kernel: self.kernel.release.clone(),
            qemu: self.qemu,
            runs: options.runs,
            cards: self.found,
            skipped: self.plan.skipped.clone(),
            exit_ns: options.exit_ns,
            measured_exit_ns: sys::kvm::exit_ns().map_err(|e| format!("/dev/kvm: {e}")),
            sources: sources(),
            notes: notes(),
        }))
    }
}

fn version() -> Result<String, BenchError> {
    let done = sys::program::command("qemu-system-x86_64").arg("--version").output();
    let done = done.map_err(|_| GuestError::Missing("qemu-system-x86_64", "qemu-system-x86"))?;
    Ok(String::from_utf8_lossy(&done.stdout).lines().next().unwrap_or_default().to_owned())
}

fn card(
    plan: &Plan,
    nic: &Nic,
    kernel: &Kernel,
    root: &Root,
    control: &mut Control<'_>,
) -> Result<recorded::Card, BenchError> {
    let bed = Bed::new(nic)?;
    let settings = Settings {
        nic: nic.clone(),
        cards: bed.cards(),
        accel: Accel::Emulation,
        cpus: CPU_COUNT,
        memory_mib: MEMORY_MIB,
        traced: true,
        namespace: Some(bed.space.path()),
        within: Vec::new(),
        disk: None,
    };
    let began = Instant::now();
    let mut guest = Guest::start(&settings, kernel, root, ANSWER_TIMEOUT)?;
    let names = inside::route(&mut guest, &bed)?;
    let mut ends = bed.ends()?;
    // The first frames meet a link that has just come up.
    let mut ready = false;
    while !ready && began.elapsed() < ANSWER_TIMEOUT {
        ready = ends.train(1, 1)? == 0;
    }
    if !ready {
        return Err(BenchError::Machine(format!(
            "the guest with {nic} forwards nothing; its console says:\n{}",
            guest.console()
        )));
    }
    let ready_s = began.elapsed().as_secs_f64();
    control.progress.update(&format!("ready to forward after {ready_s:.1} s"));
    let about = inside::about(&mut guest, &names[0])?;
    let mut bursts = Vec::new();
    for frames in BURSTS {
        let (mut runs, mut lost) = (Vec::new(), 0);
        for _ in 0..plan.options.runs {
            if control.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            let lengths = LENGTHS.map(|bursts| bursts * frames);
            let [short, long] = lengths.map(|length| train(&mut guest, &mut ends, (nic, &names), length, frames));
            let ((short, lost_short), (long, lost_long)) = (short?, long?);
            lost += lost_short + lost_long;
            runs.push(slope(&short, &long, f64::from(lengths[1] - lengths[0])));
        }
        bursts.push(burst(frames, runs, lost));
    }
    let verbs = inside::verbs(&mut guest, &names, &mut ends, control.stop)?;
    let native = verbs.iter().find(|verb| verb.command.contains("native"));
    let native_xdp = match native {
        Some(verb) if verb.outcome == VerbOutcome::Works => Ok(()),
        other => Err(other.map_or_else(String::new, |verb| verb.message.clone())),
    };
    Ok(recorded::Card {
        nic: nic.key(),
        driver: about.driver,
        queues: about.queues,
        ring: about.ring,
        offloads: about.offloads,
        native_xdp,
        ready_s,
        bursts,
        verbs,
        qemu: Guest::command_line(&settings, &kernel.image, Path::new("ROOT"), Path::new("FOLDER")),
        libvirt: nic.libvirt(&settings.cards[0].tap, &settings.cards[0].mac),
    })
}

/// Total cost of a train of frames, and its lost frames.
fn train(
    guest: &mut Guest,
    ends: &mut Ends,
    (nic, names): (&Nic, &[String; 2]),
    frames: u32,
    burst: u32,
) -> Result<(PerFrame, u64), BenchError> {
    let unread = |e: std::io::Error| BenchError::Machine(format!("cannot read QEMU's trace: {e}"));
    let interrupts = inside::interrupts(guest, names)?;
    let mut trace = Trace::open(&guest.trace()).map_err(unread)?;
    let lost = ends.train(frames, burst)?;
    std::thread::sleep(SETTLE_TIME);
    let counts = trace.counts(nic).map_err(unread)?;
    let interrupts = inside::interrupts(guest, names)? - interrupts;
    let [reads, writes, notifications, interrupts] =
        [counts.reads, counts.writes, counts.notifications, interrupts].map(|count| count as f64);
    Ok((PerFrame { reads, writes, notifications, interrupts }, lost))
}

fn slope(short: &PerFrame, long: &PerFrame, frames: f64) -> PerFrame {
    let of = |figure: fn(&PerFrame) -> f64| (figure(long) - figure(short)) / frames;
    PerFrame {
        reads: of(|p| p.reads),
        writes: of(|p| p.writes),
        notifications: of(|p| p.notifications),
        interrupts: of(|p| p.interrupts),
    }
}

fn burst(frames: u32, runs: Vec<PerFrame>, lost: u64) -> Burst {
    let of = |figure: fn(&PerFrame) -> f64| middle(runs.iter().map(figure));
    let median = PerFrame {
        reads: of(|p| p.reads),
        writes: of(|p| p.writes),
        notifications: of(|p| p.notifications),
        interrupts: of(|p| p.interrupts),
    };
    let all = sorted(runs.iter().map(PerFrame::accesses));
    let distance = all.last().zip(all.first()).map_or(0.0, |(most, least)| most - least);
    let spread = if median.accesses() > 0.0 { distance / median.accesses() } else { 0.0 };
    Burst { frames, runs, median, spread, lost }
}

/// The rates that others published of a router in a guest, at the least frame.
fn sources() -> Vec<PublishedRate> {
    sources::firewall_rates().into_iter().filter(|rate| rate.mode == "router").collect()
}

fn notes() -> Vec<String> {
    [
        "The guest is emulated (QEMU's TCG): an access to a device is a call of a function there, and instructions are slower by a factor that differs from one to the next. So no rate, delay or share of CPU time is shown, and none can be compared",
        "Counted, not timed: accesses to registers and notifications out of QEMU's trace, interrupts out of the guest's /proc/interrupts, of both cards, for each frame that is forwarded from one to the other",
        "A figure is the slope between trains of two lengths, so that what happens once does not count; the median of the runs",
        "A burst of N: N frames are sent at once, and the next N once all have come out",
    ]
    .map(str::to_owned)
    .to_vec()
}
