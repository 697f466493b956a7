//! The shield in front of an interface: started, reloaded, looked at, stopped.

mod ahead;
mod answers;
mod asked;
mod challenge;
pub mod control;
pub(crate) mod follow;
pub mod guard;
mod heart;
mod interface;
pub mod keeper;
mod left;
pub(crate) mod lock;
mod machine;
mod making;
pub mod memory;
mod outside;
pub mod places;
pub mod session;
pub mod settings;
mod start;
pub mod status;
pub mod unit;
pub(crate) mod watch;
pub mod whose;

pub use asked::{Answer, Asked, Command, Reloaded};
pub use challenge::challenge_here;
pub use guard::Guard;
pub use keeper::{Ended, Signals, Told, keep};
pub use outside::outside;
pub use places::Places;
pub(crate) use places::write_whole;
pub use settings::{Settings, Source};
