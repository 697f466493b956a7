//! A node that is joined to each other one.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use super::MessagesError;

/// Time to wait for a message.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two checks of a sleeping node.
pub(super) const CHECK_PERIOD: Duration = Duration::from_millis(50);

/// Conditions that stop all nodes early.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halt<'a> {
    /// The user wants no more.
    pub(super) stop: &'a AtomicBool,
    /// A node failed; the others would wait for it in vain.
    pub(super) failed: &'a AtomicBool,
}

impl Halt<'_> {
    /// Goes on, unless somebody has ended all, or this wait lasts too long.
    pub(super) fn look(&self, since: Instant, who: &'static str) -> Result<(), MessagesError> {
        if self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
            return Err(MessagesError::Stopped);
        }
        if since.elapsed() < MESSAGE_TIMEOUT { Ok(()) } else { Err(MessagesError::Silent(who)) }
    }
}

/// A node of a carrier. It sleeps while it waits: there are more nodes than CPUs.
pub(super) trait Mesh: Send {
    /// Sleeps until a time, while the carrier is served as the kernel serves TCP.
    fn pause(&mut self, until: Instant) -> Result<(), MessagesError>;

    /// Sends `ours` to each of `peers`, and hands over one message of as many bytes from each, in the order in which they come.
    fn exchange(
        &mut self,
        peers: &[usize],
        ours: &[u8],
        halt: Halt<'_>,
        on: &mut dyn FnMut(&[u8]),
    ) -> Result<(), MessagesError>;

    /// Serves the others until `of` nodes have said in `quiet` that all they sent has arrived.
    fn settle(&mut self, quiet: &AtomicU32, of: u32, halt: Halt<'_>) -> Result<(), MessagesError>;
}
