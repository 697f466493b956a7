//! Link measured: messages and streams beside UDP, TCP and bare frames ([`bench`]), and what communication costs as nodes are added ([`speedup`]).
//!
//! Both run in namespaces of this machine, or between machines that ssh reaches ([`remote`]).

pub mod bench;
mod bridged;
mod error;
pub mod remote;
pub mod speedup;

pub use error::MessagesError;
