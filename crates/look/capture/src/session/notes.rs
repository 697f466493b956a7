//! Notes for the user before a capture begins.

use super::error::SessionError;
use crate::{
    auto::{Choice, Trial},
    filter::FilterError,
    plan::Backend,
};

/// A note for the user before the capture begins.
#[derive(Debug)]
pub enum Note<'a> {
    /// An interface of [`ANY`] that cannot be captured from.
    Without { interface: &'a str, error: &'a FilterError },
    /// The kernel does not run this filter: this process does.
    FiltersHere { filter: &'a str },
    /// A backend that was opened with less than it should have.
    Opened { backend: Backend, text: &'a str },
    /// Trials of `auto`, and its choice.
    Tried {
        trials: &'a [Trial],
        /// The backends that could not be tried.
        refusals: &'a [Refusal],
        choice: &'a Choice,
    },
    /// Root's user id stays, for this reason.
    StillRoot { why: &'a str },
}

/// A backend that could not be tried.
#[derive(Debug)]
pub struct Refusal {
    pub backend: Backend,
    pub error: SessionError,
}
