//! SYN cookies: how SYNs are answered, and what is remembered about it (`src/filter/cookie/cookie.h`).

use std::{
    collections::BTreeSet,
    fs, io,
    net::IpAddr,
    os::fd::AsFd,
    path::Path,
    sync::{Arc, OnceLock},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, OpenObject, libbpf_sys};
use sys::ethtool::Ethtool;

use super::{PROGRAM, ack::ShieldAck, connected::Connected};
use crate::{
    counters::per_cpu,
    link::XdpError,
    program::{kernel_offset, opts, to_io},
    skel::shield::types::{cookie_generations, cookie_pending, rodata, shield_cookie_count, shield_cookie_cpu},
};

/// The maps, by their names in the program: the counts, and the known sources of either family.
const COUNTS: &str = "cookie_counts";
const V4: &str = "known_v4";
const V6: &str = "known_v6";
const CONNECTED: &str = "cookie_connected";
/// Stamps by hash, without which a source is not known.
const GENERATIONS: &str = "cookie_generations";
/// SYNs of challenged sources.
const PENDING: &str = "cookie_pending";
/// Entries of [`PENDING`] (16 MB), a power of two.
const PENDING_SYNS_MAX: u32 = 1 << 18;
const ALL: [&str; 6] = [V4, V6, CONNECTED, GENERATIONS, PENDING, COUNTS];
/// Bytes of the IPv4 and the TCP header, and of the IPv6 and the TCP header.
const HEADERS_V4: u16 = 40;
const HEADERS_V6: u16 = 60;
/// MSS that every host takes (RFC 9293, 3.7.1; RFC 8200, 5).
const MSS_MIN_V4: u16 = 536;
const MSS_MIN_V6: u16 = 1220;

/// The way in which SYNs are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CookieMode {
    /// The protected server is this host: SYNs are answered by cookies (`src/filter/cookie/number.h`), and [`super::ShieldAck`] makes connections of
    /// the ACKs that bring them back.
    Host(HostCookies),
    /// Likewise, and the kernel makes the connections by itself, of listeners that accept cookies: they do while their queue is full, or if
    /// net.ipv4.tcp_syncookies is 2; otherwise SYNs pass. Only the MSS is kept of what clients offer.
    Kernel(HostCookies),
    /// The protected servers are behind a gateway: sources must show that they exist before their SYNs pass.
    Gateway(GatewayCookies),
    /// The protected server is this host, and its kernel must see the SYN of every connection: sources must show that they exist as for
    /// a gateway, then their SYNs pass.
    Sources(SourceCookies),
}

/// The proof of sources to this host that they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCookies {
    /// Seconds that a source stays known, as for a gateway; never strict, as there are older connections.
    pub known_s: u32,
    /// Until then (CLOCK_MONOTONIC in ns) ACKs that bring back cookies of [`CookieMode::Host`] are let in as there; 0: none are.
    pub until_ns: u64,
    /// The settings of those cookies, and the interface's MAC address.
    pub host: HostCookies,
}

/// The contents of this host's SYN-ACKs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCookies {
    /// The interface's MAC address: frames to others are left alone. None: all are taken for this host's.
    pub mac: Option<[u8; 6]>,
    /// TCP packets to ports where no socket is are dropped; else the stack gets and refuses them (RST), which is slow under a flood.
    pub drop_unlistened: bool,
    /// A VLAN device within another one takes frames with two tags, of which no connection can be made: their SYNs pass. If not, they are dropped.
    pub two_tags: bool,
    /// The ids of all VLAN devices of this namespace: TCP with a tag of no such device passes unanswered. None: whatever the tag.
    pub tags: Option<BTreeSet<u16>>,
    /// Timestamps are offered. Without them a connection has neither window scaling nor SACK nor ECN.
    pub timestamps: bool,
    pub sack: bool,
    pub scaling: bool,
    /// ECN is agreed to.
    pub ecn: bool,
    /// The MSS that is told to IPv4 clients, in bytes.
    pub mss_v4: u16,
    /// The MSS that is told to IPv6 clients, in bytes.
    pub mss_v6: u16,
    /// The window of the SYN-ACK in bytes.
    pub window: u16,
    /// The shift of all further windows, 0 to 14.
    pub window_shift: u8,
}

impl Default for HostCookies {
    fn default() -> Self {
        Self {
            mac: None,
            drop_unlistened: false,
            two_tags: false,
            tags: None,
            timestamps: true,
            sack: true,
            scaling: true,
            ecn: true,
            mss_v4: 1460,
            mss_v6: 1440,
            window: 64_240,
            window_shift: 7,
        }
    }
}

impl HostCookies {
    /// True if a program can make connections of cookies in this thread's network namespace.
    pub fn needs(interface: &str) -> Result<(), XdpError> {
        Self::kernel_needs(interface)?;
        ShieldAck::needs()
    }

    /// True if the kernel makes connections of cookies by itself, see [`CookieMode::Kernel`].
    ///
    /// # Errors
    /// [`XdpError::Unsupported`] if net.ipv4.tcp_syncookies is 0. [`XdpError::System`] if that cannot be read.
    pub fn kernel_needs(interface: &str) -> Result<(), XdpError> {
        if settings("tcp_syncookies").map_err(XdpError::on(interface, SETTINGS))?.first() == Some(&0) {
            return Err(XdpError::Unsupported {
                interface: interface.to_owned(),
                program: PROGRAM.0,
                mode: crate::XdpMode::Native,
                reason:
                    "net.ipv4.tcp_syncookies is 0, so that the kernel makes no connection of a SYN cookie: set it to 1"
                        .into(),
            });
        }
        Ok(())
    }

    /// As the kernel would answer on `interface`: its MAC address and MTU, and the settings net.ipv4.tcp_* of this thread's network namespace.
    pub fn of(interface: &str) -> Result<Self, XdpError> {
        let failed = |operation| XdpError::on(interface, operation);
        let setting = |name: &str| settings(name).map_err(failed(SETTINGS));
        let first = |name: &str| setting(name).map(|all| all.first().copied().unwrap_or(0));
        // Not from /sys, which may show another namespace than that of this thread.
        let mtu = sys::link::mtu(interface).map_err(failed("read the MTU"))?;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        // As tcp_select_initial_window does (net/ipv4/tcp_output.c).
        let receive = setting("tcp_rmem")?.last().copied().unwrap_or(0).max(1 << 16);
        let window_shift = receive.ilog2().saturating_sub(15).min(14) as u8;
        // There is no such file where the kernel has no VLAN devices.
        let vlans = fs::read_to_string(VLANS).unwrap_or_default();
        Ok(Self {
            mac: sys::link::mac(interface).map_err(failed("read the MAC address"))?.filter(|mac| *mac != [0; 6]),
            two_tags: takes_two_tags(&vlans, interface),
            tags: Some(tags(&vlans)),
            timestamps: first("tcp_timestamps")? != 0,
            sack: first("tcp_sack")? != 0,
            scaling: first("tcp_window_scaling")? != 0,
            ecn: first("tcp_ecn")? != 0,
            mss_v4: mtu.saturating_sub(HEADERS_V4).max(MSS_MIN_V4),
            mss_v6: mtu.saturating_sub(HEADERS_V6).max(MSS_MIN_V6),
            window_shift,
            ..Self::default()
        })
    }
}

/// The VLAN devices of this thread's namespace and what each is on (net/8021q/vlanproc.c); absent where there is none.
const VLANS: &str = "/proc/thread-self/net/vlan/config";

/// The ids of VLAN devices, on whatever interface: one of a bridge or a bond takes frames of its ports.
fn tags(vlans: &str) -> BTreeSet<u16> {
    vlans.lines().filter_map(|line| line.split('|').nth(1)?.trim().parse().ok()).collect()
}

/// True if a VLAN device is on a VLAN device of `interface`. Lines are `NAME | ID | ON`, behind a heading.
fn takes_two_tags(vlans: &str, interface: &str) -> bool {
    let on = |line: &str| {
        let mut parts = line.split('|').map(str::trim);
        Some((parts.next()?.to_owned(), parts.nth(1)?.to_owned()))
    };
    let all: Vec<(String, String)> = vlans.lines().filter_map(on).collect();
    all.iter().any(|(_, lower)| all.iter().any(|(name, on)| name == lower && on == interface))
}

const SETTINGS: &str = "read net.ipv4.tcp_* for SYN cookies";

/// The numbers of a setting net.ipv4.* of this thread's namespace.
fn settings(name: &str) -> io::Result<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"))?;
    Ok(text.split_whitespace().filter_map(|n| n.parse().ok()).collect())
}

/// The proof of sources to a gateway that they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayCookies {
    /// Seconds that a source stays known after its last SYN.
    pub known_s: u32,
    /// Drop other packets of unknown sources too, those of earlier connections included.
    pub strict: bool,
}

impl Default for GatewayCookies {
    fn default() -> Self {
        Self { known_s: 600, strict: false }
    }
}

per_cpu! {
    /// The ends of challenged packets, over all CPUs.
    pub struct CookieCounts of shield_cookie_count {
        /// SYNs answered by a cookie (host) or a question (gateway).
        answered,
        /// ACKs with a right cookie.
        right,
        /// ACKs with a wrong one, dropped.
        wrong,
        /// ACKs with a right one that were dropped because the driver keeps no metadata.
        unmarked,
        /// Packets to where no socket is.
        unlistened,
        /// SYNs to listeners of MPTCP, left to the kernel.
        multipath,
        /// Packets that can belong to no handshake, dropped.
        odd,
        /// SYNs that could not be answered, dropped.
        failed,
        /// Sources that became known.
        proved,
        /// Sources that became known, and whose SYN went on at once.
        resumed,
        /// SYNs of known sources, which passed.
        known,
        /// Packets of unknown sources, dropped.
        unknown,
    }
}

/// The answers to SYNs, with the maps that go on when programs are replaced.
#[derive(Debug, Clone)]
pub struct Cookies {
    mode: CookieMode,
    by_redirect: bool,
    maps: Arc<[(&'static str, MapHandle)]>,
}

impl Cookies {
    /// For `interface`, with room for `sources` known sources per family (all but host mode; about 80 bytes each): the ones that were not
    /// heard of for longest make room for new ones.
    ///
    /// # Errors
    /// [`crate::ProgramError::Map`] if the maps cannot be made; [`XdpError::System`] if the interface's driver cannot be asked for.
    pub fn create(interface: &str, mode: CookieMode, sources: u32) -> Result<Self, XdpError> {
        let room = if matches!(mode, CookieMode::Host(_) | CookieMode::Kernel(_)) { 1 } else { sources.max(1) };
        let maps = [
            new(V4, MapType::LruHash, 4, 4, room)?,
            new(V6, MapType::LruHash, 8, 4, room)?,
            new(CONNECTED, MapType::Array, 4, Connected::BYTES as u32, 1)?,
            new(GENERATIONS, MapType::Array, 4, size_of::<cookie_generations>() as u32, 1)?,
            pending(room)?,
            new(COUNTS, MapType::PercpuArray, 4, size_of::<shield_cookie_cpu>() as u32, 1)?,
        ];
        Ok(Self { mode, by_redirect: by_redirect(interface)?, maps: maps.into() })
    }

    /// With the maps that another process pinned under `dir`; none if there are none.
    ///
    /// # Errors
    /// [`XdpError::Pin`] if they are those of another version; [`XdpError::System`] as for [`Cookies::create`].
    pub fn open(interface: &str, mode: CookieMode, dir: &Path) -> Result<Option<Self>, XdpError> {
        let mut maps = Vec::new();
        for name in ALL {
            let path = dir.join(name);
            if !path.exists() {
                continue;
            }
            let map = MapHandle::from_pinned_path(&path).map_err(|e| XdpError::pin("open", &path, to_io(&e)))?;
            if name == COUNTS && map.value_size() as usize != size_of::<shield_cookie_cpu>() {
                return Err(other_version(&path));
            }
            maps.push((name, map));
        }
        if maps.is_empty() {
            return Ok(None);
        }
        if maps.len() < ALL.len() {
            return Err(other_version(&dir.join(COUNTS)));
        }
        Ok(Some(Self { mode, by_redirect: by_redirect(interface)?, maps: maps.into() }))
    }

    /// Makes room for `sources` known sources per family, if the maps were made without; they are kept under `dir` in the place of those.
    ///
    /// # Errors
    /// [`crate::ProgramError::Map`] if the maps cannot be made, [`XdpError::Pin`] with the path.
    pub fn make_room(&mut self, sources: u32, dir: &Path) -> Result<(), XdpError> {
        if self.map(V4)?.max_entries() > 1 {
            return Ok(());
        }
        let mut maps = Vec::new();
        for (name, map) in self.maps.iter() {
            let path = dir.join(name);
            if ![V4, V6, PENDING].contains(name) {
                let again = MapHandle::try_from(map).map_err(|e| failed("make room for known sources", &e))?;
                maps.push((*name, again));
                continue;
            }
            let (name, mut map) = match *name {
                PENDING => pending(sources.max(2))?,
                name => new(name, MapType::LruHash, map.key_size(), 4, sources.max(2))?,
            };
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(XdpError::pin("remove", &path, e)),
                _ => map.pin(&path).map_err(|e| XdpError::pin("pin a map as", &path, to_io(&e)))?,
            }
            maps.push((name, map));
        }
        self.maps = maps.into();
        Ok(())
    }

    /// The same maps in another mode.
    #[must_use]
    pub fn with(&self, mode: CookieMode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// Keeps the maps under `dir`, which exists, in a BPF file system.
    pub fn pin(&self, dir: &Path) -> Result<(), XdpError> {
        for (name, map) in self.maps.iter() {
            let path = dir.join(name);
            let mut second = MapHandle::try_from(map).map_err(|e| XdpError::pin("pin a map as", &path, to_io(&e)))?;
            second.pin(&path).map_err(|e| XdpError::pin("pin a map as", &path, to_io(&e)))?;
        }
        Ok(())
    }

    /// For `interface` too: between two interfaces the program answers on both.
    ///
    /// # Errors
    /// [`XdpError::System`] as for [`Cookies::create`].
    pub fn also_for(self, interface: &str) -> Result<Self, XdpError> {
        Ok(Self { by_redirect: self.by_redirect || by_redirect(interface)?, ..self })
    }

    /// The way in which SYNs are answered.
    pub fn mode(&self) -> &CookieMode {
        &self.mode
    }

    /// The ends of challenged packets since the maps were made.
    pub fn counts(&self) -> Result<CookieCounts, XdpError> {
        Ok(PROGRAM.sum(self.map(COUNTS)?, "read the map cookie_counts")?)
    }

    /// True if a source has shown that it exists, however long ago.
    pub fn is_known(&self, source: IpAddr) -> Result<bool, XdpError> {
        let found = match source {
            IpAddr::V4(a) => self.map(V4)?.lookup(&a.octets(), MapFlags::ANY),
            IpAddr::V6(a) => self.map(V6)?.lookup(&key_v6(&a.octets()), MapFlags::ANY),
        };
        found.map(|value| value.is_some()).map_err(|e| failed("look up a known source", &e))
    }

    /// The number of known sources, of both families.
    pub fn known(&self) -> usize {
        self.maps.iter().filter(|(name, _)| [V4, V6].contains(name)).map(|(_, map)| map.keys().count()).sum()
    }

    /// The connections that SYNs are not answered for (host mode).
    pub fn connected(&self) -> Result<Connected, XdpError> {
        Connected::of(self.map(CONNECTED)?)
    }

    /// Has the object that is about to be loaded use these maps.
    pub(super) fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            if let Some((_, ours)) = self.maps.iter().find(|(name, _)| map.name() == *name) {
                map.set_max_entries(ours.max_entries())?;
                map.reuse_fd(ours.as_fd())?;
            }
        }
        Ok(())
    }

    pub(super) fn set(&self, knobs: &mut rodata) -> Result<(), XdpError> {
        knobs.cookie_by_redirect = self.by_redirect;
        knobs.cookie_key =
            self.connected()?.cookie_key().map_err(|e| PROGRAM.failed("make a key for SYN cookies", e))?;
        let pending = self.maps.iter().find(|(name, _)| *name == PENDING);
        knobs.cookie_pending_mask = pending.map_or(0, |(_, map)| map.max_entries() - 1);
        match &self.mode {
            CookieMode::Host(host) => {
                knobs.cookie_mode = 1;
                host.set(knobs);
            }
            CookieMode::Kernel(host) => {
                knobs.cookie_mode = 1;
                host.set(knobs);
                knobs.cookie_by_kernel = true;
                // The kernel would read more out of them than what we put there.
                knobs.cookie_timestamps = false;
            }
            CookieMode::Gateway(gateway) => {
                knobs.cookie_mode = 2;
                set_known(knobs, gateway.known_s);
                knobs.cookie_strict = gateway.strict;
            }
            CookieMode::Sources(sources) => {
                knobs.cookie_mode = 3;
                set_known(knobs, sources.known_s);
                knobs.cookie_until_ns = sources.until_ns;
                sources.host.set(knobs);
            }
        }
        Ok(())
    }

    fn map(&self, wanted: &str) -> Result<&MapHandle, XdpError> {
        let found = self.maps.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, map)| map).ok_or_else(|| XdpError::setting(format!("the program has no map {wanted}")))
    }
}

impl HostCookies {
    fn set(&self, knobs: &mut rodata) {
        knobs.cookie_mac_known = self.mac.is_some();
        knobs.cookie_mac = self.mac.unwrap_or_default();
        knobs.cookie_drop_unlistened = self.drop_unlistened;
        knobs.cookie_two_tags = self.two_tags;
        knobs.cookie_any_tag = self.tags.is_none();
        for tag in self.tags.iter().flatten() {
            knobs.cookie_tags[usize::from(tag >> 6) & 63] |= 1 << (tag & 63);
        }
        knobs.cookie_mptcp_at = mptcp_at();
        knobs.cookie_timestamps = self.timestamps;
        knobs.cookie_sack = self.sack;
        knobs.cookie_scaling = self.scaling;
        knobs.cookie_ecn = self.ecn;
        knobs.cookie_mss_v4 = self.mss_v4;
        knobs.cookie_mss_v6 = self.mss_v6;
        knobs.cookie_window = self.window;
        knobs.cookie_wscale = self.window_shift.min(14);
    }
}

fn set_known(knobs: &mut rodata, known_s: u32) {
    // The program's seconds are of 2^30 ns, and it compares signed numbers.
    let known_s = (u64::from(known_s) * 1_000_000_000).div_ceil(1 << 30).min(i32::MAX as u64) as u32;
    knobs.cookie_known_s = known_s;
    knobs.cookie_generation_shift = known_s.next_power_of_two().ilog2() as u8;
}

/// The offset in struct tcp_sock that says that a listener takes MPTCP; 0: this kernel has none.
fn mptcp_at() -> u16 {
    // All type information of the kernel is read for this.
    static AT: OnceLock<u16> = OnceLock::new();
    *AT.get_or_init(|| kernel_offset("tcp_sock", "is_mptcp").unwrap_or(0))
}

/// The first 64 bits, in the order in which the program has them: two words as on the wire, the first above the second.
fn key_v6(address: &[u8; 16]) -> [u8; 8] {
    let word = |at: usize| u64::from(address[at..].first_chunk().map_or(0, |&b| u32::from_ne_bytes(b)));
    (word(0) << 32 | word(4)).to_ne_bytes()
}

/// A veth takes XDP_TX only while its peer runs an XDP program, a redirect whenever that runs NAPI.
fn by_redirect(interface: &str) -> Result<bool, XdpError> {
    let refused = |source: String| XdpError::on(interface, "ask for the driver")(io::Error::other(source));
    let mut ethtool = Ethtool::open().map_err(|e| refused(e.to_string()))?;
    let driver = ethtool.driver(interface).map_err(|e| refused(e.to_string()))?;
    Ok(driver.is_some_and(|d| d.driver == "veth"))
}

fn new(
    name: &'static str,
    kind: MapType,
    key: u32,
    value: u32,
    entries: u32,
) -> Result<(&'static str, MapHandle), XdpError> {
    let map_flags = if kind == MapType::Array { libbpf_sys::BPF_F_MMAPABLE } else { 0 };
    let opts = opts!(bpf_map_create_opts { map_flags });
    let map = MapHandle::create(kind, Some(name), key, value, entries, &opts);
    Ok((name, map.map_err(|e| failed("make the maps of SYN cookies", &e))?))
}

/// SYNs of challenged sources: many, where there is room for more than one source.
fn pending(room: u32) -> Result<(&'static str, MapHandle), XdpError> {
    new(PENDING, MapType::Array, 4, size_of::<cookie_pending>() as u32, if room > 1 { PENDING_SYNS_MAX } else { 1 })
}

fn other_version(path: &Path) -> XdpError {
    let why = "it was made by a version of evenkeel whose SYN cookies need others: end that one first, with `evenkeel shield stop`";
    XdpError::pin("take over", path, io::Error::other(why))
}

fn failed(operation: &'static str, e: &libbpf_rs::Error) -> XdpError {
    PROGRAM.failed(operation, to_io(e)).into()
}

#[cfg(test)]
mod tests {
    use super::{tags, takes_two_tags};

    #[test]
    fn a_vlan_device_within_another_takes_two_tags() {
        let head = "VLAN Dev name\t | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n";
        let one = format!("{head}eth0.5         | 5  | eth0\neth1.6         | 6  | eth1\n");
        assert_eq!((tags(&one), tags("")), ([5, 6].into(), [].into()));
        assert!(!takes_two_tags(&one, "eth0") && !takes_two_tags("", "eth0"));
        let two = format!("{one}inner          | 7  | eth0.5\n");
        assert!(takes_two_tags(&two, "eth0") && !takes_two_tags(&two, "eth1"));
    }
}
