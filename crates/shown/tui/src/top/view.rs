//! The state of the view: samples with their history, and what the keys have chosen. Pure, so that tests can drive it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use model::top::TopSample;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::order::{Filter, Order};
use crate::live::{Reaction, Screen};

/// Samples of history kept per interface: as many as a wide terminal can show.
const HISTORY: usize = 120;
/// The intervals that + and - step through, in milliseconds.
const INTERVALS_MS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];

/// Which tables are on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    /// All three.
    #[default]
    All,
    /// Interfaces alone.
    Interfaces,
    /// Cores alone.
    Cores,
    /// Queues alone.
    Queues,
}

impl Focus {
    fn next(self) -> Self {
        match self {
            Self::All => Self::Interfaces,
            Self::Interfaces => Self::Cores,
            Self::Cores => Self::Queues,
            Self::Queues => Self::All,
        }
    }

    /// The table that sorting and scrolling act on.
    fn table(self) -> usize {
        match self {
            Self::All | Self::Interfaces => 0,
            Self::Cores => 1,
            Self::Queues => 2,
        }
    }
}

/// The live view.
#[derive(Debug)]
pub struct View {
    pub(super) sample: Option<TopSample>,
    /// Traffic of each interface in packets per second, oldest first.
    pub(super) history: BTreeMap<String, VecDeque<f64>>,
    pub(super) focus: Focus,
    pub(super) filter: Filter,
    pub(super) order: Order,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) colour: bool,
    pub(super) scroll: u16,
    interval: Duration,
}

impl View {
    /// An empty view that is to be refreshed every `interval`. Without `colour` the parts of a bar are letters.
    pub fn new(interval: Duration, filter: Filter, colour: bool) -> Self {
        Self {
            sample: None,
            history: BTreeMap::new(),
            focus: Focus::All,
            filter,
            order: Order::default(),
            paused: false,
            help: false,
            colour,
            scroll: 0,
            interval,
        }
    }

    /// How long to wait between two samples.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes a sample. While paused, only its history is kept.
    pub fn push(&mut self, sample: TopSample) {
        self.history.retain(|name, _| sample.interfaces.iter().any(|i| i.name == *name));
        for interface in &sample.interfaces {
            let history = match self.history.get_mut(&interface.name) {
                Some(history) => history,
                None => self.history.entry(interface.name.clone()).or_default(),
            };
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(interface.traffic_pps());
        }
        if !self.paused || self.sample.is_none() {
            self.sample = Some(sample);
        }
    }

    /// Does what a key means.
    pub fn key(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if matches!(key.code, KeyCode::Char('c' | 'd')) { Reaction::Quit } else { Reaction::Nothing };
        }
        if self.help && !matches!(key.code, KeyCode::Char('q')) {
            self.help = false;
            return Reaction::Redraw;
        }
        match key.code {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Tab => self.look_at(self.focus.next()),
            KeyCode::Char('0') | KeyCode::Esc => self.look_at(Focus::All),
            KeyCode::Char('1') => self.look_at(Focus::Interfaces),
            KeyCode::Char('2') => self.look_at(Focus::Cores),
            KeyCode::Char('3') => self.look_at(Focus::Queues),
            KeyCode::Char('s') => self.order.advance(self.focus.table()),
            KeyCode::Char('S') => self.order.reverse(self.focus.table()),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('f') => self.filter = self.filter.next(),
            KeyCode::Char('+' | '=') => self.step_interval(1),
            KeyCode::Char('-') => self.step_interval(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => return Reaction::Nothing,
        }
        Reaction::Redraw
    }

    fn look_at(&mut self, focus: Focus) {
        self.focus = focus;
        self.scroll = 0;
    }

    fn step_interval(&mut self, step: isize) {
        let now = self.interval.as_millis() as u64;
        let next = if step > 0 {
            INTERVALS_MS.iter().find(|&&ms| ms > now)
        } else {
            INTERVALS_MS.iter().rev().find(|&&ms| ms < now)
        };
        if let Some(&ms) = next {
            self.interval = Duration::from_millis(ms);
        }
    }
}

impl Screen for View {
    type Sample = TopSample;

    fn interval(&self) -> Duration {
        self.interval()
    }

    fn push(&mut self, sample: TopSample) {
        self.push(sample);
    }

    fn key(&mut self, key: KeyEvent) -> Reaction {
        self.key(key)
    }

    fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        self.draw(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, code: char) -> Reaction {
        view.key(KeyEvent::from(KeyCode::Char(code)))
    }

    fn view() -> View {
        View::new(Duration::from_secs(1), Filter::default(), true)
    }

    #[test]
    fn keys_choose_and_leave() {
        let mut v = view();
        assert_eq!(press(&mut v, '2'), Reaction::Redraw);
        assert_eq!(v.focus, Focus::Cores);
        assert_eq!(press(&mut v, '+'), Reaction::Redraw);
        assert_eq!(v.interval(), Duration::from_secs(2));
        press(&mut v, '-');
        press(&mut v, '-');
        assert_eq!(v.interval(), Duration::from_millis(500));
        assert_eq!(press(&mut v, 'z'), Reaction::Nothing);
        press(&mut v, '?');
        assert_eq!((v.help, press(&mut v, 'x'), v.help), (true, Reaction::Redraw, false));
        assert_eq!(press(&mut v, 'q'), Reaction::Quit);
        assert_eq!(v.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Reaction::Quit);
    }

    #[test]
    fn a_paused_view_keeps_its_sample_and_its_history_grows() {
        let mut v = view();
        let interface = |rx_pps| model::top::InterfaceRates { name: "eth0".into(), rx_pps, ..Default::default() };
        let sample = |pps| TopSample { interfaces: vec![interface(pps)], ..TopSample::default() };
        v.push(sample(1.0));
        press(&mut v, 'p');
        v.push(sample(2.0));
        assert_eq!(v.sample.as_ref().map(|s| s.interfaces[0].rx_pps), Some(1.0));
        assert_eq!(v.history["eth0"], [1.0, 2.0]);
        v.push(TopSample::default());
        assert!(v.history.is_empty(), "an interface that went away leaves no history");
    }
}
