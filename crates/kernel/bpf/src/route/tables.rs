//! Maps that the programs of a router's ports share: mode, interfaces, the cache of next hops.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher},
    io,
    mem::{MaybeUninit, offset_of},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    sync::{OnceLock, atomic::Ordering},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, OpenObject, skel::Skel};
use model::route::RouteMode;
use nix::time::{ClockId, clock_getres};
use sys::map_mmap::SharedMemory;

use crate::{
    bytes::{word32, word64},
    link::XdpError,
    program::{Program, to_io},
    skel::route::{
        RouteSkelBuilder,
        types::{
            route_config, route_group_flow, route_group_v4, route_group_v6, route_interface, route_neigh, route_port,
            route_reta, route_slot_flow, route_slot_v4, route_slot_v6, route_time, route_track,
        },
    },
};

pub(super) const PROGRAM: Program = Program("ek_route");
/// The map of what user space sets.
pub(super) const CONFIG: &str = ".data.route";
/// Maps that the programs of all ports share, by name.
const SHARED_MAPS: [&str; 11] = [
    CONFIG,
    "route_ports",
    "route_ifs",
    "route_tags",
    "route_neighs",
    MTUS,
    "route_slots_v4",
    "route_slots_v6",
    "route_slots_flow",
    "route_nexthops",
    "route_samples",
];
const MTUS: &str = "route_mtus";
/// Prefixes of routes with a limit that the programs know (max_entries of route_mtus, less those that go while others come).
pub const MTUS_MAX: usize = 32_768;
/// Maps of mode stateful alone.
const STATEFUL_MAPS: [&str; 1] = ["route_conns"];
/// Ports that frames are forwarded between.
pub const PORTS_MAX: usize = 64;
/// Buckets of the indirection table that assigns flows to CPUs.
pub const BUCKETS: usize = 256;
/// Offset of the end of a port's address, and of its flags, in its settings.
const MAC_END: usize = 8;
/// ROUTE_NEXTHOPS of nexthop.h.
const NEXTHOPS: u32 = 4096;
/// ROUTE_CONNECTIONS of conn_cache.h.
const CONNECTIONS: u32 = 4;
const NO_TAG: u16 = 4096;
const LOCAL_BITS: u32 = 4096;
const AF_INET: u32 = 2;
/// ROUTE_STATEFUL of route.h.
const STATEFUL: u32 = 4;

const _: () = assert!(
    offset_of!(route_config, ports) == 64
        && offset_of!(route_port, flags) == MAC_END + 2
        && offset_of!(route_config, reta) == 64 + PORTS_MAX * size_of::<route_port>() + LOCAL_BITS as usize / 8
        && size_of::<route_config>() == offset_of!(route_config, reta) + size_of::<route_reta>()
        && size_of::<route_reta>() == 8 + BUCKETS * 2
        && size_of::<route_track>() == 44
        && size_of::<route_interface>() == 8
        && size_of::<route_neigh>() == 24
);

/// Fields that a next hop depends on beside the destination and the ingress interface: the key of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteKey {
    /// The source's address: routes of several hops, rules by source, rp_filter.
    pub source: bool,
    /// Ports and protocol: a multipath hash of them, rules by port.
    pub ports: bool,
    /// TOS: rules or routes by it.
    pub tos: bool,
    /// The flow label of IPv6: a multipath hash of it.
    pub label: bool,
}

impl RouteKey {
    fn bits(self) -> u32 {
        let Self { source, ports, tos, label } = self;
        [source, ports, tos, label].into_iter().enumerate().map(|(bit, on)| u32::from(on) << bit).sum()
    }
}

/// The connections that mode stateful forwards, and the time that conntrack lets them live without traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteTrack {
    /// The bits that a connection's mark must have.
    pub mark: u32,
    /// The bits of a mark that count.
    pub mask: u32,
    /// TCP too: conntrack is liberal about windows, which it does not follow where it does not see the packets.
    pub tcp: bool,
    /// Seconds of an established TCP connection (nf_conntrack_tcp_timeout_established).
    pub established_s: u32,
    /// Seconds of one whose last packet waits for an answer (nf_conntrack_tcp_timeout_unacknowledged).
    pub unanswered_s: u32,
    /// Seconds of UDP in both directions (nf_conntrack_udp_timeout_stream).
    pub stream_s: u32,
    /// Translated connections too, of IPv4 and of IPv6: the kernel translates packets of that version.
    pub nat: [bool; 2],
}

/// An interface that frames arrive or leave by: a port, or a VLAN device on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteInterface {
    pub port: u32,
    /// The VLAN's id; none: untagged.
    pub tag: Option<u16>,
    /// Frames can be sent out by it.
    pub out: bool,
    /// The kernel answers what goes back by the way it came with a redirect.
    pub redirects: bool,
    /// True if net.ipv4.conf.*.rp_filter is 1.
    pub strict: bool,
    /// True if rp_filter is 2.
    pub loose: bool,
    /// net.ipv6.conf.*.disable_ipv6: the kernel drops IPv6 that comes in by it.
    pub without_v6: bool,
}

impl RouteInterface {
    fn raw(&self) -> [u8; 8] {
        let mut raw = [0; 8];
        raw[..4].copy_from_slice(&self.port.to_ne_bytes());
        raw[4..6].copy_from_slice(&self.tag.unwrap_or(NO_TAG).to_ne_bytes());
        raw[6..].copy_from_slice(&self.flags().to_ne_bytes());
        raw
    }

    fn flags(&self) -> u16 {
        let flags = [self.out, self.redirects, self.strict, self.loose, true, self.without_v6];
        flags.into_iter().enumerate().map(|(bit, on)| u16::from(on) << bit).sum()
    }
}

/// A neighbour to whom frames were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteNeighbour {
    pub ifindex: u32,
    pub address: IpAddr,
}

/// Size of each CPU's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteSlots {
    /// Next hops by IPv4 destination: 16 bytes each.
    pub v4: u32,
    /// Next hops by IPv6 destination: 32 bytes each.
    pub v6: u32,
    /// Next hops that depend on more ([`RouteKey`]): 64 bytes.
    pub flows: u32,
    /// Connections in mode stateful, each direction for itself: 32 bytes.
    pub connections: u32,
}

impl RouteSlots {
    /// `slots` next hops of each kind, and four times as many connections.
    pub const fn all(slots: u32) -> Self {
        Self { v4: slots, v6: slots, flows: slots, connections: slots.saturating_mul(4) }
    }

    fn rounded(self) -> Self {
        let round = |slots: u32| slots.clamp(64, 1 << 24).next_power_of_two();
        Self { v4: round(self.v4), v6: round(self.v6), flows: round(self.flows), connections: round(self.connections) }
    }

    /// Numbers of groups of slots (nexthop_cache.h).
    pub(super) fn groups(self) -> Self {
        let room = |slots: u32, group: usize, slot: usize| slots / (group / slot) as u32;
        Self {
            v4: room(self.v4, size_of::<route_group_v4>(), size_of::<route_slot_v4>()),
            v6: room(self.v6, size_of::<route_group_v6>(), size_of::<route_slot_v6>()),
            flows: room(self.flows, size_of::<route_group_flow>(), size_of::<route_slot_flow>()),
            connections: self.connections / CONNECTIONS,
        }
    }
}

/// Sets the masks of a program's tables, whatever skeleton it is of.
macro_rules! set_groups {
    ($knobs:expr, $tables:expr) => {
        let groups = $tables.slots().groups();
        $knobs.route_groups_v4_mask = groups.v4 - 1;
        $knobs.route_groups_v6_mask = groups.v6 - 1;
        $knobs.route_groups_flow_mask = groups.flows - 1;
    };
}
pub(super) use set_groups;

/// The maps that the programs of all ports share.
#[derive(Debug)]
pub struct RouteTables {
    maps: Vec<(&'static str, MapHandle)>,
    /// Made by the first program of mode stateful.
    stateful: OnceLock<Vec<(&'static str, MapHandle)>>,
    config: SharedMemory,
    slots: RouteSlots,
    cpus: u32,
}

impl RouteTables {
    /// New ones, in mode [`RouteMode::Standard`]. What each CPU remembers is rounded up to powers of two.
    ///
    /// # Errors
    /// [`crate::ProgramError::Load`] if the kernel refuses.
    pub fn create(slots: RouteSlots) -> Result<Self, XdpError> {
        let failed = |source| PROGRAM.refused(source);
        let slots = slots.rounded();
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed)? as u32;
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<RouteSkelBuilder>(&mut object)?;
        open.progs.ek_route.set_autoload(false);
        let groups = slots.groups();
        open.maps.route_slots_v4.set_max_entries(cpus * groups.v4).map_err(failed)?;
        open.maps.route_slots_v6.set_max_entries(cpus * groups.v6).map_err(failed)?;
        open.maps.route_slots_flow.set_max_entries(cpus * groups.flows).map_err(failed)?;
        open.maps.route_nexthops.set_max_entries(cpus * NEXTHOPS).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let maps = handles(skel.object(), &SHARED_MAPS).map_err(failed)?;
        let config = maps.iter().find(|(name, _)| *name == CONFIG).map(|(_, map)| map);
        let config = config.ok_or_else(|| XdpError::setting("the router's program has no settings".to_owned()))?;
        let config = SharedMemory::of(config.as_fd(), size_of::<route_config>(), 0)
            .map_err(|e| PROGRAM.failed("map the settings", e))?;
        let tables = Self { maps, stateful: OnceLock::new(), config, slots, cpus };
        tables.seed();
        Ok(tables)
    }

    /// Has an object that is about to be loaded use these maps.
    pub(super) fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        let stateful = self.stateful.get();
        for mut own in object.maps_mut() {
            if let Some((_, map)) =
                self.maps.iter().chain(stateful.into_iter().flatten()).find(|(name, _)| own.name() == *name)
            {
                own.set_max_entries(map.max_entries())?;
                own.reuse_fd(map.as_fd())?;
            } else if STATEFUL_MAPS.iter().any(|name| own.name() == *name) {
                own.set_max_entries(self.cpus * self.slots.groups().connections)?;
            }
        }
        Ok(())
    }

    /// Has the programs of mode stateful that are loaded from now on use the maps of this one, which is the first.
    pub(super) fn keep_stateful(&self, object: &Object) -> libbpf_rs::Result<()> {
        if self.stateful.get().is_none() {
            // Nobody else sets it: a router loads one program after the other.
            let _ = self.stateful.set(handles(object, &STATEFUL_MAPS)?);
        }
        Ok(())
    }

    pub(super) fn map(&self, name: &str) -> Result<&MapHandle, XdpError> {
        let found = self.maps.iter().find(|(of, _)| *of == name).map(|(_, map)| map);
        found.ok_or_else(|| XdpError::setting(format!("the router's program has no map {name}")))
    }

    pub(super) fn slots(&self) -> RouteSlots {
        self.slots
    }

    /// Sets the mode, from the next frame of each CPU. A shadow is that of mode stateful if `stateful`.
    pub fn set_mode(&self, mode: RouteMode, stateful: bool) {
        let number = number(mode) | if stateful && mode == RouteMode::Shadow { STATEFUL } else { 0 };
        self.config.half_word(offset_of!(route_config, mode)).store(number, Ordering::Release);
    }

    /// Sets the connections that mode stateful forwards from now on.
    pub fn set_track(&self, track: RouteTrack) {
        let at = offset_of!(route_config, track);
        let word = |of: usize, value: u32| self.config.half_word(at + of).store(value, Ordering::Relaxed);
        // A mark that no connection can have, while the mask changes.
        word(offset_of!(route_track, mask), 0);
        word(offset_of!(route_track, mark), u32::MAX);
        let hz = ticks_per_second();
        let time = |of: usize, seconds: u32| {
            let seconds = u64::from(seconds).min(u64::from(u32::MAX / 1000).min(i32::MAX as u64 / hz));
            word(of + offset_of!(route_time, ms), seconds as u32 * 1000);
            word(of + offset_of!(route_time, ticks), (seconds * hz) as u32);
        };
        time(offset_of!(route_track, established), track.established_s);
        time(offset_of!(route_track, unanswered), track.unanswered_s);
        time(offset_of!(route_track, stream), track.stream_s);
        word(offset_of!(route_track, tcp), u32::from(track.tcp));
        word(offset_of!(route_track, slack), hz as u32 / 64 + 1);
        word(offset_of!(route_track, nat), u32::from(track.nat[0]) | u32::from(track.nat[1]) << 1);
        word(offset_of!(route_track, mark), track.mark);
        self.config.half_word(at + offset_of!(route_track, mask)).store(track.mask, Ordering::Release);
    }

    /// Assigns each bucket of flows to a CPU; each has a queue on every port ([`super::port::RoutePort::add_cpus`]).
    pub fn set_indirection(&self, buckets: &[u16; BUCKETS]) {
        let at = offset_of!(route_config, reta) + offset_of!(route_reta, cpu);
        for (pair, cpus) in buckets.chunks_exact(2).enumerate() {
            let word = cpus.iter().rev().fold(0, |word, cpu| word << 16 | u32::from(*cpu));
            let word = if cfg!(target_endian = "big") { word.rotate_left(16) } else { word };
            self.config.half_word(at + pair * 4).store(word, Ordering::Release);
        }
    }

    /// Seed of the hash that assigns flows to buckets.
    fn seed(&self) {
        // Keys of the system's random numbers; nobody who does not know it can choose flows that all meet one CPU.
        let seed = std::hash::RandomState::new().build_hasher().finish();
        let at = offset_of!(route_config, reta) + offset_of!(route_reta, seed);
        self.config.word(at).store(seed, Ordering::Release);
    }

    /// Sets the fields that next hops depend on, and empties the cache.
    pub fn set_key(&self, key: RouteKey) {
        self.config.half_word(offset_of!(route_config, key)).store(key.bits(), Ordering::Release);
        self.flush();
    }

    /// Empties the caches of next hops and connections.
    pub fn flush(&self) {
        self.config.word(offset_of!(route_config, generation)).fetch_add(1, Ordering::AcqRel);
    }

    /// Starts another second: neighbours used from now on are listed ([`RouteTables::used_neighbours`]).
    pub fn start_second(&self) {
        self.config.half_word(offset_of!(route_config, second)).fetch_add(1, Ordering::AcqRel);
    }

    /// Sets the flags of untagged ingress on port `number`.
    fn set_untagged(&self, number: usize, flags: u16) {
        let at = offset_of!(route_config, ports) + number % PORTS_MAX * size_of::<route_port>();
        let word = self.config.half_word(at + MAC_END);
        let [e, f, ..] = word.load(Ordering::Relaxed).to_ne_bytes();
        let [g, h] = flags.to_ne_bytes();
        word.store(u32::from_ne_bytes([e, f, g, h]), Ordering::Relaxed);
    }

    /// The interface and the address on the link of port `number`.
    pub(super) fn set_port(&self, number: usize, ifindex: u32, mac: [u8; 6]) {
        let at = offset_of!(route_config, ports) + number % PORTS_MAX * size_of::<route_port>();
        let [a, b, c, d, e, f] = mac;
        self.config.half_word(at).store(ifindex, Ordering::Relaxed);
        self.config.half_word(at + 4).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed);
        let word = self.config.half_word(at + MAC_END);
        let [_, _, g, h] = word.load(Ordering::Relaxed).to_ne_bytes();
        word.store(u32::from_ne_bytes([e, f, g, h]), Ordering::Relaxed);
    }

    /// The addresses of this machine, from which nothing may come. Others share their marks by chance: their packets go up, one in some
    /// thousands.
    pub fn set_own_addresses(&self, addresses: impl Iterator<Item = Ipv4Addr>) {
        let mut bits = [0u64; LOCAL_BITS as usize / 64];
        for address in addresses {
            let bit = u32::from_ne_bytes(address.octets()).wrapping_mul(0x9e37_79b1) >> 20;
            bits[bit as usize / 64] |= 1 << (bit % 64);
        }
        for (at, word) in bits.into_iter().enumerate() {
            self.config.word(offset_of!(route_config, local) + at * 8).store(word, Ordering::Relaxed);
        }
        self.flush();
    }

    /// Sets the interfaces that frames arrive and leave by, by index.
    pub fn set_interfaces(&self, interfaces: &BTreeMap<u32, RouteInterface>) -> Result<(), XdpError> {
        let failed = |e: libbpf_rs::Error| XdpError::from(PROGRAM.failed("set the interfaces", to_io(&e)));
        let (by_index, by_tag) = (self.map("route_ifs")?, self.map("route_tags")?);
        let tag = |it: &RouteInterface| it.tag.map(|tag| (it.port << 12 | u32::from(tag)).to_ne_bytes());
        let tags: BTreeMap<[u8; 4], u32> =
            interfaces.iter().filter_map(|(index, interface)| Some((tag(interface)?, *index))).collect();
        for key in by_tag.keys().filter(|key| !tags.contains_key(key.as_slice())) {
            by_tag.delete(&key).map_err(failed)?;
        }
        for key in by_index.keys().filter(|key| !interfaces.contains_key(&word32(key, 0))) {
            by_index.delete(&key).map_err(failed)?;
        }
        for (index, interface) in interfaces {
            by_index.update(&index.to_ne_bytes(), &interface.raw(), MapFlags::ANY).map_err(failed)?;
        }
        for (tag, index) in tags {
            by_tag.update(&tag, &index.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        for number in 0..PORTS_MAX {
            let interface =
                interfaces.values().find(|interface| interface.port as usize == number && interface.tag.is_none());
            self.set_untagged(number, interface.map_or(0, RouteInterface::flags));
        }
        self.flush();
        Ok(())
    }

    /// Sets the MTUs of routes by prefix, at most [`MTUS_MAX`]; longer packets go up. Other destinations have the MTU of their port.
    pub fn set_mtus(&self, mtus: &BTreeMap<(IpAddr, u8), u32>) -> Result<(), XdpError> {
        let failed = |e: libbpf_rs::Error| XdpError::from(PROGRAM.failed("set the MTUs of routes", to_io(&e)));
        let map = self.map(MTUS)?;
        let mtus: BTreeMap<Vec<u8>, u32> =
            mtus.iter().map(|((address, length), mtu)| (mtu_key(*address, *length), *mtu)).collect();
        for (key, mtu) in &mtus {
            map.update(key, &mtu.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        for key in map.keys().filter(|key| !mtus.contains_key(key)).collect::<Vec<_>>() {
            map.delete(&key).map_err(failed)?;
        }
        self.flush();
        Ok(())
    }

    /// Lets frames leave by port `number`; none: no longer.
    pub(super) fn set_transmit(&self, number: usize, ifindex: Option<u32>) -> io::Result<()> {
        let Ok(devices) = self.map("route_ports") else { return Ok(()) };
        let key = (number as u32).to_ne_bytes();
        let done = match ifindex {
            Some(index) => devices.update(&key, &index.to_ne_bytes(), MapFlags::ANY),
            None => devices.delete(&key),
        };
        done.map_err(|e| to_io(&e))
    }

    /// The neighbours used as next hops since `since_ns` (CLOCK_MONOTONIC, as coarse as ticks).
    pub fn used_neighbours(&self, since_ns: u64) -> Result<Vec<RouteNeighbour>, XdpError> {
        let map = self.map("route_neighs")?;
        let mut neighbours = Vec::new();
        for key in map.keys() {
            let value =
                map.lookup(&key, MapFlags::ANY).map_err(|e| PROGRAM.failed("read the map route_neighs", to_io(&e)))?;
            // It was displaced meanwhile.
            let Some(value) = value else { continue };
            if word64(&value, 0) >= since_ns {
                neighbours.push(neighbour(&key));
            }
        }
        Ok(neighbours)
    }
}

fn handles(object: &Object, names: &[&'static str]) -> libbpf_rs::Result<Vec<(&'static str, MapHandle)>> {
    let named = |map: &libbpf_rs::Map<'_>| names.iter().find(|&&name| map.name() == name).copied();
    object
        .maps()
        .filter_map(|map| Some((named(&map)?, map)))
        .map(|(name, map)| Ok((name, MapHandle::try_from(&map)?)))
        .collect()
}

/// The mode's number in `enum route_mode` (route.h).
pub(super) fn number(mode: RouteMode) -> u32 {
    match mode {
        RouteMode::Standard => 0,
        RouteMode::Routed => 1,
        RouteMode::Shadow => 2,
        RouteMode::Stateful => 1 | STATEFUL,
    }
}

/// The kernel's ticks: what its coarse clocks advance by.
fn ticks_per_second() -> u64 {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |tick| tick.tv_nsec() as u64);
    let tick = if tick == 0 { 4_000_000 } else { tick };
    (1_000_000_000 + tick / 2) / tick
}

/// `struct route_prefix` of fib.h.
fn mtu_key(address: IpAddr, length: u8) -> Vec<u8> {
    let (version, mut octets) = match address {
        IpAddr::V4(v4) => (4u32, v4.octets().to_vec()),
        IpAddr::V6(v6) => (6, v6.octets().to_vec()),
    };
    octets.resize(16, 0);
    [(32 + u32::from(length)).to_ne_bytes().as_slice(), &version.to_be_bytes(), &octets].concat()
}

fn neighbour(key: &[u8]) -> RouteNeighbour {
    let address = &key[offset_of!(route_neigh, address)..];
    let v4 = || address.first_chunk::<4>().map(|&a| IpAddr::from(Ipv4Addr::from(a)));
    let v6 = || address.first_chunk::<16>().map(|&a| IpAddr::from(Ipv6Addr::from(a)));
    let address = if word32(key, offset_of!(route_neigh, family)) == AF_INET { v4() } else { v6() };
    RouteNeighbour { ifindex: word32(key, 0), address: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) }
}
