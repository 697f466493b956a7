//! Repair of a place that was emptied from outside.

use std::{
    os::fd::AsFd,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Instant,
};

use super::{
    Place,
    maps::{NONE, put, sits},
    slot::{Slot, SlotPlace},
};
use crate::link::{XdpLink, program_name};

/// Findings of checks so far.
#[derive(Debug, Default)]
pub(super) struct Repairs(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    before: Option<Instant>,
    put_back: u64,
    is_refused: bool,
}

impl Slot {
    /// Puts programs back into their places that somebody else emptied, and says so; none: all are there. To be called at intervals, of a second
    /// at most: until then frames pass by.
    ///
    /// The kernel empties an array of programs some time after its last descriptor was closed, whoever closed it while the place had no owner.
    pub fn put_back(&self) -> Option<String> {
        let mut found = self.repairs.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = found.before.replace(Instant::now());
        if !self.link().is_some_and(XdpLink::is_alive) {
            return None;
        }
        let mut emptied = Vec::new();
        let mut result = Ok(());
        for taken in self.places.iter().rev() {
            let Some((program, id)) = &taken.program else { continue };
            let found = sits(&taken.map, 0);
            // A process that ends a slot enters the program NONE.
            if found.is_none_or(|found| found != *id && program_name(found) == NONE) {
                emptied.push(taken.place.words());
                result = result.and(put(&taken.map, 0, program.as_fd()));
                // That process has also cleared the slot's user.
                let user = self.state.user(taken.place);
                let _ = user.compare_exchange(0, *id, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        let is_refused = result.is_err();
        let was_refused = std::mem::replace(&mut found.is_refused, is_refused);
        if emptied.is_empty() {
            return None;
        }
        let what = format!(
            "the place of {} in the chain of {} was emptied from outside",
            emptied.join(" and "),
            self.interface
        );
        match result {
            Ok(()) => {
                found.put_back += 1;
                let time =
                    before.map_or_else(String::new, |at| format!(" for up to {:.1} s", at.elapsed().as_secs_f64()));
                let times = found.put_back;
                Some(format!(
                    "{what}, and its program was put back: frames passed by it{time} ({times} times so far; `bpftool map show` can cause it while a program starts)"
                ))
            }
            // Once: it is tried again at each look.
            Err(_) if was_refused => None,
            Err(error) => {
                Some(format!("{what}, and the kernel refuses to put its program back ({error}): frames pass by it"))
            }
        }
    }

    /// The number of times that programs were put back.
    pub fn times_put_back(&self) -> u64 {
        self.repairs.0.lock().unwrap_or_else(PoisonError::into_inner).put_back
    }

    /// The program that somebody else put into one of the places.
    pub(super) fn intruder(&self) -> Option<(Place, u32)> {
        let other = |taken: &SlotPlace| {
            let (_, own) = taken.program.as_ref()?;
            sits(&taken.map, 0).filter(|id| id != own).map(|id| (taken.place, id))
        };
        self.places.iter().find_map(other)
    }
}
