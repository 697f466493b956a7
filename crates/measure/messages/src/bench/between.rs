//! Both ends on machines of their own. This one asks or sends; a process that ssh starts on the other answers or receives, by orders on its
//! standard input.
//!
//! ```text
//! orders  orders of the coordinator, answers of the worker
//! single  one end, opened without the other at hand
//! worker  the process on the other machine
//! carry   does the steps with it
//! ```

mod carry;
mod orders;
mod single;
mod worker;

pub(super) use carry::Machines;
pub use carry::{Between, carry_out_between};
pub use worker::answer;
