//! The sending rules (RFC 6815): test traffic goes to test networks, or to those that the user names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{TrafficError, interface::Interface, range::Prefix};

/// Whom a stream may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowance {
    /// Networks that the user named.
    pub named: Vec<Prefix>,
    /// Frames that are not IP may be sent outside of a lab.
    pub non_ip: bool,
}

/// The networks set aside for tests: RFC 2544 (IPv4) and RFC 5180 (IPv6).
fn test_networks() -> impl Iterator<Item = Prefix> {
    [
        Prefix::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15),
        Prefix::new(IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0)), 48),
    ]
    .into_iter()
    .flatten()
}

impl Allowance {
    /// True if anything may be sent on `interface` at all.
    ///
    /// # Errors
    /// [`TrafficError::LiveInterface`] for the default route's interface unless networks are named.
    pub fn check_interface(&self, interface: &Interface) -> Result<(), TrafficError> {
        if interface.default_route && !interface.in_lab && self.named.is_empty() {
            return Err(TrafficError::LiveInterface { interface: interface.name.clone() });
        }
        Ok(())
    }

    /// True if all of `destinations` may be reached through `interface`.
    ///
    /// # Errors
    /// [`TrafficError::Destination`].
    pub fn check_prefix(&self, interface: &Interface, destinations: &Prefix) -> Result<(), TrafficError> {
        if interface.in_lab || self.networks(interface).any(|n| n.covers(destinations)) {
            return Ok(());
        }
        Err(TrafficError::Destination { destination: destinations.first(), origin: format!(" (of {destinations})") })
    }

    /// True if `destination` may be reached through `interface`; `origin` says where it comes from.
    ///
    /// # Errors
    /// [`TrafficError::Destination`].
    pub fn check_address(
        &self,
        interface: &Interface,
        destination: IpAddr,
        origin: impl FnOnce() -> String,
    ) -> Result<(), TrafficError> {
        if interface.in_lab || self.networks(interface).any(|n| n.contains(destination)) {
            return Ok(());
        }
        Err(TrafficError::Destination { destination, origin: origin() })
    }

    /// On the interface of the default route only what was named counts: its gateway would carry test networks away too.
    fn networks<'a>(&'a self, interface: &Interface) -> impl Iterator<Item = Prefix> + use<'a> {
        let live = interface.default_route;
        test_networks().filter(move |_| !live).chain(self.named.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(default_route: bool, in_lab: bool) -> Interface {
        Interface { name: "x0".into(), index: 1, mac: wire::Mac::default(), mtu: 1500, default_route, in_lab }
    }

    fn allow(named: &[&str]) -> Allowance {
        Allowance { named: named.iter().map(|p| p.parse().unwrap()).collect(), non_ip: false }
    }

    #[test]
    fn only_test_networks_and_named_ones_are_reached() {
        let side = interface(false, false);
        let ok = |a: &Allowance, p: &str| a.check_prefix(&side, &p.parse().unwrap()).is_ok();
        assert!(ok(&allow(&[]), "198.19.4.0/24") && ok(&allow(&[]), "2001:2::/64"));
        assert!(!ok(&allow(&[]), "198.16.0.0/14") && !ok(&allow(&[]), "10.0.0.1") && !ok(&allow(&[]), "2001:3::1"));
        assert!(ok(&allow(&["10.0.0.0/24"]), "10.0.0.7") && !ok(&allow(&["10.0.0.0/24"]), "10.0.0.0/23"));
        assert!(allow(&[]).check_prefix(&interface(true, true), &"10.0.0.0/8".parse().unwrap()).is_ok());
    }

    #[test]
    fn the_default_route_needs_named_networks() {
        let live = interface(true, false);
        assert!(matches!(allow(&[]).check_interface(&live), Err(TrafficError::LiveInterface { .. })));
        let named = allow(&["10.0.0.0/24"]);
        assert!(named.check_interface(&live).is_ok());
        assert!(named.check_prefix(&live, &"198.18.0.0/24".parse().unwrap()).is_err());
        assert!(allow(&[]).check_interface(&interface(true, true)).is_ok());
    }

    #[test]
    fn the_message_says_what_to_do() {
        let e = allow(&[]).check_prefix(&interface(false, false), &"10.0.0.0/8".parse().unwrap()).unwrap_err();
        assert!(e.to_string().contains("10.0.0.0 (of 10.0.0.0/8) is outside of 198.18.0.0/15"), "{e}");
        assert!(e.to_string().ends_with("--allow-destination 10.0.0.0/32"), "{e}");
    }
}
