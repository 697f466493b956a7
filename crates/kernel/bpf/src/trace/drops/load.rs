//! Loading the programs and attaching them.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, ProgramInput, ProgramMut,
    btf::{Btf, types},
    skel::OpenSkel,
};
use sys::map_mmap::SharedMemory;

use super::{DropError, DropOptions, DropTrace, RawCpu, slots};
use crate::{
    program,
    skel::drops::{DropsSkel, DropsSkelBuilder},
};

const SCOPES_MAX: usize = 1024;

/// The programs that measure costs run so often in one go, and the best of some goes counts: an interrupt is not what they cost.
const CALIBRATION_RUNS: u32 = 1_000;
const CALIBRATION_ROUNDS: usize = 8;

/// The arguments of the tracepoint besides the packet: a place, a reason and, from kernel 6.11 on, a socket.
const WITH_REASON: usize = 3;
const WITH_SOCKET: usize = 4;

pub(super) fn open(options: &DropOptions) -> Result<DropTrace, DropError> {
    if options.only.len() > SCOPES_MAX {
        return Err(DropError::TooManyInterfaces(options.only.len()));
    }
    let btf = Btf::from_vmlinux().map_err(DropError::NoBtf)?;
    let arguments = drop_arguments(&btf)?;
    let mut unavailable = Vec::new();

    let mut object = MaybeUninit::uninit();
    let mut open = program::open::<DropsSkelBuilder>(&mut object).map_err(load_error)?;
    let cpus = libbpf_rs::num_possible_cpus().map_err(load_error)?;
    open.maps.drop_cpus.set_max_entries(cpus as u32).map_err(load_error)?;
    if options.details > 0 {
        open.maps.details.set_max_entries(options.details).map_err(load_error)?;
    }
    if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
        let budget_ppm = options.budget_ppm.clamp(1, 1_000_000);
        knobs.drop_budget = ((u64::from(budget_ppm) << 20).div_ceil(1_000_000)) as u32;
        knobs.drop_budget_inverse = 1_000_000 / budget_ppm;
        knobs.drop_fixed_every = options.every.unwrap_or(0);
        knobs.drop_only_wanted = u32::from(!options.only.is_empty());
        knobs.drop_details = u32::from(options.details > 0);
        knobs.drop_has_socket = u32::from(arguments >= WITH_SOCKET);
    }
    for program in open.open_object_mut().progs_mut() {
        let Some(&(_, tracepoint)) = XDP_PROGRAMS.iter().find(|(name, _)| program.name() == *name) else { continue };
        let there = arguments_of(&btf, tracepoint).is_some();
        if options.xdp && !there {
            unavailable.push(tracepoint);
        }
        let mut program = program;
        program.set_autoload(options.xdp && there);
    }
    let mut skel = open.load().map_err(load_error)?;
    for scope in &options.only {
        let key = [scope.netns.to_ne_bytes(), scope.ifindex.to_ne_bytes()].concat();
        skel.maps.wanted.update(&key, &[1], MapFlags::ANY).map_err(load_error)?;
    }

    let memory = map_cpus(&skel, cpus)?;
    let pass_ns = calibrate(&skel, &memory, cpus)?;
    let program: OwnedFd = skel.progs.on_drop.as_fd().try_clone_to_owned().map_err(|e| load_error(e.into()))?;
    let handle = |map| MapHandle::try_from(map).map_err(load_error);
    Ok(DropTrace {
        drops: [handle(&skel.maps.drops)?, handle(&skel.maps.no_sockets)?],
        xdp_losses: handle(&skel.maps.xdp_losses)?,
        details: if options.details > 0 { Some(handle(&skel.maps.details)?) } else { None },
        cpus: memory,
        cpu_count: cpus,
        program,
        opened_ns: model::clock::monotonic_ns(),
        pass_ns,
        fixed: options.every.is_some_and(|n| n > 1),
        names_receiver: arguments >= WITH_SOCKET,
        _links: attach(&mut skel, options.xdp, &unavailable)?,
        unavailable,
    })
}

/// The programs that are left out when the kernel lacks their tracepoint.
const XDP_PROGRAMS: [(&str, &str); 6] = [
    ("on_exception", "xdp_exception"),
    ("on_redirect_err", "xdp_redirect_err"),
    ("on_devmap_xmit", "xdp_devmap_xmit"),
    ("on_bulk_tx", "xdp_bulk_tx"),
    ("on_cpumap_enqueue", "xdp_cpumap_enqueue"),
    ("on_cpumap_kthread", "xdp_cpumap_kthread"),
];

fn attach(skel: &mut DropsSkel<'_>, xdp: bool, unavailable: &[&str]) -> Result<Vec<Link>, DropError> {
    let one = |program: &mut ProgramMut<'_>, tracepoint: &'static str| {
        program.attach_trace().map_err(|source| DropError::Attach { tracepoint, source })
    };
    let mut links = vec![one(&mut skel.progs.on_drop, "skb:kfree_skb")?];
    let progs = &mut skel.progs;
    let of_xdp: [(&mut ProgramMut<'_>, &str, &'static str); 6] = [
        (&mut progs.on_exception, "xdp_exception", "xdp:xdp_exception"),
        (&mut progs.on_redirect_err, "xdp_redirect_err", "xdp:xdp_redirect_err"),
        (&mut progs.on_devmap_xmit, "xdp_devmap_xmit", "xdp:xdp_devmap_xmit"),
        (&mut progs.on_bulk_tx, "xdp_bulk_tx", "xdp:xdp_bulk_tx"),
        (&mut progs.on_cpumap_enqueue, "xdp_cpumap_enqueue", "xdp:xdp_cpumap_enqueue"),
        (&mut progs.on_cpumap_kthread, "xdp_cpumap_kthread", "xdp:xdp_cpumap_kthread"),
    ];
    for (program, name, tracepoint) in of_xdp {
        if xdp && !unavailable.contains(&name) {
            links.push(one(program, tracepoint)?);
        }
    }
    Ok(links)
}

/// The number of arguments that a tracepoint hands over, if the kernel has it.
fn arguments_of(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let typedef: types::Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let pointer = types::Ptr::try_from(typedef.next_type()?).ok()?;
    let function = types::FuncProto::try_from(pointer.next_type()?).ok()?;
    // The first is the tracepoint's own.
    function.len().checked_sub(1)
}

fn drop_arguments(btf: &Btf<'_>) -> Result<usize, DropError> {
    match arguments_of(btf, "kfree_skb") {
        Some(n) if n >= WITH_REASON => Ok(n),
        Some(_) => Err(DropError::NoTracepoint(
            "the tracepoint skb:kfree_skb of this kernel gives no reason; it takes Linux 5.17 or later".to_owned(),
        )),
        None => Err(DropError::NoTracepoint(
            "this kernel has no tracepoint skb:kfree_skb (it takes CONFIG_TRACEPOINTS and Linux 5.17 or later)"
                .to_owned(),
        )),
    }
}

fn map_cpus(skel: &DropsSkel<'_>, cpus: usize) -> Result<SharedMemory, DropError> {
    // SAFETY: sysconf only reads.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let bytes = (cpus * size_of::<RawCpu>()).next_multiple_of(page);
    SharedMemory::of(skel.maps.drop_cpus.as_fd(), bytes, 0)
        .map_err(|e| DropError::Read { operation: "map the counters drop_cpus", source: e.into() })
}

/// Measures the least cost of an event, and the cost of a look beyond what its own clock sees, by running both paths alone. Leaves the
/// counters as they were found, at zero, but for the second figure.
fn calibrate(skel: &DropsSkel<'_>, memory: &SharedMemory, cpus: usize) -> Result<u32, DropError> {
    for cpu in 0..cpus {
        memory.half_word(slots::calibration_countdown(cpu)).store(i32::MAX.cast_unsigned(), Ordering::Relaxed);
    }
    let nanoseconds = |program: &ProgramMut<'_>| {
        let mut best = u64::MAX;
        for _ in 0..CALIBRATION_ROUNDS {
            let input = ProgramInput { data_in: Some(&[0; 64]), repeat: CALIBRATION_RUNS, ..ProgramInput::default() };
            let output = program.test_run(input);
            let output = output.map_err(|source| DropError::Read { operation: "measure the cost", source })?;
            best = best.min(output.duration.as_nanos() as u64);
        }
        Ok(best)
    };
    let pass_ns = nanoseconds(&skel.progs.pass_cost)?;
    let look_ns = nanoseconds(&skel.progs.look_cost)?;
    let (looks, seen_ns) = slots::looks(memory, cpus);
    slots::clear(memory);
    // What passing costs is counted for each event anyway.
    let overhead = look_ns.saturating_sub(seen_ns / looks.max(1)).saturating_sub(pass_ns);
    for cpu in 0..cpus {
        memory.word(slots::overhead(cpu)).store(overhead, Ordering::Relaxed);
    }
    Ok(u32::try_from(pass_ns).unwrap_or(u32::MAX))
}

fn load_error(source: libbpf_rs::Error) -> DropError {
    DropError::Load(program::refusal("drops", source))
}
