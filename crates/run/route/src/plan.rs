//! Tables of the kernel programs, computed from the kernel's configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use bpf::{ROUTE_MTUS_MAX, ROUTE_PORTS_MAX, RouteInterface, RouteKey, RouteSlots, RouteTrack};
use host::{interface::NoInterface, netlink::route::Route};
use model::route::CtMark;

use crate::{
    RouteError,
    evidence::{Evidence, Routes, Switches},
};

/// The tables of the kernel programs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RoutePlan {
    /// The ports' addresses on the link, in their order; none: the port is gone.
    pub ports: Vec<Option<[u8; 6]>>,
    /// Ports and VLAN devices on them, by index.
    pub interfaces: BTreeMap<u32, RouteInterface>,
    /// Fields that next hops depend on.
    pub key: RouteKey,
    /// This machine's own addresses and those of broadcasts.
    pub own: Vec<Ipv4Addr>,
    /// MTUs of routes by prefix, the least of a route and those around it.
    pub mtus: BTreeMap<(IpAddr, u8), u32>,
    /// Settings of mode stateful.
    pub track: RouteTrack,
    /// Ports that can transmit redirected frames, in their order.
    pub can_transmit: Vec<bool>,
}

/// Default size of each CPU's cache: at least so many next hops of each version, or by flow …
const NEXTHOPS_MIN: u32 = 1 << 16;
/// … and at the most so many by destination: 16 and 32 MiB.
const NEXTHOPS_MAX: usize = 1 << 20;
/// Connections, 16 MiB: of as many as conntrack holds by default, both directions.
const CONNECTIONS_DEFAULT: u32 = 1 << 19;

/// Size of each CPU's cache: `requested` of each, or twice as many next hops as there are routes.
pub(crate) fn slots(requested: Option<u32>, routes: &Routes) -> RouteSlots {
    let fit = |routes: usize| (routes.min(NEXTHOPS_MAX / 2) as u32 * 2).max(NEXTHOPS_MIN);
    let fitting = || RouteSlots {
        v4: fit(routes.read[0]),
        v6: fit(routes.read[1]),
        flows: NEXTHOPS_MIN,
        connections: CONNECTIONS_DEFAULT,
    };
    requested.map_or_else(fitting, RouteSlots::all)
}

/// The plan for these ports, if they can be those of a router.
pub(crate) fn planned(evidence: &Evidence, ports: &[String]) -> Result<RoutePlan, RouteError> {
    if ports.len() > ROUTE_PORTS_MAX {
        return Err(RouteError::TooMany { ports: ports.len() });
    }
    let mut names = BTreeSet::new();
    for interface in ports {
        if !names.insert(interface) {
            return Err(RouteError::Twice { interface: interface.clone() });
        }
        if !evidence.links.values().any(|link| link.name == *interface) {
            return Err(NoInterface::here(interface).into());
        }
    }
    let plan = plan(evidence, ports, &vec![true; ports.len()], CtMark::default());
    if let Some((interface, _)) = ports.iter().zip(&plan.ports).find(|(_, mac)| mac.is_none()) {
        return Err(RouteError::NoEthernet { interface: interface.clone() });
    }
    if plan.interfaces.len() < 2 {
        return Err(RouteError::OnePort);
    }
    Ok(plan)
}

/// Makes the tables. `out`: the ports that can transmit redirected frames, in the order of `ports`.
pub(crate) fn plan(evidence: &Evidence, ports: &[String], out: &[bool], mark: CtMark) -> RoutePlan {
    let find = |name: &String| evidence.links.iter().find(|(_, link)| link.name == *name);
    let mut interfaces = BTreeMap::new();
    for (number, (name, &out)) in ports.iter().zip(out).enumerate() {
        let Some((&port, link)) = find(name) else { continue };
        let mut add = |index: u32, tag: Option<u16>, running: bool| {
            let Switches { rp_filter, redirects, without_v6, .. } =
                evidence.switches.get(&index).copied().unwrap_or_default();
            let interface = RouteInterface {
                port: number as u32,
                tag,
                out: out && running,
                redirects,
                strict: rp_filter == 1,
                loose: rp_filter == 2,
                without_v6,
            };
            interfaces.insert(index, interface);
        };
        add(port, None, link.running);
        for (&index, vlan) in evidence.links.iter().filter(|(_, l)| l.lower == Some(port) && l.vlan.is_some()) {
            // The priority of a tag that leaves is the kernel's to write.
            add(index, vlan.vlan, link.running && vlan.running && !vlan.vlan_priorities);
        }
    }
    let own = evidence.routes.own.iter().filter_map(|route| match route.to.address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    });
    RoutePlan {
        ports: ports.iter().map(|name| find(name).and_then(|(_, link)| mac(&link.address))).collect(),
        key: key(evidence, interfaces.values().any(|it| it.strict || it.loose)),
        interfaces,
        own: own.collect(),
        mtus: mtus(evidence.routes.with_mtu.iter()),
        can_transmit: out.to_vec(),
        track: evidence.conntrack.unwrap_or_default().track(mark, evidence.netfilter.translates),
    }
}

/// MTUs of routes by prefix. Which of the routes around an address applies (by table, source or TOS) is not known here: the least counts, so that what may
/// be too long goes up.
fn mtus<'a>(routes: impl Iterator<Item = &'a Route>) -> BTreeMap<(IpAddr, u8), u32> {
    let mut own: BTreeMap<(IpAddr, u8), u32> = BTreeMap::new();
    for route in routes {
        let Some(mtu) = route.mtu else { continue };
        let least = own.entry((route.to.address, route.to.length)).or_insert(mtu);
        *least = mtu.min(*least);
    }
    if own.len() > ROUTE_MTUS_MAX {
        let mut all = BTreeMap::new();
        for ((address, _), mtu) in own {
            let least = all.entry((masked(address, 0), 0)).or_insert(mtu);
            *least = mtu.min(*least);
        }
        return all;
    }
    let lengths: BTreeSet<u8> = own.keys().map(|(_, length)| *length).collect();
    let around = |&(address, length): &(IpAddr, u8)| {
        lengths.range(..=length).filter_map(|&length| own.get(&(masked(address, length), length))).min().copied()
    };
    own.keys().filter_map(|prefix| Some((*prefix, around(prefix)?))).collect()
}

/// The address without the bits behind the first `length`.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into()
        }
        IpAddr::V6(v6) => {
            Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into()
        }
    }
}

/// Fields that next hops depend on.
fn key(evidence: &Evidence, rp_filter: bool) -> RouteKey {
    let multipath = !evidence.routes.multipath.is_empty();
    let [v4, v6] = evidence.hash_policy;
    let partial = evidence.rules.iter().any(|rule| rule.is_partial) || !evidence.routes.partial.is_empty();
    RouteKey {
        source: multipath || partial || rp_filter || evidence.rules.iter().any(|rule| rule.from.is_some()),
        ports: partial || (multipath && (v4 > 0 || v6 > 0)),
        tos: partial,
        label: multipath && v6 == 0,
    }
}

/// The address on the link, as /sys writes it.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok().filter(|mac| *mac != [0; 6])
}

/// Fields that next hops depend on, in words.
pub(crate) fn key_words(key: RouteKey) -> Vec<String> {
    let RouteKey { source, ports, tos, label } = key;
    let words = [(source, "source"), (ports, "ports"), (tos, "tos"), (label, "label")];
    words.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect()
}
