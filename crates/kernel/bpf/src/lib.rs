//! The kernel programs, and one safe handle for each.
//!
//! The programs are C, one per `*.bpf.c`, compiled when this crate is. Each lies beside its handle in the room of what it does; headers that any
//! program can use are in `src/lib`. Structs that both sides know are defined in C once. A handle loads its program with constants written into it,
//! attaches it by a link that ends with the handle, and reads its counters. A foreign program on an interface is never displaced: that is an
//! [`XdpError`].
//!
//! * [`chain`] lets several programs share an interface.
//! * [`filter`] ends what rules do not let pass: the shield's program.
//! * `capture` diverts frames: to AF_XDP sockets ([`XskRedirect`]), into a mapped ring ([`tap`]), to the members of a [`fanout`] group.
//! * `route` forwards them: [`XdpFib`], by look-up.
//! * `messages` delivers what nodes send each other: [`LinkPort`], the reference protocol, and [`LinkBarrier`], a second one.
//! * `send` sends them: `gen` and [`bench_tx`] (live frames). [`bench_rx`] and [`FloodEnd`] count and measure where they arrive; [`XdpDrop`] and
//!   [`XdpPass`] are the barest receivers.
//! * `trace` watches: [`AllocationCounter`], [`drops`], [`XmitDrops`], [`RingSockets`], [`NapiCosts`], [`CpuProfile`].
//!
//! [`probe`] tries what the kernel gives.
//!
//! Under all of them lies a trunk: `program` opens, loads and test-runs, and says what failed; [`link`] attaches; `counters` adds up over CPUs.
//!
//! ```no_run
//! use bpf::{XdpDrop, XdpMode};
//! # fn main() -> Result<(), bpf::XdpError> {
//! let drop = XdpDrop::attach("eth0", XdpMode::Native)?;
//! println!("{} frames ended here", drop.counts()?.frames);
//! // The program goes with its handle, also when the process is killed.
//! # Ok(())
//! # }
//! ```

#![allow(unsafe_code, reason = "the room of kernel programs: libbpf's calls, and memory shared with them")]

mod bytes;
mod capture;
pub mod chain;
mod counters;
pub mod filter;
pub mod link;
mod messages;
mod pin;
pub mod probe;
mod program;
mod route;
mod send;
mod skel;
mod trace;

pub use capture::{
    fanout,
    filter::{Filter, LoadedFilter},
    redirect::{RedirectCounts, XskRedirect},
    tap::{self, Tap, TapCounts, TapFrame, TapPlace, TapReader, TapSettings, TapStamp},
    translate::FilterError,
};
pub use link::{Attached, XdpError, XdpLink, XdpMode, program_name};
pub use messages::{
    barrier::{BarrierDone, LinkBarrier},
    burst::LinkBurst,
    counts::{BarrierCounts, LinkCounts},
    guard::{GUARDED, LinkGuard},
    guard_options::LinkOptionsGuard,
    loss::lossy_wire,
    port::{LinkAnswers, LinkPort, LinkSettings},
    port_owner::{PortOwners, PortSockets},
    ring::LinkRing,
};
pub use program::ProgramError;
pub use route::{
    look::RouteLook,
    port::{RoutePort, stateful_lacks},
    shadow::{RouteEgress, RouteEgressWatch, RouteSample, shadow_lacks},
    steering::{QUEUE_MAX as ROUTE_QUEUE_MAX, RouteLosses},
    tables::{
        BUCKETS as ROUTE_BUCKETS, MTUS_MAX as ROUTE_MTUS_MAX, PORTS_MAX as ROUTE_PORTS_MAX, RouteInterface, RouteKey,
        RouteNeighbour, RouteSlots, RouteTables, RouteTrack,
    },
    watch::RouteWatch,
    xdp_fib::{FibCounts, XdpFib},
};
pub use send::{
    bench_rx::{self, BenchDelays, BenchReceiver, BenchRxConfig, BenchRxCounts, ClockCost, Echo},
    bench_tx,
    flood_end::FloodEnd,
    r#gen::{
        self, LiveCounts, LivePace, LivePacket, LiveSender, RandomSources, has_zero_copy, runs_native_xdp,
        takes_large_redirected_frames, takes_redirected_frames,
    },
    verdict::{DropCounts, XdpDrop, XdpPass},
};
pub use trace::{
    allocations::{Allocated, AllocationCounter},
    drop_reasons, drops,
    napi_cost::{NapiCost, NapiCostError, NapiCosts},
    profile::{self, CpuProfile, ProfileError, ProfileOptions, SampleCounts, StackCount},
    ring_sockets::{RingKind, RingSocket, RingSockets, RingSocketsError},
    xmit_drops::XmitDrops,
};
