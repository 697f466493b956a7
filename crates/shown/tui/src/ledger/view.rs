//! The state of the view. Pure, so that tests can drive it.

use std::time::Duration;

use model::stations::LedgerReport;
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

use crate::live::{Reaction, Screen};

/// The intervals that + and - step through, in milliseconds.
const INTERVALS_MS: [u64; 6] = [250, 500, 1000, 2000, 5000, 10_000];

/// The live view.
#[derive(Debug)]
pub struct View {
    pub(super) report: Option<LedgerReport>,
    pub(super) paused: bool,
    pub(super) colour: bool,
    /// Keys and notes are shown instead of the books.
    pub(super) help: bool,
    /// Losses left out above.
    pub(super) scroll: u16,
    pub(super) interval: Duration,
}

impl View {
    /// An empty view that is to be refreshed every `interval`.
    pub fn new(interval: Duration, colour: bool) -> Self {
        Self { report: None, paused: false, colour, help: false, scroll: 0, interval }
    }

    fn step_interval(&mut self, longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVALS_MS.iter().find(|&&ms| ms > now)
        } else {
            INTERVALS_MS.iter().rev().find(|&&ms| ms < now)
        };
        self.interval = next.map_or(self.interval, |&ms| Duration::from_millis(ms));
    }
}

impl Screen for View {
    type Sample = LedgerReport;

    fn interval(&self) -> Duration {
        self.interval
    }

    fn push(&mut self, report: LedgerReport) {
        if !self.paused || self.report.is_none() {
            self.report = Some(report);
        }
    }

    fn key(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if matches!(key.code, KeyCode::Char('c' | 'd')) { Reaction::Quit } else { Reaction::Nothing };
        }
        match key.code {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => self.step_interval(true),
            KeyCode::Char('-') => self.step_interval(false),
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
