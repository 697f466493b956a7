//! The state of the view. Pure but for the acts that keys ask for, so that tests can drive it.

use std::time::Duration;

use model::route::RouteStatus;
use ratatui::{Frame, crossterm::event::KeyCode};

use crate::{
    controls::Controls,
    live::{Reaction, Screen},
};

/// Intervals kept for the curve.
const HISTORY_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The kernel alone forwards.
    Standard,
    /// The mode that was asked for at the start.
    Back,
}

#[derive(Debug)]
pub struct View<A> {
    pub(super) status: Option<RouteStatus>,
    /// Frames per second that the fast path forwarded, the oldest first.
    pub(super) history: Vec<f64>,
    pub(super) controls: Controls,
    /// The question whether to end is asked.
    pub(super) asking: bool,
    act: A,
}

impl<A: FnMut(Act)> View<A> {
    /// An empty view that is to be refreshed every `interval`. `act` does what a key asks for.
    pub fn new(interval: Duration, colour: bool, act: A) -> Self {
        Self { status: None, history: Vec::new(), controls: Controls::new(interval, colour), asking: false, act }
    }
}

impl<A: FnMut(Act)> Screen for View<A> {
    type Sample = RouteStatus;

    fn interval(&self) -> Duration {
        self.controls.interval
    }

    fn push(&mut self, status: RouteStatus) {
        if let Some(rates) = &status.rates {
            self.history.push(rates.sum().forwarded_pps);
            let old = self.history.len().saturating_sub(HISTORY_MAX);
            self.history.drain(..old);
        }
        if !self.controls.paused || self.status.is_none() {
            self.status = Some(status);
        }
    }

    fn press(&mut self, key: KeyCode) -> Reaction {
        // Any key but a clear yes goes back: one typed by mistake must not end it.
        if std::mem::take(&mut self.asking) {
            return if matches!(key, KeyCode::Char('y' | 'Y')) { Reaction::Quit } else { Reaction::Redraw };
        }
        match key {
            KeyCode::Char('q') => self.asking = true,
            KeyCode::Char('s') => (self.act)(Act::Standard),
            KeyCode::Char('f') => (self.act)(Act::Back),
            key => return self.controls.press(key),
        }
        Reaction::Redraw
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        self.draw_all(frame);
    }
}
