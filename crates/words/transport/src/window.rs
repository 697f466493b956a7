//! How many frames may be under way: grows while nothing is marked, shrinks by the share of marked ones (DCTCP, RFC 8257), halves at a loss.

/// Minimum window.
const WINDOW_FRAMES_MIN: f64 = 2.0;
/// Weight of a new share of marked frames in its average.
const MARKED_SHARE_GAIN: f64 = 1.0 / 16.0;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    frames: f64,
    most: f64,
    /// Doubling each round trip: nothing was marked or lost yet.
    doubling: bool,
    /// The share of marked frames, smoothed.
    marked_share: f64,
    acked: u32,
    marked: u32,
}

impl Window {
    pub(crate) fn new(first: u32, most: u32) -> Self {
        let most = f64::from(most.max(2));
        let frames = f64::from(first).clamp(WINDOW_FRAMES_MIN, most);
        Self { frames, most, doubling: true, marked_share: 1.0, acked: 0, marked: 0 }
    }

    pub(crate) fn frames(&self) -> u32 {
        self.frames as u32
    }

    pub(crate) fn acked(&mut self, frames: u32, marked: bool) {
        self.acked += frames;
        if marked {
            self.marked += frames;
            self.doubling = false;
            return;
        }
        let grown = if self.doubling { f64::from(frames) } else { f64::from(frames) / self.frames };
        self.frames = (self.frames + grown).min(self.most);
    }

    /// All that was under way at the beginning of this round has arrived.
    pub(crate) fn round(&mut self) {
        if self.acked > 0 {
            let share = f64::from(self.marked) / f64::from(self.acked);
            self.marked_share += MARKED_SHARE_GAIN * (share - self.marked_share);
            if self.marked > 0 {
                self.frames = (self.frames * (1.0 - self.marked_share / 2.0)).max(WINDOW_FRAMES_MIN);
            }
        }
        (self.acked, self.marked) = (0, 0);
    }

    /// At most once a round.
    pub(crate) fn lost(&mut self) {
        self.doubling = false;
        self.frames = (self.frames / 2.0).max(WINDOW_FRAMES_MIN);
    }

    pub(crate) fn timed_out(&mut self) {
        self.doubling = false;
        self.frames = WINDOW_FRAMES_MIN;
    }
}
