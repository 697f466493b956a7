//! Network namespaces, links, boxes under test and control groups, each gone when dropped.
//!
//! A [`Lab`] owns namespaces whose names carry the process that made them (`ek-<pid>-<start time>-<lab>-<role>`), so
//! that a process which died without cleaning up is recognised, and its leftovers removed, by the next one.
//!
//! A [`Cell`] has no name: sockets in it reach nothing but its door. A [`Group`] is a control group, of version 1 or 2 controller by controller, that is
//! known and removed in the same way.

pub mod boxes;
mod cell;
mod error;
mod group;
mod lend;
mod link;
mod napi;
mod netns;
mod owner;
mod rtnl;

use std::{net::IpAddr, os::fd::AsFd};

pub use boxes::{BoxKind, BoxSpec, TestBox};
pub use cell::Cell;
pub use error::LabError;
pub use group::{Group, Throttled, clear_dead_groups, dead_groups};
pub use lend::{LentAddress, resolve};
pub use link::VethEnd;
pub use netns::{Namespace, NamespaceHandle};
pub use owner::{clear_dead, dead};
pub use wire::Mac;

/// A set of namespaces that belong together and go together.
#[derive(Debug)]
pub struct Lab {
    tag: String,
}

impl Lab {
    /// Starts an empty lab called `tag` (letters and digits), after removing what dead processes left behind.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN; the error names what is missing.
    pub fn new(tag: &str) -> Result<Self, LabError> {
        if tag.is_empty() || !tag.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(LabError::BadTag(tag.to_owned()));
        }
        owner::clear_dead()?;
        group::clear_dead_groups()?;
        Ok(Self { tag: tag.to_owned() })
    }

    /// A name for an interface, unique on the machine: `ek<pid in base 36><label>`. `label` has at most four letters.
    pub fn interface(&self, label: &str) -> String {
        owner::interface(label)
    }

    /// Makes a namespace for `role`, with its loopback up. It goes away when the value is dropped.
    pub fn namespace(&self, role: &str) -> Result<Namespace, LabError> {
        let ns = Namespace::create(&owner::name(&self.tag, role))?;
        ns.run(|| link::set_up("lo"))??;
        // Taken over from the machine, which forwards if it has containers.
        ns.set_sysctl("net.ipv4.ip_forward", "0")?;
        Ok(ns)
    }

    /// Joins two namespaces by a veth pair with `queues` queues in each direction, and sets both ends up.
    ///
    /// Both interfaces go with their namespaces. IPv6 router discovery and other chatter of the host is switched off on
    /// both, so that what is counted is what was sent.
    pub fn veth(
        &self,
        (a, a_name): (&Namespace, &str),
        (b, b_name): (&Namespace, &str),
        queues: u32,
    ) -> Result<(VethEnd, VethEnd), LabError> {
        a.run(|| link::create_veth(a_name, b_name, b.file().as_fd(), queues))??;
        let mut ends = Vec::with_capacity(2);
        for (ns, name) in [(a, a_name), (b, b_name)] {
            ends.push(ns.run(|| -> Result<VethEnd, LabError> {
                link::silence(name)?;
                link::set_up(name)?;
                link::describe(name)
            })??);
        }
        for (ns, name) in [(a, a_name), (b, b_name)] {
            ns.run(|| link::wait_until_ready(name))??;
        }
        let b_end = ends.remove(1);
        Ok((ends.remove(0), b_end))
    }

    /// Joins interfaces of `hub` by a bridge there, and sets it up. Each port comes with the address that lies behind it, for good: no frame to
    /// one of them is flooded, the first neither.
    pub fn bridge(&self, hub: &Namespace, bridge: &str, ports: &[(&VethEnd, Mac)]) -> Result<(), LabError> {
        hub.run(|| -> Result<(), LabError> {
            link::create_bridge(bridge)?;
            link::silence(bridge)?;
            for (port, _) in ports {
                link::set_controller(&port.name, bridge)?;
            }
            link::set_up(bridge)?;
            ports.iter().try_for_each(|(port, behind)| link::add_bridge_entry(&port.name, *behind))
        })?
    }
}

/// Sets an interface of the calling thread's namespace up or down.
pub fn set_link(interface: &str, up: bool) -> Result<(), LabError> {
    if up { link::set_up(interface) } else { link::set_down(interface) }
}

impl NamespaceHandle {
    /// Gives `interface` an address with its prefix length.
    pub fn add_address(&self, interface: &str, address: IpAddr, prefix_len: u8) -> Result<(), LabError> {
        self.run(|| link::add_address(interface, address, prefix_len))?
    }

    /// Enters a permanent neighbour, so that no ARP or neighbour discovery is needed.
    pub fn add_neighbour(&self, interface: &str, address: IpAddr, mac: Mac) -> Result<(), LabError> {
        self.run(|| link::add_neighbour(interface, address, mac))?
    }

    /// Puts the NAPI instances of `interface` into kernel threads (or back) and pins the thread of receive queue `i` to
    /// `cpus[i % cpus.len()]`.
    pub fn thread_napi(&self, interface: &str, cpus: &[u32]) -> Result<(), LabError> {
        self.run(|| napi::thread(interface, cpus))?
    }

    /// Lets the NAPI threads of `interface` run before all other work on their CPUs (nice -20), so that what else the machine does
    /// weighs little on what is measured. Nothing happens without threads.
    ///
    /// # Errors
    /// CAP_SYS_NICE is missing.
    pub fn prefer_napi(&self, interface: &str) -> Result<(), LabError> {
        napi::prefer(interface)
    }

    /// Writes a sysctl of the namespace, such as `net.ipv4.ip_early_demux`.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| std::fs::write(&path, value))?.map_err(|source| LabError::Setting {
            path,
            value: value.into(),
            source,
        })
    }

    /// Sets the bytes of the longest packet of `interface`.
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), LabError> {
        self.run(|| link::set_mtu(interface, mtu))?
    }

    /// Switches an offload by its ethtool name. `rx-gro` on a veth also starts NAPI, without which a frame that arrives
    /// by XDP redirect is refused.
    pub fn set_feature(&self, interface: &str, feature: &str, on: bool) -> Result<(), LabError> {
        self.run(|| link::set_feature(interface, feature, on))?
    }
}
