//! When a connection is taken over from the broker.

use std::{ffi::c_int, process};

use libc::{EFD_CLOEXEC, EFD_NONBLOCK};
use link::sockets::direct::{Direct, Id};

use crate::{
    fork::at_forks,
    helper, helper_mode,
    helper_mode::wake_helper,
    locked::Locked,
    real::Errno,
    settings::after,
    state::State,
    table::{self, What},
};

/// A program that accepted a connection asks at every power of two of this, and at every so many calls, whether the other one offers it.
const ASKS: u32 = 1024;

/// The connection of a descriptor, if it is carried here. Counts a call, and takes the connection over from the broker when it is time.
#[inline]
pub(crate) fn carried(fd: c_int) -> Option<Id> {
    match table::get(fd) {
        What::Other => None,
        What::Carried(id) => Some(id),
        What::Brokered { is_accepted, calls } => {
            counted(fd, is_accepted, calls.saturating_add(1));
            None
        }
    }
}

fn counted(fd: c_int, is_accepted: bool, calls: u32) {
    let Some(after) = after() else { return table::set(fd, What::Other) };
    table::set(fd, What::Brokered { is_accepted, calls });
    let is_time = match is_accepted {
        false => calls == after,
        true => calls >= after && (calls.is_power_of_two() || calls.is_multiple_of(ASKS)),
    };
    if !is_time {
        return;
    }
    let _errno = Errno::keep();
    let Some(mut locked) = Locked::take() else { return };
    let has_room = has_room_for_descriptors(&mut locked);
    let Some(direct) = locked.state().start().filter(|_| has_room) else { return table::set(fd, What::Other) };
    let id = if is_accepted { direct.seek(fd) } else { direct.offer(fd) };
    if let Some(id) = id {
        table::set(fd, What::Carried(id));
        locked.know(fd, id);
        wake_helper();
    }
}

/// Each connection that is carried here has a descriptor more: they take at most a quarter of those that the program may have.
fn has_room_for_descriptors(locked: &mut Locked) -> bool {
    // SAFETY: all zeros are limits; the call writes them.
    let most = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return false;
        }
        limit.rlim_cur / 4
    };
    locked.direct().is_none_or(|direct| (direct.descriptors().len() as u64) < most)
}

impl State {
    /// Makes the connections of this process ready to be carried here; none: they are not.
    fn start(&mut self) -> Option<&mut Direct> {
        if self.direct.is_none() && !self.is_refused {
            self.is_refused = true;
            let direct = Direct::start().ok()?;
            // SAFETY: it takes two numbers, and gives a descriptor that nobody else has.
            let kick = unsafe { libc::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
            if kick < 0 {
                return None;
            }
            helper_mode::start(kick);
            self.helper = Some(helper::start().ok()?);
            at_forks();
            (self.direct, self.is_refused, self.pid) = (Some(direct), false, process::id());
        }
        self.direct.as_mut()
    }
}
