//! The endpoints of a protocol's program: rings by number, added and removed while the program runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::offset_of,
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::Ordering,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use sys::{bpf_ring::page_bytes, map_mmap::SharedMemory};

use super::ring::LinkRing;
use crate::{
    link::XdpError,
    program::{Program, opts, to_io},
    skel::link::types::link_ring_state,
};

/// The largest ring, in bytes.
pub(super) const BYTES_MAX: usize = 1 << 30;
/// Bytes of an entry of `link_slots`.
const SLOT_BYTES: usize = size_of::<u64>();

/// The maps of endpoints, which exist while the program or this value does.
#[derive(Debug)]
pub(super) struct Endpoints {
    program: Program,
    rings: MapHandle,
    states: MapHandle,
    /// The program's table of slots by endpoint, 8 bytes each; slot 0 for an endpoint without a ring.
    slots: SharedMemory,
    /// The slots of endpoints with a ring.
    taken: BTreeMap<u32, u32>,
    /// A closed ring and its page, which replace removed ones: since Linux 6.8 a batch of replacements takes one grace period, and each deletion
    /// another one.
    closed: [MapHandle; 2],
}

impl Endpoints {
    pub(super) fn new(
        program: Program,
        rings: MapHandle,
        states: MapHandle,
        slots: &MapHandle,
    ) -> Result<Self, XdpError> {
        let closed = make(program, page_bytes())?;
        let mut state = [0; size_of::<link_ring_state>()];
        state[offset_of!(link_ring_state, closed)..][..4].copy_from_slice(&1u32.to_ne_bytes());
        let written = closed[1].update(&0u32.to_ne_bytes(), &state, MapFlags::ANY);
        written.map_err(|e| program.failed("write the page of a closed ring", to_io(&e)))?;
        let bytes = slots.max_entries() as usize * SLOT_BYTES;
        let slots = SharedMemory::of(slots.as_fd(), bytes, 0).map_err(|e| program.failed("map the slots", e))?;
        Ok(Self { program, rings, states, slots, taken: BTreeMap::new(), closed })
    }

    /// Makes a ring of at least `bytes` for the frames to `numbers`. Takes two grace periods for any count of endpoints.
    pub(super) fn add(&mut self, numbers: RangeInclusive<u32>, bytes: usize) -> Result<LinkRing, XdpError> {
        if let Some((taken, _)) = self.taken.range(numbers.clone()).next() {
            return Err(has_ring(*taken));
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
        self.enter(numbers, [ring.as_fd(), state.as_fd()])?;
        Ok(reader)
    }

    /// Adds an endpoint to a ring.
    pub(super) fn join(&mut self, number: u32, ring: &LinkRing) -> Result<(), XdpError> {
        if self.taken.contains_key(&number) {
            return Err(has_ring(number));
        }
        self.enter(number..=number, ring.descriptors())
    }

    /// Enters a ring and its page into a free slot, and the slot for each endpoint.
    fn enter(&mut self, numbers: RangeInclusive<u32>, [ring, state]: [BorrowedFd<'_>; 2]) -> Result<(), XdpError> {
        let used: BTreeSet<u32> = self.taken.values().copied().collect();
        let slot = (1..self.rings.max_entries()).find(|slot| !used.contains(slot));
        let slot = slot.ok_or_else(|| XdpError::setting("there is no room for one more ring".to_owned()))?;
        let entered = self.put(&self.rings, &[slot], ring).and_then(|()| self.put(&self.states, &[slot], state));
        if entered.is_err() {
            self.release(&[slot]);
            self.wait();
            return entered;
        }
        for number in numbers {
            self.point(number, slot);
            self.taken.insert(number, slot);
        }
        Ok(())
    }

    fn point(&self, number: u32, slot: u32) {
        self.slots.word(number as usize * SLOT_BYTES).store(slot.into(), Ordering::SeqCst);
    }

    fn put(&self, map: &MapHandle, slots: &[u32], inner: impl AsFd) -> Result<(), XdpError> {
        let keys: Vec<u8> = slots.iter().flat_map(|slot| slot.to_ne_bytes()).collect();
        let values = inner.as_fd().as_raw_fd().to_ne_bytes().repeat(slots.len());
        let put = map.update_batch(&keys, &values, slots.len() as u32, MapFlags::ANY, MapFlags::ANY);
        Ok(put.map_err(|e| self.program.failed("enter a ring", to_io(&e)))?)
    }

    /// Removes those of `numbers` that have a ring. After the call the program puts no frame into these rings.
    pub(super) fn remove(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let mut left = BTreeSet::new();
        for number in numbers {
            if let Some(slot) = self.taken.remove(&number) {
                self.point(number, 0);
                left.insert(slot);
            }
        }
        let used: BTreeSet<u32> = self.taken.values().copied().collect();
        let is_removed = !left.is_empty();
        let free: Vec<u32> = left.into_iter().filter(|slot| !used.contains(slot)).collect();
        self.release(&free);
        if is_removed {
            self.wait();
        }
    }

    /// Replaces the rings of unused slots by the closed one.
    fn release(&self, slots: &[u32]) {
        if slots.is_empty() {
            return;
        }
        let [ring, state] = &self.closed;
        for (map, closed) in [(&self.states, state), (&self.rings, ring)] {
            // A batch fails only for lack of memory, which single deletions do not need.
            if self.put(map, slots, closed).is_err() {
                for slot in slots {
                    let _ = map.delete(&slot.to_ne_bytes());
                }
            }
        }
    }

    /// Waits for a grace period, after which no program uses earlier entries: an update of a single entry ends with one. The entry is slot 0,
    /// whose ring gets no frames, since it has no page.
    fn wait(&self) {
        let ring = self.closed[0].as_fd().as_raw_fd().to_ne_bytes();
        let _ = self.rings.update(&0u32.to_ne_bytes(), &ring, MapFlags::ANY);
    }
}

fn has_ring(number: u32) -> XdpError {
    XdpError::setting(format!("the endpoint {number} has a ring already: remove that one first"))
}

/// Makes a ring of `bytes` and its page.
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
