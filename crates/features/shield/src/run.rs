//! The shield in front of an interface: started, reloaded, looked at, stopped.

mod ahead;
mod answers;
mod asked;
mod challenge;
pub mod control;
mod event_loop;
mod follow;
mod heart;
mod interface;
mod left;
mod machine;
pub mod memory;
mod outside;
pub mod places;
pub mod plane;
pub mod session;
pub mod settings;
pub mod status;
pub mod unit;
pub(crate) mod watch;
pub mod whose;
pub mod xdp;

pub use asked::{Answer, Asked, Command, Reloaded};
pub use challenge::challenge_here;
pub use control::Control;
pub use event_loop::{Ended, Message, Request};
pub(crate) use follow::still_by;
pub use outside::outside;
pub use places::Places;
pub(crate) use places::write_whole;
pub use plane::DataPlane;
pub use settings::{Settings, Source};
pub use xdp::Xdp;
