//! Parts of every long-running process: it answers commands, and publishes metrics and events without waiting for
//! their readers.
//!
//! - [`Server`] runs one or several [`Service`]s on a thread: signals, readiness, and commands by a socket, a line of JSON each way ([`control`]).
//! - [`metrics`] makes Prometheus' and OpenMetrics text of tables of counters ([`model::counters`]), for a file ([`MetricsFile`]) and over HTTP
//!   on the loopback address ([`MetricsServer`], on [`HttpServer`]).
//! - [`EventLog`] appends events to a file that may be rotated; [`Hook`] runs the user's program for each. [`Outputs`] has both, and metrics.
//! - [`OutputThread`] writes to stdout or stderr, [`Background`] does any other slow work, each on a thread of its own.
//! - [`unit`] writes a systemd unit. [`Home`] is a service's folder, held by one process at a time.
//!
//! # Example
//!
//! A service that counts, in a server that ends when it is told to:
//!
//! ```
//! use std::{
//!     io,
//!     ops::ControlFlow,
//!     path::PathBuf,
//!     sync::mpsc::Sender,
//!     thread,
//!     time::{Duration, Instant},
//! };
//!
//! use serve::{
//!     Server, Service, control,
//!     metrics::{Metrics, Notation},
//! };
//!
//! model::counters! {
//!     #[derive(Debug, Default, Clone, Copy)]
//!     pub struct Totals {
//!         forwarded: Frames "example_forwarded_frames" "Frames that were forwarded.";
//!     }
//! }
//!
//! struct Counting(Totals, PathBuf);
//!
//! impl Service for Counting {
//!     type Command = String;
//!     type Answer = u64;
//!     type Status = Totals;
//!     type Ended = Totals;
//!     type Error = io::Error;
//!
//!     const POLL_PERIOD: Duration = Duration::from_millis(20);
//!
//!     fn name(&self) -> String {
//!         "the counter".to_owned()
//!     }
//!
//!     fn socket(&self) -> PathBuf {
//!         self.1.clone()
//!     }
//!
//!     fn poll(&mut self, until: Instant) -> io::Result<()> {
//!         self.0.forwarded += 7;
//!         thread::sleep(until.saturating_duration_since(Instant::now()));
//!         Ok(())
//!     }
//!
//!     fn command(&mut self, command: String, to: Sender<u64>) -> io::Result<ControlFlow<()>> {
//!         // The client may have gone.
//!         let _ = to.send(self.0.forwarded);
//!         Ok(if command == "stop" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
//!     }
//!
//!     fn status(&mut self) -> io::Result<Totals> {
//!         Ok(self.0)
//!     }
//!
//!     fn close(self) -> io::Result<Totals> {
//!         Ok(self.0)
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let socket = folder.path().join("control");
//! let mut server = Server::start()?;
//! let counting = server.add(Counting(Totals::default(), socket.clone()))?;
//! // Another process asks.
//! let client = thread::spawn(move || control::ask::<_, u64>(&socket, &"stop"));
//! server.run(|warning| eprintln!("{warning}"));
//! assert!(client.join().unwrap()?.is_some_and(|forwarded| forwarded >= 7));
//!
//! let totals = counting.ended().unwrap()?;
//! let mut metrics = Metrics::default();
//! metrics.add_counters(&[("interface", "eth0")], &totals, Totals::COUNTERS);
//! let text = metrics.text(Notation::OpenMetrics);
//! assert!(text.contains("example_forwarded_frames_total{interface=\"eth0\"}"));
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
mod wake;

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
pub use process::Signals;
pub use server::{Client, Handle, Server};
pub use service::Service;
pub use wake::Wait;
