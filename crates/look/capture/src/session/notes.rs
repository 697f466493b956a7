//! What the user is told before a capture begins.

use super::error::SessionError;
use crate::{
    auto::{Choice, Trial},
    filter::FilterError,
    plan::Backend,
};

/// What the user is told before the capture begins.
#[derive(Debug)]
pub enum Note<'a> {
    /// An interface of [`ANY`] that cannot be captured from.
    Without {
        /// Its name.
        interface: &'a str,
        /// Why not.
        error: &'a FilterError,
    },
    /// The kernel does not run this filter: this process does.
    FiltersHere {
        /// The filter.
        filter: &'a str,
    },
    /// A backend that was opened with less than it should have.
    Opened {
        /// The backend.
        backend: Backend,
        /// What it has.
        text: &'a str,
    },
    /// What `auto` tried and chose.
    Tried {
        /// The trials.
        trials: &'a [Trial],
        /// The backends that could not be tried.
        refusals: &'a [Refusal],
        /// The choice.
        choice: &'a Choice,
    },
    /// Root's user id stays, for this reason.
    StillRoot {
        /// Why.
        why: &'a str,
    },
}

/// A backend that could not be tried.
#[derive(Debug)]
pub struct Refusal {
    /// The backend.
    pub backend: Backend,
    /// Why not.
    pub error: SessionError,
}
