//! TCP programs over link: the broker's side, and what a program's side asks it.
//!
//! A program that connects to an address of the cluster gets, in the place of its TCP socket, one end of a pair of Unix stream sockets; the broker
//! carries bytes between the other end and a stream of link. So the program's descriptor is one of the kernel's at all times: poll, epoll, fork,
//! dup and exec work as they do. The end is bound to a name in the abstract namespace, which says what addresses it stands for ([`names`]).
//!
//! A program that listens keeps its TCP socket. The broker of the other end connects to it, as any TCP client would, and the program's side swaps
//! what accept(2) gives for an end of a pair. So backlogs, several processes that accept, and clients from elsewhere work as they do.

mod allow;
mod ask;
mod by_tcp;
pub mod direct;
mod flow;
mod ids;
mod names;
mod options;
mod places;
mod program;
mod questions;
mod serve;

pub use self::{
    allow::Allow,
    ask::{Asker, Figures, Way},
    names::{names, parse as parse_name},
    options::{is_of_tcp, option, set_option},
    places::Known,
    program::{By, by},
    serve::Sockets,
};
pub(crate) use self::{options::OF_SOCKET, places::Listening};
