//! `evenkeel route run` as a live view: who forwards and why, rates of the ports, what went up to the kernel, what happened.

mod draw;
mod room;
mod view;

pub use view::{Act, View};
