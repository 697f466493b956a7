//! What every long-running part of the program needs, whatever it does: it is asked, it is watched, it tells of events, and it never waits
//! for those who read what it says.
//!
//! - [`Server`] runs [`Service`]s on one thread: signals, readiness, sockets, the wait. Each keeps its folder, lock and socket in a [`Home`].
//! - [`control`] asks a service by its socket: a line of JSON each way, within a time, a few at once. The commands and answers are yours.
//! - [`metrics`] makes Prometheus' and OpenMetrics text of tables of counters ([`model::counters`]), for a file ([`MetricsFile`]) and over HTTP
//!   on the loopback address ([`MetricsServer`], on [`HttpServer`]).
//! - [`EventLog`] appends events to a file that may be rotated; [`Hook`] runs the user's program for each. [`Outputs`] has both, and metrics.
//! - [`OutputThread`] writes to stdout or stderr, [`Background`] does any other slow work, each on a thread of its own.
//! - [`unit`] writes a systemd unit. [`lock()`] makes sure that one process does it.
//!
//! # Example
//!
//! A process that counts, and that others ask for the count:
//!
//! ```
//! use std::{
//!     convert::Infallible,
//!     ops::ControlFlow,
//!     path::PathBuf,
//!     sync::mpsc::Sender,
//!     thread,
//!     time::{Duration, Instant},
//! };
//!
//! use serve::{HeldHome, Home, HomeKind, Server, Service, Wait, control};
//!
//! const KIND: HomeKind = HomeKind { prefix: "counter@", mode: 0o700, files: &[] };
//!
//! struct Counter {
//!     held: HeldHome,
//!     polls: u64,
//! }
//!
//! impl Service for Counter {
//!     type Command = String;
//!     type Answer = u64;
//!     type Status = u64;
//!     type Ended = u64;
//!     type Error = Infallible;
//!
//!     fn name(&self) -> String {
//!         "the counter".to_owned()
//!     }
//!     fn socket(&self) -> PathBuf {
//!         self.held.socket()
//!     }
//!     fn poll(&mut self) -> Result<(), Infallible> {
//!         self.polls += 1;
//!         Ok(())
//!     }
//!     fn wait(&mut self) -> Result<Wait<'_>, Infallible> {
//!         Ok(Wait { until: Instant::now() + Duration::from_secs(1), readable: Vec::new() })
//!     }
//!     fn command(&mut self, command: String, to: Sender<u64>) -> Result<ControlFlow<()>, Infallible> {
//!         // The asking process may have gone.
//!         let _ = to.send(self.polls);
//!         Ok(if command == "stop" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
//!     }
//!     fn status(&mut self) -> Result<u64, Infallible> {
//!         Ok(self.polls)
//!     }
//!     fn close(self) -> Result<u64, Infallible> {
//!         Ok(self.polls)
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! let mut server = Server::without_signals()?;
//! let counter = server.add(Counter { held: Home::new(KIND, root, "eth0").hold()?, polls: 0 })?;
//! let socket = Home::new(KIND, root, "eth0").socket();
//! // Another process would ask so.
//! let other = thread::spawn(move || control::ask::<_, u64>(&socket, &"stop").unwrap());
//! server.run(|error| eprintln!("{error}"));
//! assert_eq!(counter.ended(), other.join().unwrap().map(Ok));
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
mod lost;
pub mod metrics;
mod output;
mod outputs;
mod process;
mod server;
mod service;
mod supervised;
pub mod unit;
mod wake;

pub use background::Background;
pub use error::{HomeError, ServeError};
pub use event::{Event, EventLog};
pub use home::{HeldHome, Home, HomeKind};
pub use hook::Hook;
pub use http::{HttpRequest, HttpResponse, HttpServer};
pub use lock::{Lock, lock, lock_left};
pub use lost::{lost, lost_folders};
pub use metrics::{MetricsFile, MetricsServer};
pub use output::{Lost, OutputThread};
pub use outputs::{OutputSettings, Outputs, OutputsChange};
pub use server::{Client, Handle, Server, Stop};
pub use service::Service;
pub use wake::Wait;
