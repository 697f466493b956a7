//! Programs that divert frames to a reader: to AF_XDP sockets, to mapped rings, to the members of a fanout group; and the filters in front.

pub mod fanout;
pub(crate) mod filter;
pub(crate) mod redirect;
pub mod tap;
pub(crate) mod translate;
