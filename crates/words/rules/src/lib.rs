//! The rule language: one model of rules, from a file or from flags, that compiles to the tables of a kernel program and to nftables.
//!
//! [`file`] and [`flags`] make [`Rules`]; [`check`](mod@check) says what is probably not meant; [`reference`] says what they mean, as plainly as
//! possible, and [`explain`](mod@explain) applies that to a saved capture. [`compile`](mod@compile) makes [`tables`] of them, which a kernel program
//! looks up and [`compile::lookup`] looks up in this process; [`nft`] makes an nftables script. All of it is pure: nothing here touches an interface.
//!
//! [`known`] is what a rule may ask of the machine beside the packet's bytes, [`requester`] who asks for rules to hold, [`status`] rules as people are
//! shown them. Tests of `shield` hold reference, tables, kernel program and nftables together, packet by packet.

pub mod check;
pub mod compile;
pub mod detect;
mod detection;
pub mod error;
pub mod explain;
pub mod file;
pub mod flags;
pub mod keys;
pub mod known;
pub mod limits;
pub mod management;
pub mod nft;
pub mod packet;
pub mod prefixes;
mod reader;
pub mod reference;
pub mod requester;
pub mod rule;
pub mod sets;
pub mod status;
pub mod tables;
pub mod toml_words;
pub mod words;

pub use error::{Problem, RulesError};
pub use rule::*;
