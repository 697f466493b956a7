//! The shield in front of an interface: started, reloaded, looked at, stopped.

mod ahead;
mod answers;
pub mod control;
mod follow;
pub mod guard;
pub mod keeper;
mod left;
mod machine;
mod making;
pub mod places;
pub mod session;
pub mod status;
pub mod unit;
mod watch;

pub use guard::{Guard, Settings, Source};
pub use keeper::{Answer, Command, Ended, Signals, Told, keep};
pub use places::Places;
