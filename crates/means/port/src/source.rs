//! The operations of every receiving backend.

use std::time::Duration;

use crate::{Frame, PortError, SourceStats};

/// The frames received where only the count was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    pub packets: u64,
    /// Their bytes on the wire without FCS; none where the backend would have to touch each frame to know.
    pub bytes: Option<u64>,
}

/// Frames out of one port, by one reader.
///
/// A source is opened on one thread and may be moved to another; it is used by one thread at a time.
pub trait Source: Send {
    /// The name of the backend, as the user writes it: `packet`, `ring`, `xdp`, `tap`.
    fn backend(&self) -> &'static str;

    /// Waits up to `timeout` for frames, hands those that are there to `each`, and returns how many it handed over. 0
    /// means that the time went by or that a signal came.
    ///
    /// A call hands over one batch (a block, a ring's content, one recvmmsg), so that the caller gets to look at its stop
    /// flag. [`PortError::Down`], once, when the interface went down: later calls go on, and give frames when it is up again.
    /// [`PortError::Vanished`] when the interface is gone.
    fn receive<F: FnMut(Frame<'_>)>(&mut self, timeout: Duration, each: F) -> Result<usize, PortError>;

    /// Like [`Source::receive`], and only counts. Backends that know the count without touching the frames do better
    /// than this default.
    fn count(&mut self, timeout: Duration) -> Result<Counted, PortError> {
        let mut bytes = 0u64;
        let packets = self.receive(timeout, |frame| bytes += u64::from(frame.wire_len))?;
        Ok(Counted { packets: packets as u64, bytes: Some(bytes) })
    }

    /// Lets no new frame in: what was received before remains to be read. Then [`Source::receive`] gives 0 once all is
    /// read, if its time-out is longer than the backend holds frames back. Backends that read until empty need not do
    /// anything.
    fn close_intake(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// The name of its interface when it was opened.
    fn interface(&self) -> &str;

    /// True while the interface is down.
    fn is_down(&self) -> bool {
        false
    }

    /// The time that a frame may wait before [`Source::receive`] gives it although the reader has time.
    fn holds_back(&self) -> Duration {
        Duration::ZERO
    }

    /// Counts of the source since it was opened.
    fn stats(&mut self) -> Result<SourceStats, PortError>;
}
