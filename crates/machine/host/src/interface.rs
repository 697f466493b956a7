//! The interfaces of a network namespace: all that netlink says of each ([`Link`]), and which belong together ([`Wiring`]).

pub(crate) mod link;
mod wiring;

pub use link::{Link, PortState, links};
pub use wiring::{Peer, Wiring};
