//! `evenkeel ledger` as a live view: the books of the last interval, the losses with their causes, what to do about the
//! largest.

mod draw;
mod view;

pub use view::View;
