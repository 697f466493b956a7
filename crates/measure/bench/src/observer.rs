//! Watches a box under test while a trial runs: the load of all cores, the work of the box's cores by class, its drops by place.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
    time::Instant,
};

use bpf::{CpuProfile, ProfileOptions, StackCount};
use host::{Root, symbols::KernelSymbols};
use lab::NamespaceHandle;
use ledger::{Ledger, Options};
use model::{
    CoreLoad,
    bench::{Drop as Dropped, Observation},
};
use profile::{Party, Seen, StatTime, Tally, rules::bare, tally::is_generator};
use rig::window::{LoadMeter, steal_percent};

use crate::{BenchError, Observer};

/// Samples per second of each of the box's cores: no divisor of the kernel's tick.
pub(crate) const FREQUENCY_HZ: u32 = 997;
/// Fewer samples than this say nothing about shares.
const SAMPLES_MIN: u64 = 20;

/// Functions that free a frame, by their names in kernels from 6.1 on.
const GIVES_BACK: [&str; 12] = [
    "__free_frozen_pages",
    "__free_unref_page",
    "__xdp_return",
    "free_unref_page",
    "xdp_return_frame",
    "xdp_return_frame_rx_napi",
    "page_frag_free",
    "page_pool_put_defragged_page",
    "page_pool_put_unrefed_page",
    "page_pool_put_unrefed_netmem",
    "page_pool_return_netmem",
    "page_pool_return_page",
];

/// The parts of a box that are watched.
pub(crate) struct Watched {
    /// The cores of the box; empty when it is outside of this machine.
    pub cores: Vec<u32>,
    pub inside: Option<NamespaceHandle>,
    /// The interfaces of the tester's own ends: NAPI threads named after them are not the box's.
    pub ends: Vec<String>,
}

/// The real observer. The clock that samples runs from the beginning to the end of a run, so that it costs the same in every trial.
pub(crate) struct BoxObserver {
    watched: Watched,
    sampler: Option<(CpuProfile, KernelSymbols)>,
    ledger: Option<BoxLedger>,
    meter: Option<(LoadMeter, Instant)>,
}

impl BoxObserver {
    pub(crate) fn open(watched: Watched) -> Result<Self, BenchError> {
        let sampler = match watched.cores.is_empty() {
            true => None,
            false => {
                let options = ProfileOptions { frequency_hz: FREQUENCY_HZ, cpus: watched.cores.clone() };
                let profile = CpuProfile::open(&options).map_err(failed)?;
                Some((profile, KernelSymbols::load(&Root::live()).map_err(failed)?))
            }
        };
        let ledger = watched.inside.clone().map(BoxLedger::open).transpose()?;
        Ok(Self { watched, sampler, ledger, meter: None })
    }
}

impl Observer for BoxObserver {
    fn begin(&mut self) -> Result<(), BenchError> {
        if let Some(ledger) = &self.ledger {
            ledger.drops()?;
        }
        if let Some((profile, _)) = &mut self.sampler {
            profile.read().map_err(failed)?;
        }
        self.meter = Some((LoadMeter::start()?, Instant::now()));
        Ok(())
    }

    fn end(&mut self) -> Result<Observation, BenchError> {
        let begun = self.meter.take();
        let seconds = begun.as_ref().map_or(0.0, |(_, at)| at.elapsed().as_secs_f64());
        let cores = begun.map_or(Ok(Vec::new()), |(meter, _)| meter.finish())?;
        let mut observed = Observation { steal_percent: steal_percent(&cores), seconds, ..Observation::default() };
        if let Some((profile, symbols)) = &mut self.sampler {
            let stacks = profile.read().map_err(failed)?;
            let unknown = |s: &StackCount| s.kernel.iter().any(|&a| symbols.lookup(a).is_none());
            // Programs of the tester came after the names were read; at most one reload per trial.
            if stacks.iter().any(unknown) {
                symbols.reload().map_err(failed)?;
            }
            share(&stacks, symbols, &self.watched, &cores, &mut observed);
        }
        observed.cores = cores;
        observed.drops = self.ledger.as_ref().map_or_else(|| Ok(Vec::new()), BoxLedger::drops)?;
        Ok(observed)
    }
}

/// Notes the shares of the time of the box's cores by class, and that of the tester's own ends on them, in percent.
fn share(
    stacks: &[StackCount],
    symbols: &KernelSymbols,
    watched: &Watched,
    cores: &[CoreLoad],
    observed: &mut Observation,
) {
    let mut tally = Tally::new();
    for stack in stacks {
        let names = symbols.stack(&stack.kernel);
        let frames: Vec<&str> = names.into_iter().map(|s| s.map_or("", |s| s.name)).collect();
        let StackCount { cpu, ref comm, user, samples, .. } = *stack;
        if is_of_an_end(comm, &watched.ends)
            || is_generator(&frames)
            || is_handing_over(comm, &frames)
            || is_receiving(&frames)
        {
            tally.add_apart(cpu, Party::Receiver, samples);
        } else {
            tally.add(&Seen { ours: false, cpu, comm, frames, user, samples });
        }
    }
    let of_box = cores.iter().filter(|c| watched.cores.contains(&c.cpu));
    let times: BTreeMap<u32, StatTime> =
        of_box.map(|c| (c.cpu, StatTime { idle_percent: c.idle_percent, steal_percent: c.steal_percent })).collect();
    tally.fill_idle(observed.seconds * f64::from(FREQUENCY_HZ), &times);
    if tally.samples() < SAMPLES_MIN {
        return;
    }
    observed.samples = tally.samples();
    let shares = tally.core_profiles(&times);
    let of_all = |percent: f64| percent / shares.len().max(1) as f64;
    for core in &shares {
        observed.tester_percent += of_all(tally.percent_apart(core.cpu, Party::Receiver, &times));
        for (&class, &percent) in &core.percent {
            *observed.classes.entry(class).or_default() += of_all(percent);
        }
    }
}

/// True if the thread of a receive ring hands frames over to the box, which then works in soft interrupts on top of it.
fn is_handing_over(comm: &str, frames: &[&str]) -> bool {
    comm.starts_with("cpumap/") && !frames.iter().any(|f| bare(f) == "net_rx_action")
}

/// True if one of the tester's ends receives: its program, or what leads to it. The box's ends get frames without a socket buffer,
/// the tester's from a box that routes or bridges get socket buffers.
fn is_receiving(frames: &[&str]) -> bool {
    frames.iter().any(|f| f.ends_with("_ek_bench_rx") || bare(f) == "veth_xdp_rcv_skb") || is_freeing(frames)
}

/// True if a veth gives back the memory of a frame that a program dropped: the program of a tester's end drops all that it counts, a box
/// under test nothing that comes through.
fn is_freeing(frames: &[&str]) -> bool {
    let received = frames.iter().position(|f| bare(f) == "veth_xdp_rcv_one");
    received.is_some_and(|at| frames[..at].iter().any(|f| GIVES_BACK.contains(&bare(f))))
}

/// True if a thread is the NAPI thread of one of the tester's ends: `napi/INTERFACE-ID`, cut to 15 bytes.
fn is_of_an_end(comm: &str, ends: &[String]) -> bool {
    comm.strip_prefix("napi/").is_some_and(|of| {
        let name = of.rsplit_once('-').map_or(of, |(name, _)| name);
        ends.iter().any(|end| end == name || (comm.len() >= 15 && end.starts_with(of)))
    })
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Observer(error.to_string())
}

/// A ledger kept inside of the box's namespace, by a thread that lives there.
struct BoxLedger {
    request: Option<Sender<()>>,
    answers: Receiver<Result<Vec<Dropped>, String>>,
    thread: Option<JoinHandle<()>>,
}

impl BoxLedger {
    fn open(inside: NamespaceHandle) -> Result<Self, BenchError> {
        let (request, requests) = channel::<()>();
        let (answer, answers) = channel();
        let thread = thread::spawn(move || {
            // Tracing each drop would cost an overloaded box a good part of what it has; its counters cost nothing.
            let opened = inside
                .enter()
                .map_err(|e| e.to_string())
                .and_then(|()| Ledger::open(Options::default()).map_err(|e| e.to_string()));
            let mut ledger = match opened {
                Ok(ledger) => ledger,
                Err(why) => return drop(answer.send(Err(why))),
            };
            if answer.send(Ok(Vec::new())).is_err() {
                return;
            }
            while requests.recv().is_ok() {
                let drops = ledger.close().map(|report| drops_of(&report)).map_err(|e| e.to_string());
                if answer.send(drops).is_err() {
                    return;
                }
            }
        });
        let ledger = Self { request: Some(request), answers, thread: Some(thread) };
        ledger.answer()?;
        Ok(ledger)
    }

    /// The drops since the last call, most first.
    fn drops(&self) -> Result<Vec<Dropped>, BenchError> {
        // Should the thread be gone, its answer says so.
        let _ = self.request.as_ref().map(|a| a.send(()));
        self.answer()
    }

    fn answer(&self) -> Result<Vec<Dropped>, BenchError> {
        self.answers.recv().map_err(|_| BenchError::Panicked("ledger of the box"))?.map_err(BenchError::Observer)
    }
}

impl Drop for BoxLedger {
    fn drop(&mut self) {
        self.request = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drops_of(report: &model::stations::LedgerReport) -> Vec<Dropped> {
    let mut drops: Vec<Dropped> = report
        .stations
        .iter()
        .flat_map(|s| {
            let lost = s.losses.iter().filter(|l| l.kind.is_loss());
            lost.map(|l| Dropped { place: format!("{}: {}", s.name, l.place), packets: l.packets })
        })
        .filter(|d| d.packets > 0)
        .collect();
    drops.sort_by_key(|d| std::cmp::Reverse(d.packets));
    drops
}

#[cfg(test)]
mod tests {
    use model::profile::Class;

    use super::*;

    #[test]
    fn threads_of_the_testers_ends_are_not_the_boxs() {
        let ends = ["ek1a-s0".to_owned(), "eklongname-r0".to_owned()];
        assert!(is_of_an_end("napi/ek1a-s0-81", &ends) && is_of_an_end("napi/eklongname", &ends));
        assert!(!is_of_an_end("napi/ek1a-i0-82", &ends) && !is_of_an_end("ksoftirqd/1", &ends));
    }

    #[test]
    fn the_memory_of_counted_frames_is_given_back_by_the_tester() {
        assert!(is_receiving(&["_raw_spin_lock", "page_pool_put_unrefed_netmem", "veth_xdp_rcv_one", "veth_poll"]));
        // What the box makes, and what it gives back elsewhere, is its own.
        assert!(!is_receiving(&["napi_build_skb", "xdp_build_skb_from_frame", "veth_xdp_rcv_one", "veth_poll"]));
        assert!(!is_receiving(&["page_pool_put_unrefed_netmem", "skb_release_data", "napi_consume_skb", "veth_xmit"]));
    }

    #[test]
    fn idleness_that_gave_no_samples_is_idleness() {
        let lines = "0000000000001000 T ip_rcv\n0000000000002000 t cpu_map_kthread_run\n0000000000003000 T end\n";
        let files = [("proc/kallsyms".to_owned(), lines.to_owned())].into();
        let symbols = KernelSymbols::load(&Root::from_files(files)).unwrap();
        let stack = |comm: &str, address, samples| StackCount {
            cpu: 1,
            pid: 7,
            comm: comm.into(),
            kernel: vec![address],
            user: false,
            idle_task: false,
            samples,
        };
        let stacks = [stack("ksoftirqd/1", 0x1010, 150), stack("cpumap/1/map:9", 0x2010, 50)];
        let watched = Watched { cores: vec![1], inside: None, ends: Vec::new() };
        let load = |cpu, idle_percent| CoreLoad { cpu, idle_percent, steal_percent: 4.0, ..CoreLoad::default() };
        let mut observed = Observation { seconds: 1.0, ..Observation::default() };
        share(&stacks, &symbols, &watched, &[load(0, 0.0), load(1, 76.0)], &mut observed);
        let of = |class| observed.classes.get(&class).copied().unwrap_or(0.0);
        // A fifth of the time was busy, of which the ring's thread had a quarter.
        assert!((of(Class::Ip) - 15.0).abs() < 1.0 && (observed.tester_percent - 5.0).abs() < 0.5, "{observed:?}");
        assert!(of(Class::Idle) >= 76.0 && of(Class::Steal) == 4.0, "{observed:?}");
        let all = observed.tester_percent + observed.classes.values().sum::<f64>();
        assert!((all - 100.0).abs() < 1e-6 && observed.samples > 900, "{observed:?}");
    }

    #[test]
    fn rings_and_ends_are_distinguished_from_the_box() {
        let routed = ["fib_lookup", "ip_rcv", "veth_poll", "net_rx_action", "cpu_map_kthread_run"];
        assert!(!is_handing_over("cpumap/1/map:9", &routed) && !is_receiving(&routed));
        assert!(is_handing_over("cpumap/1/map:9", &["cpu_map_kthread_run"]));
        assert!(is_receiving(&["bpf_prog_0a_ek_bench_rx", "veth_xdp_rcv_one", "veth_poll", "net_rx_action"]));
        assert!(is_receiving(&["memcpy", "veth_xdp_rcv_skb.constprop.0", "veth_poll", "net_rx_action"]));
    }
}
