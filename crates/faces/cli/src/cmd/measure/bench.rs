//! `evenkeel bench`: what a router or firewall really does, after RFC 2544.

mod config;
pub(crate) mod flood;
mod guest;
mod neighbour;
mod output;
mod saved;

use std::{path::PathBuf, time::Duration};

use ::bench::{
    BenchError, RuleOrder,
    benches::{self, RealBenches},
    neighbour::{Form, Neighbour, Remedy, Spot},
    run::{self, Keep, RunFile, Test},
};
use ::guest::Nic;
use clap::{Args, Subcommand};
use host::{Host, Root};
use model::CpuSet;
use model::units::duration_words;
use sys::privilege;

use crate::time::within;
use crate::{
    failure::{Failure, Outcome, note, print},
    long_run::{LAB_CAPABILITIES, end_interrupted, long_run},
    numbers::{number, words},
};

pub(crate) use config::ratio;
pub(crate) use output::OutputArgs;
pub(crate) use saved::{Saved, is_saved, load};

/// Measure what a router or firewall really does (RFC 2544).
///
/// Without --ports, bench builds boxes of this kernel in network namespaces and removes them afterwards. With --ports, the box is outside,
/// cabled to two interfaces of this machine.
///
/// Bench measures the tester's own ceiling first. A rate above 95 % of it is called tester-limited, never a throughput. A trial sends enough
/// frames to judge its goal. What a box holds back in buffers does not count as forwarded.
///
/// Bench saves the run after every trial. Continue an interrupted run with --resume.
///
/// Exit codes: 0 every box has a throughput; 1 a box has none, or the tester was the limit; 2 wrong usage; 3 the machine or the box
/// lacks something.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    sub: Option<Sub>,
    /// Boxes to build: wire, router, stateful, stateless, bridge, xdp-fib, route-standard, route, route-rules, route-stateful, nat, route-nat; or guest, a virtual machine [default: router,stateful,stateless].
    #[arg(long, value_name = "BOX", value_delimiter = ',', conflicts_with = "ports", help_heading = "The box")]
    dut: Vec<String>,
    /// Test an outside box that is cabled to these two interfaces, such as eth2,eth3.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = crate::args::interface, help_heading = "The box")]
    ports: Vec<String>,
    /// The outside box is a bridge, a switch or a cable: it needs no addresses.
    #[arg(long, hide_short_help = true, requires = "ports", help_heading = "The box")]
    bridged: bool,
    /// Number of filter rules; only the last one matches [default: 25].
    #[arg(long = "rule-count", hide_short_help = true, value_name = "N", value_parser = number::<u32>("a number of rules", "25", 1..=100_000), help_heading = "The box")]
    rules: Option<u32>,
    /// Order of the filter rules [default: study].
    #[arg(long, hide_short_help = true, value_parser = words(&ORDERS), help_heading = "The box")]
    rule_order: Option<RuleOrder>,

    /// Frame sizes in bytes with FCS [default: 64,128,256,512,1024,1280,1518].
    #[arg(long, value_name = "BYTES", help_heading = "Traffic")]
    sizes: Option<String>,
    /// Fragmented UDP datagrams, by payload in bytes [without a list: 4096,8192,16384,32768,65507].
    #[arg(long, hide_short_help = true, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = "Traffic")]
    datagrams: Option<String>,
    /// The simple Internet mix: 7 frames of 64, 4 of 594 and 1 of 1518 bytes.
    #[arg(long, help_heading = "Traffic")]
    imix: bool,
    /// Packets of a capture file in their order, with the test's addresses.
    #[arg(long = "pcap", hide_short_help = true, value_name = "FILE", help_heading = "Traffic")]
    replay: Option<PathBuf>,
    /// Flows in each direction, 1 to 1000000 [default: 1].
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of flows", "1000", ..), help_heading = "Traffic")]
    flows: Option<u32>,
    /// Use IPv6.
    #[arg(long, help_heading = "Traffic")]
    ipv6: bool,
    /// Send from the first port to the second only, not both ways at once.
    #[arg(long, help_heading = "Traffic")]
    one_way: bool,

    /// Length and strictness: quick (minutes), study (100 s, 0.1 %), rfc2544 (60 s, no loss), mlr (RFC 9971) [default: quick].
    #[arg(long, value_name = "NAME", help_heading = "Tests")]
    preset: Option<String>,
    /// A first look: the same as --preset quick.
    #[arg(long, hide_short_help = true, conflicts_with = "preset", help_heading = "Tests")]
    quick: bool,
    /// Tests: throughput, loss, bursts, latency, jitter, recovery, reset [default: throughput,latency].
    #[arg(long = "tests", value_name = "LIST", value_delimiter = ',', help_heading = "Tests")]
    test: Vec<Test>,
    /// Loss that still passes, such as 0.1% or 0.001 [default: the preset's].
    #[arg(long, value_name = "RATIO", value_parser = config::ratio, help_heading = "Tests")]
    loss_ratio: Option<f64>,
    /// Length of a full-length trial, 100ms to 1h [default: the preset's].
    #[arg(long = "duration", hide_short_help = true, value_name = "TIME", value_parser = within("100ms", "1h"), help_heading = "Tests")]
    trial: Option<Duration>,
    /// Full-length trials at each load [default: the preset's].
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = number::<u32>("a number of trials", "3", 1..=1000), help_heading = "Tests")]
    repeats: Option<u32>,

    /// Noisy neighbours, and what they cost: cpu, io, memory, set, cache, traffic, with a dose or without, such as cpu,memory:512.
    ///
    /// Doses: cpu and set in CPUs (1, 2), io and cache in workers (1), memory in MB (1024), traffic in Mbit/s of 512-byte frames each way (100). 0: it is there
    /// and does nothing. stress-ng makes the work, in a control group. See docs/measure/bench-neighbour.md.
    #[arg(long, value_name = "KIND[:DOSE]", value_delimiter = ',', conflicts_with_all = ["ports", "bridged", "test", "resume", "datagrams", "imix", "replay"], help_heading = "Neighbours")]
    neighbour: Vec<Neighbour>,
    /// Their form: process, guest (QEMU with their work in it) [default: process].
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FORMS",
        value_delimiter = ',',
        requires = "neighbour",
        help_heading = "Neighbours"
    )]
    neighbour_as: Vec<Form>,
    /// Their cores: box, sibling, other [default: box].
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PLACES",
        value_delimiter = ',',
        requires = "neighbour",
        help_heading = "Neighbours"
    )]
    neighbour_on: Vec<Spot>,
    /// Remedies that protect the box: nice, cpuset, fifo, threaded-napi, quota [default: none].
    #[arg(
        long,
        hide_short_help = true,
        value_name = "REMEDIES",
        value_delimiter = ',',
        requires = "neighbour",
        help_heading = "Neighbours"
    )]
    remedy: Vec<Remedy>,
    /// The number from which the orders of the rounds are drawn [default: the time].
    #[arg(long, hide_short_help = true, value_name = "N", requires = "neighbour", help_heading = "Neighbours")]
    seed: Option<u64>,

    /// Card models of `--dut guest`: virtio, virtio-vhost, virtio-mq, e1000, e1000e, vmxnet3, passthrough=PCI [default: virtio,e1000,e1000e,vmxnet3].
    #[arg(
        long,
        hide_short_help = true,
        value_name = "MODELS",
        value_delimiter = ',',
        requires = "dut",
        help_heading = "A guest as the box"
    )]
    nic: Vec<Nic>,
    /// The guest's kernel: boot/vmlinuz-VERSION beside lib/modules/VERSION [default: this machine's].
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "A guest as the box or as a neighbour")]
    guest_kernel: Option<PathBuf>,
    /// Emulate the guest and count what its card asks for, also where KVM would carry it.
    #[arg(long, hide_short_help = true, requires = "dut", help_heading = "A guest as the box")]
    emulated: bool,
    /// Cost of an exit on another machine, in nanoseconds: accesses times that is shown as a model.
    #[arg(long, hide_short_help = true, value_name = "NS", requires = "dut", value_parser = exit_ns, help_heading = "A guest as the box")]
    exit_ns: Option<f64>,

    /// CPUs, such as 2-5: the first sends, the next are the box's, the last receive [default: all online, not isolated].
    #[arg(long, value_name = "CPUS", help_heading = "The tester")]
    cpus: Option<CpuSet>,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "The tester")]
    dry_run: bool,

    /// Save the run in this file [default: bench-TIME.json in the current folder].
    #[arg(long, value_name = "FILE", conflicts_with = "resume", help_heading = "Results")]
    save: Option<PathBuf>,
    /// Continue an interrupted run with the options it began with.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["dut", "ports", "bridged", "rules", "rule_order", "sizes", "datagrams", "imix", "replay", "flows", "ipv6", "one_way",
            "preset", "test", "loss_ratio", "trial", "repeats", "cpus"],
        help_heading = "Results"
    )]
    resume: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Flood(Box<flood::FloodArgs>),
}

/// The orders of rules.
const ORDERS: [(&str, &str, RuleOrder); 2] = [
    ("study", "One half for the first port, the other for the second, one for both", RuleOrder::Study),
    ("rfc2544", "All refuse, the last one accepts (RFC 2544, section 11.4.1)", RuleOrder::Rfc2544),
];

fn exit_ns(text: &str) -> Result<f64, String> {
    let ns = text.parse().ok().filter(|ns: &f64| (1.0..=1e6).contains(ns));
    ns.ok_or_else(|| format!("an exit costs 1 to 1000000 ns, such as 1200, not `{text}`"))
}

pub(crate) fn run(args: &BenchArgs) -> Result<Outcome, Failure> {
    if let Some(Sub::Flood(args)) = &args.sub {
        return flood::run(args);
    }
    let host = Host::read(&Root::live())?;
    let guests = match args.dut.iter().any(|dut| dut == guest::KEY) {
        true => match guest::run(args, &host)? {
            guest::Chosen::Counted(outcome) => return Ok(outcome),
            guest::Chosen::Measured(guests) => Some(guests),
        },
        false => None,
    };
    if !args.neighbour.is_empty() {
        return neighbour::run(args, &host, guests);
    }
    let mut saved = match &args.resume {
        Some(path) => run::load(path)?,
        None => config::begin(args, &host, guests)?,
    };
    let settings = config::settings(&saved.request)?;
    let steps = run::plan_of(&saved, &settings);
    if args.dry_run {
        benches::check_plan(&saved.request)?;
        let plan = match args.output.as_json() {
            true => output::plan_json(&saved, &settings, &steps)?,
            false => output::plan(&saved, &settings, &steps),
        };
        return print(&plan).map(|()| Outcome::Fine);
    }
    privilege::require_root("bench", &LAB_CAPABILITIES)?;
    benches::check(&saved.request)?;
    let path = args.resume.clone().or_else(|| args.save.clone()).unwrap_or_else(|| config::default_file("bench"));
    let new = !path.exists();
    let mut file = RunFile::create(&path)?;
    let outputs = args.output.open()?;
    let of = steps.len();
    let left: Vec<f64> = steps.iter().filter(|s| !saved.done.contains(&s.id)).map(|s| s.seconds).collect();
    note(format_args!(
        "evenkeel: {} of {of} steps, about {}; saved in {} after every trial",
        left.len(),
        duration_words(left.iter().sum()),
        path.display()
    ));
    saved.run.setup.stamps = benches::stamps(&saved.request)?;
    // Whatever happens from here on, the file says how far it came.
    file.keep(&saved)?;
    let result = long_run(|control| -> Result<_, Failure> {
        let mut benches = RealBenches::new(&saved.request, &settings)?;
        Ok(run::carry_out(&mut saved, &settings, &mut benches, &mut file, control))
    })?;
    // A run that ended before its first trial is not worth keeping.
    let nothing = result.is_err() && saved.is_empty();
    if nothing && new {
        let _ = host::file::remove(&path);
    }
    let kept = match nothing {
        true => "Nothing was measured".to_owned(),
        false => {
            let path = path.display();
            format!("The partial run is in {path}; continue with `evenkeel bench --resume {path}`")
        }
    };
    // A run without a single figure has nothing to show: the error says it all.
    let shown = if nothing || (result.is_err() && !report::has_figures(&saved.run)) {
        Ok(())
    } else {
        outputs.show(&saved.shown())
    };
    match result {
        Ok(()) => shown?,
        Err(BenchError::Interrupted) => {
            return Ok(end_interrupted(kept));
        }
        Err(e) if nothing => return Err(e.into()),
        Err(e) => return Err(Failure::from(e).after(&kept)),
    }
    note(format_args!("The run: {}", path.display()));
    Ok(if run::answered(&saved.run) { Outcome::Fine } else { Outcome::No })
}
