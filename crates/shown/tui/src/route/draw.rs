//! Draws the view.

use model::{
    route::{PortRates, RouteLost, RouteMode, RouteRates, RouteStatus},
    units,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Stylize},
    text::{Line, Text},
    widgets::{Block, Paragraph, Row, Sparkline, Wrap},
};

use super::{
    room::Shares,
    view::{Act, View},
};
use crate::{
    controls::{head, page, right, time_of},
    text::{lines_of, middle_out, that_fits},
};

/// Keys and what they do.
const KEYS: [&str; 6] = ["q end", "s standard", "f fast path", "p hold", "↑ ↓ reasons", "? help"];
/// Keys and what they do, at length.
const HELP: [&str; 9] = [
    "q end the fast path (asks first)",
    "s mode standard: the kernel alone, at once",
    "f fast path again, by way of a trial",
    "p hold",
    "+ - interval",
    "↑ ↓ reasons",
    "SHARE forwarded of what the fast path saw",
    "ASKED these took a look-up in the kernel",
    "? less help",
];
/// The most things that stand in the way which are shown.
const SHOWN_MAX: usize = 4;
const EVENTS_MAX: usize = 6;
/// From this width on there is room for the share that was looked up, and for bits beside packets.
const LOOKUPS_WIDTH_MIN: u16 = 75;
const BITS_WIDTH_MIN: u16 = 103;

impl<A: FnMut(Act)> View<A> {
    pub(super) fn draw_all(&self, frame: &mut Frame<'_>) {
        let width = frame.area().width;
        let keys = match self.asking {
            true => vec![that_fits(
                &[" End the fast path? The kernel forwards then. y/N".to_owned(), " End the fast path? y/N".to_owned()],
                width,
            )],
            false => lines_of(if self.controls.help { &HELP } else { &KEYS }, width),
        };
        let [head, body, foot] = page(frame, keys.len() as u16);
        frame.render_widget(self.head(head.width), head);
        match &self.status {
            Some(status) => self.body(frame, body, status),
            None => frame.render_widget(Paragraph::new("counting for the first interval…"), body),
        }
        frame.render_widget(Paragraph::new(keys.join("\n")).style(self.controls.dim()), foot);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let state = self.controls.state();
        let shapes = self.status.as_ref().map_or_else(
            || vec![" evenkeel route".to_owned()],
            |s| {
                let (time, mode) = (time_of(&s.timestamp), s.mode.name());
                let names = s.ports.iter().map(|port| port.interface.as_str()).collect::<Vec<_>>().join(" ");
                let xdp = s.ports.first().map_or("", |port| &port.xdp);
                vec![
                    format!(" evenkeel route  {names}  mode {mode}  {xdp} XDP  {time} UTC{state}"),
                    format!(" evenkeel route  mode {mode}  {xdp} XDP  {time} UTC{state}"),
                    format!(" mode {mode}  {xdp} XDP{state}"),
                    format!(" {mode}{state}"),
                ]
            },
        );
        head(width, &shapes)
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, status: &RouteStatus) {
        let why = self.why(status);
        let lines = why.iter().map(|(text, _)| lines_needed(text, area.width)).sum::<u16>().min(area.height / 2);
        let mut happened: Vec<String> = status
            .events
            .iter()
            .rev()
            .map(|moment| format!("{}  {}", time_of(&moment.timestamp), moment.what))
            .collect();
        happened.truncate(EVENTS_MAX);
        let needed = happened.iter().map(|text| lines_needed(text, area.width)).sum();
        let shares = Shares::of(area.height, lines, needed, status);
        let [top, ports, curve, reasons, events] = Layout::vertical([
            Constraint::Length(lines),
            Constraint::Length(shares.ports),
            Constraint::Length(shares.curve),
            Constraint::Min(0),
            Constraint::Length(shares.events),
        ])
        .areas(area);
        let text: Vec<Line<'_>> = why
            .into_iter()
            .map(|(text, hue)| Line::from(text).style(hue.map_or(self.controls.dim(), |hue| self.controls.mark(hue))))
            .collect();
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), top);
        let rates = status.rates.clone().unwrap_or_else(|| RouteRates::between(status, status, 1.0));
        self.ports(frame, ports, &rates);
        self.curve(frame, curve);
        self.reasons(frame, reasons, &rates);
        let block = Block::new().title_top("What happened last".bold());
        let happened = Paragraph::new(happened.join("\n")).wrap(Wrap { trim: true });
        frame.render_widget(happened.block(block), events);
    }

    /// Why the mode is what it is, and what stands in the way: text, and a colour for what needs a look.
    fn why(&self, status: &RouteStatus) -> Vec<(String, Option<Color>)> {
        let (wanted, mut lines) = (status.requested.name(), Vec::new());
        match &status.fallback {
            // What stands in the way follows by itself.
            Some(why) if status.obstacles.iter().any(|it| it.what == *why) => {
                lines.push((format!("Held back from {wanted}."), Some(Color::Red)));
            }
            Some(why) if status.obstacles.is_empty() => {
                let again = format!("`evenkeel route mode {wanted}` tries again");
                lines.push((format!("Held back from {wanted}: {why}. {again}."), Some(Color::Red)));
            }
            Some(why) => lines.push((format!("Held back from {wanted}: {why}."), Some(Color::Red))),
            None if status.mode != status.requested => {
                lines.push((
                    format!("A trial: {wanted} follows if the kernel sends each frame as the fast path would."),
                    None,
                ));
            }
            None if status.mode == RouteMode::Standard => {
                lines.push(("The kernel alone forwards, as asked for.".to_owned(), None));
            }
            None => {}
        }
        if let Some(shadow) = status.shadow.as_ref().filter(|_| status.mode == RouteMode::Shadow) {
            lines.push((shadow.to_string(), (shadow.wrong() > 0).then_some(Color::Red)));
        }
        let obstacles = status.obstacles.iter().take(SHOWN_MAX);
        lines.extend(obstacles.map(|it| (format!("{}: {}. {}", it.code, it.what, it.remedy), Some(Color::Red))));
        let mute = status.ports.iter().filter(|port| !port.can_transmit).map(|port| port.interface.as_str());
        let mute = mute.collect::<Vec<_>>().join(", ");
        if !mute.is_empty() {
            lines.push((format!("Out of {mute} the fast path cannot send."), Some(Color::Yellow)));
        }
        let lost: u64 = status.ports.iter().filter_map(|port| port.lost.as_ref()).map(RouteLost::all).sum();
        if lost > 0 {
            let text = format!(
                "Lost on the way to CPU {}: {}. `evenkeel route status` says why.",
                cpus(status),
                units::grouped(lost)
            );
            lines.push((text, Some(Color::Red)));
        }
        lines
    }

    fn ports(&self, frame: &mut Frame<'_>, area: Rect, rates: &RouteRates) {
        let (with_lookups, bits) = (area.width >= LOOKUPS_WIDTH_MIN, area.width >= BITS_WIDTH_MIN);
        let (name, number, way) =
            (if with_lookups { 15 } else { 10 }, if with_lookups { 10 } else { 9 }, if bits { 24 } else { 9 });
        let widths = [name as u16, way, way, number, number, 7, 7];
        let shown = fitting(widths, with_lookups, area.width);
        let percent = |share: Option<f64>| right(share.map_or_else(|| "-".to_owned(), units::percent));
        let cell = |pps: f64, bps: f64| {
            right(if bits { format!("{}, {}", units::pps(pps), units::bits_per_second(bps)) } else { units::pps(pps) })
        };
        let row = |port: &PortRates| {
            let cells = [
                Text::from(middle_out(&port.interface, name)),
                cell(port.rx_pps, port.rx_bps),
                cell(port.tx_pps, port.tx_bps),
                right(units::pps(port.forwarded_pps)),
                right(units::pps(port.slow_path_pps)),
                percent(port.forwarded_share()),
                percent(port.looked_up_share()),
            ];
            Row::new(kept(cells, shown))
        };
        let all = PortRates { interface: "all".to_owned(), ..rates.sum() };
        // Of many ports the busiest; all together are always there.
        let mut ports: Vec<&PortRates> = rates.ports.iter().collect();
        let room = usize::from(area.height.saturating_sub(2)).max(1);
        let port_head = if ports.len() > room { format!("PORT {room}/{}", ports.len()) } else { "PORT".to_owned() };
        if ports.len() > room {
            ports.sort_by(|a, b| (b.rx_pps + b.tx_pps).total_cmp(&(a.rx_pps + a.tx_pps)));
        }
        let rows = ports.into_iter().take(room).map(row).chain([row(&all).bold()]);
        let heads = ["IN", "OUT", "FORWARDED", "UP", "SHARE", "ASKED"].map(right);
        let [a, b, c, d, e, f] = heads;
        let heads = kept([Text::from(port_head), a, b, c, d, e, f], shown);
        let table = ratatui::widgets::Table::new(rows, kept(widths, shown).into_iter().map(Constraint::Length));
        frame.render_widget(table.header(Row::new(heads).style(self.controls.dim())).column_spacing(1), area);
    }

    fn curve(&self, frame: &mut Frame<'_>, area: Rect) {
        let shown = &self.history[self.history.len().saturating_sub(usize::from(area.width))..];
        let most = shown.iter().copied().fold(0.0, f64::max);
        let block = Block::new().title_top(format!("Forwarded by the fast path, at most {}", units::pps(most)).bold());
        let data: Vec<u64> = shown.iter().map(|pps| *pps as u64).collect();
        frame.render_widget(Sparkline::default().block(block).data(data).style(self.controls.hue(Color::Green)), area);
    }

    fn reasons(&self, frame: &mut Frame<'_>, area: Rect, rates: &RouteRates) {
        let room = usize::from(area.height.saturating_sub(2));
        let skip = usize::from(self.controls.scroll).min(rates.reasons.len().saturating_sub(room));
        let words = area.width.saturating_sub(22).min(44);
        let rows = rates.reasons.iter().skip(skip).map(|reason| {
            Row::new([
                Text::from(middle_out(&reason.what, words.into())),
                right(units::pps(reason.pps)),
                right(units::count(reason.packets)),
            ])
        });
        let title = match rates.reasons.len() {
            0 if self
                .status
                .as_ref()
                .is_some_and(|status| matches!(status.mode, RouteMode::Standard | RouteMode::Shadow)) =>
            {
                "The kernel forwards all frames in this mode".to_owned()
            }
            0 => "Nothing went up to the kernel".to_owned(),
            n if n > room => format!("Up to the kernel ({room} of {n} reasons; ↑ ↓ for more)"),
            _ => "Up to the kernel".to_owned(),
        };
        let heads = Row::new([Text::from("REASON"), right("RATE"), right("FRAMES")]);
        let widths = [words, 10, 9].map(Constraint::Length);
        match rates.reasons.is_empty() {
            true => frame.render_widget(Block::new().title_top(title.bold()), area),
            false => frame.render_widget(self.controls.table(title.into(), heads, widths, rows), area),
        }
    }
}

/// Columns that a page has room for: the share goes first, then the transmitted rate, then the received one.
fn fitting(widths: [u16; 7], with_lookups: bool, room: u16) -> [bool; 7] {
    let mut shown = [true, true, true, true, true, true, with_lookups];
    for first in [5, 2, 1] {
        if kept(widths, shown).iter().map(|width| width + 1).sum::<u16>() <= room + 1 {
            break;
        }
        shown[first] = false;
    }
    shown
}

/// The shown ones of all columns.
fn kept<T>(all: [T; 7], shown: [bool; 7]) -> Vec<T> {
    all.into_iter().zip(shown).filter_map(|(column, is_shown)| is_shown.then_some(column)).collect()
}

/// The CPUs that forward, or that did.
fn cpus(status: &RouteStatus) -> String {
    status.cpus.as_ref().map_or_else(|| "others".to_owned(), ToString::to_string)
}

fn lines_needed(text: &str, width: u16) -> u16 {
    let (mut lines, mut used) = (1, 0);
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > usize::from(width) {
            (lines, used) = (lines + 1, len);
        } else {
            used += len + usize::from(used > 0);
        }
    }
    lines
}
