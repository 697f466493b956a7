//! Work on other machines by ssh: a coordinator starts a worker process of evenkeel on each, which reads orders on its standard input and replies on its
//! standard output, a line of JSON each.
//!
//! ```text
//! facts        a machine, and the interface that it uses
//! coordinator  starts a worker, gives it orders and reads its replies
//! worker       reads orders and replies
//! ```

mod coordinator;
mod facts;
mod worker;

pub use self::coordinator::Reach;
pub(crate) use self::{
    coordinator::{Reply, Worker},
    facts::Facts,
    worker::Orders,
};
