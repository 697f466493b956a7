//! The takeover of a connection from the broker: when it is due, and the start of what carries it.

use std::{ffi::c_int, process};

use libc::{EFD_CLOEXEC, EFD_NONBLOCK};
use link::sockets::takeover::{ConnectionId, Takeovers};

use crate::{
    fork::register_fork_handlers,
    helper, helper_mode,
    helper_mode::wake_helper,
    locked::Locked,
    real::Errno,
    settings::takeover_calls,
    state::State,
    table::{self, Descriptor},
};

/// Calls of an accepted connection between two lookups of an offer; the first lookups come at powers of two.
const OFFER_LOOKUP_CALLS: u32 = 1024;

/// The connection of a descriptor, if it is taken over; otherwise counts a call, and begins the takeover when it is due.
#[inline]
pub(crate) fn count_call(fd: c_int) -> Option<ConnectionId> {
    match table::get(fd) {
        Descriptor::Other => None,
        Descriptor::Registered(id) => Some(id),
        Descriptor::Brokered { is_accepted, calls } => {
            take_over_when_due(fd, is_accepted, calls.saturating_add(1));
            None
        }
    }
}

fn take_over_when_due(fd: c_int, is_accepted: bool, calls: u32) {
    let Some(due) = takeover_calls() else { return table::set(fd, Descriptor::Other) };
    table::set(fd, Descriptor::Brokered { is_accepted, calls });
    let is_time = match is_accepted {
        false => calls == due,
        true => calls >= due && (calls.is_power_of_two() || calls.is_multiple_of(OFFER_LOOKUP_CALLS)),
    };
    if !is_time {
        return;
    }
    let _errno = Errno::keep();
    let Some(mut locked) = Locked::take() else { return };
    let has_room = has_room_for_descriptors(&mut locked);
    let Some(takeovers) = locked.state().start().filter(|_| has_room) else { return table::set(fd, Descriptor::Other) };
    let id = if is_accepted { takeovers.accept_offer(fd) } else { takeovers.offer(fd) };
    if let Some(id) = id {
        table::set(fd, Descriptor::Registered(id));
        locked.add_descriptor(fd, id);
        wake_helper();
    }
}

/// True if this library's descriptors are below a quarter of RLIMIT_NOFILE: each connection taken over has one more.
fn has_room_for_descriptors(locked: &mut Locked) -> bool {
    // SAFETY: all zeros are limits; the call writes them.
    let most = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return false;
        }
        limit.rlim_cur / 4
    };
    locked.takeovers().is_none_or(|takeovers| (takeovers.descriptors().len() as u64) < most)
}

impl State {
    /// Starts the engine and the helper, once; none: it cannot.
    fn start(&mut self) -> Option<&mut Takeovers> {
        if self.takeovers.is_none() && !self.is_refused {
            self.is_refused = true;
            let takeovers = Takeovers::start().ok()?;
            // SAFETY: it takes two numbers, and returns a new descriptor.
            let wake_fd = unsafe { libc::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
            if wake_fd < 0 {
                return None;
            }
            helper_mode::start(wake_fd);
            self.helper = Some(helper::start().ok()?);
            register_fork_handlers();
            (self.takeovers, self.is_refused, self.pid) = (Some(takeovers), false, process::id());
        }
        self.takeovers.as_mut()
    }
}
