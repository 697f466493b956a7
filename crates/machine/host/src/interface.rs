//! The interfaces of a network namespace: all that netlink says of each ([`Link`]), which belong together ([`Wiring`]), and their
//! names and numbers ([`index`]).

pub(crate) mod link;
mod wiring;

pub use link::{FrameStart, Link, PortState, links};
pub use sys::{
    interface::{NoInterface, exists, index, names},
    link::name_of,
};
pub use wiring::{Peer, Wiring, real_name};
