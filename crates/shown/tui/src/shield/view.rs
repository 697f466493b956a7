//! The state of the view. Pure but for the one act that a key asks for, so that tests can drive it.

use std::time::Duration;

use model::shield::ShieldStatus;
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

use crate::live::{Reaction, Screen};

/// Intervals kept for the curve.
const HISTORY: usize = 256;

/// The live view.
#[derive(Debug)]
pub struct View<R> {
    pub(super) status: Option<ShieldStatus>,
    /// Packets per second that were dropped or challenged, the oldest first.
    pub(super) history: Vec<f64>,
    pub(super) paused: bool,
    pub(super) colour: bool,
    /// Also rules that nothing applied to.
    pub(super) all: bool,
    pub(super) help: bool,
    /// The question whether to end is asked.
    pub(super) asking: bool,
    /// At the end the shield stays where it is.
    pub(super) leave: bool,
    /// Rules left out above.
    pub(super) scroll: usize,
    interval: Duration,
    reload: R,
}

impl<R: FnMut()> View<R> {
    /// An empty view that is to be refreshed every `interval`. `leave`: at its end the shield stays. `reload` has the rules read again.
    pub fn new(interval: Duration, colour: bool, leave: bool, reload: R) -> Self {
        Self {
            status: None,
            history: Vec::new(),
            paused: false,
            colour,
            all: true,
            help: false,
            asking: false,
            leave,
            scroll: 0,
            interval,
            reload,
        }
    }
}

impl<R: FnMut()> Screen for View<R> {
    type Sample = ShieldStatus;

    fn interval(&self) -> Duration {
        self.interval
    }

    fn push(&mut self, status: ShieldStatus) {
        if let Some(rates) = &status.rates {
            self.history.push(rates.dropped_pps + rates.challenged_pps);
            let old = self.history.len().saturating_sub(HISTORY);
            self.history.drain(..old);
        }
        if !self.paused || self.status.is_none() {
            self.status = Some(status);
        }
    }

    fn key(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if matches!(key.code, KeyCode::Char('c' | 'd')) { Reaction::Quit } else { Reaction::Nothing };
        }
        // Any key but a clear yes goes back: one typed by mistake must not open the door.
        if std::mem::take(&mut self.asking) {
            return if matches!(key.code, KeyCode::Char('y' | 'Y')) { Reaction::Quit } else { Reaction::Redraw };
        }
        match key.code {
            KeyCode::Char('q') => self.asking = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('a') => self.all = !self.all,
            KeyCode::Char('r') => (self.reload)(),
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Home => self.scroll = 0,
            _ => return Reaction::Nothing,
        }
        Reaction::Redraw
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        self.draw_all(frame);
    }
}
