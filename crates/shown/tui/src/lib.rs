//! Live views for a terminal: [`top`], [`ledger`], [`shield`], [`route`].
//!
//! A view is a pure function of what was measured and of the keys that were pressed; [`live`] owns the terminal, draws, and gives it back as it was.
//! Nothing here knows more than `model`.

mod controls;
pub mod ledger;
pub mod live;
pub mod route;
pub mod shield;
mod text;
pub mod top;
