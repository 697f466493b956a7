//! The endpoints of a protocol's program: rings by number, made and removed while frames come.

use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use sys::bpf_ring::page_bytes;

use super::ring::LinkRing;
use crate::{
    link::XdpError,
    program::{Program, opts, to_io},
    skel::link::types::link_word,
};

/// The largest ring, in bytes.
pub(super) const BYTES_MAX: usize = 1 << 30;

/// Who holds the program holds these: what is entered here stays while the program or this lives.
#[derive(Debug)]
pub(super) struct Endpoints {
    program: Program,
    rings: MapHandle,
    words: MapHandle,
    taken: BTreeSet<u32>,
}

impl Endpoints {
    pub(super) fn new(program: Program, rings: MapHandle, words: MapHandle) -> Self {
        Self { program, rings, words, taken: BTreeSet::new() }
    }

    /// Makes a ring of at least `bytes`, which gets what comes for `numbers` from now on.
    pub(super) fn add(&mut self, numbers: RangeInclusive<u32>, bytes: usize) -> Result<LinkRing, XdpError> {
        if let Some(taken) = self.taken.range(numbers.clone()).next() {
            return Err(XdpError::setting(format!("the endpoint {taken} has a ring already: remove that one first")));
        }
        if numbers.is_empty() || bytes > BYTES_MAX || *numbers.end() >= self.rings.max_entries() {
            return Err(XdpError::setting(format!(
                "a ring is of up to {BYTES_MAX} bytes, for endpoints up to {}: not of {bytes}, for {} to {}",
                self.rings.max_entries() - 1,
                numbers.start(),
                numbers.end()
            )));
        }
        let bytes = bytes.next_power_of_two().max(page_bytes());
        let program = self.program;
        let failed = |operation| move |e: libbpf_rs::Error| program.failed(operation, to_io(&e));
        let create = |kind, name: &str, [key, value, entries]: [usize; 3], map_flags| {
            let opts = opts!(bpf_map_create_opts { map_flags });
            MapHandle::create(kind, Some(name), key as u32, value as u32, entries as u32, &opts)
        };
        let ring = create(MapType::RingBuf, "link_ring", [0, 0, bytes], 0).map_err(failed("make a ring"))?;
        let page = [size_of::<u32>(), size_of::<link_word>(), 1];
        let word = create(MapType::Array, "link_word", page, libbpf_sys::BPF_F_MMAPABLE)
            .map_err(failed("make the page of a ring"))?;
        let own = |map: &MapHandle| self.program.descriptor(map);
        let descriptors: [OwnedFd; 2] = [own(&ring)?, own(&word)?];
        let reader = LinkRing::of(descriptors).map_err(|e| self.program.failed("map a ring", e))?;
        // Whoever finds a ring finds its word.
        let entered = self.enter(numbers.clone(), [ring.as_fd(), word.as_fd()]);
        if entered.is_err() {
            self.take_out(numbers);
        } else {
            self.taken.extend(numbers);
        }
        entered.map(|()| reader)
    }

    fn enter(&self, numbers: RangeInclusive<u32>, [ring, word]: [BorrowedFd<'_>; 2]) -> Result<(), XdpError> {
        // One call for all: the kernel waits at the end of each until no program is at work with what was there before.
        let count = numbers.end() - numbers.start() + 1;
        let keys: Vec<u8> = numbers.flat_map(u32::to_ne_bytes).collect();
        for (map, inner) in [(&self.words, word), (&self.rings, ring)] {
            let values = inner.as_raw_fd().to_ne_bytes().repeat(count as usize);
            map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
                .map_err(|e| self.program.failed("enter a ring", to_io(&e)))?;
        }
        Ok(())
    }

    /// Has what comes for one more number go to a ring that others have.
    pub(super) fn join(&mut self, number: u32, ring: &LinkRing) -> Result<(), XdpError> {
        if self.taken.contains(&number) {
            return Err(XdpError::setting(format!("the endpoint {number} has a ring already: remove that one first")));
        }
        self.enter(number..=number, ring.descriptors())?;
        self.taken.insert(number);
        Ok(())
    }

    /// Removes these endpoints. No frame is on its way into one of their rings any more afterwards.
    pub(super) fn remove(&mut self, numbers: RangeInclusive<u32>) {
        self.taken.retain(|number| !numbers.contains(number));
        self.take_out(numbers);
    }

    fn take_out(&self, numbers: RangeInclusive<u32>) {
        let keys: Vec<u8> = numbers.clone().flat_map(u32::to_ne_bytes).collect();
        let count = (keys.len() / size_of::<u32>()) as u32;
        for map in [&self.rings, &self.words] {
            // One by one where the kernel stops at a number that has none.
            if count > 0 && map.delete_batch(&keys, count, MapFlags::ANY, MapFlags::ANY).is_err() {
                for number in numbers.clone() {
                    let _ = map.delete(&number.to_ne_bytes());
                }
            }
        }
    }
}
