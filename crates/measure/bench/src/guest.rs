//! A guest as the box. Where KVM carries it, bench measures it as any box (`dut`). Elsewhere what its card model asks for is counted, and not timed.
//!
//! ```text
//! plan    the card models, bursts and lengths; what this machine lacks (pure)
//! bed     a namespace with two tap devices, and what sends and receives on them
//! trace   accesses to devices, out of QEMU's trace (pure)
//! inside  the guest as a router, what it says of its cards, and evenkeel's verbs in it
//! carry   card by card
//! dut     a guest as a box of bench, where KVM carries it
//! ```

pub(crate) mod bed;
mod carry;
mod dut;
pub(crate) mod inside;
mod plan;
mod trace;

pub use carry::{carry_out, emulation_reason};
pub(crate) use dut::build as dut;
pub use plan::{Options, Plan};
