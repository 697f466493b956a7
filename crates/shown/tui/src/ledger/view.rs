//! The state of the view. Pure, so that tests can drive it.

use std::time::Duration;

use model::stations::LedgerReport;
use ratatui::{Frame, crossterm::event::KeyCode};

use crate::{
    controls::Controls,
    live::{Reaction, Screen},
};

#[derive(Debug)]
pub struct View {
    pub(super) report: Option<LedgerReport>,
    pub(super) controls: Controls,
}

impl View {
    /// An empty view that is to be refreshed every `interval`.
    pub fn new(interval: Duration, colour: bool) -> Self {
        Self { report: None, controls: Controls::new(interval, colour) }
    }
}

impl Screen for View {
    type Sample = LedgerReport;

    fn interval(&self) -> Duration {
        self.controls.interval
    }

    fn push(&mut self, report: LedgerReport) {
        if !self.controls.paused || self.report.is_none() {
            self.report = Some(report);
        }
    }

    fn press(&mut self, key: KeyCode) -> Reaction {
        match key {
            KeyCode::Char('q') => Reaction::Quit,
            key => self.controls.press(key),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        self.draw_all(frame);
    }
}
