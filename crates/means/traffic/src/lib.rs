//! Packet generators and what they really achieved.
//!
//! [`plan`] turns settings into a checked [`Plan`] and is pure but for reading a capture file; [`run`] carries it out.

pub mod backend;
pub mod cycle;
pub mod error;
pub mod interface;
mod pace;
pub mod pacing;
pub mod plan;
pub mod range;
pub mod rate;
pub mod replay;
pub mod report;
pub mod run;
pub mod safety;

pub use cycle::FlowSpace;
pub use error::TrafficError;
pub use interface::Interface;
pub use pacing::Pacing;
pub use plan::{Backend, GenConfig, Origin, Plan, ReplayConfig, StreamConfig};
pub use range::{Ports, Prefix};
pub use rate::{Layer, Rate};
pub use replay::{Recording, Timing};
pub use report::{GenReport, SenderReport};
pub use run::{Progress, Ready, prepare, run};
pub use safety::Allowance;
