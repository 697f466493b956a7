//! Draws the view.

use model::{
    stations::LossKind,
    top::{CoreRates, DropRate, InterfaceRates, TopSample},
    units,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style},
    text::{Line, Span, Text},
    widgets::{Block, Clear, Paragraph, Row, Table},
};

use super::{
    cells::{PARTS, bar, part, per_second, rate, sparkline},
    order::Queue,
    view::{Focus, View},
};
use crate::{
    controls::{head, page, right, time_of},
    text::that_fits,
};

/// From this width on there is room for driver, place of loss and coalescing.
const WIDE: u16 = 130;
/// Below this width an interface's name has no more room than it takes.
const NARROW: u16 = 50;
/// The longest name of an interface.
const NAME_MAX: u16 = 15;
/// Height below which only the table of interfaces is drawn.
const LOW: u16 = 9;
/// From this width on cores stand in two columns.
const TWO_COLUMNS: u16 = 160;

const HELP: &str = " q, Ctrl-C   leave
 Tab         next table alone, then all
 0 1 2 3     all, interfaces and losses, cores, queues
 s / S       order by the next key / reversed
 f           interfaces shown: busy, hardware, all
 p           hold the picture; history goes on
 + / -       longer / shorter interval
 ↑ ↓ PgUp PgDn Home   move

 LOST    lost by NIC, driver or stack, per second;
         losses in sockets and rules: evenkeel ledger
 STACK   packets that entered the stack here
 SQZ     packet work cut short, work left over
 CPU     where a queue's interrupts were handled
 MAY RUN where they are allowed to be handled";

impl View {
    pub(super) fn draw_all(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] = page(frame, 1);
        frame.render_widget(self.head(head.width), head);
        match &self.sample {
            Some(sample) => self.body(frame, body, sample),
            None => frame.render_widget(Paragraph::new("measuring the first interval…"), body),
        }
        frame.render_widget(self.foot(foot.width), foot);
        if self.controls.help {
            self.draw_help(frame);
        }
    }

    fn head(&self, width: u16) -> Line<'static> {
        let (every, state) = (self.controls.every(), self.controls.state());
        let rest = format!("{every}  shown: {}{state}", self.filter.word());
        let Some(sample) = &self.sample else { return head(width, &[format!(" evenkeel top  {rest}")]) };
        let (who, when) = (&sample.hostname, time_of(&sample.timestamp));
        // What does not fit goes from the left, as in the ledger.
        let texts = [
            format!(" evenkeel top  {who}  {when} UTC  {rest}"),
            format!(" evenkeel top  {who}  {rest}"),
            format!(" top  {who}  {rest}"),
            format!(" top  {rest}"),
        ];
        head(width, &texts)
    }

    fn foot(&self, width: u16) -> Line<'static> {
        let note = self.sample.as_ref().and_then(|s| s.notes.first()).cloned();
        let keys = [
            " q leave  ? help  Tab tables  s sort  f filter  p hold  +/- interval",
            " q leave  ? help  Tab tables  s sort",
            " q leave  ? help",
        ];
        let keys = || that_fits(&keys.map(str::to_owned), width);
        Line::from(note.map_or_else(keys, |n| format!(" {n}"))).style(self.controls.dim())
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, sample: &TopSample) {
        let mut interfaces: Vec<&InterfaceRates> = sample.interfaces.iter().filter(|i| self.filter.shows(i)).collect();
        let hidden = sample.interfaces.len() - interfaces.len();
        self.order.interfaces(&mut interfaces);
        let mut cores: Vec<&CoreRates> = sample.cores.iter().collect();
        self.order.cores(&mut cores);
        let mut queues: Vec<Queue<'_>> =
            interfaces.iter().flat_map(|i| i.queues.iter().map(|q| (i.name.as_str(), q))).collect();
        self.order.queues(&mut queues);
        match self.focus {
            Focus::Interfaces => {
                let losses = interfaces.iter().map(|i| i.drops.len() + i.no_loss.len()).sum::<usize>() as u16;
                let below = if losses == 0 { 0 } else { (losses + 2).min(area.height / 2) };
                let [top, bottom] = Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(area);
                self.interfaces(frame, top, &interfaces, hidden);
                self.losses(frame, bottom, &interfaces);
            }
            Focus::Cores => self.cores(frame, area, &cores),
            Focus::Queues => self.queues(frame, area, &queues),
            // Three tables would have no rows.
            Focus::All if area.height < LOW => self.interfaces(frame, area, &interfaces, hidden),
            Focus::All => {
                let core_rows = if area.width >= TWO_COLUMNS { cores.len().div_ceil(2) } else { cores.len() };
                let [a, b, c] = shares(area.height, [interfaces.len(), core_rows, queues.len()]);
                let [top, middle, bottom, _] = Layout::vertical([
                    Constraint::Length(a),
                    Constraint::Length(b),
                    Constraint::Length(c),
                    Constraint::Min(0),
                ])
                .areas(area);
                self.interfaces(frame, top, &interfaces, hidden);
                self.cores(frame, middle, &cores);
                self.queues(frame, bottom, &queues);
            }
        }
    }

    fn interfaces(&self, frame: &mut Frame<'_>, area: Rect, list: &[&InterfaceRates], hidden: usize) {
        let hidden = if hidden > 0 { format!(", {hidden} hidden") } else { String::new() };
        let below =
            list.len().saturating_sub(self.scrolled(list.len(), area) + usize::from(area.height.saturating_sub(2)));
        let below = if below > 0 { format!(", {below} more") } else { String::new() };
        let title = format!("Interfaces by {}{below}{hidden}", self.order.word(0));
        let wide = area.width >= WIDE;
        let routes = list.iter().any(|i| i.route.is_some());
        let history = if wide { 30 } else { area.width.saturating_sub(70).clamp(4, 40) };
        let rows = list.iter().skip(self.scrolled(list.len(), area)).map(|i| {
            let forwarded = i.route.map(|route| right(units::pps(route.forwarded_pps))).unwrap_or_default();
            let fast_path = [i.route.map_or_else(String::new, |route| route.in_words()).into(), forwarded];
            let worst = i.drops.iter().max_by(|a, b| a.pps.total_cmp(&b.pps));
            let mut cells = vec![
                i.name.clone().into(),
                right(units::pps(i.rx_pps)),
                right(units::bits_per_second(i.rx_bps)),
                right(units::pps(i.tx_pps)),
                right(units::bits_per_second(i.tx_bps)),
                right(units::pps(i.drops_pps())).style(self.alarm(i.drops_pps() > 0.0)),
            ];
            cells.extend(fast_path.into_iter().filter(|_| routes));
            cells.extend([
                Text::from(sparkline(self.history.get(&i.name), history.into())).style(self.controls.hue(Color::Cyan)),
                i.driver.clone().unwrap_or_else(|| "-".into()).into(),
                coalescing(i).into(),
                worst.map_or_else(String::new, |d| d.place.clone()).into(),
            ]);
            cells
        });
        let mut columns = vec![
            Column::new("INTERFACE", name_width(list.iter().map(|i| i.name.as_str()), area.width), 0),
            Column::right("RX", 9, 0),
            Column::right("RX RATE", 11, 4),
            Column::right("TX", 9, 0),
            Column::right("TX RATE", 11, 5),
            Column::right("LOST", 9, 1),
        ];
        let fast_path = [Column::new("FAST PATH", 16, 2), Column::right("FORWARDED", 9, 3)];
        columns.extend(fast_path.into_iter().filter(|_| routes));
        columns.extend([
            Column::new("HISTORY", history, 6),
            Column::new("DRIVER", 10, 7),
            Column::new("COALESCING", 20, 8),
            Column::new("MOST LOST AT", area.width.saturating_sub(140).clamp(20, 60), 9),
        ]);
        frame.render_widget(self.table(title.into(), area.width, &columns, rows), area);
    }

    fn losses(&self, frame: &mut Frame<'_>, area: Rect, list: &[&InterfaceRates]) {
        let alarm = self.alarm(true);
        let losing = list.iter().filter(|i| !i.drops.is_empty() || !i.no_loss.is_empty());
        let name = widest(losing.map(|i| i.name.as_str()));
        let rows = list.iter().flat_map(|i| {
            let row = move |d: &DropRate, kind: LossKind| {
                let rate = right(units::pps(d.pps)).style(if kind == LossKind::Lost { alarm } else { Style::new() });
                vec![i.name.clone().into(), rate, kind.word().into(), d.place.clone().into()]
            };
            let lost = i.drops.iter().map(move |d| row(d, LossKind::Lost));
            lost.chain(i.no_loss.iter().map(move |d| row(d, LossKind::Harmless)))
        });
        let columns = [
            Column::new("INTERFACE", name, 0),
            Column::right("ENDED", 9, 0),
            Column::new("KIND", 7, 0),
            Column::new("WHERE", area.width.saturating_sub(name + 19), 0),
        ];
        frame.render_widget(self.table("Where packets ended".into(), area.width, &columns, rows), area);
    }

    fn cores(&self, frame: &mut Frame<'_>, area: Rect, list: &[&CoreRates]) {
        let list = &list[self.scrolled(list.len(), area).min(list.len())..];
        let mut title = vec![Span::raw(format!("Cores by {}  ", self.order.word(1)))];
        for (word, letter, hue, _) in PARTS {
            title.push(part(1, letter, hue, &self.controls));
            title.push(Span::raw(format!(" {word}  ")));
        }
        if area.width < TWO_COLUMNS {
            frame.render_widget(self.core_table(title.into(), area.width, list), area);
            return;
        }
        let [left, right] = Layout::horizontal([Constraint::Ratio(1, 2); 2]).spacing(2).areas(area);
        let (first, second) = list.split_at(list.len().div_ceil(2));
        frame.render_widget(self.core_table(title.into(), left.width, first), left);
        if !second.is_empty() {
            frame.render_widget(self.core_table(Line::default(), right.width, second), right);
        }
    }

    fn core_table(&self, title: Line<'static>, width: u16, list: &[&CoreRates]) -> Table<'static> {
        let bar_width = width.saturating_sub(55).clamp(4, 60);
        let rows = list.iter().map(|c| {
            let lost = c.softnet_dropped_pps + c.flow_limited_pps;
            let busy = c.load.busy_percent();
            vec![
                right(c.load.cpu.to_string()),
                Text::from(bar(&c.load, bar_width.into(), &self.controls)),
                right(format!("{busy:.0}%")).style(self.alarm(busy >= 80.0)),
                right(per_second(c.device_irqs_per_s)),
                right(per_second(c.net_rx_per_s)),
                right(per_second(c.softnet_processed_pps)),
                right(per_second(lost)).style(self.alarm(lost > 0.0)),
                right(per_second(c.softnet_squeezed_per_s)),
            ]
        });
        let columns = [
            Column::right("CPU", 3, 0),
            Column::new("LOAD", bar_width, 0),
            Column::right("BUSY", 4, 0),
            Column::right("IRQ/s", 6, 3),
            Column::right("NETRX/s", 7, 2),
            Column::right("STACK/s", 7, 4),
            Column::right("LOST/s", 6, 1),
            Column::right("SQZ/s", 6, 5),
        ];
        self.table(title, width, &columns, rows)
    }

    fn queues(&self, frame: &mut Frame<'_>, area: Rect, list: &[Queue<'_>]) {
        let rows = list.iter().skip(self.scrolled(list.len(), area)).map(|(interface, q)| {
            let dash = || "-".to_owned();
            vec![
                Text::from((*interface).to_owned()),
                right(q.n.to_string()),
                right(rate(q.rx_pps)),
                right(rate(q.tx_pps)),
                right(rate(q.drops_pps)).style(self.alarm(q.drops_pps.is_some_and(|d| d > 0.0))),
                right(q.irq.map_or_else(dash, |n| n.to_string())),
                right(q.irq_rate.map_or_else(dash, per_second)),
                right(q.cpu.map_or_else(dash, |n| n.to_string())),
                Text::from(q.affinity.as_ref().map_or_else(dash, ToString::to_string)),
            ]
        });
        let columns = [
            Column::new("INTERFACE", name_width(list.iter().map(|(interface, _)| *interface), area.width), 0),
            Column::right("QUEUE", 5, 0),
            Column::right("RX", 9, 0),
            Column::right("TX", 9, 3),
            Column::right("LOST", 9, 1),
            Column::right("IRQ", 5, 2),
            Column::right("IRQ/s", 6, 4),
            Column::right("CPU", 4, 0),
            Column::new("MAY RUN", 8, 5),
        ];
        let title = format!("Queues by {}", self.order.word(2));
        frame.render_widget(self.table(title.into(), area.width, &columns, rows), area);
    }

    /// Number of rows to leave out above, so that the last one never leaves the screen. Only a table alone moves.
    fn scrolled(&self, rows: usize, area: Rect) -> usize {
        if self.focus == Focus::All {
            return 0;
        }
        let visible = usize::from(area.height.saturating_sub(2));
        usize::from(self.controls.scroll).min(rows.saturating_sub(visible))
    }

    /// A table with a title line and a line of heads, of as many columns as fit.
    fn table(
        &self,
        title: Line<'static>,
        width: u16,
        columns: &[Column],
        rows: impl Iterator<Item = Vec<Text<'static>>>,
    ) -> Table<'static> {
        let kept = fitting(columns, width);
        let keep = |cells: Vec<Text<'static>>| {
            cells.into_iter().zip(&kept).filter(|(_, keep)| **keep).map(|(cell, _)| cell).collect::<Row<'static>>()
        };
        let heads = keep(columns.iter().map(Column::head).collect());
        let widths = columns.iter().zip(&kept).filter(|(_, keep)| **keep).map(|(c, _)| Constraint::Length(c.width));
        self.controls.table(title, heads, widths, rows.map(keep))
    }

    fn alarm(&self, yes: bool) -> Style {
        if yes { self.controls.mark(Color::Red) } else { Style::new() }
    }

    fn draw_help(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let (width, height) = (56.min(area.width), (HELP.lines().count() as u16 + 2).min(area.height));
        let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
        frame.render_widget(Clear, place);
        frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" Keys and columns ")), place);
    }
}

struct Column {
    head: &'static str,
    width: u16,
    right: bool,
    /// Order in which columns go where there is no room, the highest first; those of 0 stay.
    rank: u8,
}

impl Column {
    fn new(head: &'static str, width: u16, rank: u8) -> Self {
        Self { head, width, right: false, rank }
    }

    fn right(head: &'static str, width: u16, rank: u8) -> Self {
        Self { right: true, ..Self::new(head, width, rank) }
    }

    fn head(&self) -> Text<'static> {
        if self.right { right(self.head) } else { self.head.into() }
    }
}

/// Width of the interfaces' names, on a narrow screen of those that are there.
fn name_width<'a>(names: impl Iterator<Item = &'a str>, width: u16) -> u16 {
    if width < NARROW { widest(names) } else { NAME_MAX }
}

fn widest<'a>(names: impl Iterator<Item = &'a str>) -> u16 {
    names.map(|name| name.chars().count() as u16).max().unwrap_or(0).clamp(9, NAME_MAX)
}

/// Columns that fit into `width`: a column is shown whole or not at all, for a number without its first digits is a lie.
fn fitting(columns: &[Column], width: u16) -> Vec<bool> {
    let mut kept = vec![true; columns.len()];
    loop {
        let shown = || columns.iter().zip(&kept).enumerate().filter(|(_, (_, keep))| **keep).map(|(i, (c, _))| (i, c));
        let needed = shown().map(|(_, c)| c.width + 1).sum::<u16>().saturating_sub(1);
        let least = shown().filter(|(_, c)| c.rank > 0).max_by_key(|(_, c)| c.rank).map(|(i, _)| i);
        match least {
            Some(i) if needed > width => kept[i] = false,
            _ => return kept,
        }
    }
}

/// Interrupt coalescing in a few letters: `adaptive 8us 32f`.
fn coalescing(interface: &InterfaceRates) -> String {
    let Some(c) = interface.coalescing else { return "-".into() };
    let words = [
        (c.adaptive_rx == Some(true)).then(|| "adaptive".to_owned()),
        c.rx_usecs.map(|n| format!("{n}us")),
        c.rx_frames.map(|n| format!("{n}f")),
    ];
    let text = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    if text.is_empty() { "-".into() } else { text }
}

/// The heights of three tables in `height` lines: what each needs with its title, its heads and a line of space; where
/// that is too much, each gets its fair share and what the others leave over.
fn shares(height: u16, rows: [usize; 3]) -> [u16; 3] {
    let wanted = rows.map(|n| if n == 0 { 3 } else { u16::try_from(n).unwrap_or(u16::MAX).saturating_add(3) });
    let mut given = [0; 3];
    let mut left = height;
    let mut open = [true; 3];
    // Those that want less than a fair share are served first; three rounds settle three tables.
    for _ in 0..3 {
        let waiting = open.iter().filter(|o| **o).count() as u16;
        if waiting == 0 {
            break;
        }
        let fair = left / waiting;
        let modest: Vec<usize> = (0..3).filter(|&i| open[i] && wanted[i] <= fair).collect();
        let (serve, all_modest) =
            if modest.is_empty() { ((0..3).filter(|&i| open[i]).collect(), false) } else { (modest, true) };
        for i in serve {
            given[i] = if all_modest { wanted[i] } else { fair };
            left -= given[i];
            open[i] = false;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_by_rank() {
        let columns = [Column::new("A", 10, 0), Column::right("B", 10, 2), Column::right("C", 10, 1)];
        assert_eq!(fitting(&columns, 32), [true, true, true]);
        assert_eq!(fitting(&columns, 31), [true, false, true]);
        assert_eq!(fitting(&columns, 5), [true, false, false]);
    }

    #[test]
    fn tables_share_the_height() {
        assert_eq!(shares(60, [3, 4, 5]), [6, 7, 8], "all have what they need");
        assert_eq!(shares(24, [2, 2, 64]), [5, 5, 14], "the long one has what is left");
        assert_eq!(shares(21, [30, 30, 30]), [7, 7, 7]);
        for height in 0..40 {
            assert!(shares(height, [9, 128, 64]).iter().sum::<u16>() <= height);
        }
    }
}
