//! The kernel programs, and one safe handle for each.
//!
//! The programs are C in `src/bpf`, one per `*.bpf.c`, compiled when this crate is; structs that both sides know are defined there once. A handle loads
//! its program with constants written into it, attaches it by a link that ends with the handle, and reads its counters. A foreign program on an interface
//! is never displaced: that is an [`XdpError`].
//!
//! * What ends or diverts frames: [`shield`], [`filter`], [`verdict`] (bare drop and pass), [`redirect`] (to AF_XDP sockets), [`tap`] (copies into a
//!   mapped ring), [`fanout`], [`xdp_fib`] (a router by look-up).
//! * What sends them: `gen` and [`bench_tx`] (live frames); [`bench_rx`] and [`flood_end`] count and measure where they arrive.
//! * What watches: [`drops`], [`xmit_drops`], [`ring_sockets`], [`napi_cost`], [`profile`]. An event that can come millions of times per second is
//!   counted each time and looked at as often as a share of the CPU pays for.

#![allow(unsafe_code)]

mod bench_clock;
pub mod bench_rx;
pub mod bench_tx;
mod bytes;
pub mod drop_reasons;
pub mod drops;
pub mod fanout;
pub mod filter;
pub mod flood_end;
pub mod r#gen;
mod live_run;
pub mod napi_cost;
pub mod profile;
pub mod redirect;
pub mod ring_sockets;
pub mod shield;
mod skel;
mod specialise;
pub mod tap;
mod translate;
pub mod verdict;
pub mod xdp;
pub mod xdp_fib;
pub mod xmit_drops;

pub use bench_rx::{BenchDelays, BenchReceiver, BenchRxConfig, BenchRxCounts, ClockCost, Echo};
pub use filter::{Filter, FilterError};
pub use flood_end::FloodEnd;
pub use r#gen::{LiveCounts, LivePace, LivePacket, LiveSender, RandomSources, takes_redirected_frames};
pub use napi_cost::{NapiCost, NapiCostError, NapiCosts};
pub use profile::{CpuProfile, ProfileError, ProfileOptions, SampleCounts, StackCount};
pub use redirect::{RedirectCounts, XskRedirect};
pub use ring_sockets::{RingKind, RingSocket, RingSockets, RingSocketsError};
pub use tap::{Tap, TapCounts, TapFrame, TapReader, TapSettings, TapStamp};
pub use verdict::{DropCounts, XdpDrop, XdpPass};
pub use xdp::{Attached, XdpError, XdpLink, XdpMode, program_name};
pub use xdp_fib::{FibCounts, XdpFib};
pub use xmit_drops::XmitDrops;
