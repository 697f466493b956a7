//! The machine: what it is and how it is set (read), and every change to it (written, and taken back).
//!
//! Everything that is read comes from a [`Root`]: the live machine, or a copy that [`snapshot`] saved. [`Host::read`] makes an immutable picture of
//! it; [`counters`], [`stack`], [`setting`], [`symbols`] and [`wiring`] read what else is asked for. So plans are made and tested without the machine.
//!
//! Everything that is written is a [`knob`]: it reads, writes and prints itself as a shell command. A plan is a list of changes of knobs; the [`journal`]
//! has each on disk before it is made, reads it back, and walks backwards to undo. [`placement`] is the one judgement of which CPU a queue belongs
//! to. [`file`] writes every file that is for people.
//!
//! The way of a change, from the picture to a transaction that is taken back as a whole if it cannot be made as a whole:
//!
//! ```no_run
//! use host::{Host, Root, journal::{Journal, Transaction}, knob::{Change, Knob, Live, Store}};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::read(&Root::live())?;
//! let plan: Vec<Change> = host.irqs.iter().map(|irq| {
//!     let knob = Knob::IrqAffinity { irq: irq.number };
//!     let old = Live.read(&knob).unwrap_or_default();
//!     Change { knob, old, new: "1".into(), reason: "all to CPU 0".into() }
//! }).collect();
//! let writer = Journal::at(None).lock_for_changes()?;
//! let mut transaction = Transaction::begin(&writer, "an example")?;
//! transaction.make(&mut Live, &plan, &false.into(), || Ok::<_, host::HostError>(Vec::new())).map_err(|e| format!("{e:?}"))?;
//! # Ok(())
//! # }
//! ```
//!
//! [`netlink`] is the one client of the kernel's networking, and its monitor says when it lost changes; [`session`] finds the ssh sessions that
//! administer this machine.

pub mod counters;
pub mod file;
pub mod interface;
pub mod journal;
pub mod knob;
pub mod machine;
pub mod members;
pub mod mounted;
pub mod namespace;
pub mod neighbours;
pub mod netdev;
pub mod netlink;
pub mod owner;
pub mod picture;
pub mod placement;
pub mod read;
pub mod role;
pub mod root;
pub mod session;
pub mod setting;
pub mod snapshot;
pub mod ssh;
pub mod stack;
pub mod symbols;

pub use picture::Host;
pub use read::HostError;
pub use root::{Root, RootError};
