//! Attacks: seen in the counters of protected prefixes, answered by rules, withdrawn when they end.
//!
//! All of it is pure: [`Window`]s go in, events and rules come out ([`Detector`]).

pub mod attack;
pub mod baseline;
pub mod classify;
mod detection;
mod detector;
pub mod effect;
mod headroom;
mod heavy;
pub mod known;
pub mod ladder;
mod learned;
pub mod mix;
mod protected;
mod reader;
mod template;
pub mod window;

pub use attack::Attack;
pub use detection::{Change, Detection, Seen};
use detector::picture;
pub use detector::{Detector, State};
pub use heavy::Heavy;
pub use ladder::{fit, insert};
pub use learned::Learned;
pub use reader::{Reader, packet_of, sample_of};
pub use template::template;
pub use window::{Counts, Rates, Window};
