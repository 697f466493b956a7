//! A view drawn into memory.

use ratatui::{Terminal, backend::TestBackend, buffer::Cell};
use tui::live::Screen;

/// The lines of a screen of this size, without the blanks at their ends.
pub(crate) fn screen(view: &impl Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    terminal.draw(|frame| view.draw(frame)).expect("drawn");
    let rows = terminal.backend().buffer().content().chunks(width.into());
    rows.map(|row| row.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned() + "\n").collect()
}
