//! The common part of the two XDP backends: opening, errors, and the rhythm in which a reader looks.

use std::{
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bpf::{Filter, ProgramError, XdpError};
use sys::{
    packet::{Instruction, PacketSocket},
    privilege::{Capability, require},
};

use crate::{PortError, members::explain};

pub(crate) fn up_interface(interface: &str) -> Result<u32, PortError> {
    let index = host::interface::index(interface)?;
    match sys::link::flags(interface) {
        Ok(flags) if !flags.up => Err(PortError::InterfaceDown { interface: interface.to_owned() }),
        _ => Ok(index),
    }
}

/// Refuses an interface whose NIC may take VLAN tags out of frames before an XDP program sees them, which cannot get at them then.
///
/// # Errors
/// [`PortError::Unsupported`], which says how to switch that off.
pub fn keeps_tags(backend: &'static str, interface: &str) -> Result<(), PortError> {
    // Who cannot be asked has no such feature.
    let attempt = || {
        let mut ethtool = sys::ethtool::Ethtool::open().ok()?;
        let features = ethtool.features(interface).ok()??;
        let strips = features.iter().any(|f| f.name == "rx-vlan-hw-parse" && f.on);
        Some((strips, ethtool.driver(interface).ok().flatten().map(|d| d.driver).unwrap_or_default()))
    };
    match attempt() {
        Some((true, driver)) if may_strip(&driver) => Err(PortError::Unsupported {
            backend,
            interface: interface.to_owned(),
            reason: format!(
                "its driver {driver} may take VLAN tags out of the frames before XDP sees them, and they would be missing: switch that off \
                 with `ethtool -K {interface} rxvlan off`, or use another backend"
            ),
        }),
        _ => Ok(()),
    }
}

/// True if a driver whose feature rx-vlan-hw-parse is on takes tags out before XDP. These have the feature for show.
fn may_strip(driver: &str) -> bool {
    !matches!(driver, "veth" | "virtio_net" | "tun")
}

/// A silent packet socket: it can be asked for the interface, and its membership keeps that promiscuous if so wanted.
pub(crate) fn companion(
    promiscuous: bool,
    backend: &'static str,
    interface: &str,
    index: u32,
) -> Result<PacketSocket, PortError> {
    let explain = |e| explain(backend, interface, e);
    let socket = PacketSocket::open().map_err(explain)?;
    if promiscuous {
        socket.set_promiscuous(index).map_err(explain)?;
    }
    Ok(socket)
}

/// The filter for XDP; none if every frame is wanted.
pub(crate) fn filter(
    classic: &[Instruction],
    backend: &'static str,
    interface: &str,
) -> Result<Option<Filter>, PortError> {
    if classic.is_empty() {
        return Ok(None);
    }
    Filter::from_classic(classic).map(Some).map_err(|e| PortError::Unsupported {
        backend,
        interface: interface.to_owned(),
        reason: e.to_string(),
    })
}

/// Turns a failed step of a kernel program into words for the user.
pub(crate) fn explain_xdp(backend: &'static str, interface: &str, error: XdpError) -> PortError {
    let name = interface.to_owned();
    match error {
        XdpError::NoInterface(none) => none.into(),
        ref e if e.is_denied() && require(backend, &[Capability::CAP_BPF, Capability::CAP_NET_ADMIN]).is_err() => {
            PortError::Privilege { backend, interface: name, capability: "CAP_BPF and CAP_NET_ADMIN" }
        }
        XdpError::Program(ProgramError::Setting(reason)) => PortError::Setting { backend, reason },
        XdpError::System { operation, source, .. } | XdpError::Program(ProgramError::Map { operation, source, .. }) => {
            PortError::System { backend, interface: name, operation: operation.to_owned(), source }
        }
        other @ (XdpError::Occupied { .. }
        | XdpError::Taken { .. }
        | XdpError::Leaving { .. }
        | XdpError::Raced { .. }
        | XdpError::OtherMode { .. }
        | XdpError::OtherChain { .. }
        | XdpError::NoNative { .. }
        | XdpError::Unsupported { .. }
        | XdpError::Pin { .. }
        | XdpError::Program(_)) => PortError::Unsupported { backend, interface: name, reason: other.to_string() },
    }
}

/// The rhythm of a reader of shared memory. Each look takes a cache line away from the kernel program that writes it, and each nap
/// costs a timer and two context switches on a CPU that may have to receive as well. So a reader that found little sleeps before it
/// looks again, and the longer the better its looks pay: up to [`NAP_MAX`] while frames come, in which no ring of ours fills.
#[derive(Debug)]
pub(crate) struct Pace {
    shortest: Duration,
    nap: Duration,
    found: usize,
    /// Looks since the last frame.
    empty: u32,
    checked: Instant,
}

/// Frames in one look that make it worth while to look again at once.
const BUSY_FRAMES_MIN: usize = 2048;
/// Frames that a nap shall bring: they are still in the cache.
const NAP_FRAMES: usize = 1024;
/// Frames in one look below which the traffic is thin, and a prompt answer worth more.
const THIN_FRAMES_MAX: usize = 32;
const NAP_MAX: Duration = Duration::from_micros(800);
/// Looks in vain after which an interface counts as silent: its reader takes the longest naps.
const IDLE_LOOKS: u32 = 100;
/// Time between two looks of an idle reader whether its interface is still there.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_millis(100);

impl Pace {
    pub(crate) fn new(nap: Duration) -> Self {
        Self { shortest: nap, nap, found: BUSY_FRAMES_MIN, empty: 0, checked: Instant::now() }
    }

    /// Sleeps if the look before found little, but not longer than `left`.
    pub(crate) fn before_look(&self, left: Duration) {
        let nap = self.nap.min(left);
        if self.found < BUSY_FRAMES_MIN && !nap.is_zero() {
            thread::sleep(nap);
        }
    }

    pub(crate) fn after_look(&mut self, found: usize) {
        self.found = found;
        self.empty = if found == 0 { self.empty.saturating_add(1) } else { 0 };
        self.nap = match found {
            0 if self.empty >= IDLE_LOOKS => NAP_MAX.max(self.shortest),
            ..THIN_FRAMES_MAX => self.shortest,
            THIN_FRAMES_MAX..NAP_FRAMES => (self.nap * 3 / 2).min(NAP_MAX.max(self.shortest)),
            _ => (self.nap / 2).max(self.shortest),
        };
    }

    /// True if it is time for the things that need not be done at each look.
    pub(crate) fn time_for_checks(&mut self) -> bool {
        let due = self.checked.elapsed() >= CHECK_PERIOD;
        if due {
            self.checked = Instant::now();
        }
        due
    }
}

/// Now, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Deals `items` to `hands` hands in turn; no hand stays empty.
pub(crate) fn distribute<T>(items: Vec<T>, hands: usize) -> Vec<Vec<T>> {
    let hands = hands.clamp(1, items.len().max(1));
    let mut shares: Vec<Vec<T>> = (0..hands).map(|_| Vec::new()).collect();
    for (n, item) in items.into_iter().enumerate() {
        shares[n % hands].push(item);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_dealt_once_and_no_hand_is_empty() {
        assert_eq!(distribute(vec![1, 2, 3, 4, 5], 2), [vec![1, 3, 5], vec![2, 4]]);
        assert_eq!(distribute(vec![1, 2], 8), [vec![1], vec![2]]);
        assert_eq!(distribute(vec![1, 2], 0), [vec![1, 2]]);
    }

    #[test]
    fn a_nap_grows_while_looks_pay_a_little_and_is_short_again_when_they_bring_much_or_nothing() {
        let shortest = Duration::from_micros(100);
        let mut pace = Pace::new(shortest);
        let mut naps = |found: usize, times: usize| {
            (0..times).for_each(|_| pace.after_look(found));
            pace.nap
        };
        assert_eq!(naps(THIN_FRAMES_MAX, 1), shortest * 3 / 2);
        assert_eq!(naps(THIN_FRAMES_MAX, 20), NAP_MAX);
        assert_eq!(naps(NAP_FRAMES, 1), NAP_MAX / 2);
        assert_eq!(naps(NAP_FRAMES, 20), shortest);
        naps(NAP_FRAMES - 1, 20);
        assert_eq!(naps(0, 1), shortest, "thin traffic is answered promptly");
        assert_eq!(naps(0, IDLE_LOOKS as usize - 1), NAP_MAX, "an idle reader costs next to nothing");
        assert_eq!(naps(1, 1), shortest);
    }

    #[test]
    fn virtual_drivers_leave_the_tags_where_they_are() {
        assert!(may_strip("ixgbe") && may_strip("") && !may_strip("veth") && !may_strip("virtio_net"));
        keeps_tags("tap", "lo").expect("the loopback strips nothing");
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = up_interface("ek-none0").expect_err("no such interface");
        assert!(error.to_string().contains("ek-none0"), "{error}");
    }
}
