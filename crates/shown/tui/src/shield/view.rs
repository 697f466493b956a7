//! The state of the view. Pure but for the one act that a key asks for, so that tests can drive it.

use std::time::Duration;

use model::shield::ShieldStatus;
use ratatui::{Frame, crossterm::event::KeyCode};

use crate::{
    controls::Controls,
    live::{Reaction, Screen},
};

/// Intervals kept for the curve.
const HISTORY_MAX: usize = 256;

#[derive(Debug)]
pub struct View<R> {
    pub(super) status: Option<ShieldStatus>,
    /// Packets per second that were dropped or challenged, the oldest first.
    pub(super) history: Vec<f64>,
    pub(super) controls: Controls,
    /// True if rules that nothing applied to are shown too.
    pub(super) all: bool,
    /// The question whether to end is asked.
    pub(super) asking: bool,
    /// True if the shield stays where it is at the end.
    pub(super) leave: bool,
    reload: R,
}

impl<R: FnMut()> View<R> {
    /// An empty view that is to be refreshed every `interval`. `leave`: at its end the shield stays. `reload` has the rules read again.
    pub fn new(interval: Duration, colour: bool, leave: bool, reload: R) -> Self {
        Self {
            status: None,
            history: Vec::new(),
            controls: Controls::new(interval, colour),
            all: true,
            asking: false,
            leave,
            reload,
        }
    }
}

impl<R: FnMut()> Screen for View<R> {
    type Sample = ShieldStatus;

    fn interval(&self) -> Duration {
        self.controls.interval
    }

    fn push(&mut self, status: ShieldStatus) {
        if let Some(rates) = &status.rates {
            self.history.push(rates.dropped_pps + rates.challenged_pps);
            let old = self.history.len().saturating_sub(HISTORY_MAX);
            self.history.drain(..old);
        }
        if !self.controls.paused || self.status.is_none() {
            self.status = Some(status);
        }
    }

    fn press(&mut self, key: KeyCode) -> Reaction {
        // Any key but a clear yes goes back: one typed by mistake must not open the door.
        if std::mem::take(&mut self.asking) {
            return if matches!(key, KeyCode::Char('y' | 'Y')) { Reaction::Quit } else { Reaction::Redraw };
        }
        match key {
            KeyCode::Char('q') => self.asking = true,
            KeyCode::Char('a') => self.all = !self.all,
            KeyCode::Char('r') => (self.reload)(),
            key => return self.controls.press(key),
        }
        Reaction::Redraw
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        self.draw_all(frame);
    }
}
