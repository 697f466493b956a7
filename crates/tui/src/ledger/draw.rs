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
/// From this width on a loss and its cause fit on one line.
const WIDE: u16 = 120;
/// Widths of the columns before the place of a loss: station, lost, share.
const NUMBERS: [u16; 3] = [10, 7, 7];
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
        let rest = format!("{every}  interfaces: {which}{state}");
        // What does not fit goes from the left: the name of the verb is known, that of the machine next.
        let left = [
            format!(" evenkeel ledger  {who}  {when} UTC  {rest}"),
            format!(" evenkeel ledger  {who}  {rest}"),
            format!(" ledger  {who}  {rest}"),
            format!(" ledger  {rest}"),
        ];
        let fits = |text: &&String| text.chars().count() <= usize::from(width);
        let left = left.iter().find(fits).unwrap_or(&left[3]);
        Line::from(format!("{left:<width$}", width = usize::from(width)))
            .style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn foot(&self) -> Line<'static> {
        let keys = " q leave  p hold  +/- interval  ↑ ↓ losses";
        let note = self.report.as_ref().and_then(|r| r.notes.first());
        Line::from(note.map_or_else(|| keys.to_owned(), |n| format!("{keys}   note: {n}"))).style(self.dim())
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) {
        if report.is_quiet() {
            frame.render_widget(Paragraph::new("Quiet: no packet arrived, left or was lost."), area);
            return;
        }
        // Where the losses need the room, the books are a line for each direction.
        let room = area.height.saturating_sub(SENTENCE_LINES + ADVICE_LINES);
        let losses = report.stations.iter().flat_map(|s| &s.losses);
        let needed = losses.map(|l| place_and_cause(l, area.width).len() as u16).sum::<u16>().saturating_add(2).max(3);
        let ways = books(report);
        let in_full = ways.len() as u16 + 2 + needed <= room;
        let height = if in_full { ways.len() as u16 + 2 } else { 4 };
        let [sentence, upper, middle, lower] = Layout::vertical([
            Constraint::Length(SENTENCE_LINES),
            Constraint::Length(height),
            Constraint::Min(3),
            Constraint::Length(ADVICE_LINES),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(report.sentence()).wrap(Wrap { trim: true }), sentence);
        frame.render_widget(if in_full { self.ways(ways) } else { self.sums(report) }, upper);
        self.losses(frame, middle, report);
        self.advice(frame, lower, report);
    }

    /// The books with every way of delivery.
    fn ways(&self, ways: Vec<[String; 3]>) -> Table<'static> {
        let widths = [Constraint::Min(20), Constraint::Length(15), Constraint::Length(9)];
        let rows = ways.into_iter().map(|[what, n, share]| Row::new([Text::from(what), right(n), right(share)]));
        let heads = [Text::from("WHERE THE PACKETS WENT"), right("PACKETS"), right("SHARE")];
        Table::new(rows, widths).header(Row::new(heads).style(self.dim()))
    }

    /// The books in a line for each direction.
    fn sums(&self, report: &LedgerReport) -> Table<'static> {
        let row = |(name, side): (&'static str, &Side)| {
            let numbers = [side.offered_packets(), side.delivered_packets(), side.lost].map(units::grouped);
            let [offered, delivered, lost] = numbers.map(right);
            Row::new([Text::from(name), offered, delivered, lost, right(signed(side.unexplained))])
        };
        let sides = [("receive", &report.receive), ("transmit", &report.transmit)];
        let widths =
            [Constraint::Min(10), Constraint::Fill(1), Constraint::Fill(1), Constraint::Fill(1), Constraint::Fill(1)];
        let heads = ["OFFERED", "DELIVERED", "LOST", "UNEXPLAINED"].map(right);
        let heads = Row::new(std::iter::once(Text::from("PACKETS")).chain(heads)).style(self.dim());
        Table::new(sides.map(row), widths).header(heads)
    }

    fn losses(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) {
        let all: Vec<(&Station, &StationLoss)> =
            report.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l))).collect();
        let height = |(_, loss): &&(&Station, &StationLoss)| place_and_cause(loss, area.width).len() as u16;
        let lines = area.height.saturating_sub(2);
        let last = whole(all.iter().rev().map(|row| height(&row)), lines);
        let skip = usize::from(self.scroll).min(all.len() - last);
        let room = whole(all.iter().skip(skip).map(|row| height(&row)), lines);
        let rows = all.iter().skip(skip).map(|(station, loss)| {
            let differs = if loss.agrees { "" } else { "!" };
            let mut cells = vec![
                Text::from(station.name.clone()),
                right(format!("{}{differs}", units::count(loss.packets))).style(self.alarm()),
                right(units::percent(loss.share_of_offered)),
            ];
            if area.width >= WIDE {
                cells.extend([Text::from(loss.place.clone()), Text::from(cause(loss))]);
                return Row::new(cells);
            }
            let lines = place_and_cause(loss, area.width);
            let height = lines.len() as u16;
            cells.push(lines.into_iter().map(Line::from).collect::<Vec<_>>().into());
            Row::new(cells).height(height)
        });
        let mut widths = NUMBERS.map(Constraint::Length).to_vec();
        widths.push(Constraint::Fill(3));
        let mut heads = vec!["STATION", "LOST", "SHARE", "WHERE"];
        if area.width >= WIDE {
            widths.push(Constraint::Fill(4));
            heads.push("CAUSE");
        } else {
            heads[3] = "WHERE, CAUSE";
        }
        let heads = heads.iter().enumerate().map(|(i, h)| if (1..3).contains(&i) { right(*h) } else { Text::from(*h) });
        let title = match all.len() {
            0 => "Nothing lost".to_owned(),
            n if n > room => format!("Losses ({room} of {n}; ↑ ↓ for the others)"),
            _ => "Losses".to_owned(),
        };
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

fn cause(loss: &StationLoss) -> String {
    loss.causes.first().map_or_else(|| loss.counter.clone(), Cause::words)
}

/// The lines that a loss takes on a screen of `width` columns: on a narrow one its cause stands below its place, whole.
fn place_and_cause(loss: &StationLoss, width: u16) -> Vec<String> {
    if width >= WIDE {
        return vec![loss.place.clone()];
    }
    let room = usize::from(width.saturating_sub(NUMBERS.iter().map(|n| n + 1).sum()));
    let mut lines = wrapped(&loss.place, room);
    lines.extend(wrapped(&cause(loss), room.saturating_sub(2)).into_iter().map(|line| format!("  {line}")));
    lines
}

/// `text` in lines of `width` columns; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// How many of the rows of these heights fit whole into so many lines.
fn whole(heights: impl Iterator<Item = u16>, lines: u16) -> usize {
    let mut left = lines;
    heights
        .take_while(|&height| {
            let fits = height <= left;
            left = left.saturating_sub(height);
            fits
        })
        .count()
}

/// The rows of the books: both directions one under the other.
fn books(report: &LedgerReport) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    let mut side = |name: &str, side: &Side| {
        let offered = side.offered_packets();
        if offered == 0 && side.lost == 0 {
            return;
        }
        let share = |n: u64| units::percent(if offered == 0 { 0.0 } else { n as f64 / offered as f64 });
        rows.push([format!("{name}: offered"), units::grouped(offered), share(offered)]);
        for way in &side.delivered {
            rows.push([format!("- {}", way.what), units::grouped(way.packets), share(way.packets)]);
        }
        rows.push(["- lost".into(), units::grouped(side.lost), share(side.lost)]);
        let rest = side.unexplained;
        rows.push(["- unexplained".into(), signed(rest), share(rest.unsigned_abs())]);
    };
    side("receive", &report.receive);
    side("transmit", &report.transmit);
    rows
}

fn signed(n: i64) -> String {
    format!("{}{}", if n < 0 { "-" } else { "" }, units::grouped(n.unsigned_abs()))
}

fn right(text: impl Into<String>) -> Text<'static> {
    Text::from(text.into()).alignment(Alignment::Right)
}
