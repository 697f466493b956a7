//! A router's fast path: frames are forwarded in XDP, by the kernel's own routes, neighbours and rules, which stay the only configuration.
//!
//! * `evidence` reads what a forwarding decision depends on; [`audit`] finds what the fast path cannot honour; `plan` makes of both what the
//!   kernel programs need. The last two are pure.
//! * [`Router`] puts a program on each port and follows the kernel's changes. On any doubt it goes back to the kernel's own path: an obstacle
//!   that appears, changes that came faster than they could be read.
//! * `shadow` holds what the programs would have done against what the kernel did.
//!
//! [`rules`] puts stateless rules before the programs, which hold whatever the mode is. [`RouteService`] is the process around it, [`control`]
//! its commands, [`home`] its folder, [`seen`] what others see of it, [`unit`] its systemd unit, [`leftovers`] what killed ones left behind.
//!
//! The same program runs on each port in every mode, and the mode is a word in a map: switching attaches nothing and loses no packet.
//!
//! The kernel is asked for a next hop once; each CPU remembers the answer under a generation, for 16 s at the most. The generation grows at each change of
//! the kernel's tables. Rules sit in the route's place, before its program, by which no instruction is there for who has none.
//! In mode stateful the program asks conntrack for a connection once a generation, and reads the connection itself for each packet.

pub mod audit;
pub mod conntrack;
pub mod control;
mod cpus;
mod driver;
mod error;
mod evidence;
pub mod home;
pub mod leftovers;
pub mod pinned;
mod plan;
pub mod rules;
mod run;
pub mod seen;
mod service;
mod settings;
mod shadow;
mod stateful;
pub mod unit;

pub use error::RouteError;
pub use run::Router;
pub use service::RouteService;
pub use settings::RouteSettings;
