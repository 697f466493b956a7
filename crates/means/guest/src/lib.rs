//! A guest that QEMU runs: its kernel, a root made on the spot with evenkeel in it, and what is asked of it.
//!
//! ```text
//! kernel   a kernel's image and modules, and the order in which modules are loaded
//! root     the root that it boots: evenkeel, programs of this machine with their libraries, modules
//! agent    the guest's first process: obeys orders on its second serial port
//! words    the orders and answers
//! machine  QEMU: started, asked, ended
//! patch    QEMU without a guest, between two tap devices
//! cards    the card models and what QEMU and a guest call them
//! accel    whether KVM carries a guest: by a trial
//! ```

mod accel;
pub mod agent;
mod cards;
mod error;
mod kernel;
mod machine;
mod patch;
mod root;
mod words;

pub use accel::{Accel, trial};
pub use cards::Nic;
pub use error::GuestError;
pub use kernel::Kernel;
pub use machine::{Card, Guest, Settings};
pub use patch::Patch;
pub use root::Root;
pub use words::{Answer, Ran};
