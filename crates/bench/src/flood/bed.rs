//! The lab of one point: `net` has the flood and the clients, `host` the listener; one link with one queue in between.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    process::Command,
};

use bpf::FloodEnd;
use lab::{Lab, Namespace, NamespaceHandle, VethEnd};

use super::run::FloodCores;
use crate::BenchError;

/// The server.
pub(super) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 80);
/// The router in front of it, as far as the host knows.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Clients come from here (RFC 2544), …
pub(super) const CLIENTS: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);
/// … and the flood claims to come from here (RFC 1918).
pub(super) const SPOOFED: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 0, 0, 0), 8);

/// NETIF_F_ALL_TSO (include/linux/netdev_features.h).
const SEGMENTATION: [&str; 4] =
    ["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"];

pub(super) struct Bed {
    // What is attached goes before the namespaces.
    pub(super) end: FloodEnd,
    pub(super) net: Namespace,
    pub(super) host: Namespace,
    pub(super) near: VethEnd,
    pub(super) far: VethEnd,
    _lab: Lab,
}

impl Bed {
    pub(super) fn new(cores: &FloodCores) -> Result<Self, BenchError> {
        let lab = Lab::new("flood")?;
        let (net, host) = (lab.namespace("net")?, lab.namespace("host")?);
        let (near, far) = (lab.interface("fn"), lab.interface("fh"));
        let (near, far) = lab.veth((&net, &near), (&host, &far), 1)?;
        for (ns, end, address, other, mac) in
            [(&net, &near, ROUTER, *SERVER.ip(), far.mac), (&host, &far, *SERVER.ip(), ROUTER, near.mac)]
        {
            // NAPI, so that live frames arrive.
            ns.set_feature(&end.name, "rx-gro", true)?;
            // With any of them a TCP packet goes round the receiver's queue (veth_skb_is_eligible_for_gro in drivers/net/veth.c).
            for feature in SEGMENTATION {
                ns.set_feature(&end.name, feature, false)?;
            }
            ns.add_address(&end.name, address.into(), 24)?;
            ns.add_neighbour(&end.name, other.into(), mac)?;
        }
        let (network, len) = CLIENTS;
        // Every address of the prefix is the clients' own.
        command(&net, "ip", &["route", "add", "local", &format!("{network}/{len}"), "dev", "lo"])?;
        command(&host, "ip", &["route", "add", "default", "via", &ROUTER.to_string()])?;
        let name = near.name.clone();
        let end = net.run(|| FloodEnd::attach(&name, network, len))??;
        net.thread_napi(&near.name, &[cores.generator])?;
        net.prefer_napi(&near.name)?;
        host.thread_napi(&far.name, &[cores.receive])?;
        Ok(Self { end, net, host, near, far, _lab: lab })
    }
}

/// Runs a program in a namespace; its error text is the error.
pub(super) fn command(ns: &NamespaceHandle, program: &str, arguments: &[&str]) -> Result<String, BenchError> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = ns
        .run(|| Command::new(program).args(arguments).output())?
        .map_err(|error| BenchError::Machine(format!("cannot run `{}`: {error}; install {program}", shown())))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(BenchError::Machine(format!("`{}` in the lab: {}", shown(), why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
