//! The shield in front of an interface: started, reloaded, looked at, stopped.

pub mod guard;
pub mod places;
pub mod session;
pub mod status;

pub use guard::{Guard, Settings, Source};
pub use places::Places;
