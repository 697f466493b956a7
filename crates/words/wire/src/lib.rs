//! Packets as bytes: build, parse, checksum; no I/O, no unsafe.
//!
//! A parser checks once, in its constructor; what it hands out cannot fail. No bytes make any of them panic.

pub mod capture_file;
pub mod checksum;
pub mod error;
pub mod ethernet;
pub mod ip;
pub mod line;
pub mod link;
pub mod size;
pub mod template;
pub mod transport;

pub use capture_file::Unread;
pub use checksum::Sum;
pub use error::WireError;
pub use ethernet::{Ethernet, Mac, Tag};
pub use ip::Ip;
pub use link::LinkType;
pub use size::{FrameSize, IMIX};
pub use template::{FlowKey, Kind, Template};
pub use transport::Transport;
