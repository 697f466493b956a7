//! The places where frames enter or leave: one Source or Sink per backend.
//!
//! A backend that an interface cannot do is an error that says why; nothing here falls back to another one.

pub mod error;
pub mod frame;
pub mod members;
pub mod offloads;
pub mod packet;
mod presence;
pub mod ring;
pub mod source;
pub mod tap;
pub mod xdp;
mod xdp_common;
pub mod xdp_sink;

pub use error::PortError;
pub use frame::{Frame, Judged, SourceStats, VlanTag};
pub use members::{FanoutProgram, Group, PacketOptions, WHOLE_FRAME};
pub use packet::{PacketSource, PlainReading};
pub use ring::RingSource;
pub use source::{Counted, Source};
pub use tap::{TapOptions, TapSource};
pub use xdp::{XdpOptions, XdpSource, XdpWait};
pub use xdp_common::keeps_tags;
pub use xdp_sink::{XdpSink, XdpSinkOptions};
