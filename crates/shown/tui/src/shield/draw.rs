//! Draws the view.

use model::{
    shield::{Fail, Rates, RuleStatus, ShieldStatus},
    units,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Stylize},
    text::{Line, Text},
    widgets::{Block, Paragraph, Row, Sparkline, Table},
};

use super::{
    room::{ALARM_LINES, RATE_LINES, SHOWN_MAX, Shares, for_alarms, two},
    view::View,
};
use crate::{
    controls::{head, page, right, time_of},
    text::{lines_of, middle_out, sentences, that_fits},
};

/// Keys and what they do.
const KEYS: [&str; 6] = ["q end", "r reload", "p hold", "a all rules", "↑ ↓ rules", "? help"];
/// Keys and what they do, at length.
const HELP: [&str; 6] = [
    "q end the shield (asks first)",
    "r read the rules again",
    "p hold",
    "a all rules or those with packets",
    "↑ ↓ rules",
    "? less help",
];
/// Columns of the rates where there is room for bits beside packets.
const RATE_WIDTHS: [u16; 4] = [24, 24, 14, 15];

impl<R: FnMut()> View<R> {
    pub(super) fn draw_all(&self, frame: &mut Frame<'_>) {
        let keys = match self.asking {
            true => self.question(frame.area().width),
            false => lines_of(if self.controls.help { &HELP } else { &KEYS }, frame.area().width),
        };
        let [head, body, foot] = page(frame, keys.len() as u16);
        frame.render_widget(self.head(head.width), head);
        match &self.status {
            Some(status) => self.body(frame, body, status),
            None => frame.render_widget(Paragraph::new("counting for the first interval…"), body),
        }
        frame.render_widget(Paragraph::new(keys.join("\n")).style(self.controls.dim()), foot);
    }

    /// The end is meant, as short as need be.
    fn question(&self, width: u16) -> Vec<String> {
        let name = self.status.as_ref().map_or("the interface", |status| &status.interface);
        let shapes = match self.leave {
            true => [
                format!(" End this process? The shield stays on {name} but no process runs it. y/N"),
                " End, and leave the shield? y/N".to_owned(),
            ],
            false => [format!(" Remove the shield from {name}? y/N"), " Remove the shield? y/N".to_owned()],
        };
        vec![that_fits(&shapes, width)]
    }

    fn head(&self, width: u16) -> Line<'static> {
        let state = self.controls.state();
        let shapes = self.status.as_ref().map_or_else(
            || vec![" evenkeel shield".to_owned()],
            |s| {
                let time = time_of(&s.timestamp);
                let (name, killed) = (&s.interface, if_killed(s.fail));
                // A program of the kernel has an id.
                let mode = if s.program_id == 0 { s.mode.clone() } else { format!("{} XDP", s.mode) };
                vec![
                    format!(" evenkeel shield  {name}  {mode}  {time} UTC  {killed}{state}"),
                    format!(" {name}  {mode}  {time} UTC  {killed}{state}"),
                    format!(" {name}  {mode}  {killed}{state}"),
                    format!(" {name}{state}"),
                ]
            },
        );
        head(width, &shapes)
    }

    fn body(&self, frame: &mut Frame<'_>, area: Rect, status: &ShieldStatus) {
        let refused = status.reload_error.iter().map(|refused| format!("The last reload was refused: {refused}"));
        let alarms: Vec<String> = refused.chain(status.warnings.iter().cloned()).take(SHOWN_MAX).collect();
        let room = usize::from(for_alarms(area.height, status));
        let alarms = sentences(&alarms, area.width.into(), room, ALARM_LINES.into());
        let shares = Shares::of(area.height, alarms.len() as u16, status);
        let [rates, alarm, curve, attack, rules, source] = Layout::vertical([
            Constraint::Length(RATE_LINES),
            Constraint::Length(alarms.len() as u16),
            Constraint::Length(shares.curve),
            Constraint::Length(shares.attacks),
            Constraint::Min(0),
            Constraint::Length(shares.sources),
        ])
        .areas(area);
        frame.render_widget(self.rates(status, rates.width), rates);
        frame.render_widget(Paragraph::new(alarms.join("\n")).style(self.controls.mark(Color::Red)), alarm);
        self.curve(frame, curve);
        let lines = status.attacks.iter().take(SHOWN_MAX).flat_map(|a| {
            let shadow = if a.shadow { "shadow: " } else { "" };
            [
                Line::from(format!("{} on {} for {:.0} s", a.class, a.prefix, a.since_s))
                    .style(self.controls.mark(Color::Red)),
                Line::from(format!("  {shadow}{}", a.mitigation)),
            ]
        });
        let title = match status.attacks.len() {
            n if n > SHOWN_MAX => format!("Attacks ({SHOWN_MAX} of {n})"),
            _ => "Attacks".to_owned(),
        };
        let block = Block::new().title_top(title.bold());
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), attack);
        self.rules(frame, rules, status);
        let lines = status
            .sources
            .iter()
            .take(SHOWN_MAX)
            .map(|s| Line::from(format!("{:>11}  {}", units::pps(s.pps), s.source)));
        let block = Block::new().title_top("Sources that send most".bold());
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), source);
    }

    fn rates(&self, status: &ShieldStatus, width: u16) -> Table<'static> {
        const BEYOND: &str = "BEYOND LIMITS";
        let rates = status.rates.unwrap_or_default();
        let Rates { passed_pps, passed_bps, dropped_pps, dropped_bps, challenged_pps, limited_pps, .. } = rates;
        let wide = width >= RATE_WIDTHS.iter().sum::<u16>() + RATE_WIDTHS.len() as u16 - 1;
        let cell = |pps: f64, bps: Option<f64>| {
            right(match bps.filter(|_| wide) {
                Some(bps) => format!("{}, {}", units::pps(pps), units::bits_per_second(bps)),
                None => units::pps(pps),
            })
        };
        let fits = |word: &str| usize::from(width) >= 4 * word.len() + 3;
        let challenged = if fits("CHALLENGED") { "CHALLENGED" } else { "CHALLENGE" };
        let heads = ["PASSED", "DROPPED", challenged, if fits(BEYOND) { BEYOND } else { "BEYOND" }].map(right);
        let now = [
            cell(passed_pps, Some(passed_bps)),
            cell(dropped_pps, Some(dropped_bps)),
            cell(challenged_pps, None),
            cell(limited_pps, None),
        ];
        let t = &status.totals;
        let all = [t.passed, t.dropped, t.challenged, t.limited].map(|n| right(units::grouped(n)));
        let widths = RATE_WIDTHS.map(|own| if wide { Constraint::Length(own) } else { Constraint::Fill(1) });
        Table::new([Row::new(now).bold(), Row::new(all)], widths).header(Row::new(heads).style(self.controls.dim()))
    }

    fn curve(&self, frame: &mut Frame<'_>, area: Rect) {
        let room = usize::from(area.width);
        let shown = &self.history[self.history.len().saturating_sub(room)..];
        let most = shown.iter().copied().fold(0.0, f64::max);
        let block = Block::new().title_top(format!("Dropped and challenged, at most {}", units::pps(most)).bold());
        let style = self.controls.hue(Color::Red);
        let data: Vec<u64> = shown.iter().map(|kept| *kept as u64).collect();
        frame.render_widget(Sparkline::default().block(block).data(data).style(style), area);
    }

    fn rules(&self, frame: &mut Frame<'_>, area: Rect, status: &ShieldStatus) {
        let rules: Vec<&RuleStatus> = status.rules.iter().filter(|rule| self.all || rule.packets > 0).collect();
        let room = usize::from(area.height.saturating_sub(2));
        let skip = usize::from(self.controls.scroll).min(rules.len().saturating_sub(room));
        let limits = rules.iter().any(|rule| rule.limited > 0);
        let longest = |text: &dyn Fn(&RuleStatus) -> usize, head: &str| {
            rules.iter().map(|rule| text(rule)).max().unwrap_or(0).max(head.len())
        };
        let names = longest(&|rule| rule.name.chars().count(), "RULE");
        let actions = longest(&|rule| rule.does().chars().count(), "ACTION");
        let numbers: &[u16] = if limits { &[10, 8, 8] } else { &[10, 8] };
        // A space before each number and between the two texts.
        let taken = usize::from(numbers.iter().sum::<u16>()) + numbers.len() + 1;
        let (names, actions) = two(usize::from(area.width).saturating_sub(taken), names, actions);
        let rows = rules.iter().skip(skip).map(|rule| {
            let mut cells = vec![
                Text::from(middle_out(&rule.name, names)),
                Text::from(action_that_fits(&rule.does(), actions)),
                right(rule.pps.map_or_else(String::new, units::pps)),
                right(units::count(rule.packets)),
            ];
            if limits {
                cells.push(right(if rule.limited > 0 { units::count(rule.limited) } else { String::new() }));
            }
            let row = Row::new(cells);
            if rule.management || rule.expired { row.style(self.controls.dim()) } else { row }
        });
        let widths = [names as u16, actions as u16].into_iter().chain(numbers.iter().copied());
        let heads = [Text::from("RULE"), Text::from("ACTION"), right("RATE"), right("PACKETS"), right("BEYOND")];
        let expired = match rules.iter().filter(|rule| rule.expired).count() {
            0 => String::new(),
            n => format!(", {n} expired"),
        };
        let built_in = match rules.iter().filter(|rule| rule.management).count() {
            0 => String::new(),
            n => format!(", {n} built-in"),
        };
        let title = match rules.len() {
            n if n > room => {
                format!("Rules ({room} of {n}{built_in}{expired}; ↑ ↓ for more); by default: {}", status.default)
            }
            n => format!("Rules ({n}{built_in}{expired}); by default: {}", status.default),
        };
        let heads = Row::new(heads.into_iter().take(2 + numbers.len()));
        let widths = widths.map(Constraint::Length);
        frame.render_widget(self.controls.table(title.into(), heads, widths, rows), area);
    }
}

/// Fate of the packets if nobody runs the shield any more.
fn if_killed(fail: Option<Fail>) -> &'static str {
    match fail {
        Some(Fail::Open) => "if killed: all passes",
        Some(Fail::Closed) => "if killed: nothing passes",
        None => "if killed: unknown",
    }
}

/// Action of a rule in so many characters; of a limit rather the rate than its scope.
fn action_that_fits(does: &str, room: usize) -> String {
    let until = |end: &str, kept: usize| does.find(end).map(|at| &does[..at + kept]);
    let shapes = [Some(does), until(" per source", " per source".len()), until(" per source", 0)];
    let fits = shapes.into_iter().flatten().find(|shape| shape.chars().count() <= room);
    fits.map_or_else(|| middle_out(does, room), str::to_owned)
}
