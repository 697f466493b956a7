//! The kernel's configuration that forwarding decisions depend on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
};

use host::{
    interface::{self, Link},
    netlink::{
        Netlink,
        route::{self, Route, RouteKind, Rule},
    },
    stack::{Forwarding, Hooks},
};
use model::route::Obstacle;
use nix::sys::socket::SockProtocol;

use crate::{RouteError, conntrack::Conntrack, driver};

/// Sysctls of one interface. Of `all` and its own the one that counts is taken, as each setting wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Switches {
    /// net.ipv4.conf.*.forwarding
    pub forwards_v4: bool,
    /// net.ipv6.conf.*.forwarding
    pub forwards_v6: bool,
    /// net.ipv4.conf.*.rp_filter: 0, 1 (strict) or 2 (loose)
    pub rp_filter: u8,
    /// net.ipv4.conf.*.send_redirects
    pub redirects: bool,
    /// net.ipv6.conf.*.disable_ipv6
    pub without_v6: bool,
}

/// Routes that restrict the cache of next hops, or packets that may arrive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Routes {
    /// Routes of several hops, of all tables.
    pub multipath: BTreeSet<Route>,
    /// Routes by TOS or source.
    pub partial: BTreeSet<Route>,
    /// This machine's own IPv4 addresses and those of broadcasts, beyond 127.0.0.0/8.
    pub own: BTreeSet<Route>,
    /// Routes that say how long a packet may be.
    pub with_mtu: BTreeSet<Route>,
    /// Routes of all tables at the last full read: IPv4 and IPv6.
    pub read: [usize; 2],
}

impl Routes {
    /// The set that a route is of; none: it does not matter.
    fn set_of(&mut self, route: &Route) -> Option<&mut BTreeSet<Route>> {
        let IpAddr::V4(address) = route.to.address else {
            return match (route.hops.len() > 1, route.is_partial) {
                (true, _) => Some(&mut self.multipath),
                (_, true) => Some(&mut self.partial),
                _ => None,
            };
        };
        match route.kind {
            RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast if address.is_loopback() => None,
            RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast => Some(&mut self.own),
            _ if route.hops.len() > 1 => Some(&mut self.multipath),
            _ if route.is_partial => Some(&mut self.partial),
            _ => None,
        }
    }

    /// With another route, in the place of one for the same prefix. Whether that matters.
    pub(crate) fn add(&mut self, route: Route) -> bool {
        let removed = self.remove(&route);
        self.insert(route) || removed
    }

    /// With a route that is in the place of none. Whether that matters.
    fn insert(&mut self, route: Route) -> bool {
        let limited = route.mtu.is_some() && matches!(route.kind, RouteKind::Unicast | RouteKind::Other(_));
        let limited = limited && self.with_mtu.insert(route.clone());
        self.set_of(&route).is_some_and(|set| set.insert(route)) || limited
    }

    /// Without a route, and others for the same prefix. Whether that matters.
    pub(crate) fn remove(&mut self, route: &Route) -> bool {
        let other = |of: &Route| (of.table, of.to, of.metric) != (route.table, route.to, route.metric);
        let sets = [&mut self.multipath, &mut self.partial, &mut self.own, &mut self.with_mtu];
        let before = sets.iter().map(|set| set.len()).sum::<usize>();
        let after = sets.into_iter().map(|set| {
            set.retain(other);
            set.len()
        });
        before != after.sum::<usize>()
    }
}

/// The kernel's configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    pub links: BTreeMap<u32, Link>,
    /// Rules of policy routing.
    pub rules: Vec<Rule>,
    /// Routes, as far as they matter.
    pub routes: Routes,
    /// Sysctls by interface's index.
    pub switches: BTreeMap<u32, Switches>,
    /// net.ipv4.fib_multipath_hash_policy and that of IPv6.
    pub hash_policy: [u8; 2],
    /// Netfilter hooks that forwarded packets meet.
    pub netfilter: Forwarding,
    /// Settings of conntrack; none: this kernel has none.
    pub conntrack: Option<Conntrack>,
    pub xfrm_policies: usize,
    /// Obstacles between the ports' drivers and the routes.
    pub drivers: Vec<Obstacle>,
}

/// Reads it, again and again.
#[derive(Debug)]
pub(crate) struct Reader {
    route: Netlink,
    hooks: Hooks,
}

impl Reader {
    /// For the network namespace of this thread.
    pub(crate) fn open() -> Result<Self, RouteError> {
        let route = Netlink::open(SockProtocol::NetlinkRoute).map_err(RouteError::system("ask for routes"))?;
        Ok(Self { route, hooks: Hooks::open() })
    }

    /// All but the routes, which may be a million: those are as in `routes`.
    pub(crate) fn read(&mut self, ports: &[String], routes: Routes) -> Result<Evidence, RouteError> {
        let links = interface::links(&mut self.route).map_err(RouteError::system("read the interfaces"))?;
        let names: Vec<&str> = ports.iter().map(String::as_str).collect();
        let mut drivers = Vec::new();
        for (&index, link) in links.iter().filter(|(_, link)| ports.contains(&link.name)) {
            drivers.extend(driver::obstacles(&mut self.route, index, &link.name, link.mtu)?);
        }
        let switches = links.iter().map(|(index, link)| (*index, switches(&link.name))).collect();
        Ok(Evidence {
            rules: route::rules(&mut self.route).map_err(RouteError::system("read the rules"))?,
            netfilter: self.hooks.forwarding(&names).map_err(RouteError::system("read the rules of nftables"))?,
            conntrack: Conntrack::read(),
            hash_policy: ["ipv4", "ipv6"].map(|ip| number(&format!("{ip}/fib_multipath_hash_policy")).unwrap_or(0)),
            xfrm_policies: xfrm_policies(),
            drivers,
            links,
            routes,
            switches,
        })
    }

    /// The routes, as far as they matter.
    pub(crate) fn routes(&mut self) -> Result<Routes, RouteError> {
        let all = route::routes(&mut self.route).map_err(RouteError::system("read the routes"))?;
        let mut routes = Routes::default();
        for route in all {
            routes.read[usize::from(route.to.address.is_ipv6())] += 1;
            // Of a list nothing is in the place of anything else.
            routes.insert(route);
        }
        Ok(routes)
    }

    /// The socket, for telling the kernel of neighbours.
    pub(crate) fn netlink(&mut self) -> &mut Netlink {
        &mut self.route
    }
}

fn number(path: &str) -> Option<u8> {
    fs::read_to_string(format!("/proc/sys/net/{path}")).ok()?.trim().parse().ok()
}

fn switches(interface: &str) -> Switches {
    let of = |path: &str, name: &str| number(&path.replace('*', name)).unwrap_or(0);
    let (either, most) = (
        |path: &str| of(path, "all") > 0 || of(path, interface) > 0,
        |path: &str| of(path, "all").max(of(path, interface)),
    );
    Switches {
        forwards_v4: of("ipv4/conf/*/forwarding", interface) > 0,
        forwards_v6: of("ipv6/conf/*/forwarding", interface) > 0,
        rp_filter: most("ipv4/conf/*/rp_filter"),
        redirects: either("ipv4/conf/*/send_redirects"),
        without_v6: of("ipv6/conf/*/disable_ipv6", interface) > 0,
    }
}

/// XFRM_MSG_GETPOLICY and its answer, XFRM_MSG_NEWPOLICY (linux/xfrm.h).
const GET_POLICY: u16 = 0x15;
const NEW_POLICY: u16 = 0x13;
/// `struct xfrm_userpolicy_id`
const POLICY_ID_BYTES: usize = 64;

/// A kernel without IPsec has none.
fn xfrm_policies() -> usize {
    let mut count = 0;
    if let Ok(mut xfrm) = Netlink::xfrm() {
        // What cannot be asked is not there.
        let _ = xfrm.ask(GET_POLICY, host::netlink::DUMP, &[0; POLICY_ID_BYTES], |kind, _| {
            count += usize::from(kind == NEW_POLICY);
        });
    }
    count
}
