//! Interfaces that belong together: the two ends of a veth, and VLAN devices with the interface that they sit on (netlink).

use std::{collections::BTreeMap, io};

use nix::sys::socket::SockProtocol;
use sys::interface::names;

use super::{FrameStart, Link, links};
use crate::{netlink::Netlink, picture::Nic};

/// The other end of a veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// An interface of this network namespace, by its name.
    Here(String),
    /// An interface of another network namespace, where it cannot be asked.
    Elsewhere,
}

/// The interfaces of a network namespace by index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wiring(BTreeMap<u32, Link>);

impl Wiring {
    /// Reads the wiring of the caller's network namespace.
    pub fn read() -> io::Result<Self> {
        Ok(Self(links(&mut Netlink::open(SockProtocol::NetlinkRoute)?)?))
    }

    /// The other end of a veth; none: it is none, or not there.
    pub fn peer(&self, name: &str) -> Option<Peer> {
        let (_, link) = self.find(name).filter(|(_, link)| link.kind == "veth")?;
        let here = link.lower.filter(|_| !link.elsewhere).and_then(|to| self.0.get(&to));
        Some(here.map_or(Peer::Elsewhere, |peer| Peer::Here(peer.name.clone())))
    }

    pub fn alternative(&self, name: &str) -> Option<&str> {
        self.0.values().find(|link| link.alternatives.iter().any(|other| other == name)).map(|link| link.name.as_str())
    }

    /// The beginning of what an interface receives, and its kind; none: it is not there.
    pub fn frame_start(&self, name: &str) -> Option<(FrameStart, &str)> {
        self.find(name).map(|(_, link)| (link.frame_start(), link.kind.as_str()))
    }

    /// The bridge, bond or VRF that an interface belongs to, by name; none: to none, or it is not there.
    pub fn master(&self, name: &str) -> Option<String> {
        let master = self.find(name)?.1.master?;
        Some(self.0.get(&master).map_or_else(|| format!("interface {master}"), |master| master.name.clone()))
    }

    /// The VLAN devices on an interface.
    pub fn vlans(&self, name: &str) -> Vec<&str> {
        let Some((index, _)) = self.find(name) else { return Vec::new() };
        let on_it = |link: &&Link| link.kind == "vlan" && !link.elsewhere && link.lower == Some(index);
        self.0.values().filter(on_it).map(|link| link.name.as_str()).collect()
    }

    /// Interfaces that are up, by index.
    pub fn up(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter(|link| link.up).map(|link| link.name.as_str())
    }

    /// True if an interface that /sys told of is one of these: /sys may show another network namespace.
    pub fn has(&self, nic: &Nic) -> bool {
        let same = |link: &Link| link.name == nic.name && nic.mac.as_ref().is_none_or(|mac| *mac == link.address);
        self.0.get(&nic.index).is_some_and(same)
    }

    /// Name and hardware address of each interface, by index.
    pub fn interfaces(&self) -> BTreeMap<u32, (String, String)> {
        self.0.iter().map(|(index, link)| (*index, (link.name.clone(), link.address.clone()))).collect()
    }

    fn find(&self, name: &str) -> Option<(u32, &Link)> {
        self.0.iter().find(|(_, link)| link.name == name).map(|(index, link)| (*index, link))
    }
}

/// The name of the interface that has `name` as its name or as an alternative one (`ip link property add … altname`); `name` itself if there is
/// none in this thread's network namespace. Everything that is kept under an interface's name goes by this one.
pub fn real_name(name: &str) -> String {
    if name.contains(':') || names().iter().any(|there| there == name) {
        return name.to_owned();
    }
    // Alternative names may be longer than the system call takes.
    let found = Wiring::read().ok().and_then(|wiring| wiring.alternative(name).map(ToOwned::to_owned));
    found.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: &str, lower: u32, elsewhere: bool) -> Link {
        Link { name: name.into(), kind: kind.into(), lower: Some(lower), elsewhere, ..Link::default() }
    }

    #[test]
    fn ends_of_a_veth_and_devices_on_an_interface_are_found() {
        let links = [
            link("eth0", "", 2, false),
            link("eth0.5", "vlan", 2, false),
            link("a", "veth", 5, false),
            link("b", "veth", 4, false),
            // It has the index of another one here.
            link("c", "veth", 2, true),
            link("c.7", "vlan", 6, false),
            link("gone.8", "vlan", 2, true),
        ];
        let wiring = Wiring((2..).zip(links).collect());
        assert_eq!(wiring.peer("a"), Some(Peer::Here("b".into())));
        assert_eq!(wiring.peer("c"), Some(Peer::Elsewhere));
        assert_eq!((wiring.peer("eth0"), wiring.peer("none")), (None, None));
        assert_eq!((wiring.vlans("eth0"), wiring.vlans("c"), wiring.vlans("a")), (vec!["eth0.5"], vec!["c.7"], vec![]));
        assert_eq!(wiring.up().count(), 0);
        let port = Link { name: "port".into(), master: Some(9), ..Link::default() };
        let lost = Link { name: "lost".into(), master: Some(99), ..Link::default() };
        let ports = Wiring([(7, port), (8, lost), (9, link("br0", "bridge", 0, false))].into());
        let master = |name| ports.master(name);
        assert_eq!((master("port"), master("lost")), (Some("br0".into()), Some("interface 99".into())));
        assert_eq!((master("br0"), master("none")), (None, None));
        let read = Wiring::read().expect("the kernel lists its interfaces");
        assert!(read.up().count() <= read.interfaces().len());
        assert_eq!(["lo", "lo:1", "ek-none"].map(real_name), ["lo", "lo:1", "ek-none"]);
    }
}
