//! Congestion window: grows while no frame is marked, shrinks by the share of marked ones (DCTCP, RFC 8257), halves at a loss.

const WINDOW_FRAMES_MIN: f64 = 2.0;
/// Weight of a new share of marked frames in its average.
const MARKED_SHARE_GAIN: f64 = 1.0 / 16.0;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    frames: f64,
    max: f64,
    /// Nothing was marked or lost yet.
    in_slow_start: bool,
    /// Smoothed share of marked frames.
    marked_share: f64,
    acked: u32,
    marked: u32,
}

impl Window {
    pub(crate) fn new(first: u32, max: u32) -> Self {
        let max = f64::from(max.max(2));
        let frames = f64::from(first).clamp(WINDOW_FRAMES_MIN, max);
        Self { frames, max, in_slow_start: true, marked_share: 1.0, acked: 0, marked: 0 }
    }

    pub(crate) fn frames(&self) -> u32 {
        self.frames as u32
    }

    pub(crate) fn acked(&mut self, frames: u32, marked: bool) {
        self.acked += frames;
        if marked {
            self.marked += frames;
            self.in_slow_start = false;
            return;
        }
        let grown = if self.in_slow_start { f64::from(frames) } else { f64::from(frames) / self.frames };
        self.frames = (self.frames + grown).min(self.max);
    }

    /// Updates the window at the end of a round trip.
    pub(crate) fn end_round(&mut self) {
        if self.acked > 0 {
            let share = f64::from(self.marked) / f64::from(self.acked);
            self.marked_share += MARKED_SHARE_GAIN * (share - self.marked_share);
            if self.marked > 0 {
                self.frames = (self.frames * (1.0 - self.marked_share / 2.0)).max(WINDOW_FRAMES_MIN);
            }
        }
        (self.acked, self.marked) = (0, 0);
    }

    /// Halves the window, at most once a round trip.
    pub(crate) fn lost(&mut self) {
        self.in_slow_start = false;
        self.frames = (self.frames / 2.0).max(WINDOW_FRAMES_MIN);
    }

    pub(crate) fn timed_out(&mut self) {
        self.in_slow_start = false;
        self.frames = WINDOW_FRAMES_MIN;
    }
}
