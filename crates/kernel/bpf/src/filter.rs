//! The shield's kernel program: rules, prefixes, limits, cookies and counts in XDP.

mod ack;
mod connected;
mod cookie;
mod counts;
mod hold;
mod layout;
mod link;
mod load;
mod room;
mod seen;
mod shared;
mod spare;
mod specialise;
mod watch;
mod watch_writer;

pub use ack::{AckCounts, AckProgram, ShieldAck};
pub use connected::Connected;
pub use cookie::{CookieCounts, CookieMode, Cookies, GatewayCookies, HostCookies, SourceCookies};
pub use counts::ShieldCounts;
pub use hold::StackHold;
pub use link::ShieldLink;
pub use load::{Between, Heartbeat, KnownPackets, Shield, ShieldConfig, ShieldParsed, Tested};
pub use seen::SeenSources;
pub use shared::ShieldShared;
pub use spare::SpareProgram;
pub use watch::{Watch, WatchConfig, WatchReading, WatchSample};
pub use watch_writer::WatchWriter;

use crate::program::Program;

const PROGRAM: Program = Program("ek_shield");
