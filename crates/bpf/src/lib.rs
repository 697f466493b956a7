//! The kernel programs and one safe handle for each.

#![allow(unsafe_code)]

pub mod filter;
pub mod napi_cost;
pub mod redirect;
mod skel;
pub mod tap;
mod translate;
pub mod verdict;
pub mod xdp;

pub use filter::{Filter, FilterError};
pub use napi_cost::{NapiCost, NapiCostError, NapiCosts};
pub use redirect::{RedirectCounts, XskRedirect};
pub use tap::{Tap, TapCounts, TapFrame, TapReader, TapSettings};
pub use verdict::{DropCounts, XdpDrop, XdpPass};
pub use xdp::{Attached, XdpError, XdpLink, XdpMode};
