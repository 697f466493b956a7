//! A machine, and the interface that it uses.

use std::net::{IpAddr, Ipv4Addr};

use host::netlink::{Netlink, route};
use model::run::Machine;
use serde::{Deserialize, Serialize};
use transport::HEADER_BYTES;
use wire::Mac;

use crate::MessagesError;
use link::Wire;

/// A machine, and the interface that its end uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Version of evenkeel, the same on both.
    pub(crate) version: String,
    pub(crate) machine: Machine,
    pub(crate) interface: String,
    pub(crate) ifindex: u32,
    pub(crate) mac: String,
    pub(crate) mtu: u32,
    /// Its first IPv4 address and the length of its prefix; none: neither UDP nor TCP can be measured.
    pub(crate) address: Option<(Ipv4Addr, u8)>,
    /// The CPU of the end.
    pub(crate) cpu: u32,
}

impl Facts {
    pub(crate) fn read(interface: &str, machine: Machine, cpu: u32) -> Result<Self, MessagesError> {
        let wire = Wire::of(interface)?;
        let all = Netlink::route()
            .and_then(|mut netlink| route::addresses(&mut netlink))
            .map_err(MessagesError::Addresses)?;
        let address = all.iter().filter(|one| one.ifindex == wire.index).find_map(|one| match one.prefix.address {
            IpAddr::V4(address) => Some((address, one.prefix.length)),
            IpAddr::V6(_) => None,
        });
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            interface: interface.to_owned(),
            ifindex: wire.index,
            mac: wire.address.to_string(),
            mtu: u32::from(wire.payload_max) + HEADER_BYTES as u32,
            address,
            cpu,
        })
    }

    pub(crate) fn mac(&self) -> Result<Mac, MessagesError> {
        self.mac.parse().map_err(|_| MessagesError::Words(format!("{} is no hardware address", self.mac)))
    }
}
