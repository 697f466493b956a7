//! Draws the view.

use model::{
    shield::{Rates, RuleStatus, ShieldStatus},
    units,
};
use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Text},
    widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap},
};

use super::view::View;

/// Lines of the curve with its title.
const CURVE_LINES: u16 = 4;
/// Attacks and sources that are shown.
const SHOWN: usize = 4;

impl<R: FnMut()> View<R> {
    pub(super) fn draw_all(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(self.head(head.width), head);
        match &self.status {
            Some(status) => self.body(frame, body, status),
            None => frame.render_widget(Paragraph::new("counting for the first interval…"), body),
        }
        let keys = if self.help {
            " q take the shield away and leave  r read the rules again  p hold  a all rules or those with packets  ↑ ↓ rules"
        } else {
            " q leave  r reload  p hold  a all rules  ↑ ↓ rules  ? help"
        };
        frame.render_widget(Line::from(keys).style(self.dim()), foot);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let state = if self.paused { "  HELD" } else { "" };
        let text = self.status.as_ref().map_or_else(String::new, |s| {
            let time = s.when.split('T').nth(1).and_then(|t| t.get(..8)).unwrap_or_default();
            format!("{}  {} XDP  {time} UTC  fails {}", s.interface, s.mode, s.fail.word())
        });
        let left = format!(" evenkeel shield  {text}{state}");
        Line::from(format!("{left:<width$}", width = usize::from(width)))
            .style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, status: &ShieldStatus) {
        let attacks = status.attacks.len().min(SHOWN) as u16;
        let sources = status.sources.len().min(SHOWN) as u16;
        let refused = u16::from(status.refused.is_some()) * 2;
        let titled = |lines: u16| if lines > 0 { lines + 1 } else { 0 };
        let [rates, alarm, curve, attack, rules, source] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Length(refused),
            Constraint::Length(CURVE_LINES),
            Constraint::Length(titled(attacks) * 2),
            Constraint::Min(3),
            Constraint::Length(titled(sources)),
        ])
        .areas(area);
        frame.render_widget(self.rates(status), rates);
        if let Some(refused) = &status.refused {
            let text = format!("The last reload was refused: {refused}");
            frame.render_widget(Paragraph::new(text).style(self.alarm()).wrap(Wrap { trim: true }), alarm);
        }
        self.curve(frame, curve);
        let lines = status.attacks.iter().take(SHOWN).flat_map(|a| {
            let shadow = if a.shadow { "shadow: " } else { "" };
            [
                Line::from(format!("{} on {} for {:.0} s", a.class, a.prefix, a.since_s)).style(self.alarm()),
                Line::from(format!("  {shadow}{}", a.mitigation)),
            ]
        });
        let block = Block::new().title_top("Attacks".bold());
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), attack);
        self.rules(frame, rules, status);
        let lines =
            status.sources.iter().take(SHOWN).map(|s| Line::from(format!("{:>11}  {}", units::pps(s.pps), s.source)));
        let block = Block::new().title_top("Sources that send most".bold());
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), source);
    }

    fn rates(&self, status: &ShieldStatus) -> Table<'static> {
        let rates = status.rates.unwrap_or_default();
        let Rates { passed_pps, passed_bps, dropped_pps, dropped_bps, challenged_pps, limited_pps, .. } = rates;
        let cell =
            |pps: f64, bps: Option<f64>| {
                right(bps.map_or_else(
                    || units::pps(pps),
                    |bps| format!("{}, {}", units::pps(pps), units::bits_per_second(bps)),
                ))
            };
        let heads = ["PASSED", "DROPPED", "CHALLENGED", "BEYOND LIMITS"].map(right);
        let now = [
            cell(passed_pps, Some(passed_bps)),
            cell(dropped_pps, Some(dropped_bps)),
            cell(challenged_pps, None),
            cell(limited_pps, None),
        ];
        let t = &status.totals;
        let all = [t.passed, t.dropped, t.challenged, t.limited].map(|n| right(units::grouped(n)));
        let widths = [Constraint::Fill(3), Constraint::Fill(3), Constraint::Fill(2), Constraint::Fill(2)];
        Table::new([Row::new(now).bold(), Row::new(all)], widths).header(Row::new(heads).style(self.dim()))
    }

    fn curve(&self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.width);
        let shown = &self.history[self.history.len().saturating_sub(room)..];
        let most = shown.iter().map(|(_, dropped)| *dropped).fold(0.0, f64::max);
        let block = Block::new().title_top(format!("Dropped, at most {}", units::pps(most)).bold());
        let style = if self.colour { Style::new().fg(Color::Red) } else { Style::new() };
        let data: Vec<u64> = shown.iter().map(|(_, dropped)| *dropped as u64).collect();
        frame.render_widget(Sparkline::default().block(block).data(data).style(style), area);
    }

    fn rules(&self, frame: &mut Frame<'_>, area: Rect, status: &ShieldStatus) {
        let rules: Vec<&RuleStatus> = status.rules.iter().filter(|rule| self.all || rule.packets > 0).collect();
        let room = usize::from(area.height.saturating_sub(2));
        let skip = self.scroll.min(rules.len().saturating_sub(room));
        let rows = rules.iter().skip(skip).map(|rule| {
            let action = format!("{}{}", if rule.shadow { "shadow: " } else { "" }, rule.action);
            let limited = if rule.limited > 0 { units::count(rule.limited) } else { String::new() };
            let row = Row::new([
                Text::from(rule.name.clone()),
                Text::from(action),
                right(rule.pps.map_or_else(String::new, units::pps)),
                right(units::count(rule.packets)),
                right(limited),
            ]);
            if rule.management { row.style(self.dim()) } else { row }
        });
        let widths = [
            Constraint::Fill(3),
            Constraint::Fill(3),
            Constraint::Length(10),
            Constraint::Length(8),
            Constraint::Length(8),
        ];
        let heads = [Text::from("RULE"), Text::from("ACTION"), right("RATE"), right("PACKETS"), right("BEYOND")];
        let title = match rules.len() {
            n if n > room => format!("Rules ({room} of {n}; ↑ ↓ for the others)"),
            n => format!("Rules ({n}); by default: {}", status.default),
        };
        let table = Table::new(rows, widths)
            .header(Row::new(heads).style(self.dim()))
            .block(Block::new().title_top(title.bold()))
            .column_spacing(1);
        frame.render_widget(table, area);
    }

    fn dim(&self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    fn alarm(&self) -> Style {
        if self.colour { Style::new().fg(Color::Red) } else { Style::new().add_modifier(Modifier::BOLD) }
    }
}

fn right(text: impl Into<String>) -> Text<'static> {
    Text::from(text.into()).alignment(Alignment::Right)
}
