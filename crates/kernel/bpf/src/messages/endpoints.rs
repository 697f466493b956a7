//! The endpoints of a protocol's program: rings by number, made and removed while frames come.

use std::{
    collections::BTreeSet,
    mem::offset_of,
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use sys::bpf_ring::page_bytes;

use super::ring::LinkRing;
use crate::{
    link::XdpError,
    program::{Program, opts, to_io},
    skel::link::types::link_ring_state,
};

/// The largest ring, in bytes.
pub(super) const BYTES_MAX: usize = 1 << 30;

/// Maps of endpoints, which live while the program or this does.
#[derive(Debug)]
pub(super) struct Endpoints {
    program: Program,
    rings: MapHandle,
    states: MapHandle,
    taken: BTreeSet<u32>,
    /// Replacement for endpoints that were removed: the kernel waits at the end of each call until no program is at work, and takes many
    /// entries in one call only where they are replaced.
    nobody: [MapHandle; 2],
}

impl Endpoints {
    pub(super) fn new(program: Program, rings: MapHandle, states: MapHandle) -> Result<Self, XdpError> {
        let nobody = make(program, page_bytes())?;
        let mut state = [0; size_of::<link_ring_state>()];
        state[offset_of!(link_ring_state, nobody)..][..4].copy_from_slice(&1u32.to_ne_bytes());
        let written = nobody[1].update(&0u32.to_ne_bytes(), &state, MapFlags::ANY);
        written.map_err(|e| program.failed("write the page of nobody", to_io(&e)))?;
        Ok(Self { program, rings, states, taken: BTreeSet::new(), nobody })
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
        let [ring, state] = make(self.program, bytes)?;
        let descriptors = [self.program.descriptor(&ring)?, self.program.descriptor(&state)?];
        let reader = LinkRing::of(descriptors).map_err(|e| self.program.failed("map a ring", e))?;
        // What comes for them goes there once they have a state.
        let all: Vec<u32> = numbers.clone().collect();
        let entered = self.put(&self.rings, &all, &ring).and_then(|()| self.put(&self.states, &all, &state));
        if entered.is_err() {
            self.take_out(&all);
        } else {
            self.taken.extend(numbers);
        }
        entered.map(|()| reader)
    }

    /// Has what comes for one more number go to a ring that others have.
    pub(super) fn join(&mut self, number: u32, ring: &LinkRing) -> Result<(), XdpError> {
        if self.taken.contains(&number) {
            return Err(XdpError::setting(format!("the endpoint {number} has a ring already: remove that one first")));
        }
        let [ring, state] = ring.descriptors();
        self.put(&self.rings, &[number], ring)?;
        self.put(&self.states, &[number], state)?;
        self.taken.insert(number);
        Ok(())
    }

    fn put(&self, map: &MapHandle, numbers: &[u32], inner: impl AsFd) -> Result<(), XdpError> {
        let keys: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let values = inner.as_fd().as_raw_fd().to_ne_bytes().repeat(numbers.len());
        let put = map.update_batch(&keys, &values, numbers.len() as u32, MapFlags::ANY, MapFlags::ANY);
        Ok(put.map_err(|e| self.program.failed("enter a ring", to_io(&e)))?)
    }

    /// Removes these endpoints, as far as they are there. No frame goes into one of their rings any more afterwards.
    pub(super) fn remove(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let there: Vec<u32> = numbers.into_iter().filter(|number| self.taken.remove(number)).collect();
        self.take_out(&there);
    }

    fn take_out(&self, numbers: &[u32]) {
        let Some(last) = numbers.last() else { return };
        let [ring, state] = &self.nobody;
        for (map, nobody) in [(&self.states, state), (&self.rings, ring)] {
            // The kernel refuses it only without memory for the call; one by one it needs none.
            if self.put(map, numbers, nobody).is_err() {
                for number in numbers {
                    let _ = map.delete(&number.to_ne_bytes());
                }
            }
        }
        // Before 6.8 the kernel waits for programs at the end of a call for one entry alone.
        let _ = self.rings.update(&last.to_ne_bytes(), &ring.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY);
    }
}

/// A ring of `bytes` and the page beside it.
fn make(program: Program, bytes: usize) -> Result<[MapHandle; 2], XdpError> {
    let create = |kind, name: &str, [key, value, entries]: [usize; 3], map_flags| {
        let opts = opts!(bpf_map_create_opts { map_flags });
        let made = MapHandle::create(kind, Some(name), key as u32, value as u32, entries as u32, &opts);
        made.map_err(|e| XdpError::from(program.failed("make a ring", to_io(&e))))
    };
    let page = [size_of::<u32>(), size_of::<link_ring_state>(), 1];
    Ok([
        create(MapType::RingBuf, "link_ring", [0, 0, bytes], 0)?,
        create(MapType::Array, "link_ring_state", page, libbpf_sys::BPF_F_MMAPABLE)?,
    ])
}
