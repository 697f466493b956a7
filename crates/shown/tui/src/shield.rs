//! `evenkeel shield run` as a live view: rates, rules, attacks and what is done about them, sources that send most.

mod draw;
mod room;
mod view;

pub use view::View;
