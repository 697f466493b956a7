//! `evenkeel top` as a live view: interfaces with their history, cores with bars, queues with interrupt and CPU.

mod cells;
mod draw;
mod order;
mod view;

pub use order::{Filter, Order};
pub use view::{Focus, View};
