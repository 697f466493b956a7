//! The state of the view: samples with their history, and what the keys have chosen. Pure, so that tests can drive it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use model::top::TopSample;
use ratatui::crossterm::event::KeyCode;

use super::order::{Filter, Order};
use crate::{
    controls::Controls,
    live::{Reaction, Screen},
};

/// Samples of history kept per interface: as many as a wide terminal can show.
const HISTORY_MAX: usize = 120;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    #[default]
    All,
    Interfaces,
    Cores,
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

#[derive(Debug)]
pub struct View {
    pub(super) sample: Option<TopSample>,
    /// Traffic of each interface in packets per second, oldest first.
    pub(super) history: BTreeMap<String, VecDeque<f64>>,
    pub(super) focus: Focus,
    pub(super) filter: Filter,
    pub(super) order: Order,
    pub(super) controls: Controls,
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
            controls: Controls::new(interval, colour),
        }
    }

    fn look_at(&mut self, focus: Focus) {
        self.focus = focus;
        self.controls.scroll = 0;
    }
}

impl Screen for View {
    type Sample = TopSample;

    fn interval(&self) -> Duration {
        self.controls.interval
    }

    /// Takes a sample. While paused, only its history is kept.
    fn push(&mut self, sample: TopSample) {
        self.history.retain(|name, _| sample.interfaces.iter().any(|i| i.name == *name));
        for interface in &sample.interfaces {
            let history = match self.history.get_mut(&interface.name) {
                Some(history) => history,
                None => self.history.entry(interface.name.clone()).or_default(),
            };
            if history.len() == HISTORY_MAX {
                history.pop_front();
            }
            history.push_back(interface.traffic_pps());
        }
        if !self.controls.paused || self.sample.is_none() {
            self.sample = Some(sample);
        }
    }

    fn press(&mut self, key: KeyCode) -> Reaction {
        if key != KeyCode::Char('q') && std::mem::take(&mut self.controls.help) {
            return Reaction::Redraw;
        }
        match key {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Char('h') => self.controls.help = true,
            KeyCode::Tab => self.look_at(self.focus.next()),
            KeyCode::Char('0') | KeyCode::Esc => self.look_at(Focus::All),
            KeyCode::Char('1') => self.look_at(Focus::Interfaces),
            KeyCode::Char('2') => self.look_at(Focus::Cores),
            KeyCode::Char('3') => self.look_at(Focus::Queues),
            KeyCode::Char('s') => self.order.advance(self.focus.table()),
            KeyCode::Char('S') => self.order.reverse(self.focus.table()),
            KeyCode::Char('f') => self.filter = self.filter.next(),
            key => return self.controls.press(key),
        }
        Reaction::Redraw
    }

    fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        self.draw_all(frame);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyEvent, KeyModifiers};

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
        assert_eq!((v.controls.help, press(&mut v, 'x'), v.controls.help), (true, Reaction::Redraw, false));
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
