//! The traffic of each protected prefix: counters, distinct sources, samples, as `src/filter/watch.h` writes them.

use std::{
    hash::{BuildHasher, RandomState},
    mem::offset_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use libbpf_rs::{MapHandle, MapType, OpenObject, libbpf_sys};
use model::PrefixCounts;
use sys::map_mmap::SharedMemory;

use super::{PROGRAM, WatchWriter};
use crate::{
    link::XdpError,
    program::{opts, quiet_libbpf},
    skel::shield::types::{rodata, watch_cpu, watch_sample, watch_slot},
};

/// Registers of a sketch, two of which are in a slot.
pub(super) const REGISTERS: usize = size_of::<[u32; 512]>() / size_of::<u32>();
pub(super) const SAMPLES: usize = (size_of::<watch_cpu>() - offset_of!(watch_cpu, ring)) / size_of::<watch_sample>();
/// Samples that each CPU is to take between two readings: half of what its ring holds, as rates change.
const SAMPLES_TARGET: u64 = SAMPLES as u64 / 2;
/// A counter of packets of each kind (enum watch_kind).
pub(super) const KINDS: usize = 6;
/// Names of the maps in the program, and what the kernel shows.
const MAPS: [(&str, &str); 2] = [(".data.sh_wslot", "watch_slots"), (".data.sh_wcpu", "watch_cpus")];

const _: () = assert!(
    size_of::<watch_slot>() == offset_of!(watch_slot, largest) + 2 * REGISTERS * size_of::<u32>()
        && SAMPLES.is_power_of_two()
        && size_of::<watch_sample>() == 64
);

/// The settings of a program that counts into the maps of a [`Watch`].
#[derive(Debug, Clone)]
pub struct WatchConfig {
    prefixes: usize,
    cpus: usize,
    seed: u64,
    maps: [Arc<OwnedFd>; 2],
    sizes: [u32; 2],
}

impl WatchConfig {
    pub(super) fn set(&self, knobs: &mut rodata) {
        knobs.watch_on = true;
        knobs.watch_prefixes_mask = self.prefixes as u64 - 1;
        knobs.watch_cpus_mask = self.cpus as u64 - 1;
        knobs.watch_seed = self.seed;
    }

    /// Counts as CPU `number` does.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] if there is no such CPU here; [`crate::ProgramError::Map`] if the maps cannot be mapped.
    pub fn writer(&self, number: usize) -> Result<WatchWriter, XdpError> {
        if number >= self.cpus {
            return Err(XdpError::setting(format!("{number} is none of {} who count", self.cpus)));
        }
        let memory = |i: usize| {
            SharedMemory::of(self.maps[i].as_fd(), self.sizes[i] as usize, 0)
                .map_err(|source| PROGRAM.failed("map the watch's counters", source))
        };
        Ok(WatchWriter::new(memory(0)?, memory(1)?, number, self.prefixes, self.seed))
    }

    /// Has the object that is about to be loaded count into these maps.
    pub(super) fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            if let Some(i) = MAPS.iter().position(|(name, _)| map.name() == *name) {
                map.set_value_size(self.sizes[i])?;
                map.reuse_fd(self.maps[i].as_fd())?;
            }
        }
        Ok(())
    }
}

/// A packet that was picked at random, as the rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchSample {
    pub prefix: usize,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ports: Option<(u16, u16)>,
    /// TCP flags, or the type of ICMP.
    pub flags: Option<u8>,
    /// IPv4's total length, IPv6's payload length plus 40.
    pub len: u16,
    /// VLAN id of the outermost tag, 4096 without.
    pub vlan: u16,
    /// Behind all extension headers.
    pub protocol: u8,
    /// 0 a whole packet, 1 a first fragment, 2 a later one.
    pub fragment: u8,
    pub dscp: u8,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WatchReading {
    /// By the number of the prefix: packets since the maps were made, sources since the last reading.
    pub counts: Vec<PrefixCounts>,
    /// Samples since the last reading, up to 1,024 from each CPU.
    pub samples: Vec<WatchSample>,
}

/// The maps, and how far they have been read. One reader at a time.
#[derive(Debug)]
pub struct Watch {
    config: WatchConfig,
    slots: SharedMemory,
    cpus: SharedMemory,
    /// Prefixes that are watched, the rounding not counted.
    prefixes: usize,
    read: Vec<u64>,
    packets: Vec<u64>,
    /// Packets of each slot at the last reading, and whether more had come by then than at the one before. A slot where none came in
    /// two readings has two empty sketches.
    slots_read: Vec<(u64, bool)>,
    generation: u32,
}

impl Watch {
    /// Makes the maps for `prefixes` protected prefixes: about 4.2 KB for each on each CPU.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for no prefix or more than 4,096; [`crate::ProgramError::Load`] with what the kernel answers.
    pub fn create(prefixes: usize) -> Result<Self, XdpError> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(|e| PROGRAM.refused(e))?;
        Self::create_for(prefixes, cpus)
    }

    /// The same where not CPUs count but `writers` threads of this process, each by its own [`WatchWriter`].
    pub fn create_for(prefixes: usize, writers: usize) -> Result<Self, XdpError> {
        quiet_libbpf();
        let failed = |source| PROGRAM.refused(source);
        let cpus = writers.next_power_of_two();
        let sizes = sizes(prefixes, cpus)?;
        let opts = opts!(bpf_map_create_opts { map_flags: libbpf_sys::BPF_F_MMAPABLE });
        let map = |i: usize| MapHandle::create(MapType::Array, Some(MAPS[i].1), 4, sizes[i], 1, &opts).map_err(failed);
        let watch = Self::of(&[map(0)?, map(1)?], prefixes, cpus)?;
        let seed = RandomState::new().hash_one(0) | 1;
        watch.cpus.word(offset_of!(watch_cpu, seed)).store(seed, Ordering::Relaxed);
        Ok(Self { config: WatchConfig { seed, ..watch.config }, ..watch })
    }

    fn of(maps: &[MapHandle; 2], prefixes: usize, cpus: usize) -> Result<Self, XdpError> {
        let sizes = sizes(prefixes, cpus)?;
        let memory = |i: usize| {
            SharedMemory::of(maps[i].as_fd(), sizes[i] as usize, 0)
                .map_err(|source| PROGRAM.failed("map the watch's counters", source))
        };
        let (slots, of_cpus) = (memory(0)?, memory(1)?);
        let descriptor = |i: usize| {
            maps[i]
                .as_fd()
                .try_clone_to_owned()
                .map(Arc::new)
                .map_err(|source| PROGRAM.failed("duplicate a descriptor", source))
        };
        let seed = of_cpus.word(offset_of!(watch_cpu, seed)).load(Ordering::Relaxed);
        let rounded = prefixes.next_power_of_two();
        let config = WatchConfig { prefixes: rounded, cpus, seed, maps: [descriptor(0)?, descriptor(1)?], sizes };
        let mut watch = Self {
            config,
            slots,
            cpus: of_cpus,
            prefixes,
            read: vec![0; cpus],
            packets: vec![0; cpus],
            slots_read: vec![(0, true); cpus * rounded],
            generation: 0,
        };
        watch.generation = watch.cpu_half(0, offset_of!(watch_cpu, generation)).load(Ordering::Relaxed);
        // What came before is not ours to tell about.
        watch.read();
        Ok(watch)
    }

    /// The settings for [`super::Shield::load`].
    pub fn config(&self) -> &WatchConfig {
        &self.config
    }

    /// Reads all, and begins anew to count sources.
    ///
    /// A packet that is being counted at this moment may be missed by the sketch of both readings; by no counter.
    pub fn read(&mut self) -> WatchReading {
        let old = (self.generation & 1) as usize;
        self.generation = self.generation.wrapping_add(1);
        for cpu in 0..self.config.cpus {
            self.cpu_half(cpu, offset_of!(watch_cpu, generation)).store(self.generation, Ordering::SeqCst);
        }
        let mut reading = WatchReading::default();
        let mut per_cpu = vec![0u64; self.config.cpus];
        let mut largest = vec![0u32; REGISTERS];
        for prefix in 0..self.prefixes {
            largest.fill(0);
            let mut counts = PrefixCounts::default();
            for (cpu, packets) in per_cpu.iter_mut().enumerate() {
                let slot = cpu * self.config.prefixes + prefix;
                let came = self.add(slot, &mut counts);
                *packets += came;
                let (before, came_before) = self.slots_read[slot];
                self.slots_read[slot] = (came, came != before);
                if came != before || came_before {
                    self.merge(slot, old, &mut largest);
                }
            }
            reading.counts.push(PrefixCounts { sources: estimate(&largest), ..counts });
        }
        for (cpu, packets) in per_cpu.into_iter().enumerate() {
            let came = packets - self.packets[cpu];
            self.packets[cpu] = packets;
            self.take_samples(cpu, &mut reading.samples);
            // One in a power of two, so that about as many come as are wanted until the next reading, if the rate stays.
            let one_in = (came / SAMPLES_TARGET).max(1).next_power_of_two().min(1 << 24) as u32;
            self.cpu_half(cpu, offset_of!(watch_cpu, sample_mask)).store(one_in - 1, Ordering::Relaxed);
        }
        reading
    }

    /// Adds a slot's counters to `counts`; gives its packets.
    fn add(&self, slot: usize, counts: &mut PrefixCounts) -> u64 {
        let at = |offset: usize| self.slots.word(slot * size_of::<watch_slot>() + offset).load(Ordering::Relaxed);
        let kinds: [u64; KINDS] = std::array::from_fn(|kind| at(offset_of!(watch_slot, kinds) + kind * 8));
        let packets = at(offset_of!(watch_slot, packets));
        counts.packets += packets;
        counts.bytes += at(offset_of!(watch_slot, bytes));
        counts.syn += kinds[0];
        counts.syn_ack += kinds[1];
        counts.tcp += kinds[2];
        counts.udp += kinds[3];
        counts.icmp += kinds[4];
        counts.other += kinds[5];
        counts.fragments += at(offset_of!(watch_slot, fragments));
        counts.new_flows += at(offset_of!(watch_slot, new_flows));
        packets
    }

    /// Merges a slot's old sketch into `largest` and clears it.
    fn merge(&self, slot: usize, old: usize, largest: &mut [u32]) {
        let start =
            slot * size_of::<watch_slot>() + offset_of!(watch_slot, largest) + old * REGISTERS * size_of::<u32>();
        for (i, largest) in largest.iter_mut().enumerate() {
            let register = self.slots.half_word(start + i * size_of::<u32>());
            let value = register.load(Ordering::Relaxed);
            if value != 0 {
                register.store(0, Ordering::Relaxed);
                *largest = value.max(*largest);
            }
        }
    }

    fn take_samples(&mut self, cpu: usize, samples: &mut Vec<WatchSample>) {
        let written =
            self.cpus.word(cpu * size_of::<watch_cpu>() + offset_of!(watch_cpu, samples)).load(Ordering::Acquire);
        let first = self.read[cpu].max(written.saturating_sub(SAMPLES as u64)) + 1;
        samples.extend((first..=written).filter_map(|sequence| self.sample(cpu, sequence)));
        self.read[cpu] = written;
    }

    /// The sample of that sequence number; none if it is overwritten, or being overwritten just now.
    fn sample(&self, cpu: usize, sequence: u64) -> Option<WatchSample> {
        let start = cpu * size_of::<watch_cpu>()
            + offset_of!(watch_cpu, ring)
            + (sequence as usize % SAMPLES) * size_of::<watch_sample>();
        if self.cpus.word(start).load(Ordering::Acquire) != sequence {
            return None;
        }
        let mut bytes = [0u8; size_of::<watch_sample>()];
        for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.cpus.word(start + i * 8).load(Ordering::Relaxed).to_ne_bytes());
        }
        // What was read was read before this.
        fence(Ordering::Acquire);
        (self.cpus.word(start).load(Ordering::Relaxed) == sequence).then(|| decode(&bytes)).flatten()
    }

    fn cpu_half(&self, cpu: usize, offset: usize) -> &std::sync::atomic::AtomicU32 {
        self.cpus.half_word(cpu * size_of::<watch_cpu>() + offset)
    }
}

fn decode(bytes: &[u8; size_of::<watch_sample>()]) -> Option<WatchSample> {
    let byte = |at: usize| bytes[at];
    let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let address = |at: usize| -> Option<[u8; 16]> { bytes.get(at..at + 16)?.try_into().ok() };
    let (source, destination) = (offset_of!(watch_sample, source), offset_of!(watch_sample, destination));
    let ip = |at: usize| -> Option<IpAddr> {
        let all = address(at)?;
        Some(match byte(offset_of!(watch_sample, family)) {
            4 => Ipv4Addr::new(all[0], all[1], all[2], all[3]).into(),
            _ => Ipv6Addr::from(all).into(),
        })
    };
    let has = byte(offset_of!(watch_sample, has));
    let number = offset_of!(watch_sample, number);
    Some(WatchSample {
        prefix: u32::from_ne_bytes(bytes.get(number..number + 4)?.try_into().ok()?) as usize,
        source: ip(source)?,
        destination: ip(destination)?,
        ports: (has & 1 != 0)
            .then(|| (short(offset_of!(watch_sample, source_port)), short(offset_of!(watch_sample, destination_port)))),
        flags: (has & 2 != 0).then(|| byte(offset_of!(watch_sample, flags))),
        len: short(offset_of!(watch_sample, len)),
        vlan: short(offset_of!(watch_sample, vlan)),
        protocol: byte(offset_of!(watch_sample, protocol)),
        fragment: byte(offset_of!(watch_sample, fragment)),
        dscp: byte(offset_of!(watch_sample, dscp)),
    })
}

/// The number of distinct values behind these registers, each of which keeps the largest of the hashes that fell to it.
///
/// The distance from the top of the range to a register's value, as a part of the range, is exponentially distributed with a rate of
/// the values per register, cut off at 1 where none came; this is the estimator of largest likelihood for such a sample: the registers
/// that hold a value over the sum of all distances. Its standard error is 1/sqrt(registers in use).
fn estimate(largest: &[u32]) -> f64 {
    let used = largest.iter().filter(|&&l| l != 0).count() as f64;
    let range = f64::from(u32::MAX) + 1.0;
    let distances: f64 = largest.iter().map(|&l| (range - f64::from(l)) / range).sum();
    largest.len() as f64 * used / distances
}

fn sizes(prefixes: usize, cpus: usize) -> Result<[u32; 2], XdpError> {
    const PREFIXES_MAX: usize = 4096;
    if !(1..=PREFIXES_MAX).contains(&prefixes) {
        return Err(XdpError::setting(format!(
            "{prefixes} protected prefixes, but 1 to {PREFIXES_MAX} can be watched"
        )));
    }
    let slots = prefixes.next_power_of_two() * cpus * size_of::<watch_slot>();
    let slots = i32::try_from(slots).map_err(|_| {
        XdpError::setting(format!(
            "{prefixes} protected prefixes on {cpus} CPUs need more than 2 GB: name fewer, shorter ones"
        ))
    })?;
    Ok([slots.cast_unsigned(), (cpus * size_of::<watch_cpu>()) as u32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_within_four_standard_errors_from_none_to_millions() {
        assert_eq!(estimate(&[0; REGISTERS]), 0.0);
        for n in [1u64, 10, 100, 1000, 10_000, 100_000, 3_000_000] {
            let mut largest = [0u32; REGISTERS];
            for value in 0..n {
                // splitmix64
                let mut z = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def0);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let hash = z ^ (z >> 31);
                let register = &mut largest[hash as usize % REGISTERS];
                *register = (*register).max((hash >> 32) as u32);
            }
            let error = estimate(&largest) / n as f64 - 1.0;
            assert!(error.abs() < 4.0 / (n.min(REGISTERS as u64) as f64).sqrt(), "{n}: off by {:.1} %", error * 100.0);
        }
    }
}
