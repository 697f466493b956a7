//! The parts that all views share: keys, colours, the line at the head.

use std::time::Duration;

use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Text},
    widgets::{Block, Row, Table},
};

use crate::live::Reaction;

/// The intervals that + and - step through, in milliseconds.
const INTERVALS_MS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];

/// The state that keys of all views change, and the colours.
#[derive(Debug)]
pub(crate) struct Controls {
    /// The picture is held.
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// Rows left out above.
    pub(crate) scroll: u16,
    pub(crate) interval: Duration,
    colour: bool,
}

impl Controls {
    pub(crate) fn new(interval: Duration, colour: bool) -> Self {
        Self { paused: false, help: false, scroll: 0, interval, colour }
    }

    /// Does what a key of all views means.
    pub(crate) fn press(&mut self, key: KeyCode) -> Reaction {
        match key {
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => self.step(INTERVALS_MS.iter().find(|&&ms| ms > self.interval_ms())),
            KeyCode::Char('-') => self.step(INTERVALS_MS.iter().rev().find(|&&ms| ms < self.interval_ms())),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => return Reaction::Nothing,
        }
        Reaction::Redraw
    }

    fn interval_ms(&self) -> u64 {
        self.interval.as_millis() as u64
    }

    fn step(&mut self, next: Option<&u64>) {
        self.interval = next.map_or(self.interval, |&ms| Duration::from_millis(ms));
    }

    /// A word at the head while the picture is held.
    pub(crate) fn state(&self) -> &'static str {
        if self.paused { "  HELD" } else { "" }
    }

    pub(crate) fn every(&self) -> String {
        format!("every {} s", self.interval.as_secs_f64())
    }

    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    pub(crate) fn dim(&self) -> Style {
        self.hue(Color::DarkGray)
    }

    pub(crate) fn hue(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A table with a title and a line of heads.
    pub(crate) fn table(
        &self,
        title: Line<'static>,
        heads: Row<'static>,
        widths: impl IntoIterator<Item = Constraint>,
        rows: impl IntoIterator<Item = Row<'static>>,
    ) -> Table<'static> {
        Table::new(rows, widths)
            .header(heads.style(self.dim()))
            .block(Block::new().title_top(title.bold()))
            .column_spacing(1)
    }

    /// A colour, or bold letters where there are none.
    pub(crate) fn mark(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new().add_modifier(Modifier::BOLD) }
    }
}

/// The screen in a line at the head, the body, and lines at the foot.
pub(crate) fn page(frame: &Frame<'_>, foot: u16) -> [Rect; 3] {
    let parts = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(foot)];
    Layout::vertical(parts).areas(frame.area())
}

/// The line at the head: the first of `texts` that fits, or the last one.
pub(crate) fn head(width: u16, texts: &[String]) -> Line<'static> {
    let width = usize::from(width);
    let fits = texts.iter().find(|text| text.chars().count() <= width).or(texts.last());
    let text = fits.map_or("", String::as_str);
    Line::from(format!("{text:<width$}")).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// The time of day of a moment such as `2026-01-02T03:04:05.678Z`.
pub(crate) fn time_of(when: &str) -> &str {
    when.split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or_default()
}

pub(crate) fn right(text: impl Into<String>) -> Text<'static> {
    Text::from(text.into()).alignment(Alignment::Right)
}
