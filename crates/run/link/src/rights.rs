//! The capabilities of a broker, and of each thread of it.
//!
//! Its thread that carries the sockets of programs, which closes what they send, and that makes pairs of sockets have none.

use sys::privilege::Capability::{self, *};

use crate::broker::{BrokerSettings, Receive};

/// Capabilities of the thread that receives files: the folders belong to anybody.
pub const OF_COPIES: [Capability; 1] = [CAP_DAC_OVERRIDE];

/// The capabilities that a broker starts with: its bounding set.
pub fn of_start(settings: &BrokerSettings, carries_sockets: bool, receives_files: bool) -> Vec<Capability> {
    let mut all = of_broker(settings);
    // Programs of others in the XDP hook are found by their numbers.
    let joins_chain = settings.udp.is_none() && settings.xdp != Receive::Sockets;
    all.extend(Some(CAP_SYS_ADMIN).filter(|right| joins_chain && !all.contains(right)));
    // The file of the socket that programs ask at is the group's.
    all.extend(settings.group.map(|_| CAP_CHOWN));
    // The thread that makes pairs of sockets becomes nobody's.
    all.extend([CAP_SETUID, CAP_SETGID].into_iter().filter(|_| carries_sockets));
    all.extend(OF_COPIES.into_iter().filter(|_| receives_files));
    all
}

/// The capabilities that it keeps once it serves: it makes sockets, rings and maps for each program that asks for ports.
pub fn of_broker(settings: &BrokerSettings) -> Vec<Capability> {
    kept(settings.group.is_some(), settings.udp.is_some())
}

pub(crate) fn kept(has_group: bool, is_over_udp: bool) -> Vec<Capability> {
    let mut all = vec![CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON];
    // The sockets of the group's programs are made in another network namespace.
    all.extend(has_group.then_some(CAP_SYS_ADMIN));
    // The port of link behind UDP is below 1024.
    all.extend(is_over_udp.then_some(CAP_NET_BIND_SERVICE));
    all
}
