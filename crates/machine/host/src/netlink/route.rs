//! Objects of the routing family: addresses, routes, rules and neighbours, of both IP versions. (Interfaces are [`crate::interface::Link`]s.)
//!
//! Each is what a forwarding decision depends on, and says so where there is more that it depends on.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Netlink, ONE, attributes, push_attribute, text, u32_at};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// RTM_NEW…, RTM_DEL… and RTM_GET… of each.
pub(super) const ADDRESS: [u16; 3] = [20, 21, 22];
pub(super) const ROUTE: [u16; 3] = [24, 25, 26];
pub(super) const NEIGHBOUR: [u16; 3] = [28, 29, 30];
pub(super) const RULE: [u16; 3] = [32, 33, 34];
/// `struct ifaddrmsg`: family, length of the prefix, flags, scope, interface.
const IFADDRMSG_BYTES: usize = 8;
/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
const RTMSG_BYTES: usize = 12;
/// `struct fib_rule_hdr`: family, lengths of destination and source, TOS, table, two reserved, action, flags.
const RULE_BYTES: usize = 12;
/// `struct ndmsg`: family, padding, interface, state, flags, type.
const NDMSG_BYTES: usize = 12;
/// `struct rtnexthop`: length, flags, hops (the weight less 1), interface.
const RTNEXTHOP_BYTES: usize = 8;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
const FRA_PROTOCOL: u16 = 21;
const FIB_RULE_INVERT: u32 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// NTF_USE: as if a packet had just been sent there.
const NTF_USE: u8 = 1;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_STALE: u16 = 0x04;
const NUD_FAILED: u16 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub length: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub ifindex: u32,
    /// The address, with the length of the prefix that is on the link.
    pub prefix: Prefix,
}

/// The treatment of a packet that a route is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Through a next hop.
    Unicast,
    /// A route to this machine.
    Local,
    /// A route to all on the link, and to this machine.
    Broadcast,
    /// A route to this machine as one of several.
    Anycast,
    Multicast,
    /// Dropped silently.
    Blackhole,
    /// Dropped, with ICMP unreachable to the sender.
    Unreachable,
    /// Dropped, with ICMP prohibited to the sender.
    Prohibit,
    /// The next rule decides.
    Throw,
    /// Something else, by the kernel's number (RTN_…).
    Other(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The interface's index; none where the route only says what becomes of a packet.
    pub ifindex: Option<u32>,
    /// The neighbour to send to; none: the destination itself is on the link. It may be of the other IP version.
    pub gateway: Option<IpAddr>,
    /// Share of the hop in the packets.
    pub weight: u16,
    /// The kernel sends nothing there: the interface is down or has no carrier.
    pub is_dead: bool,
    /// Packets are wrapped on the way (MPLS, SRv6, a tunnel), by a way not told here.
    pub wraps: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    pub table: u32,
    pub to: Prefix,
    /// True if it is for some packets only: by TOS, or by the source's address.
    pub is_partial: bool,
    /// Lower is preferred among those for the same prefix.
    pub metric: u32,
    /// Origin of the route, by the kernel's number (RTPROT_…).
    pub protocol: u8,
    pub kind: RouteKind,
    /// The ways to go on; several share the packets.
    pub hops: Vec<Hop>,
    /// The nexthop object that the hops are of.
    pub nexthop: Option<u32>,
    /// Bytes of the largest packet on this route, if it says so.
    pub mtu: Option<u32>,
}

/// The action of a rule on packets that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleAction {
    /// The routes of this table decide.
    Table(u32),
    /// The rule with this preference is next.
    Goto(u32),
    /// Nothing; the next rule decides.
    Nop,
    Blackhole,
    Unreachable,
    Prohibit,
    /// Something else, by the kernel's number (FR_ACT_…).
    Other(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// Rules are asked in this order.
    pub preference: u32,
    /// Source of the packets; none: any.
    pub from: Option<Prefix>,
    /// Destination of the packets; none: any.
    pub to: Option<Prefix>,
    /// The interface that they came by (`lo`: from this machine).
    pub iif: Option<String>,
    /// The interface that a socket is bound to.
    pub oif: Option<String>,
    /// Something else decides too: a mark, TOS, ports, a user, a negation, or a suppressed route.
    pub is_partial: bool,
    /// A mark of the packet decides too, which nftables may set.
    pub by_mark: bool,
    pub action: RuleAction,
}

impl Rule {
    /// True if it matches every packet.
    pub fn is_for_all(&self) -> bool {
        let Self { from: None, to: None, iif: None, oif: None, is_partial: false, .. } = self else { return false };
        true
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbour {
    pub ifindex: u32,
    pub address: IpAddr,
    /// Hardware address of the neighbour; empty as long as it is not known.
    pub lladdr: Vec<u8>,
    /// The kernel's state (NUD_…).
    pub state: u16,
}

impl Neighbour {
    /// True if it was asked for and has not answered yet.
    pub fn is_incomplete(&self) -> bool {
        self.state & NUD_INCOMPLETE != 0
    }

    /// True if packets go to it that nobody has confirmed of late.
    pub fn is_stale(&self) -> bool {
        self.state & NUD_STALE != 0
    }

    /// True if packets can be sent to it.
    pub fn is_usable(&self) -> bool {
        self.state & (NUD_INCOMPLETE | NUD_FAILED) == 0 && !self.lladdr.is_empty()
    }
}

/// The addresses of the namespace in which `route` was opened.
pub fn addresses(route: &mut Netlink) -> io::Result<Vec<Address>> {
    route.dump(ADDRESS, IFADDRMSG_BYTES, address)
}

pub fn routes(route: &mut Netlink) -> io::Result<Vec<Route>> {
    route.dump(ROUTE, RTMSG_BYTES, self::route)
}

/// The rules, in no order.
pub fn rules(route: &mut Netlink) -> io::Result<Vec<Rule>> {
    route.dump(RULE, RULE_BYTES, rule)
}

pub fn neighbours(route: &mut Netlink) -> io::Result<Vec<Neighbour>> {
    route.dump(NEIGHBOUR, NDMSG_BYTES, neighbour)
}

/// Tells the kernel that a neighbour was used, as a packet to it would: a stale one is asked for.
///
/// Only for stale ones ([`Neighbour::is_stale`]): the kernel makes a permanent one an ordinary one by that, which it then has to ask for.
pub fn use_neighbour(route: &mut Netlink, ifindex: u32, address: IpAddr) -> io::Result<()> {
    let (family, octets) = match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    };
    let mut body = vec![family, 0, 0, 0];
    body.extend(ifindex.to_ne_bytes());
    body.extend([0, 0, NTF_USE, 0]);
    push_attribute(&mut body, NDA_DST, &octets);
    let [new, ..] = NEIGHBOUR;
    route.ask(new, ONE, &body, |_, _| {})
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk()?).into()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk()?).into()),
        _ => None,
    }
}

/// The prefix of this length that holds every address of a family, or the one of an attribute.
fn prefix(family: u8, length: u8, attribute: Option<IpAddr>) -> Option<Prefix> {
    let any = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    Some(Prefix { address: attribute.unwrap_or(any), length })
}

pub(super) fn address(message: &[u8]) -> Option<Address> {
    let (length, ifindex) = (*message.get(1)?, u32_at(message, 4)?);
    let (mut local, mut other) = (None, None);
    for attribute in attributes(message.get(IFADDRMSG_BYTES..)?) {
        match attribute.kind() {
            IFA_LOCAL => local = ip(attribute.value()),
            // On a link between two it is the other end's.
            IFA_ADDRESS => other = ip(attribute.value()),
            _ => {}
        }
    }
    Some(Address { ifindex, prefix: Prefix { address: local.or(other)?, length } })
}

pub(super) fn route(message: &[u8]) -> Option<Route> {
    let [family, length, source, tos, table, protocol, _scope, kind] = *message.first_chunk()?;
    // What IPv6 learned of one destination is no route that somebody made.
    if u32_at(message, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let kind = match kind {
        1 => RouteKind::Unicast,
        2 => RouteKind::Local,
        3 => RouteKind::Broadcast,
        4 => RouteKind::Anycast,
        5 => RouteKind::Multicast,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        8 => RouteKind::Prohibit,
        9 => RouteKind::Throw,
        other => RouteKind::Other(other),
    };
    let mut route = Route {
        table: table.into(),
        to: prefix(family, length, None)?,
        is_partial: source != 0 || tos != 0,
        metric: 0,
        protocol,
        kind,
        hops: Vec::new(),
        nexthop: None,
        mtu: None,
    };
    let rest = message.get(RTMSG_BYTES..)?;
    let flags = message[8];
    for attribute in attributes(rest) {
        let value = attribute.value();
        match attribute.kind() {
            RTA_DST => route.to = prefix(family, length, ip(value))?,
            RTA_PRIORITY => route.metric = u32_at(value, 0)?,
            RTA_TABLE => route.table = u32_at(value, 0)?,
            RTA_NH_ID => route.nexthop = u32_at(value, 0),
            RTA_METRICS => {
                route.mtu = attributes(value).find(|a| a.kind() == RTAX_MTU).and_then(|a| u32_at(a.value(), 0));
            }
            RTA_MULTIPATH => route.hops = hops(value)?,
            _ => {}
        }
    }
    let alone = hop(rest, None, 1, flags);
    if route.hops.is_empty() && (alone.ifindex.is_some() || alone.gateway.is_some()) {
        route.hops.push(alone);
    }
    Some(route)
}

fn hops(mut rest: &[u8]) -> Option<Vec<Hop>> {
    let mut hops = Vec::new();
    while let Some(head) = rest.first_chunk::<RTNEXTHOP_BYTES>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let attributes = rest.get(RTNEXTHOP_BYTES..length)?;
        hops.push(hop(attributes, u32_at(head, 4), u16::from(head[3]) + 1, head[2]));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(hops)
}

fn hop(bytes: &[u8], ifindex: Option<u32>, weight: u16, flags: u8) -> Hop {
    let is_dead = flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN) != 0;
    let mut hop = Hop { ifindex, gateway: None, weight, is_dead, wraps: false };
    for attribute in attributes(bytes) {
        let value = attribute.value();
        match attribute.kind() {
            RTA_OIF => hop.ifindex = u32_at(value, 0),
            RTA_GATEWAY => hop.gateway = ip(value),
            // Behind its family, of two bytes.
            RTA_VIA => hop.gateway = value.get(2..).and_then(ip),
            RTA_ENCAP => hop.wraps = true,
            _ => {}
        }
    }
    hop
}

pub(super) fn rule(message: &[u8]) -> Option<Rule> {
    let [family, to_length, from_length, tos, table, _, _, action] = *message.first_chunk()?;
    let flags = u32_at(message, 8)?;
    let whole = |length: u8| if length > 0 { prefix(family, length, None).map(Some) } else { Some(None) };
    let (mut from, mut to) = (whole(from_length)?, whole(to_length)?);
    let (mut iif, mut oif, mut preference, mut next) = (None, None, 0, 0);
    let mut table = u32::from(table);
    let (mut is_partial, mut by_mark) = (tos != 0 || flags & FIB_RULE_INVERT != 0, false);
    for attribute in attributes(message.get(RULE_BYTES..)?) {
        let value = attribute.value();
        match attribute.kind() {
            FRA_DST => to = Some(prefix(family, to_length, ip(value))?),
            FRA_SRC => from = Some(prefix(family, from_length, ip(value))?),
            FRA_IIFNAME => iif = Some(text(value)),
            FRA_OIFNAME => oif = Some(text(value)),
            FRA_PRIORITY => preference = u32_at(value, 0)?,
            FRA_TABLE => table = u32_at(value, 0)?,
            FRA_GOTO => next = u32_at(value, 0)?,
            FRA_PROTOCOL => {}
            // -1: nothing is suppressed.
            FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP => is_partial |= u32_at(value, 0) != Some(u32::MAX),
            kind => {
                is_partial = true;
                by_mark |= kind == FRA_FWMARK;
            }
        }
    }
    let action = match action {
        1 => RuleAction::Table(table),
        2 => RuleAction::Goto(next),
        3 => RuleAction::Nop,
        6 => RuleAction::Blackhole,
        7 => RuleAction::Unreachable,
        8 => RuleAction::Prohibit,
        other => RuleAction::Other(other),
    };
    // Without a family it is another one's (multicast routing).
    prefix(family, 0, None)?;
    Some(Rule { v6: family == AF_INET6, preference, from, to, iif, oif, is_partial, by_mark, action })
}

/// Entries of bridges have no IP address, and are none.
pub(super) fn neighbour(message: &[u8]) -> Option<Neighbour> {
    let (ifindex, state) = (u32_at(message, 4)?, u16::from_ne_bytes(*message.get(8..)?.first_chunk()?));
    let (mut address, mut lladdr) = (None, Vec::new());
    for attribute in attributes(message.get(NDMSG_BYTES..)?) {
        match attribute.kind() {
            NDA_DST => address = ip(attribute.value()),
            NDA_LLADDR => lladdr = attribute.value().to_vec(),
            _ => {}
        }
    }
    let is_ip = matches!(message[0], AF_INET | AF_INET6);
    Some(Neighbour { ifindex, address: address.filter(|_| is_ip)?, lladdr, state })
}
