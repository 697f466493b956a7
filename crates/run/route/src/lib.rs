//! A router's fast path: frames are forwarded in XDP, by the kernel's own routes, neighbours and rules, which stay the only configuration.
//!
//! * `evidence` reads the configuration that forwarding decisions depend on; [`audit`] finds obstacles to the fast path; `plan` computes the
//!   tables of the kernel programs. The last two are pure.
//! * [`Router`] puts a program on each port and follows the kernel's changes. It falls back to the kernel's own path on an obstacle, and when
//!   changes come faster than they can be read.
//! * `shadow` compares the programs' decisions with the kernel's.
//!
//! [`rules`] puts stateless rules before the programs, which hold whatever the mode is. [`RouteService`] is the process around it, [`control`]
//! its commands, [`home`] its folder, [`outputs`] its events and metrics, [`unit`] its systemd unit, [`leftovers`] what killed ones left behind.
//!
//! The same program runs on each port in every mode, and the mode is a word in a map: switching attaches nothing and loses no packet.
//!
//! Each CPU caches next hops of the kernel under a generation, for 16 s at the most. The generation grows at each change of the kernel's
//! tables. Rules run in the route's place of the chain, before its program: a router without rules has no instruction of theirs.
//! In mode stateful the program looks a connection up once a generation, and reads the connection itself for each packet.

pub mod audit;
pub mod conntrack;
pub mod control;
mod cpus;
mod driver;
mod error;
mod evidence;
pub mod home;
pub mod leftovers;
pub mod outputs;
pub mod pinned;
mod plan;
pub mod rules;
mod run;
mod service;
mod settings;
mod shadow;
mod stateful;
pub mod unit;

pub use error::RouteError;
pub use run::Router;
pub use service::RouteService;
pub use settings::RouteSettings;
