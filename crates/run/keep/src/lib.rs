//! Keeps what was set: intents in files, planned on the machine that is there and carried out again after a boot, a reset, a rename or a write
//! of somebody else.
//!
//! [`Folder`] reads and writes the files of [`intent::Intents`]; what contradicts another one is refused. A [`Keeper`] plans them by a
//! [`Planner`] and makes what differs through the journal, a session for each file. [`KeepService`] has it look at the machine when a link
//! changes, and each second; [`state`] is what it compares. [`drift`] judges who else writes.

mod clash;
pub mod control;
pub mod drift;
mod error;
pub mod folder;
mod home;
pub mod intent;
mod keeper;
mod log;
mod memory;
pub mod off;
mod planner;
mod service;
pub mod state;
pub mod status;
pub mod unit;

pub use error::KeepError;
pub use folder::Folder;
pub use home::hold;
pub use keeper::Keeper;
pub use planner::{Planned, Planner};
pub use service::KeepService;
