//! The last events, without repetitions of a condition that lasts.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Instant,
};

use crate::status::{Event, EventKind};

const EVENTS_MAX: usize = 50;

#[derive(Debug, Default)]
pub(crate) struct Log {
    events: VecDeque<(Instant, Event)>,
    /// Events that [`Log::take_fresh`] has not returned yet.
    fresh: Vec<Event>,
    /// Conditions of the last pass, as file and message.
    said: BTreeSet<(String, String)>,
    stands: BTreeSet<(String, String)>,
}

impl Log {
    pub(crate) fn add(&mut self, kind: EventKind, file: &str, message: String, took_ms: Option<f64>) {
        let event = Event { event: kind, file: file.to_owned(), message, age_s: 0.0, took_ms };
        self.fresh.push(event.clone());
        self.events.push_back((Instant::now(), event));
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// Adds an event for a condition that lasts, unless it was added in this pass or the last one.
    pub(crate) fn stands(&mut self, kind: EventKind, file: &str, message: &str) {
        let key = (file.to_owned(), message.to_owned());
        if !self.said.contains(&key) && !self.stands.contains(&key) {
            self.add(kind, file, message.to_owned(), None);
        }
        self.stands.insert(key);
    }

    /// Ends a pass: conditions that were not added during it are over.
    pub(crate) fn end_pass(&mut self) {
        self.said = std::mem::take(&mut self.stands);
    }

    pub(crate) fn take_fresh(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.fresh)
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        let of = |(at, event): &(Instant, Event)| Event { age_s: at.elapsed().as_secs_f64(), ..event.clone() };
        self.events.iter().map(of).collect()
    }
}
