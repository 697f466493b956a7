//! Both ends on machines of their own. This one asks or sends; a process that ssh starts on the other answers or receives, by orders on its
//! standard input.
//!
//! ```text
//! words   what the two processes say to each other
//! single  one end, opened without the other at hand
//! far     the process on the other machine
//! carry   does the steps with it
//! ```

mod carry;
mod far;
mod single;
mod words;

pub(super) use carry::Machines;
pub use carry::{Between, carry_out_between};
pub use far::answer;
