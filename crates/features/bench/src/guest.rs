//! A guest as the box, where KVM carries none: what its card model asks for, counted and not timed.
//!
//! ```text
//! plan    the card models, bursts and lengths; what this machine lacks (pure)
//! bed     a namespace with two tap devices, and what sends and receives on them
//! trace   accesses to devices, out of QEMU's trace (pure)
//! inside  the guest as a router, what it says of its cards, and evenkeel's verbs in it
//! carry   card by card
//! ```

mod bed;
mod carry;
mod inside;
mod plan;
mod trace;

pub use carry::carry_out;
pub use plan::{Asked, Plan};
