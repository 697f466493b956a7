//! Draws the view.

use model::{
    stations::{Cause, Details, Direction, LedgerReport, LossKind, Share, Side, Station, StationLoss},
    units,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Text},
    widgets::{Block, Paragraph, Row, Table, Wrap},
};

use super::view::View;
use crate::{
    controls::{head, page, right, time_of},
    text::{that_fits, wrapped},
};

/// Lines for the advice at least: its title and three lines of text.
const ADVICE_LINES: u16 = 4;
/// Wider than this a number stands too far from its name, and a line of text is hard to read.
const READABLE: u16 = 100;
/// From this width on a loss and its cause fit on one line.
const WIDE: u16 = 120;
/// Widths of the columns before the place of a loss: station, lost, share.
const NUMBERS: [u16; 3] = [10, 8, 7];
/// Width of the column KIND, which wide screens have.
const KIND: u16 = 7;
/// Widths of packets and share in the books, each with a blank.
const BOOK_NUMBERS: u16 = 16 + 10;
/// Height of a body below which there are no blank lines between its parts.
const LOW: u16 = 18;
/// Width of the column before the sums.
const SIDE: u16 = 8;
/// Lines for the sentence on top at most, with a blank one.
const SENTENCE_LINES: u16 = 7;
/// Lines for the losses at least: title, heads, a place.
const LOSS_LINES: u16 = 3;
/// Below this width heads are short, and the losses have no column for their share.
const NARROW: u16 = 50;
/// The sums from the widest to the narrowest. A head or a number that is cut would say something else; columns whose numbers the sentence has go first.
const SUMS: [Sums; 6] = [
    (LONG_HEADS, units::grouped, &[]),
    (LONG_HEADS, units::count, &[]),
    (SHORT_HEADS, units::count, &[]),
    (SHORT_HEADS, units::count, &[0]),
    (SHORT_HEADS, units::count, &[0, 2]),
    (SHORT_HEADS, units::count, &[0, 1, 2]),
];
const LONG_HEADS: [&str; 6] = ["OFFERED", "DELIVERED", "WAITING", "ON PURPOSE", "LOST", "UNEXPLAINED"];
const SHORT_HEADS: [&str; 6] = ["OFFERED", "DELIV.", "WAIT", "PURPOSE", "LOST", "UNEXPL."];

impl View {
    pub(super) fn draw_all(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] = page(frame, 1);
        frame.render_widget(self.head(head.width), head);
        match &self.report {
            _ if self.controls.help => self.keys_and_notes(frame, body),
            Some(report) => self.body(frame, body, report),
            None => frame.render_widget(Paragraph::new("counting for the first interval…"), body),
        }
        frame.render_widget(self.foot(foot.width), foot);
    }

    /// The keys' help, and every note in full.
    fn keys_and_notes(&self, frame: &mut Frame<'_>, area: Rect) {
        let keys = [
            ("q", "leave"),
            ("p, space", "hold the picture; once more: go on"),
            ("+ -", "longer, shorter intervals"),
            ("↑ ↓", "scroll the losses, then the advice"),
            ("?", "this page; once more: back"),
        ];
        let mut lines = vec![Line::from("Keys".bold())];
        lines.extend(keys.iter().map(|(key, does)| Line::from(format!("{key:<9} {does}"))));
        lines.extend([Line::default(), Line::from("Notes".bold())]);
        let notes = self.report.as_ref().map_or(&[][..], |r| &r.notes);
        lines.extend(notes.iter().map(|note| Line::from(format!("- {note}"))));
        if notes.is_empty() {
            lines.push(Line::from("none"));
        }
        let area = Rect { width: area.width.min(READABLE), ..area };
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let (every, state) = (self.controls.every(), self.controls.state());
        let Some(report) = &self.report else {
            return head(width, &[format!(" evenkeel ledger  {every}{state}")]);
        };
        let which = if report.interfaces.is_empty() { "all".to_owned() } else { report.interfaces.join(" ") };
        let (who, when) = (&report.hostname, time_of(&report.timestamp));
        let rest = format!("{every}  interfaces: {which}{state}");
        // What does not fit goes from the left: the name of the verb is known, that of the machine next.
        let texts = [
            format!(" evenkeel ledger  {who}  {when} UTC  {rest}"),
            format!(" evenkeel ledger  {who}  {rest}"),
            format!(" ledger  {who}  {rest}"),
            format!(" ledger  {rest}"),
        ];
        head(width, &texts)
    }

    fn foot(&self, width: u16) -> Line<'static> {
        let more = match self.report.as_ref().map_or(0, |r| r.notes.len()) {
            0 => "? keys".to_owned(),
            1 => "? keys, 1 note".to_owned(),
            n => format!("? keys, {n} notes"),
        };
        let keys = ["q leave  p hold  +/- interval  ↑ ↓ scroll", "q leave  ↑ ↓ scroll", "q leave"];
        Line::from(that_fits(&keys.map(|keys| format!(" {more}  {keys}")), width)).style(self.controls.dim())
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) {
        if report.is_quiet() {
            let quiet = Paragraph::new("Quiet: no packet arrived, left or was lost.");
            frame.render_widget(quiet.wrap(Wrap { trim: true }), area);
            return;
        }
        let blank = u16::from(area.height >= LOW);
        let text_width = area.width.min(READABLE);
        let lines_of = |text: &str| wrapped(text, usize::from(text_width)).len() as u16;
        let sentence = report.sentence();
        let with_rest = report.beside().map(|beside| format!("{sentence} {beside}"));
        // On a small screen the sentence omits packets without a loss, which the table lists.
        let summary = with_rest.filter(|text| blank == 1 || lines_of(text) <= 3).unwrap_or(sentence);
        let summary_lines = (lines_of(&summary) + blank).clamp(1, SENTENCE_LINES);
        // Where the losses need the room, the books are a line for each direction.
        let room = area.height.saturating_sub(summary_lines + ADVICE_LINES);
        let losses = report.stations.iter().flat_map(|s| &s.losses);
        let needed = losses.map(|l| height(l, area.width)).sum::<u16>().saturating_add(3).max(3);
        let widest = |rows: &[BookRow]| rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0) as u16;
        let fits = |book_rows: &Vec<BookRow>| book_rows.len() as u16 + 2 + needed <= room;
        // By where they came from too, if there is room.
        let book_rows = Some(books(report, true)).filter(fits).unwrap_or_else(|| books(report, false));
        let in_full = fits(&book_rows);
        // The sums say the same as the sentence, by direction: on a low screen the losses have their room.
        let books_lines = match room {
            _ if in_full => book_rows.len() as u16 + 2,
            _ if room < 3 + blank + LOSS_LINES => 0,
            _ => 3 + blank,
        };
        let books_width = if in_full { READABLE.max(widest(&book_rows) + BOOK_NUMBERS) } else { READABLE };
        let below = area.height.saturating_sub(summary_lines + books_lines);
        let loss_lines = needed.min(room.saturating_sub(books_lines)).max(3);
        // A title alone is no advice.
        let loss_lines = if below < loss_lines + 2 { below } else { loss_lines };
        let [sentence, upper, middle, lower] = Layout::vertical([
            Constraint::Length(summary_lines),
            Constraint::Length(books_lines),
            Constraint::Length(loss_lines),
            Constraint::Min(0),
        ])
        .areas(area);
        let narrow = |area: Rect, to: u16| Rect { width: area.width.min(to), ..area };
        let summary = wrapped(&summary, usize::from(text_width)).into_iter().map(Line::from).collect::<Vec<_>>();
        frame.render_widget(Paragraph::new(summary), narrow(sentence, READABLE));
        let upper = narrow(upper, books_width);
        frame.render_widget(
            if in_full { self.book_rows(book_rows, upper.width) } else { self.sums(report, upper.width) },
            upper,
        );
        let hidden = self.losses(frame, middle, report);
        self.advice(frame, lower, report, self.controls.scroll.saturating_sub(hidden));
    }

    /// The books with every way of delivery.
    fn book_rows(&self, book_rows: Vec<BookRow>, width: u16) -> Table<'static> {
        let widths = [Constraint::Min(20), Constraint::Length(15), Constraint::Length(9)];
        let rows = book_rows.into_iter().map(|way| {
            let number =
                right(way.packets).style(way.colour.map_or_else(Style::new, |colour| self.controls.mark(colour)));
            Row::new([Text::from(way.what), number, right(way.share)])
        });
        let where_to = if width < NARROW { "WHERE" } else { "WHERE THE PACKETS WENT" };
        let heads = [Text::from(where_to), right("PACKETS"), right("SHARE")];
        Table::new(rows, widths).header(Row::new(heads).style(self.controls.dim()))
    }

    /// The books in a line for each direction. What was dropped on purpose has a column where there is such.
    fn sums(&self, report: &LedgerReport, width: u16) -> Table<'static> {
        let sides =
            [("receive", &report.receive, Direction::Receive), ("transmit", &report.transmit, Direction::Transmit)];
        let intended = sides.iter().any(|(_, _, direction)| report.dropped_and_lost(*direction)[0] > 0);
        let shown = |all: [String; 6], without: &[usize]| -> Vec<String> {
            let kept = |i: &usize| (intended || *i != 3) && !without.contains(i);
            all.into_iter().enumerate().filter(|(i, _)| kept(i)).map(|(_, text)| text).collect()
        };
        let rows = |written: fn(u64) -> String, without: &[usize]| {
            sides.map(|(name, side, direction)| {
                let [dropped, lost] = report.dropped_and_lost(direction);
                let of = [side.offered_packets(), side.delivered_packets(), side.waiting_packets(), dropped, lost];
                let [offered, delivered, waiting, dropped, lost] = of.map(written);
                let sign = if side.unexplained < 0 { "-" } else { "" };
                let unexplained = format!("{sign}{}", written(side.unexplained.unsigned_abs()));
                (name, shown([offered, delivered, waiting, dropped, lost, unexplained], without))
            })
        };
        let widths = |heads: &[String], rows: &[(&str, Vec<String>)]| -> Vec<u16> {
            let widest = |(i, head): (usize, &String)| {
                rows.iter().map(|(_, row)| row[i].chars().count()).max().unwrap_or(0).max(head.len()) as u16
            };
            heads.iter().enumerate().map(widest).collect()
        };
        let fits = |(heads, written, without): &&Sums| {
            let heads = shown(heads.map(str::to_owned), without);
            SIDE + widths(&heads, &rows(*written, without)).iter().map(|w| w + 1).sum::<u16>() <= width
        };
        let &(heads, written, without) = SUMS.iter().find(fits).unwrap_or(&SUMS[SUMS.len() - 1]);
        let (heads, rows) = (shown(heads.map(str::to_owned), without), rows(written, without));
        let mut columns = vec![Constraint::Min(SIDE)];
        columns.extend(widths(&heads, &rows).into_iter().map(Constraint::Min));
        let rows = rows
            .map(|(name, numbers)| Row::new(std::iter::once(Text::from(name)).chain(numbers.into_iter().map(right))));
        let heads = std::iter::once(Text::from("PACKETS")).chain(heads.into_iter().map(right));
        Table::new(rows, columns).header(Row::new(heads).style(self.controls.dim()))
    }

    /// Draws the losses from the scroll position on. Returns the largest scroll position.
    fn losses(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport) -> u16 {
        let mut all: Vec<(&Station, &StationLoss)> =
            report.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l))).collect();
        // Losses first, then what was meant: where the room is small, the first rows are all that is seen.
        all.sort_by_key(|(_, loss)| loss.kind);
        let height = |(_, loss): &&(&Station, &StationLoss)| height(loss, area.width);
        let lines = area.height.saturating_sub(2);
        // One that is higher than the room is shown as far as it goes.
        let least = all.len().min(1);
        let last = whole(all.iter().rev().map(|row| height(&row)), lines).max(least);
        let hidden = all.len() - last;
        let skip = usize::from(self.controls.scroll).min(hidden);
        let room = whole(all.iter().skip(skip).map(|row| height(&row)), lines).max(least);
        let rows = all.iter().skip(skip).map(|(station, loss)| {
            let differs = if loss.agrees { "" } else { "!" };
            let packets = right(format!("{}{differs}", units::count(loss.packets))).style(self.of_kind(loss.kind));
            let mut cells = vec![Text::from(station.name.clone()), packets];
            cells.extend((area.width >= NARROW).then(|| right(units::percent(loss.share_of_offered))));
            if area.width >= WIDE {
                cells.push(Text::from(loss.kind.word()).style(self.of_kind(loss.kind)));
            }
            let columns = place_and_cause(loss, area.width);
            let height = columns.iter().map(Vec::len).max().unwrap_or(1) as u16;
            cells.extend(columns.into_iter().map(|lines| lines.into_iter().map(Line::from).collect::<Vec<_>>().into()));
            Row::new(cells).height(height)
        });
        let mut widths: Vec<_> = numbers(area.width).iter().copied().map(Constraint::Length).collect();
        if area.width >= WIDE {
            widths.push(Constraint::Length(KIND));
            widths.extend(wide(area.width).map(Constraint::Length));
        } else {
            widths.push(Constraint::Fill(1));
        }
        let mut heads = ["STATION", "PACKETS", "SHARE"][..numbers(area.width).len()].to_vec();
        heads.extend_from_slice(if area.width >= WIDE { &["KIND", "WHERE", "CAUSE"] } else { &["WHERE, CAUSE"] });
        let is_number = |i: usize| (1..numbers(area.width).len()).contains(&i);
        let heads = heads.iter().enumerate().map(|(i, h)| if is_number(i) { right(*h) } else { Text::from(*h) });
        let title = match all.len() {
            0 => "Nothing lost".to_owned(),
            n if n > room => {
                let title = format!("Where packets ended ({room} of {n}");
                that_fits(&[format!("{title}; ↑ ↓ for the others)"), format!("{title}; ↑ ↓)")], area.width)
            }
            _ => "Where packets ended".to_owned(),
        };
        frame.render_widget(self.controls.table(title.into(), heads.collect(), widths, rows), area);
        hidden as u16
    }

    /// Draws advice and details of the losses from line `from` on, real losses first.
    fn advice(&self, frame: &mut Frame<'_>, area: Rect, report: &LedgerReport, from: u16) {
        let mut losses: Vec<(&Station, &StationLoss)> =
            report.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l))).collect();
        losses.sort_by_key(|(_, l)| (l.kind, std::cmp::Reverse(l.packets)));
        let area = Rect { width: area.width.min(READABLE), ..area };
        let within = |text: &str| wrapped(text, usize::from(area.width));
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (station, loss) in losses {
            let advice = loss.advice.as_deref().unwrap_or_default();
            lines.extend(within(&format!("{}, {}: {advice}", station.name, loss.place)).into_iter().map(Line::from));
            let details = loss.details.iter().flat_map(detail_lines).flat_map(|line| within(&line));
            lines.extend(details.map(|line| Line::from(line).style(self.controls.dim())));
        }
        if lines.is_empty() {
            return;
        }
        let (all, room) = (lines.len(), usize::from(area.height.saturating_sub(1)));
        let title = if all > room {
            let title = format!("What to do ({room} of {all} lines; ↑ ↓");
            that_fits(&[format!("{title} for the others)"), format!("{title})")], area.width)
        } else {
            "What to do".into()
        };
        let shown = lines.into_iter().skip(usize::from(from).min(all.saturating_sub(room))).collect::<Vec<_>>();
        frame.render_widget(Paragraph::new(shown).block(Block::new().title_top(title.bold())), area);
    }

    fn of_kind(&self, kind: LossKind) -> Style {
        match kind {
            LossKind::Lost => self.controls.mark(Color::Red),
            LossKind::Copy => self.controls.mark(Color::Yellow),
            LossKind::Intended => Style::new(),
            LossKind::Harmless => self.controls.dim(),
        }
    }
}

fn cause(loss: &StationLoss) -> String {
    loss.causes.first().map_or_else(|| loss.counter.clone(), Cause::words)
}

/// Whose packets they were, in a line for each thing that is known.
fn detail_lines(details: &Details) -> Vec<String> {
    let listed = |shares: &[Share]| {
        shares.iter().map(|s| format!("{} ({})", s.what, units::count(s.packets))).collect::<Vec<_>>().join(", ")
    };
    let mut lines = vec![format!("to {} from {}", listed(&details.targets), listed(&details.sources))];
    lines.extend(details.sample.as_ref().map(|s| format!("{} bytes: {}", s.length, s.text)));
    lines.push(details.stack.join(" < "));
    lines
}

/// Widths of the columns before the place on a screen of `width` columns.
fn numbers(width: u16) -> &'static [u16] {
    if width < NARROW { &NUMBERS[..2] } else { &NUMBERS }
}

/// Widths of place and cause on a wide screen.
fn wide(width: u16) -> [u16; 2] {
    let room = width.saturating_sub(numbers(width).iter().map(|n| n + 1).sum::<u16>() + KIND + 2);
    let place = (room * 3 / 7).min(READABLE * 3 / 4);
    [place, (room - place).min(READABLE)]
}

/// The place of a loss. On screens without the column KIND a word is added for harmless and intended ones.
fn place(loss: &StationLoss, width: u16) -> String {
    match loss.kind {
        _ if width >= WIDE => loss.place.clone(),
        LossKind::Lost => loss.place.clone(),
        kind => format!("{} ({})", loss.place, kind.word()),
    }
}

/// The lines that place and cause of a loss take on a screen of `width` columns, a column each; on a narrow one the cause stands below
/// the place. Nothing is cut.
fn place_and_cause(loss: &StationLoss, width: u16) -> Vec<Vec<String>> {
    if width >= WIDE {
        let [first, second] = wide(width).map(usize::from);
        return vec![wrapped(&place(loss, width), first), wrapped(&cause(loss), second)];
    }
    let room = usize::from(width.saturating_sub(numbers(width).iter().map(|n| n + 1).sum()));
    let mut lines = wrapped(&place(loss, width), room);
    lines.extend(wrapped(&cause(loss), room.saturating_sub(2)).into_iter().map(|line| format!("  {line}")));
    vec![lines]
}

/// The lines that a loss takes.
fn height(loss: &StationLoss, width: u16) -> u16 {
    place_and_cause(loss, width).iter().map(Vec::len).max().unwrap_or(1) as u16
}

/// Number of rows of these heights that fit whole into so many lines.
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

/// The heads of the sums, how their numbers are written, and the columns left out.
type Sums = ([&'static str; 6], fn(u64) -> String, &'static [usize]);

/// A row of the books.
struct BookRow {
    what: String,
    packets: String,
    share: String,
    colour: Option<Color>,
}

/// The rows of the books: both directions one under the other, with the sources of what was offered if wanted.
fn books(report: &LedgerReport, sources: bool) -> Vec<BookRow> {
    let mut rows = Vec::new();
    let mut side = |name: &str, side: &Side, direction: Direction| {
        let offered = side.offered_packets();
        if offered == 0 && side.lost == 0 {
            return;
        }
        let share = |n: u64| units::percent(if offered == 0 { 0.0 } else { n as f64 / offered as f64 });
        let mut row = |what: String, n: u64, colour: Option<Color>| {
            rows.push(BookRow { what, packets: units::grouped(n), share: share(n), colour: colour.filter(|_| n > 0) });
        };
        row(format!("{name}: offered"), offered, None);
        for source in side.offered.iter().filter(|_| sources) {
            row(format!("+ {}", source.what), source.packets, None);
        }
        for way in &side.delivered {
            row(format!("- {}", way.what), way.packets, None);
        }
        for way in &side.waiting {
            row(format!("- {}", way.what), way.packets, Some(Color::Yellow));
        }
        let [dropped, lost] = report.dropped_and_lost(direction);
        if dropped > 0 {
            row("- dropped on purpose".into(), dropped, None);
        }
        row("- lost".into(), lost, Some(Color::Red));
        let rest = side.unexplained;
        let packets = signed(rest);
        rows.push(BookRow { what: "- unexplained".into(), packets, share: share(rest.unsigned_abs()), colour: None });
    };
    side("receive", &report.receive, Direction::Receive);
    side("transmit", &report.transmit, Direction::Transmit);
    rows
}

fn signed(n: i64) -> String {
    format!("{}{}", if n < 0 { "-" } else { "" }, units::grouped(n.unsigned_abs()))
}
