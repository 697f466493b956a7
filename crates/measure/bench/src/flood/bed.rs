//! The lab of one point: `net` has the flood and the clients, `host` the listener; one link with one queue in between, or a gateway
//! with a link to each.

use bpf::FloodEnd;
use lab::{Lab, Namespace, VethEnd};
use model::CpuSet;

use super::{addresses::Addresses, cores::FloodCores, kernel::command, protection::Layout, relay::Relay};
use crate::BenchError;

/// NETIF_F_ALL_TSO (include/linux/netdev_features.h).
const SEGMENTATION: [&str; 4] =
    ["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"];

/// Checksums left to the device.
const CHECKSUMS: &str = "tx-checksum-ip-generic";

pub(super) struct Bed {
    // What is attached goes before the namespaces.
    pub(super) end: FloodEnd,
    pub(super) net: Namespace,
    pub(super) host: Namespace,
    pub(super) near: VethEnd,
    pub(super) far: VethEnd,
    /// The gateway between the two.
    pub(super) gate: Option<Gate>,
    /// The flood's way to `near` when XDP cannot put frames into its peer's queue.
    pub(super) relay: Option<Relay>,
    _lab: Lab,
}

/// A gateway between `near` and `far`.
pub(super) struct Gate {
    pub(super) ns: Namespace,
    /// The gateway's end of the link to `near`, …
    pub(super) outer: VethEnd,
    /// … and of that to `far`.
    pub(super) inner: VethEnd,
}

impl Bed {
    pub(super) fn new(cores: &FloodCores, addresses: &Addresses, layout: Layout) -> Result<Self, BenchError> {
        let lab = Lab::new("flood")?;
        let (net, host) = (lab.namespace("net")?, lab.namespace("host")?);
        let (near, far) = (lab.interface("fn"), lab.interface("fh"));
        let (near, far, gate) = if layout == Layout::Host {
            let (near, far) = lab.veth((&net, &near), (&host, &far), 1)?;
            (near, far, None)
        } else {
            let ns = lab.namespace("gate")?;
            let (near, outer) = lab.veth((&net, &near), (&ns, &lab.interface("fa")), 1)?;
            let (inner, far) = lab.veth((&ns, &lab.interface("fb")), (&host, &far), 1)?;
            (near, far, Some(Gate { ns, outer, inner }))
        };
        for (ns, end, address, other, mac) in [
            (&net, &near, addresses.router, addresses.server.ip(), far.mac),
            (&host, &far, addresses.server.ip(), addresses.router, near.mac),
        ] {
            prepare(ns, end, true)?;
            ns.add_address(&end.name, address, addresses.link_len)?;
            ns.add_neighbour(&end.name, other, mac)?;
        }
        if let Some(Gate { ns, outer, inner }) = &gate {
            // What merges frames is refused in front of rings.
            let napi = layout != Layout::BetweenRings;
            prepare(ns, outer, napi)?;
            prepare(ns, inner, napi)?;
            // A veth leaves the checksum to nobody, and XDP would carry it across unfinished.
            net.set_feature(&near.name, CHECKSUMS, false)?;
            host.set_feature(&far.name, CHECKSUMS, false)?;
        }
        let (network, len) = addresses.clients;
        let ip = addresses.ip_option();
        // Every address of the prefix is the clients' own.
        command(&net, "ip", &[ip, "route", "add", "local", &format!("{network}/{len}"), "dev", "lo"])?;
        if network.is_ipv6() {
            // Binding to one asks for an address of an interface, where IPv4 asks for a route.
            net.set_sysctl("net.ipv6.ip_nonlocal_bind", "1")?;
        }
        command(&host, "ip", &[ip, "route", "add", "default", "via", &addresses.router.to_string()])?;
        let name = near.name.clone();
        let end = net.run(|| FloodEnd::attach(&name, network, len))??;
        net.thread_napi(&near.name, &[cores.generator])?;
        net.prefer_napi(&near.name)?;
        let relay = match &gate {
            Some(gate) if layout == Layout::BetweenRings => {
                steer(gate, cores)?;
                Some(Relay::new(&lab, &net, &near, cores)?)
            }
            _ => None,
        };
        let bed = Self { end, net, host, near, far, gate, relay, _lab: lab };
        bed.pin_receivers(cores)?;
        Ok(bed)
    }

    /// The namespace of the protection, and the interfaces through which frames come to it.
    pub(super) fn protected(&self) -> (&Namespace, &VethEnd, Option<&VethEnd>) {
        match &self.gate {
            None => (&self.host, &self.far, None),
            Some(gate) => (&gate.ns, &gate.outer, Some(&gate.inner)),
        }
    }

    /// Puts what is received on its core: again whenever a program on an interface may have started NAPI anew.
    pub(super) fn pin_receivers(&self, cores: &FloodCores) -> Result<(), BenchError> {
        let Some(gate) = &self.gate else {
            return receive(&self.host, &self.far, cores.receive);
        };
        // The gateway is what is under attack; the host behind it has the server's core.
        receive(&self.host, &self.far, cores.server)?;
        if self.relay.is_none() {
            for end in [&gate.outer, &gate.inner] {
                receive(&gate.ns, end, cores.receive)?;
            }
        }
        Ok(())
    }
}

/// Has what arrives at `end` received on a core, before processes run there: as the interrupt of an interface would.
fn receive(ns: &Namespace, end: &VethEnd, core: u32) -> Result<(), BenchError> {
    ns.thread_napi(&end.name, &[core])?;
    Ok(ns.prefer_napi(&end.name)?)
}

/// Sets an end of a link up for frames one by one.
fn prepare(ns: &Namespace, end: &VethEnd, napi: bool) -> Result<(), BenchError> {
    // With GRO a veth runs NAPI, so that live frames arrive.
    ns.set_feature(&end.name, "rx-gro", napi)?;
    // With any of them a TCP packet goes round the receiver's queue (veth_skb_is_eligible_for_gro in drivers/net/veth.c).
    for feature in SEGMENTATION {
        ns.set_feature(&end.name, feature, false)?;
    }
    Ok(())
}

/// Has one CPU receive what comes to a gateway whose ends run no NAPI, in both directions: else the core that sends does (RPS).
fn steer(gate: &Gate, cores: &FloodCores) -> Result<(), BenchError> {
    let mask = [cores.receive].into_iter().collect::<CpuSet>().to_mask();
    for end in [&gate.outer, &gate.inner] {
        let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", end.name);
        let written = gate.ns.run(|| std::fs::write(&path, &mask))?;
        written.map_err(|error| BenchError::Machine(format!("cannot write {mask} to {path}: {error}")))?;
    }
    Ok(())
}
