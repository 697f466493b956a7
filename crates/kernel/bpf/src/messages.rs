//! Programs that deliver messages between nodes: frames of one EtherType each, copied into rings of the processes that they are for.
//!
//! The common parts of protocols are in C (`hooks.h`, docs/protocol/link-builders.md); [`port::LinkPort`] is the reference protocol of
//! docs/protocol/link.md, [`barrier::LinkBarrier`] a second one.

pub(crate) mod barrier;
pub(crate) mod burst;
pub(crate) mod counts;
mod endpoints;
pub(crate) mod guard;
pub(crate) mod guard_options;
pub(crate) mod loss;
pub(crate) mod port;
pub(crate) mod port_owner;
pub(crate) mod ring;
