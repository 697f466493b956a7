//! Counts for protected prefixes where no program in the kernel does: `shield_watch()` of `src/filter/watch.h` over again, in plain Rust.

use std::{mem::offset_of, net::IpAddr, sync::atomic::Ordering};

use sys::map_mmap::SharedMemory;

use super::watch::{KINDS, REGISTERS, SAMPLES, WatchSample};
use crate::skel::shield::types::{watch_cpu, watch_sample, watch_slot};

/// Places for the flows that came last, a power of two.
const FLOWS: usize = (offset_of!(watch_cpu, ring) - offset_of!(watch_cpu, flows)) / size_of::<u32>();
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: [u8; 2] = [1, 58];
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

const _: () = assert!(FLOWS.is_power_of_two());

/// Counters of one thread, which alone counts under its number.
#[derive(Debug)]
pub struct WatchWriter {
    slots: SharedMemory,
    cpus: SharedMemory,
    /// Bytes before what is this one's, in either.
    slots_at: usize,
    cpu_at: usize,
    prefixes: usize,
    seed: u64,
}

impl WatchWriter {
    pub(super) fn new(slots: SharedMemory, cpus: SharedMemory, number: usize, prefixes: usize, seed: u64) -> Self {
        let (slots_at, cpu_at) = (number * prefixes * size_of::<watch_slot>(), number * size_of::<watch_cpu>());
        Self { slots, cpus, slots_at, cpu_at, prefixes, seed }
    }

    /// Counts a packet to the prefix that it names; its frame has so many bytes, without FCS. A number that is not watched is ignored.
    pub fn count(&self, packet: &WatchSample, frame_len: usize) {
        if packet.prefix >= self.prefixes {
            return;
        }
        let slot = self.slots_at + packet.prefix * size_of::<watch_slot>();
        let add = |field: usize, n: u64| {
            let word = self.slots.word(slot + field);
            word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        };
        add(offset_of!(watch_slot, packets), 1);
        add(offset_of!(watch_slot, bytes), frame_len as u64);
        add(offset_of!(watch_slot, kinds) + kind(packet) * size_of::<u64>(), 1);
        if packet.fragment != 0 {
            add(offset_of!(watch_slot, fragments), 1);
        }
        let source = self.mix(self.mix(source_of(packet.source)));
        self.note_source(slot, source);
        if self.is_new_flow(packet, source) {
            add(offset_of!(watch_slot, new_flows), 1);
        }
        let random = self.cpus.word(self.cpu_at + offset_of!(watch_cpu, random));
        // Knuth's linear congruential generator; its upper bits are the good ones.
        let next = random
            .load(Ordering::Relaxed)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        random.store(next, Ordering::Relaxed);
        if (next >> 32) as u32 & self.half(offset_of!(watch_cpu, sample_mask)) == 0 {
            self.sample(packet);
        }
    }

    /// The largest hash of each register is kept.
    fn note_source(&self, slot: usize, hash: u64) {
        let generation = self.half(offset_of!(watch_cpu, generation)) as usize & 1;
        let register = generation * REGISTERS + hash as usize % REGISTERS;
        let largest = self.slots.half_word(slot + offset_of!(watch_slot, largest) + register * size_of::<u32>());
        if largest.load(Ordering::Relaxed) < (hash >> 32) as u32 {
            largest.store((hash >> 32) as u32, Ordering::Relaxed);
        }
    }

    /// True if it is not among the flows that were noted last; now it is.
    fn is_new_flow(&self, packet: &WatchSample, source: u64) -> bool {
        let (from, to) = packet.ports.unwrap_or_default();
        let mut flow = source ^ u64::from(packet.protocol);
        flow ^= destination_of(packet.destination) ^ u64::from(from) << 48 ^ u64::from(to) << 32;
        let flow = self.mix(flow);
        let place = offset_of!(watch_cpu, flows) + flow as usize % FLOWS * size_of::<u32>();
        let place = self.cpus.half_word(self.cpu_at + place);
        let tag = (flow >> 32) as u32;
        let is_new = place.load(Ordering::Relaxed) != tag;
        if is_new {
            place.store(tag, Ordering::Relaxed);
        }
        is_new
    }

    fn sample(&self, packet: &WatchSample) {
        let samples = self.cpus.word(self.cpu_at + offset_of!(watch_cpu, samples));
        let sequence = samples.load(Ordering::Relaxed) + 1;
        let start = self.cpu_at + offset_of!(watch_cpu, ring) + sequence as usize % SAMPLES * size_of::<watch_sample>();
        let head = self.cpus.word(start);
        head.store(0, Ordering::Relaxed);
        // Whoever reads sees that it is being written before any of it.
        std::sync::atomic::fence(Ordering::Release);
        let bytes = encode(packet);
        for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate().skip(1) {
            self.cpus.word(start + i * 8).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        head.store(sequence, Ordering::Release);
        samples.store(sequence, Ordering::Release);
    }

    fn half(&self, field: usize) -> u32 {
        self.cpus.half_word(self.cpu_at + field).load(Ordering::Relaxed)
    }

    fn mix(&self, value: u64) -> u64 {
        let value = value.wrapping_mul(self.seed);
        value ^ value >> 32
    }
}

/// enum watch_kind.
fn kind(packet: &WatchSample) -> usize {
    let kind = match (packet.protocol, packet.flags) {
        (TCP, Some(flags)) if flags & SYN != 0 => usize::from(flags & ACK != 0),
        (TCP, _) => 2,
        (UDP, _) => 3,
        (protocol, _) if ICMP.contains(&protocol) => 4,
        _ => 5,
    };
    debug_assert!(kind < KINDS);
    kind
}

/// The source as it is told apart: IPv6 by /64.
fn source_of(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(a) => word(&a.octets(), 0),
        IpAddr::V6(a) => word(&a.octets(), 0) | word(&a.octets(), 4) << 32,
    }
}

fn destination_of(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(a) => word(&a.octets(), 0),
        IpAddr::V6(a) => word(&a.octets(), 0) ^ word(&a.octets(), 12) << 24,
    }
}

fn word(octets: &[u8], at: usize) -> u64 {
    octets[at..].first_chunk().map_or(0, |word| u64::from(u32::from_ne_bytes(*word)))
}

/// struct watch_sample, its sequence left out.
fn encode(packet: &WatchSample) -> [u8; size_of::<watch_sample>()] {
    let mut bytes = [0; size_of::<watch_sample>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let mut address = |at: usize, address: IpAddr| match address {
        IpAddr::V4(a) => put(at, &a.octets()),
        IpAddr::V6(a) => put(at, &a.octets()),
    };
    address(offset_of!(watch_sample, source), packet.source);
    address(offset_of!(watch_sample, destination), packet.destination);
    let (from, to) = packet.ports.unwrap_or_default();
    put(offset_of!(watch_sample, number), &(packet.prefix as u32).to_ne_bytes());
    put(offset_of!(watch_sample, source_port), &from.to_ne_bytes());
    put(offset_of!(watch_sample, destination_port), &to.to_ne_bytes());
    put(offset_of!(watch_sample, len), &packet.len.to_ne_bytes());
    put(offset_of!(watch_sample, vlan), &packet.vlan.to_ne_bytes());
    put(offset_of!(watch_sample, family), &[if packet.source.is_ipv4() { 4 } else { 6 }]);
    put(offset_of!(watch_sample, protocol), &[packet.protocol]);
    put(offset_of!(watch_sample, flags), &[packet.flags.unwrap_or(0)]);
    put(offset_of!(watch_sample, fragment), &[packet.fragment]);
    put(offset_of!(watch_sample, dscp), &[packet.dscp]);
    let has = u8::from(packet.ports.is_some()) | u8::from(packet.flags.is_some()) << 1;
    put(offset_of!(watch_sample, has), &[has]);
    bytes
}
