//! The shield in front of an interface: started, reloaded, looked at, stopped.

mod challenge;
mod command;
pub mod control;
mod follow;
mod heartbeat;
mod interface;
mod known;
mod leftover;
mod loader;
mod machine;
mod outside;
pub mod owner;
pub mod paths;
pub mod plane;
mod preload;
pub mod saved_state;
mod service;
pub mod settings;
pub mod status;
mod syn_answers;
pub(crate) mod transition;
pub mod unit;
mod wake;
pub(crate) mod warnings;
pub mod xdp;

pub use challenge::challenge_here;
pub use command::{Answer, Command, Reloaded, end_silent};
pub use control::{Control, Upkeep};
pub use known::unknowable_here;
pub use outside::outside;
pub use paths::Paths;
pub use plane::DataPlane;
pub use service::{Ended, Message, ShieldService};
pub use settings::{Settings, Source};
pub use xdp::Xdp;
