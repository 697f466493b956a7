//! The counters that each CPU keeps (`struct drop_cpu` in src/trace/drops/gate.h), read from shared memory.

use std::{mem::offset_of, os::fd::AsRawFd, sync::atomic::Ordering, time::Duration};

use libbpf_rs::libbpf_sys;
use sys::map_mmap::SharedMemory;

use super::{CORE_REASONS, DropError, DropRead, DropTrace, RawCpu, RawSlot};

/// Slots that count real events; the one behind them is for calibration.
const EVENT_SLOTS: usize = 259;
const SLOT_OTHER: usize = CORE_REASONS as usize;

const _: () = assert!(size_of::<RawCpu>() == (EVENT_SLOTS + 1) * size_of::<RawSlot>() + 11 * 8);

/// An event after a pause this long is looked at again, even if more of a flood was expected.
const QUIET_NS: u64 = 200_000_000;

fn slot_at(cpu: usize, slot: usize) -> usize {
    cpu * size_of::<RawCpu>() + offset_of!(RawCpu, slots) + slot * size_of::<RawSlot>()
}

pub(super) fn calibration_countdown(cpu: usize) -> usize {
    slot_at(cpu, EVENT_SLOTS) + offset_of!(RawSlot, countdown)
}

pub(super) fn overhead(cpu: usize) -> usize {
    cpu * size_of::<RawCpu>() + offset_of!(RawCpu, overhead_ns)
}

pub(super) fn looks(memory: &SharedMemory, cpus: usize) -> (u64, u64) {
    let word = |cpu: usize, field: usize| memory.word(cpu * size_of::<RawCpu>() + field).load(Ordering::Relaxed);
    (0..cpus).fold((0, 0), |sum, cpu| {
        (sum.0 + word(cpu, offset_of!(RawCpu, looks)), sum.1 + word(cpu, offset_of!(RawCpu, look_ns)))
    })
}

/// Sets all to zero; nothing is attached yet.
pub(super) fn clear(memory: &SharedMemory) {
    for at in (0..memory.len()).step_by(8) {
        memory.word(at).store(0, Ordering::Relaxed);
    }
}

/// Adds what the CPUs counted to `read`.
pub(super) fn read(trace: &DropTrace, read: &mut DropRead) -> Result<(), DropError> {
    let now = model::clock::monotonic_ns();
    let mut reasons = [(0u64, 0u64); SLOT_OTHER + 1];
    let word = |at: usize| trace.cpus.word(at).load(Ordering::Relaxed);
    let cost = &mut read.cost;
    cost.sampling = 1;
    let (mut first, mut last) = (0, 0);
    for cpu in 0..trace.cpu_count {
        for slot in 0..EVENT_SLOTS {
            let at = slot_at(cpu, slot);
            // In this order: an event that comes meanwhile must not make the difference negative.
            let attributed = word(at + offset_of!(RawSlot, attributed));
            let events = word(at + offset_of!(RawSlot, events));
            if events == 0 {
                continue;
            }
            cost.events += events;
            cost.unattributed += events.saturating_sub(attributed);
            if let Some(reason) = reasons.get_mut(slot) {
                reason.0 += events;
                reason.1 += attributed;
            }
            let every = trace.cpus.half_word(at + offset_of!(RawSlot, every)).load(Ordering::Relaxed);
            let quiet = now.saturating_sub(word(at + offset_of!(RawSlot, last_look_ns))) > QUIET_NS;
            if every > 1 && quiet && !trace.fixed {
                trace.cpus.half_word(at + offset_of!(RawSlot, countdown)).store(1, Ordering::Relaxed);
            } else {
                cost.sampling = cost.sampling.max(every);
            }
        }
        let of_cpu = |field: usize| word(cpu * size_of::<RawCpu>() + field);
        cost.filtered += of_cpu(offset_of!(RawCpu, filtered));
        cost.without_socket += of_cpu(offset_of!(RawCpu, without_socket));
        cost.untracked += of_cpu(offset_of!(RawCpu, untracked));
        let began = of_cpu(offset_of!(RawCpu, first_backoff_ns));
        if began != 0 && (first == 0 || began < first) {
            first = began;
        }
        last = last.max(of_cpu(offset_of!(RawCpu, last_backoff_ns)));
    }
    (cost.seen, cost.look_ns) = looks(&trace.cpus, trace.cpu_count);
    let since_open = |ns: u64| (ns != 0).then(|| Duration::from_nanos(ns.saturating_sub(trace.opened_ns)));
    cost.first_backoff = since_open(first);
    cost.last_backoff = since_open(last);
    cost.backed_off = first != 0 || trace.fixed;
    cost.pass_ns = trace.pass_ns;
    cost.ns_total = cost.look_ns + cost.events * u64::from(trace.pass_ns);
    cost.missed = missed(trace)?;
    let number = |reason| if reason == CORE_REASONS { u32::MAX } else { reason };
    for (reason, (events, attributed)) in (0u32..).zip(reasons).filter(|(_, (events, _))| *events > 0) {
        read.by_reason.push((number(reason), events));
        read.looked_at.push((number(reason), attributed));
    }
    Ok(())
}

/// Drops that came while this CPU was counting another one: the kernel then leaves the program out.
fn missed(trace: &DropTrace) -> Result<u64, DropError> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: `info` is a plain C struct of `bytes` bytes and outlives the call; its pointers are null and its lengths 0, so that
    // the kernel writes nowhere else.
    let answer =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(trace.program.as_raw_fd(), &raw mut info, &raw mut bytes) };
    if answer < 0 {
        let source = std::io::Error::from_raw_os_error(-answer).into();
        return Err(DropError::Read { operation: "ask for the missed runs", source });
    }
    Ok(info.recursion_misses)
}
