//! Parts of all pages: their error, and a heading.

use model::{Classified, ErrorClass};

/// The heading under which the figures of others are shown, in text and on the page.
pub const PUBLISHED: &str = "Published by others, on other hardware";

/// What can go wrong when a page is built.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("cannot build the page: {0}; this is a fault of evenkeel")]
    Template(#[from] askama::Error),
}

impl Classified for PageError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Internal
    }
}
