//! TCP programs over link: the broker's side ([`Sockets`]), and the program's side ([`BrokerClient`], [`takeover`]).
//!
//! When a program connects to an address of the cluster, one end of a pair of Unix stream sockets replaces its TCP socket; the broker moves bytes
//! between the other end and a stream of link. The program's descriptor is always one of the kernel's: poll, epoll, fork, dup and exec work as usual.
//! The end is bound to a name in the abstract namespace, which has the TCP addresses ([`names`]).
//!
//! A program that listens keeps its TCP socket. The broker at its node connects to it, as any TCP client would, and the program's side replaces
//! what accept(2) returns by an end of a pair. Backlogs, several accepting processes, and clients from elsewhere work as usual.
//!
//! # States of a connection
//! A connection is **pending**, then **brokered**: the brokers move its bytes. After some calls both programs **join**, and it is **taken over**: the
//! programs move the bytes, each with an engine of its own, and the brokers only watch for the end. If a join fails it stays brokered.
//!
//! ```text
//! program A            broker A               broker B            program B
//! connect(2) --------> PendingConnect                             listen(2)
//!                          |---- stream, head ---> Unnamed
//!                          |                   PendingAccept ----> accept(2)
//!                          |<------- yes ----------|
//!     <--- end of a pair --|                       |--- end of a pair --->
//! Brokered ====pair==== Brokered ===stream=== Brokered ====pair==== Brokered
//!
//!     -- Offer ----------> |------- Notice ------> | <------- IsOffered --
//! Joining <===================== stream of link =================> Joining
//!     -- Take -----------> |                       | <------------ Take --
//! TakenOver             TakenOver             TakenOver          TakenOver
//!     <========================= stream of link =================>
//! ```
//!
//! | state | broker's entry | program's engine | descriptor in the program | the bytes go by |
//! |---|---|---|---|---|
//! | pending | `PendingConnect`; `Unnamed`, `PendingAccept` | | TCP socket | |
//! | brokered | `Brokered` | | `Brokered`, counts its calls | pair, broker, stream |
//! | joining | `Brokered` | `Joining` | `Registered` | pair, broker, stream |
//! | taken over | `TakenOver` | `TakenOver` | `Registered` | stream of the programs |
//! | given up | `Brokered` | `Released` | `Registered` | pair, broker, stream |

mod address_map;
mod allow;
mod broker_client;
mod broker_lines;
mod by_tcp;
mod flow;
mod ids;
mod interception;
mod listeners;
mod names;
mod options;
mod serve;
mod shared;
mod socket_address;
pub mod takeover;

pub use self::{
    allow::Allow,
    broker_client::{BrokerClient, Figures},
    interception::{Interception, interception},
    names::{names, parse as parse_name},
    options::{is_of_tcp, option, set_option},
    serve::Sockets,
    shared::Known,
};
pub(crate) use self::{listeners::Listening, options::OF_SOCKET};
