//! State of a frame that programs of a chain pass on, and rules' names.

use std::{
    mem::offset_of,
    os::fd::AsFd,
    sync::atomic::{AtomicU32, Ordering},
};

use libbpf_rs::{MapCore, MapHandle};
use sys::map_mmap::SharedMemory;

use super::{PROGRAM, Place};
use crate::{
    link::XdpError,
    skel::chain::types::{chain_cpu, chain_name, chain_state},
};

/// The map of what programs tell each other.
pub(crate) const STATE: &str = ".data.chain";
const NAME_BYTES: usize = size_of::<chain_name>();

const _: () = assert!(size_of::<chain_cpu>() == 64 && offset_of!(chain_state, cpu) == 64 && NAME_BYTES == 64);

/// Possible CPUs, rounded up to a power of two.
pub(crate) fn state_cpus() -> Result<usize, XdpError> {
    libbpf_rs::num_possible_cpus().map(usize::next_power_of_two).map_err(|e| PROGRAM.refused(e).into())
}

/// Bytes of the state with a line for each possible CPU.
pub(super) fn state_bytes() -> Result<usize, XdpError> {
    Ok(offset_of!(chain_state, cpu) + state_cpus()? * size_of::<chain_cpu>())
}

/// Users of a chain, and the state of frames that its programs pass on; mapped.
#[derive(Debug)]
pub(crate) struct ChainState(SharedMemory);

impl ChainState {
    pub(super) fn of(map: &MapHandle) -> Result<Self, XdpError> {
        let memory = SharedMemory::of(map.as_fd(), map.value_size() as usize, 0);
        Ok(Self(memory.map_err(|e| PROGRAM.failed("map the state", e))?))
    }

    /// A capture wants verdicts, before or behind the filter; or no more. What the last one had not read is forgotten.
    pub(crate) fn want(&self, behind: bool, on: bool) {
        let word = if behind { offset_of!(chain_state, behind) } else { offset_of!(chain_state, before) };
        if on {
            for cpu in 0..(self.0.len() - offset_of!(chain_state, cpu)) / size_of::<chain_cpu>() {
                let fields: &[usize] = match behind {
                    true => &[offset_of!(chain_cpu, passed)],
                    false => &[offset_of!(chain_cpu, ask), offset_of!(chain_cpu, verdict)],
                };
                fields.iter().for_each(|field| self.line(cpu as u32, *field).store(0, Ordering::Relaxed));
            }
        }
        self.0.half_word(word).store(u32::from(on), Ordering::Release);
    }

    /// The verdict on the frame that was recorded last on that CPU; 0: none yet.
    pub(crate) fn verdict(&self, cpu: u32) -> u32 {
        self.line(cpu, offset_of!(chain_cpu, verdict)).load(Ordering::Acquire)
    }

    /// The id of the program that was put in that place last; 0: none was, or it has left.
    pub(super) fn user(&self, place: Place) -> &AtomicU32 {
        self.0.half_word(offset_of!(chain_state, users) + place as usize * size_of::<u32>())
    }

    fn line(&self, cpu: u32, field: usize) -> &AtomicU32 {
        self.0.half_word(offset_of!(chain_state, cpu) + cpu as usize * size_of::<chain_cpu>() + field)
    }
}

/// The names of the rules by which verdicts were made, by counter. The shield writes them, captures read them.
#[derive(Debug)]
pub struct RuleNames(SharedMemory);

impl RuleNames {
    pub(super) fn of(map: &MapHandle) -> Result<Self, XdpError> {
        let memory = SharedMemory::of(map.as_fd(), rules::tables::COUNTERS * NAME_BYTES, 0);
        Ok(Self(memory.map_err(|e| PROGRAM.failed("map the rules' names", e))?))
    }

    /// Writes the name of the rule that counts under `counter`; of a long one its first 63 bytes.
    pub fn set(&self, counter: u16, name: &str) {
        let mut bytes = [0; NAME_BYTES];
        let end = (0..NAME_BYTES.min(name.len() + 1)).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        for (at, word) in bytes.chunks_exact(8).enumerate() {
            let word = word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
            self.0.word(Self::at(counter) + at * 8).store(word, Ordering::Relaxed);
        }
    }

    /// The name of the rule that counts under `counter`; none: nobody has given it one.
    pub fn get(&self, counter: u16) -> Option<String> {
        let mut bytes = Vec::with_capacity(NAME_BYTES);
        for at in 0..NAME_BYTES / 8 {
            bytes.extend(self.0.word(Self::at(counter) + at * 8).load(Ordering::Relaxed).to_ne_bytes());
        }
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
        (!name.is_empty()).then_some(name)
    }

    fn at(counter: u16) -> usize {
        usize::from(counter) % rules::tables::COUNTERS * NAME_BYTES
    }
}
