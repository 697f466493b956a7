//! Interfaces that go down, come up or are removed while they are captured.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
};

use port::PortError;

use super::Shared;

/// A change of an interface that does not end the capture by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The interface went down; its readers wait until it is up.
    Down(String),
    /// The interface is up again.
    Up(String),
    /// Its readers ended; those of other interfaces go on. The reason, as a message.
    Ended(String),
}

/// Changes of interfaces that are not reported yet. Readers of one interface see the same change, which is reported once.
#[derive(Debug, Default)]
pub(super) struct Links {
    down: BTreeSet<String>,
    ended: BTreeSet<String>,
    pub(super) notices: Vec<Notice>,
}

impl Shared<'_> {
    pub(super) fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an interface went down, where `result` says so: that ends no reader.
    pub(super) fn unless_down<T: Default>(&self, result: Result<T, PortError>) -> Result<T, PortError> {
        match result {
            Err(PortError::Down { interface }) => {
                let mut links = self.links();
                if links.down.insert(interface.clone()) {
                    links.notices.push(Notice::Down(interface));
                }
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Notes that an interface is up again.
    pub(super) fn up(&self, interface: &str) {
        let mut links = self.links();
        if links.down.remove(interface) {
            links.notices.push(Notice::Up(interface.to_owned()));
        }
    }

    /// Notes that an interface is gone.
    pub(super) fn ended(&self, error: &PortError) {
        let text = error.to_string();
        let mut links = self.links();
        if links.ended.insert(text.clone()) {
            links.notices.push(Notice::Ended(text));
        }
    }
}
