//! Intents in files, planned on this machine and applied again after a boot, a reset, a rename or a write of another program.
//!
//! [`Folder`] reads and writes the files of [`intent::Intents`] and refuses files that contradict each other. A [`Keeper`] plans them by a
//! [`Planner`] and applies the differences through the journal, one session per file. [`KeepService`] reads the machine's [`state`] when a
//! link changes, and each second. [`drift`] judges writes of other programs.

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
