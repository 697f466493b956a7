//! The interfaces of a network namespace: all that netlink says of each ([`Link`]), which belong together ([`Wiring`]), and their
//! names and numbers ([`index`]).

pub(crate) mod link;
mod name;
mod wiring;

pub use link::{FrameStart, Link, PortState, links};
pub use name::{NoInterface, exists, index, name_of, names, real_name};
pub use wiring::{Peer, Wiring};
