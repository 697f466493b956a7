//! Draws the view.

use model::{
    stations::{Cause, LedgerReport, Side, Station, StationLoss},
    units,
};
use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Text},
    widgets::{Block, Paragraph, Row, Table, Wrap},
};

use super::view::View;

/// Lines for the advice: its title and three lines of text.
const ADVICE_LINES: u16 = 4;
/// Lines for the sentence on top.
const SENTENCE_LINES: u16 = 3;

impl View {
    pub(super) fn draw_all(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(self.head(head.width), head);
        match &self.report {
            Some(report) => self.body(frame, body, report),
            None => frame.render_widget(Paragraph::new("counting for the first interval…"), body),
        }
        frame.render_widget(self.foot(), foot);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let every = format!("every {} s", self.interval.as_secs_f64());
        let state = if self.paused { "  HELD" } else { "" };
        let (who, when, which) = self.report.as_ref().map_or_else(Default::default, |r| {
            let time = r.when.split('T').nth(1).and_then(|t| t.get(..8)).unwrap_or_default().to_owned();
            let which = if r.interfaces.is_empty() { "all".to_owned() } else { r.interfaces.join(" ") };
            (r.hostname.clone(), time, which)
        });
        let left = format!(" evenkeel ledger  {who}  {when} UTC  {every}  interfaces: {which}{state}");
        Line::from(format!("{left:<width$}", width = usize::from(width)))
            .style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn foot(&self) -> Line<'static> {
        let keys = " q leave  p hold  +/- interval  ↑ ↓ losses";
        let note = self.report.as_ref().and_then(|r| r.notes.first());
        Line::from(note.map_or_else(|| keys.to_owned(), |n| format!(" {n}"))).style(self.dim())
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) {
        if report.is_quiet() {
            frame.render_widget(Paragraph::new("Quiet: no packet arrived, left or was lost."), area);
            return;
        }
        let books = books(report);
        let most = area.height.saturating_sub(SENTENCE_LINES + ADVICE_LINES) / 2;
        let height = (books.len() as u16 + 2).min(most);
        let [sentence, upper, middle, lower] = Layout::vertical([
            Constraint::Length(SENTENCE_LINES),
            Constraint::Length(height),
            Constraint::Min(3),
            Constraint::Length(ADVICE_LINES),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(report.sentence()).wrap(Wrap { trim: true }), sentence);
        let widths = [Constraint::Min(20), Constraint::Length(15), Constraint::Length(9)];
        let rows = books.into_iter().map(|(what, n, share)| Row::new([Text::from(what), right(n), right(share)]));
        let heads =
            Row::new([Text::from("WHERE THE PACKETS WENT"), right("PACKETS"), right("SHARE")]).style(self.dim());
        frame.render_widget(Table::new(rows, widths).header(heads), upper);
        self.losses(frame, middle, report);
        self.advice(frame, lower, report);
    }

    fn losses(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) {
        let all: Vec<(&Station, &StationLoss)> =
            report.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l))).collect();
        let room = usize::from(area.height.saturating_sub(2));
        let skip = usize::from(self.scroll).min(all.len().saturating_sub(room));
        let rows = all.iter().skip(skip).map(|(station, loss)| {
            let cause = loss.causes.first().map_or_else(|| loss.counter.clone(), Cause::words);
            let differs = if loss.agrees { "" } else { "!" };
            Row::new([
                Text::from(station.name.clone()),
                right(format!("{}{differs}", units::count(loss.packets))).style(self.alarm()),
                right(units::percent(loss.share_of_offered)),
                Text::from(loss.place.clone()),
                Text::from(cause),
            ])
        });
        let widths = [
            Constraint::Length(10),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Fill(3),
            Constraint::Fill(4),
        ];
        let heads = ["STATION", "LOST", "SHARE", "WHERE", "CAUSE"];
        let heads = heads.iter().enumerate().map(|(i, h)| if (1..3).contains(&i) { right(*h) } else { Text::from(*h) });
        let title = if all.is_empty() { "Nothing lost" } else { "Losses" };
        let table = Table::new(rows, widths)
            .header(heads.collect::<Row<'_>>().style(self.dim()))
            .block(Block::new().title_top(title.bold()))
            .column_spacing(1);
        frame.render_widget(table, area);
    }

    fn advice(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) {
        let losses = report.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l)));
        let Some((station, loss)) = losses.filter(|(_, l)| l.advice.is_some()).max_by_key(|(_, l)| l.packets) else {
            return;
        };
        let text = format!("{}, {}: {}", station.name, loss.place, loss.advice.as_deref().unwrap_or_default());
        let block = Block::new().title_top("What to do about the largest".bold());
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(block), area);
    }

    fn dim(&self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    fn alarm(&self) -> Style {
        if self.colour { Style::new().fg(Color::Red) } else { Style::new().add_modifier(Modifier::BOLD) }
    }
}

/// The rows of the books: both directions one under the other.
fn books(report: &LedgerReport) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    let mut side = |name: &str, side: &Side| {
        let offered = side.offered_packets();
        if offered == 0 && side.lost == 0 {
            return;
        }
        let share = |n: u64| units::percent(if offered == 0 { 0.0 } else { n as f64 / offered as f64 });
        rows.push((format!("{name}: offered"), units::grouped(offered), share(offered)));
        for way in &side.delivered {
            rows.push((format!("- {}", way.what), units::grouped(way.packets), share(way.packets)));
        }
        rows.push(("- lost".into(), units::grouped(side.lost), share(side.lost)));
        let rest = side.unexplained.unsigned_abs();
        let sign = if side.unexplained < 0 { "-" } else { "" };
        rows.push(("- unexplained".into(), format!("{sign}{}", units::grouped(rest)), share(rest)));
    };
    side("receive", &report.receive);
    side("transmit", &report.transmit);
    rows
}

fn right(text: impl Into<String>) -> Text<'static> {
    Text::from(text.into()).alignment(Alignment::Right)
}
