//! Work with other machines that ssh reaches: a process of evenkeel on each, which obeys orders on its standard input and answers on its standard output,
//! a line of JSON each.
//!
//! ```text
//! facts  what a machine is, and the interface that it uses
//! near   the control of a process on another machine
//! far    that process: its orders and answers
//! ```

mod error;
mod facts;
mod far;
mod near;

pub use self::{error::ApartError, near::Reach};
pub(crate) use self::{
    facts::Facts,
    far::Orders,
    near::{Near, Reply},
};
