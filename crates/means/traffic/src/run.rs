//! A plan carried out: senders started, watched, ended, and their counts held against the interface's own.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use bpf::{LivePace, LivePacket, LiveSender};
use model::CpuSet;
use nix::time::{ClockId, clock_gettime};
use sys::{affinity::pin_current_thread, interrupt::InterruptibleThread};
use wire::FrameSize;

use crate::{
    TrafficError,
    backend::{NO_NAPI, choose, open},
    cycle::Cycle,
    interface::TxCounters,
    pace::{Bounds, Feed, Out, Tally, send},
    plan::{Backend, Frames, Origin, Plan},
    replay::Timing,
    report::{GenReport, SenderReport},
};

/// Time between two looks at the senders.
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// Time between two looks whether the interface is still there.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Time between two reports of progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// The receiving side's time to count the last frames.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(300);
/// After this time with nothing counted by the interface, live frames are not arriving.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(300);

/// A look at a run under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    pub elapsed: Duration,
    /// Frames handed to the kernel so far.
    pub submitted: u64,
    /// Frames per second handed since the last look.
    pub pps: f64,
}

enum Sender<'p> {
    Live { sender: LiveSender, cycle: &'p Cycle },
    Loop { out: Box<dyn Out>, feed: Feed<'p> },
}

/// The senders of a plan, opened: what is left to do takes no capability.
pub struct Ready<'p> {
    plan: &'p Plan,
    chosen: (Backend, String),
    senders: Vec<Sender<'p>>,
}

/// Opens all that `plan` needs in this thread's network namespace and sends nothing.
pub fn prepare(plan: &Plan) -> Result<Ready<'_>, TrafficError> {
    check_cpus(plan)?;
    let chosen = choose(plan)?;
    let timing = match &plan.config.origin {
        Origin::Replay(replay) => Some(replay.timing),
        Origin::Stream(_) => None,
    };
    let senders =
        (0..plan.cpus.len()).map(|i| make(plan, chosen.0, timing, i)).collect::<Result<Vec<_>, TrafficError>>()?;
    Ok(Ready { plan, chosen, senders })
}

impl Ready<'_> {
    /// Sends from threads of this thread's network namespace, until the plan is done or `stop` is set. `progress` is called about
    /// every second.
    ///
    /// # Errors
    /// [`TrafficError::Unsupported`] when live frames do not reach the other side, [`TrafficError::Vanished`] when the interface goes.
    pub fn run(mut self, stop: &AtomicBool, mut progress: impl FnMut(Progress)) -> Result<GenReport, TrafficError> {
        let (plan, backend) = (self.plan, self.chosen.0);
        let tallies: Vec<Tally> = plan.cpus.iter().map(|_| Tally::default()).collect();
        let before = plan.interface.counters()?;
        let halt = AtomicBool::new(false);
        let senders = &mut self.senders;
        let outcome =
            thread::scope(|scope| watch(scope, plan, senders, &tallies, (&halt, stop), before, &mut progress));
        let submitted: u64 = tallies.iter().map(|t| t.sent.load(Ordering::Relaxed)).sum();
        // Whatever failed: without an interface that is the cause.
        if !plan.interface.is_alive() {
            return Err(TrafficError::Vanished { interface: plan.interface.name.clone(), submitted });
        }
        let stopped = outcome?;
        let after = settle(plan, before, submitted)?;
        if backend == Backend::XdpLive
            && submitted > 0
            && (after.packets, after.dropped) == (before.packets, before.dropped)
        {
            return Err(not_arriving(plan));
        }
        Ok(report(plan, self.chosen, &tallies, (before, after), stopped))
    }
}

/// [`prepare`] and [`Ready::run`]: sends the frames of `plan` from threads of this thread's network namespace, until it is done or `stop` is set.
/// `progress` is called about every second.
///
/// # Errors
/// The backend cannot do it; among others [`TrafficError::Unsupported`] when live frames do not reach the other side.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: impl FnMut(Progress)) -> Result<GenReport, TrafficError> {
    prepare(plan)?.run(stop, progress)
}

fn make<'p>(plan: &'p Plan, backend: Backend, timing: Option<Timing>, i: usize) -> Result<Sender<'p>, TrafficError> {
    match (&plan.frames, backend) {
        (Frames::Cycles(cycles), Backend::XdpLive) => {
            let cycle = &cycles[i];
            let packets: Vec<LivePacket<'_>> = cycle
                .frames
                .iter()
                .map(|f| LivePacket { headers: &f[..cycle.headers_len], frame_len: f.len() })
                .collect();
            let template = vec![0u8; plan.longest];
            let pace = LivePace {
                pps: plan.pps_of_one(),
                count: plan.count_of(i),
                duration: plan.config.duration,
                nap: plan.nap(),
            };
            let random = plan.random_sources(i, cycle);
            let sender =
                LiveSender::load_with(&plan.interface.name, template, &packets, cycle.tcp_offset, random, pace)?;
            Ok(Sender::Live { sender, cycle })
        }
        _ => Ok(Sender::Loop { out: open(plan, backend, i)?, feed: Feed::of(plan, timing, i) }),
    }
}

/// Starts the threads and waits for them; says whether they were stopped early.
fn watch<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    plan: &'env Plan,
    senders: &'env mut [Sender<'_>],
    tallies: &'env [Tally],
    (halt, stop): (&'env AtomicBool, &AtomicBool),
    before: TxCounters,
    progress: &mut impl FnMut(Progress),
) -> Result<bool, TrafficError> {
    let (started, ready) = mpsc::channel();
    let mut lives: Vec<(&LiveSender, &Cycle, &Tally)> = Vec::new();
    let mut threads: Vec<ScopedJoinHandle<'scope, Result<(), TrafficError>>> = Vec::new();
    for (i, sender) in senders.iter_mut().enumerate() {
        let (cpu, count, tally, started) = (plan.cpus[i], plan.count_of(i), &tallies[i], started.clone());
        match sender {
            Sender::Live { sender, cycle } => {
                let sender: &LiveSender = sender;
                lives.push((sender, *cycle, tally));
                threads.push(scope.spawn(move || {
                    halting_on_error(halt, || {
                        settle_down(cpu)?;
                        let interrupt = InterruptibleThread::current()
                            .map_err(|source| TrafficError::Read { path: "the signal handlers".into(), source })?;
                        // Nobody listens any more only if the run is over.
                        let _ = started.send(interrupt);
                        metered(tally, || Ok(sender.run()?))
                    })
                }));
            }
            Sender::Loop { out, feed } => {
                let (feed, bounds) = (*feed, Bounds { count, duration: plan.config.duration, nap: plan.nap() });
                threads.push(scope.spawn(move || {
                    halting_on_error(halt, || {
                        settle_down(cpu)?;
                        metered(tally, || send(out.as_mut(), feed, bounds, tally, halt))
                    })
                }));
            }
        }
    }
    drop(started);
    let mut interrupts: Vec<InterruptibleThread> = Vec::new();
    let start = Instant::now();
    let (mut last_report, mut last_submitted, mut looked, mut checked, mut failed) = (start, 0u64, start, false, None);
    while threads.iter().any(|t| !t.is_finished()) {
        thread::sleep(POLL_PERIOD);
        interrupts.extend(ready.try_iter());
        let ending = stop.load(Ordering::Relaxed) || halt.load(Ordering::Relaxed) || failed.is_some();
        if ending {
            halt.store(true, Ordering::Relaxed);
            lives.iter().for_each(|(sender, ..)| sender.stop());
        }
        lives.iter().for_each(tally_live);
        if ending || lives.iter().any(|(sender, ..)| sender.counts().done) {
            interrupts.iter().for_each(|t| t.interrupt());
        }
        let submitted = tallies.iter().map(|t| t.sent.load(Ordering::Relaxed)).sum();
        if !checked && !lives.is_empty() && submitted > 0 && start.elapsed() > ARRIVAL_TIMEOUT {
            checked = true;
            // No early return: the senders must be halted first.
            failed = match plan.interface.counters() {
                Ok(now) if now.packets == before.packets && now.dropped == before.dropped => Some(not_arriving(plan)),
                Ok(_) => None,
                Err(e) => Some(e),
            };
        }
        if failed.is_none() && looked.elapsed() > CHECK_PERIOD {
            looked = Instant::now();
            failed = (!plan.interface.is_alive())
                .then(|| TrafficError::Vanished { interface: plan.interface.name.clone(), submitted });
        }
        let since = last_report.elapsed();
        if since >= PROGRESS_PERIOD {
            progress(Progress {
                elapsed: start.elapsed(),
                submitted,
                pps: (submitted - last_submitted) as f64 / since.as_secs_f64(),
            });
            (last_report, last_submitted) = (Instant::now(), submitted);
        }
    }
    lives.iter().for_each(tally_live);
    for thread in threads {
        thread.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            TrafficError::Panic(text.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
        })??;
    }
    failed.map_or(Ok(stop.load(Ordering::Relaxed)), Err)
}

/// Ends all senders on the error of one.
fn halting_on_error(halt: &AtomicBool, work: impl FnOnce() -> Result<(), TrafficError>) -> Result<(), TrafficError> {
    work().inspect_err(|_| halt.store(true, Ordering::Relaxed))
}

fn tally_live(&(sender, cycle, tally): &(&LiveSender, &Cycle, &Tally)) {
    let counts = sender.counts();
    let len = cycle.frames.len() as u64;
    let of = |frames: &[Vec<u8>]| frames.iter().map(|f| f.len() as u64).sum::<u64>();
    let uniform = cycle.frames.first().map_or(0, Vec::len) as u64;
    let bytes = if cycle.frames.iter().take(12).all(|f| f.len() as u64 == uniform) {
        counts.sent * uniform
    } else {
        counts.sent / len * of(&cycle.frames) + of(&cycle.frames[..(counts.sent % len) as usize])
    };
    tally.sent.store(counts.sent, Ordering::Relaxed);
    tally.bytes.store(bytes, Ordering::Relaxed);
    tally.skipped_ns.store(counts.given_up_ns, Ordering::Relaxed);
    tally.elapsed_ns.store(counts.elapsed_ns, Ordering::Relaxed);
    tally.bursts.store(counts.bursts, Ordering::Relaxed);
    tally.largest_burst.store(counts.largest_burst, Ordering::Relaxed);
}

fn check_cpus(plan: &Plan) -> Result<(), TrafficError> {
    let path = "/sys/devices/system/cpu/online";
    let failed = |source| TrafficError::Read { path: path.into(), source };
    let online = std::fs::read_to_string(path).map_err(failed)?;
    let online = CpuSet::parse_list(online.trim()).map_err(|e| failed(io::Error::other(e)))?;
    match plan.cpus.iter().flatten().find(|&&cpu| !online.contains(cpu)) {
        Some(&cpu) => Err(TrafficError::NoCpu { cpu, online }),
        None => Ok(()),
    }
}

/// Runs `work` and notes the CPU time of this thread.
fn metered(tally: &Tally, work: impl FnOnce() -> Result<(), TrafficError>) -> Result<(), TrafficError> {
    let spent = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    let (start, before) = (Instant::now(), spent());
    let result = work();
    tally.cpu_ns.store((spent() - before).as_nanos() as u64, Ordering::Relaxed);
    tally.ran_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

/// Makes this thread a sender: on its CPU, and with sleeps that end on time.
fn settle_down(cpu: Option<u32>) -> Result<(), TrafficError> {
    // Without it sleeps end up to 50 us late, which is no reason to send nothing.
    let _ = nix::sys::prctl::set_timerslack(1);
    pin(cpu)
}

fn pin(cpu: Option<u32>) -> Result<(), TrafficError> {
    let Some(cpu) = cpu else { return Ok(()) };
    pin_current_thread(cpu).map_err(|source| TrafficError::Cpu { cpu, source })
}

fn not_arriving(plan: &Plan) -> TrafficError {
    TrafficError::Unsupported {
        backend: Backend::XdpLive.name(),
        interface: plan.interface.name.clone(),
        reason: format!("frames were handed over and the interface sent none of them: {NO_NAPI}"),
    }
}

/// The interface's counters once it has counted all that was handed over, or stopped counting.
fn settle(plan: &Plan, before: TxCounters, submitted: u64) -> Result<TxCounters, TrafficError> {
    let start = Instant::now();
    loop {
        let now = plan.interface.counters()?;
        let counted = (now.packets - before.packets) + (now.dropped - before.dropped);
        if counted >= submitted || start.elapsed() > SETTLE_TIMEOUT {
            return Ok(now);
        }
        thread::sleep(POLL_PERIOD);
    }
}

fn report(
    plan: &Plan,
    (backend, reason): (Backend, String),
    tallies: &[Tally],
    (before, after): (TxCounters, TxCounters),
    stopped: bool,
) -> GenReport {
    // A sender that ended with its count took one gap less than it sent packets.
    let last_gap_s = plan.pps_of_one().map_or(0.0, |pps| 1.0 / pps);
    let senders: Vec<SenderReport> = tallies
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let submitted = t.sent.load(Ordering::Relaxed);
            let elapsed_s = t.elapsed_ns.load(Ordering::Relaxed) as f64 / 1e9;
            let whole_s = if plan.count_of(i) == Some(submitted) { elapsed_s + last_gap_s } else { elapsed_s };
            SenderReport {
                cpu: plan.cpus[i],
                submitted,
                submitted_bytes: t.bytes.load(Ordering::Relaxed),
                // The gap behind the last packet lies within the run; a sender that was late is not.
                elapsed_s: whole_s.min(plan.config.duration.as_secs_f64().max(elapsed_s)),
                submitted_pps: per_second(submitted, whole_s),
                cpu_share: per_second(t.cpu_ns.load(Ordering::Relaxed), t.ran_ns.load(Ordering::Relaxed) as f64),
                skipped_s: t.skipped_ns.load(Ordering::Relaxed) as f64 / 1e9,
            }
        })
        .collect();
    let submitted: u64 = senders.iter().map(|s| s.submitted).sum();
    let submitted_bytes: u64 = senders.iter().map(|s| s.submitted_bytes).sum();
    let device_sent = after.packets - before.packets;
    let elapsed_s = senders.iter().map(|s| s.elapsed_s).fold(0.0, f64::max);
    let left = device_sent.min(submitted);
    let submitted_pps: f64 = senders.iter().map(|s| s.submitted_pps).sum();
    let achieved_pps = if submitted == 0 { 0.0 } else { submitted_pps * (left as f64 / submitted as f64) };
    let mean = FrameSize::in_memory(0).bytes_with_fcs() as f64
        + if submitted == 0 { 0.0 } else { submitted_bytes as f64 / submitted as f64 };
    let line = wire::size::LINE_OVERHEAD as f64;
    let bursts: u64 = tallies.iter().map(|t| t.bursts.load(Ordering::Relaxed)).sum();
    let largest = tallies.iter().map(|t| t.largest_burst.load(Ordering::Relaxed)).max().unwrap_or(0);
    let stream = match &plan.config.origin {
        Origin::Stream(stream) => Some(stream),
        Origin::Replay(_) => None,
    };
    GenReport {
        interface: plan.interface.name.clone(),
        destination: stream.map(|s| {
            // An address is a prefix of all its bits.
            let all = if s.space.destinations.is_ipv6() { "/128" } else { "/32" };
            let text = s.space.destinations.to_string();
            text.strip_suffix(all).unwrap_or(&text).to_owned()
        }),
        destination_port: stream.map(|s| s.space.destination_ports.to_string()),
        destination_mac: stream.map(|s| s.destination.to_string()),
        backend: backend.name().into(),
        backend_reason: reason,
        random_sources: stream.is_some_and(|s| s.random_sources),
        pacing: plan.pacing().map(|(pacing, _)| pacing.name().into()),
        pacing_reason: plan.pacing().map(|(_, reason)| reason.into()),
        burst_mean: (bursts > 0).then(|| submitted as f64 / bursts as f64),
        burst_max: (bursts > 0).then_some(largest),
        cycle_frames: match &plan.frames {
            Frames::Cycles(cycles) => cycles.iter().map(|c| c.frames.len() as u64).sum(),
            Frames::Recording(r) => r.frames.len() as u64,
        },
        mean_frame_bytes: plan.mean_with_fcs,
        offered_pps: plan.pps,
        submitted,
        device_sent,
        device_dropped: after.dropped - before.dropped,
        elapsed_s,
        achieved_pps,
        achieved_l2_bps: achieved_pps * mean * 8.0,
        achieved_l1_bps: achieved_pps * (mean + line) * 8.0,
        pacing_error: plan.pps.filter(|_| submitted >= plan.least_of_a_rate()).map(|pps| achieved_pps / pps - 1.0),
        stopped,
        senders,
    }
}

fn per_second(n: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}
