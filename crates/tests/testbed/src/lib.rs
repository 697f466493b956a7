//! What tests are made of, for all crates alike: a test says what it builds, does and expects, and nothing else.
//!
//! A [`Bed`] is namespaces joined by veth pairs, with what is attached to them gone when it is dropped. [`wait`] is the only way to wait, and
//! no test asserts how long something took. A [`Running`] program ends with its test. A [`ShieldBed`] is a client, a host and the shield
//! between them, a [`RouteBed`] two hosts and the router between them, a [`losses::Road`] leads through a box that loses packets. [`random`] has
//! rules and frames at random; [`messages`] and [`filter`] have those made by hand. [`Kept`] settings of the machine are put back even if the
//! test is killed. Witnesses are programs of others: tcpdump, tshark.
//!
//! Only as a dev-dependency: what is here panics when something is not as expected.

mod bed;
mod beside;
pub mod cookies;
mod dice;
mod ends;
pub mod filter;
mod frame;
mod hosts;
mod kept;
mod link_node;
pub mod losses;
pub mod messages;
mod pcap;
mod ports;
mod program;
pub mod random;
mod received;
mod route;
mod router;
mod shield;
mod skip;
mod sshd;
mod tap;
mod tun;
mod wait;
mod wire;
mod witness;

pub use bed::{Bed, End, Space, in_namespace, in_namespace_with_sys};
pub use beside::{Beside, beside};
pub use dice::Dice;
pub use ends::Ends;
pub use frame::{Ip, ethernet};
pub use hosts::HostsBed;
pub use kept::{Kept, steering, unspread};
pub use link_node::LinkNode;
pub use pcap::{pcap, read_pcap, write_pcap};
pub use ports::PortsBed;
pub use program::{
    Running, ended, fixture, fixtures, guest_kernel, json, log, nft, printed, refused, run, text, words,
};
pub use received::{answers_refused, compared, counted, differences};
pub use route::RouteBed;
pub use router::RouterBed;
pub use shield::{CLIENT, DROP_9, Flow, Flown, SERVER, ShieldBed, bind};
pub use skip::{alone, installed, privileged, skip, turn};
pub use sshd::Sshd;
pub use tap::Tap;
pub use tun::Tun;
pub use wait::{WAIT_TIMEOUT, poll, wait, wait_for, wait_reporting, wait_up_to};
pub use wire::Wire;
pub use witness::{Tcpdump, matching, tshark};
