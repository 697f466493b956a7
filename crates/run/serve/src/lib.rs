//! What every long-running part of the program needs, whatever it does: it is asked, it is watched, it tells of events, and it never waits
//! for those who read what it says.
//!
//! - [`control`] answers commands on a socket: a line of JSON each way, within a time, a few at once. The commands and answers are yours.
//! - [`metrics`] makes Prometheus' and OpenMetrics text of tables of counters ([`model::counters`]), for a file ([`MetricsFile`]) and over HTTP
//!   on the loopback address ([`MetricsServer`], on [`HttpServer`]).
//! - [`EventLog`] appends events to a file that may be rotated; [`Hook`] runs the user's program for each. [`Outputs`] has both, and metrics.
//! - [`OutputThread`] writes to stdout or stderr, [`Background`] does any other slow work, each on a thread of its own.
//! - [`unit`] writes a systemd unit. [`lock()`] makes sure that one process does it; [`Signals`] and [`notify_ready`] are for whoever started it.
//!
//! # Example
//!
//! A process that counts, and that others ask how far it is:
//!
//! ```
//! use std::{sync::mpsc, thread};
//!
//! use serve::{
//!     control::{self, Listener, Request},
//!     metrics::{Metrics, Notation},
//! };
//!
//! model::counters! {
//!     #[derive(Debug, Default)]
//!     pub struct Totals {
//!         forwarded: Frames "example_forwarded_frames" "Frames that were forwarded.";
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let state = folder.path();
//! // One process at a time, and a socket beside its lock.
//! let _lock = serve::lock(&state.join("lock"))?;
//! let (to, requests) = mpsc::channel::<Request<String, u64>>();
//! let listener = Listener::start(&state.join("control"), to)?;
//!
//! // The loop of the process: commands come one after the other.
//! let totals = Totals { forwarded: 7 };
//! let running = thread::spawn(move || {
//!     for (command, answer) in requests {
//!         let count = if command == "forwarded" { totals.forwarded } else { 0 };
//!         // Whoever asked may have gone.
//!         let _ = answer.send(count);
//!     }
//!     totals
//! });
//!
//! // Another process asks.
//! assert_eq!(control::ask(&state.join("control"), &"forwarded")?, Some(7));
//!
//! drop(listener);
//! let totals = running.join().unwrap();
//! let mut metrics = Metrics::default();
//! metrics.add_counters(&[("interface", "eth0")], &totals, Totals::COUNTERS);
//! let text = metrics.text(Notation::OpenMetrics);
//! assert!(text.contains("example_forwarded_frames_total{interface=\"eth0\"} 7"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod background;
mod connection;
pub mod control;
mod error;
mod event;
mod home;
mod hook;
mod http;
mod lock;
pub mod metrics;
mod output;
mod outputs;
mod process;
mod server;
mod service;
pub mod unit;

pub use background::Background;
pub use error::{HomeError, ServeError};
pub use event::{Event, EventLog};
pub use home::{HeldHome, Home, HomeKind};
pub use hook::Hook;
pub use http::{HttpRequest, HttpResponse, HttpServer};
pub use lock::{Lock, lock, lock_left};
pub use metrics::{MetricsFile, MetricsServer};
pub use output::{Lost, OutputThread};
pub use outputs::{OutputSettings, Outputs, OutputsChange};
pub use process::{Signals, notify_ready};
pub use server::{Client, Handle, Server};
pub use service::Service;
