//! Which interfaces belong together: the two ends of a veth, and VLAN devices with the interface that they sit on (RTM_GETLINK).

use std::{collections::BTreeMap, io};

use nix::{libc, sys::socket::SockProtocol};

use crate::{
    counters::netlink::{DUMP, Netlink, attributes},
    picture::Nic,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
/// `struct ifinfomsg`: family, padding, type, index, flags, change.
const IFINFOMSG_BYTES: usize = 16;
const FLAGS_AT: usize = 8;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;

/// The other end of a veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// In this network namespace, by this name.
    Here(String),
    /// In another one, where it cannot be asked.
    Elsewhere,
}

/// The interfaces of a network namespace by index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wiring(BTreeMap<u32, Link>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Link {
    name: String,
    is_up: bool,
    /// The hardware address as /sys writes it: `02:00:00:00:00:01`; empty where there is none.
    address: String,
    kind: String,
    /// The other end, or what it sits on.
    to: Option<u32>,
    /// That one is in another network namespace.
    elsewhere: bool,
}

impl Wiring {
    /// Of the caller's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses the list.
    pub fn read() -> io::Result<Self> {
        let mut netlink = Netlink::open(SockProtocol::NetlinkRoute)?;
        let mut links = BTreeMap::new();
        netlink.ask(RTM_GETLINK, DUMP, &[0; IFINFOMSG_BYTES], |kind, payload| {
            if kind == RTM_NEWLINK {
                links.extend(parse(payload));
            }
        })?;
        Ok(Self(links))
    }

    /// The other end of a veth; none: it is none, or not there.
    pub fn peer(&self, name: &str) -> Option<Peer> {
        let (_, link) = self.find(name).filter(|(_, link)| link.kind == "veth")?;
        let here = link.to.filter(|_| !link.elsewhere).and_then(|to| self.0.get(&to));
        Some(here.map_or(Peer::Elsewhere, |peer| Peer::Here(peer.name.clone())))
    }

    /// The VLAN devices on an interface.
    pub fn vlans(&self, name: &str) -> Vec<&str> {
        let Some((index, _)) = self.find(name) else { return Vec::new() };
        let on_it = |link: &&Link| link.kind == "vlan" && !link.elsewhere && link.to == Some(index);
        self.0.values().filter(on_it).map(|link| link.name.as_str()).collect()
    }

    /// Those that are up, by index.
    pub fn up(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter(|link| link.is_up).map(|link| link.name.as_str())
    }

    /// Whether an interface that /sys told of is one of these: /sys may show another network namespace.
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

fn parse(payload: &[u8]) -> Option<(u32, Link)> {
    let index = word(payload.get(4..)?)?;
    let flags = word(payload.get(FLAGS_AT..)?)?;
    let mut link = Link { is_up: flags & libc::IFF_UP as u32 != 0, ..Link::default() };
    for attribute in attributes(payload.get(IFINFOMSG_BYTES..)?) {
        let value = attribute.value();
        match attribute.kind() {
            IFLA_ADDRESS => link.address = value.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"),
            IFLA_IFNAME => link.name = text(value),
            IFLA_LINK => link.to = word(value),
            IFLA_LINK_NETNSID => link.elsewhere = true,
            IFLA_LINKINFO => {
                let kind = attributes(value).find(|attribute| attribute.kind() == IFLA_INFO_KIND);
                link.kind = kind.map_or_else(String::new, |kind| text(kind.value()));
            }
            _ => {}
        }
    }
    Some((index, link))
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::netlink::push_attribute;

    fn message(index: u32, name: &str, kind: &str, to: u32, elsewhere: bool) -> Vec<u8> {
        let mut payload = [0, index, 0, 0].map(u32::to_ne_bytes).concat();
        push_attribute(&mut payload, IFLA_IFNAME, format!("{name}\0").as_bytes());
        push_attribute(&mut payload, IFLA_LINK, &to.to_ne_bytes());
        let mut info = Vec::new();
        push_attribute(&mut info, IFLA_INFO_KIND, format!("{kind}\0").as_bytes());
        push_attribute(&mut payload, IFLA_LINKINFO, &info);
        if elsewhere {
            push_attribute(&mut payload, IFLA_LINK_NETNSID, &0u32.to_ne_bytes());
        }
        payload
    }

    #[test]
    fn ends_of_a_veth_and_devices_on_an_interface_are_found() {
        let messages = [
            message(2, "eth0", "", 2, false),
            message(3, "eth0.5", "vlan", 2, false),
            message(4, "a", "veth", 5, false),
            message(5, "b", "veth", 4, false),
            // It has the index of another one here.
            message(6, "c", "veth", 2, true),
            message(7, "c.7", "vlan", 6, false),
            message(8, "gone.8", "vlan", 2, true),
        ];
        let wiring = Wiring(messages.iter().filter_map(|message| parse(message)).collect());
        assert_eq!(wiring.peer("a"), Some(Peer::Here("b".into())));
        assert_eq!(wiring.peer("c"), Some(Peer::Elsewhere));
        assert_eq!((wiring.peer("eth0"), wiring.peer("none")), (None, None));
        assert_eq!((wiring.vlans("eth0"), wiring.vlans("c"), wiring.vlans("a")), (vec!["eth0.5"], vec!["c.7"], vec![]));
        for end in 0..messages[0].len() {
            let _ = parse(&messages[0][..end]);
        }
        assert_eq!(wiring.up().count(), 0);
        let read = Wiring::read().expect("the kernel lists its interfaces");
        assert!(read.up().count() <= read.interfaces().len());
    }
}
