//! `evenkeel capture`: arguments to one validated configuration, then plan, open, drop privileges, run, report.

mod args;
mod config_file;
mod read;
mod show;
mod tcpdump;

use std::{
    io::IsTerminal,
    os::fd::BorrowedFd,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, anyhow};
use capture::{
    auto::{self, Refusal, Trial},
    filter::{self, Filter, FilterError, Place},
    open::{AnySource, Tuning},
    output::{Output, Target},
    pcapng::{Captured, Section},
    plan::{self, Backend, Plan, Request},
    run::{self, Limits, Seen, Sink},
};
use host::{
    Host, Root,
    interface::{self, Wiring},
    picture::QueueRole,
};
use model::CpuSet;
use port::{PacketOptions, PortError, WHOLE_FRAME};
use sys::{
    packet::{FanoutAlgorithm, classic},
    privilege::{self, Capability, Remaining},
};

pub(crate) use args::CaptureArgs;
use args::{ANY, Config};
pub(crate) use tcpdump::called_here;

use crate::failure::{Failure, Outcome, note};
use crate::signals::{Second, asked_flag, stop_flag};

/// Time for which each backend is tried by `--backend auto`.
const TRIAL: Duration = Duration::from_millis(500);
/// Number of times that `--backend auto` tries those again that were near the best.
const FINAL_ROUNDS: u32 = 3;
/// What a reader of a ring waits at the end beyond the retire time-out.
const HELD_BACK_MARGIN: Duration = Duration::from_millis(60);

/// Blocks that the rings of all interfaces have together, with `any`.
const RING_BLOCKS: u32 = 64;
/// Blocks that a ring has at least.
const FEWEST_BLOCKS: u32 = 2;
/// Interfaces that `any` takes: each has a thread and a ring.
const MOST_INTERFACES: usize = 256;

pub(crate) fn run(args: CaptureArgs) -> Result<Outcome, Failure> {
    if args.tcpdump.list_interfaces {
        return tcpdump::list();
    }
    let config = args.validate(std::env::args_os().skip(2).collect())?;
    if config.read.is_some() {
        return read::run(&config);
    }
    privilege::require(format!("capture with {}", config.backend.map_or("auto", Backend::name)), &needed(&config))?;
    // Of /sys only what is this namespace's: under `nsenter --net` it shows another one's interfaces.
    let wiring = Wiring::read().context("cannot list the interfaces").map_err(Failure::lacking)?;
    let mut host = Host::read(&Root::live())?;
    host.nics.retain(|nic| wiring.has(nic));
    let interfaces = interfaces(&config, &wiring)?;
    let filters_here = interfaces.iter().any(|i| i.filters_here) && config.backend.is_none_or(|b| !b.is_xdp());
    if filters_here {
        note(format_args!(
            "the kernel does not run the filter `{}` (its program loops, or is too long): every packet comes to this process, which filters",
            config.filter
        ));
    }
    // A reader may be held up by whoever reads its pipe.
    let (stop, asked) = (stop_flag(Second::Ends)?, asked_flag()?);
    let (backend, choice) = match config.backend {
        Some(backend) => (backend, None),
        None => {
            let choice = choose(&config, &host, &interfaces[0], &stop)?;
            (choice.backend, Some(choice))
        }
    };
    let (mut sources, mut of) = (Vec::new(), Vec::new());
    let mut blocks = config.tuning.blocks;
    if interfaces.len() > 1 {
        // The memory of one ring, in parts for all.
        blocks = blocks.or(Some((RING_BLOCKS / interfaces.len() as u32).max(FEWEST_BLOCKS)));
    }
    let tuning = Tuning { blocks, ..config.tuning.clone() };
    for (number, interface) in interfaces.iter().enumerate() {
        let plan = place(&config, &host, &interface.name, backend)?;
        let opened = open(&config, &tuning, interface, &plan)?;
        of.extend(opened.iter().map(|_| number));
        sources.extend(opened);
    }
    let attachment = capture::open::attachment(sources.iter().map(|(source, _)| source));
    let sink = sink(&config, &host, backend, &interfaces, &of)?;
    give_up(&sink)?;
    let mut progress = show::Progress::new(&config);
    let report = run::run(sources, sink, limits(&config), &stop, |seen| match seen {
        Seen::Second(elapsed, readers) => progress.tick(elapsed, readers),
        Seen::Notice(notice) => show::notice(&notice),
        Seen::Moment(readers) if asked.swap(false, Ordering::Relaxed) => show::so_far(&readers()),
        Seen::Moment(_) => {}
    });
    let filters_here = filters_here && !backend.is_xdp();
    let shown = show::report(&config, backend, filters_here, attachment, choice.as_ref(), &report);
    match report.failure {
        Some(failure) => Err(failure.into()),
        None => shown.map(|()| Outcome::Fine),
    }
}

/// Gives up every right that is not needed any more: from here on strangers' packets are read.
fn give_up(sink: &Sink) -> Result<(), Failure> {
    let folder = match sink {
        Sink::Pcapng { output, .. } => output.folder(),
        _ => None,
    };
    give_up_but(folder)
}

/// As [`give_up`]; only later files of a rotation in that folder may still be made.
fn give_up_but(folder: Option<BorrowedFd<'_>>) -> Result<(), Failure> {
    if let Some(why) = privilege::give_up(folder.map_or(Remaining::Reading, Remaining::FilesIn))?.still_root {
        note(format_args!(
            "warning: the capture goes on with root's user id, without capabilities but for files: {why}"
        ));
    }
    Ok(())
}

/// The capabilities that this capture will need.
fn needed(config: &Config) -> Vec<Capability> {
    let mut needed = vec![Capability::CAP_NET_RAW];
    if config.backend.map_or(config.try_xdp, Backend::is_xdp) {
        needed.extend([Capability::CAP_NET_ADMIN, Capability::CAP_BPF]);
    }
    if config.backend.map_or(config.try_xdp, |mode| mode == Backend::Tap) {
        // The tap sees the end of NAPI polls at a tracepoint.
        needed.push(Capability::CAP_PERFMON);
    }
    let ebpf = config.tuning.fanout.algorithm == FanoutAlgorithm::ExtendedBpf;
    if ebpf && config.backend.is_none_or(Backend::is_fanout) && !needed.contains(&Capability::CAP_BPF) {
        needed.push(Capability::CAP_BPF);
    }
    needed
}

/// An interface to capture from, and its filter for each kind of backend.
struct Interface {
    name: String,
    socket: Filter,
    xdp: Filter,
    /// The kernel does not run the filter on a socket: this process does.
    filters_here: bool,
}

impl Interface {
    fn filter(&self, backend: Backend) -> &Filter {
        if backend.is_xdp() { &self.xdp } else { &self.socket }
    }
}

fn compile(config: &Config, name: &str) -> Result<Interface, FilterError> {
    let compile = |place| filter::compile(name, &config.filter, config.snaplen, place);
    let (socket, xdp) = (compile(Place::Socket)?, compile(Place::Xdp)?);
    let filters_here = !filter::runs_in_kernel(&socket.program, Place::Socket);
    if filters_here && !classic::asks_bytes_only(&xdp.program) {
        return Err(FilterError::Nowhere { filter: config.filter.clone() });
    }
    Ok(Interface { name: name.to_owned(), socket, xdp, filters_here })
}

/// The interface that was named, or all that are up and can be captured from.
fn interfaces(config: &Config, wiring: &Wiring) -> Result<Vec<Interface>, Failure> {
    if config.interface != ANY {
        interface::index(&config.interface)?;
        if !wiring.up().any(|name| name == config.interface) {
            return Err(PortError::InterfaceDown { interface: config.interface.clone() }.into());
        }
        return Ok(vec![compile(config, &config.interface)?]);
    }
    let mut found = Vec::new();
    for name in wiring.up() {
        match compile(config, name) {
            Ok(interface) => found.push(interface),
            // One that cannot be captured is told of; the others go on.
            Err(error @ (FilterError::Cooked { .. } | FilterError::Open { .. })) => {
                note(format_args!("any: without {name}: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    match found.len() {
        0 => Err(Failure::lacking(anyhow!("no interface is up; `ip link set INTERFACE up` brings one up"))),
        n if n > MOST_INTERFACES => {
            Err(Failure::lacking(anyhow!("{n} interfaces are up, {MOST_INTERFACES} is the most; name one with -i")))
        }
        _ => Ok(found),
    }
}

/// What `auto` may try: an XDP program is attached only with the user's consent, and frames are only taken from the stack
/// when the user gives them up.
fn candidates(config: &Config) -> Vec<Backend> {
    Backend::ALL
        .into_iter()
        .filter(|backend| match backend {
            Backend::Tap => config.try_xdp,
            Backend::Xdp => config.tuning.consume,
            _ => true,
        })
        .collect()
}

fn limits(config: &Config) -> Limits {
    Limits {
        packets: config.count,
        duration: config.duration,
        snaplen: config.snaplen,
        held_back: Duration::from_millis(u64::from(config.tuning.retire_ms)) * 2 + HELD_BACK_MARGIN,
    }
}

/// Places the readers by the topology and the interface's interrupts.
fn place(config: &Config, host: &Host, interface: &str, backend: Backend) -> Result<Plan, Failure> {
    let nic = host.nic(interface);
    let irq_cpus: CpuSet = nic
        .into_iter()
        .flat_map(|nic| &nic.irqs)
        .filter(|irq| irq.role != QueueRole::Control)
        .filter_map(|irq| host.irq(irq.irq))
        .flat_map(|irq| irq.effective.as_ref().unwrap_or(&irq.affinity).iter().collect::<Vec<_>>())
        .collect();
    // In `auto` the number is meant for those that can have several.
    let members = if config.backend.is_some() || backend.is_fanout() { config.members } else { None };
    let request = Request { backend, members, cpus: config.cpus.clone() };
    // Without a list, the readers stay where this process may run (taskset, cpusets).
    let here = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok().filter(|_| config.cpus.is_none());
    let may = |cpu: u32| here.is_none_or(|set| set.is_set(cpu as usize).unwrap_or(false));
    let cpus: Vec<_> = host.cpus.iter().filter(|cpu| may(cpu.id)).cloned().collect();
    Ok(plan::plan(&request, &cpus, nic, &irq_cpus)?)
}

fn open(
    config: &Config,
    tuning: &Tuning,
    interface: &Interface,
    plan: &Plan,
) -> Result<Vec<(AnySource, Option<u32>)>, Failure> {
    let filter = interface.filter(plan.backend);
    if plan.backend.is_xdp() && !filter::runs_in_kernel(&filter.program, Place::Xdp) {
        return Err(FilterError::NotInXdp { filter: config.filter.clone() }.into());
    }
    let here = interface.filters_here && !plan.backend.is_xdp();
    let options = PacketOptions {
        interface: interface.name.clone(),
        filter: if here { Vec::new() } else { filter.program.clone() },
        snaplen: if here { WHOLE_FRAME } else { config.snaplen },
        promiscuous: config.promiscuous,
        ignore_outgoing: config.inbound,
    };
    let sources = capture::open::open(plan, &options, tuning)?;
    for said in capture::open::notes(&sources, &interface.name, tuning)? {
        note(format_args!("{}: {said}", plan.backend));
    }
    let filtered = |source: AnySource| {
        // The kernel has given tags back by then: the program is that for the bytes of a frame.
        if here { source.filtered(&interface.xdp.program, config.snaplen) } else { source }
    };
    Ok(sources.into_iter().map(filtered).zip(plan.readers.iter().copied()).collect())
}

/// Tries each backend on the live traffic, and tells of it. One that cannot be opened is told of too, and the others go on.
fn choose(config: &Config, host: &Host, interface: &Interface, stop: &AtomicBool) -> Result<auto::Choice, Failure> {
    let count_only = config.target.is_none() && !config.print;
    let (mut trials, mut refusals, mut first) = (Vec::new(), Vec::new(), None);
    let attempt = |backend| -> Result<Trial, Failure> {
        let plan = place(config, host, &interface.name, backend)?;
        let sources = open(config, &config.tuning, interface, &plan)?;
        Ok(auto::trial(backend, sources, TRIAL, limits(config), count_only, stop)?)
    };
    for backend in candidates(config) {
        match attempt(backend) {
            Ok(trial) => trials.push(trial),
            Err(failure) => {
                refusals.push(Refusal { backend, reason: failure.message() });
                first = first.or(Some(failure));
            }
        }
    }
    let finalists = auto::finalists(&trials);
    for _ in 0..FINAL_ROUNDS {
        for backend in &finalists {
            trials.push(attempt(*backend)?);
        }
    }
    let trials = auto::means(&trials);
    let Some(mut choice) = auto::choose(&trials) else {
        return Err(first.unwrap_or_else(|| Failure::internal(anyhow!("no backend was tried"))));
    };
    if config.tuning.consume && !choice.backend.is_xdp() {
        choice.reason += "; it only listens, so that frames pass on to the stack in spite of --consume (--backend tap or xdp ends them)";
    }
    if !config.try_xdp {
        choice.reason += "; tap was not tried, since it attaches an XDP program (allow it with --try-xdp)";
    }
    show::trials(&trials, &refusals, &choice);
    Ok(choice)
}

/// Where the packets go; `of` has the number of its interface for each reader.
fn sink(
    config: &Config,
    host: &Host,
    backend: Backend,
    interfaces: &[Interface],
    of: &[usize],
) -> Result<Sink, Failure> {
    let link_type = |interface: &Interface| interface.filter(backend).link_type;
    let Some(target) = &config.target else {
        if !config.print {
            return Ok(Sink::Count);
        }
        // Which interface it was is told where there could be several.
        let name = |interface: &Interface| (config.interface == ANY).then(|| interface.name.clone());
        let interfaces = of.iter().map(|i| (link_type(&interfaces[*i]), name(&interfaces[*i]))).collect();
        return Ok(Sink::Text { shown: config.shown, interfaces });
    };
    let captured = interfaces.iter().map(|i| Captured { name: i.name.clone(), link_type: link_type(i) });
    let output = Output::open(target.clone(), section(config, &host.kernel, captured.collect())?)?;
    Ok(Sink::Pcapng { output: Box::new(output), interfaces: of.iter().map(|i| *i as u32).collect() })
}

/// The head of a pcapng file.
fn section(config: &Config, kernel: &str, interfaces: Vec<Captured>) -> Result<Section, Failure> {
    if config.target == Some(Target::Stdout) && std::io::stdout().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "standard output is a terminal, which cannot show pcapng: pipe it (`| tshark -r -`), or name a file"
        )));
    }
    Ok(Section {
        hardware: std::env::consts::ARCH.to_owned(),
        os: format!("Linux {kernel}"),
        application: format!("evenkeel {}", env!("CARGO_PKG_VERSION")),
        interfaces,
        filter: config.filter.clone(),
        snaplen: config.snaplen,
    })
}

/// A path for `-w`; `-` is standard output.
fn target(path: PathBuf, rotation: capture::output::Rotation) -> Target {
    if path.as_os_str() == "-" { Target::Stdout } else { Target::File(path, rotation) }
}
