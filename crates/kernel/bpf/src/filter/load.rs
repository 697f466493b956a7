//! A set of rules as a loaded program.

use std::{
    io,
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rules::tables::{
    FEW_MAX, RuleTables,
    prefixes::{PrefixLayout, TrieLayout},
};
use sys::map_mmap::SharedMemory;

use super::{
    PROGRAM,
    cookie::Cookies,
    layout::{KNOWN, Layout},
    shared::ShieldShared,
    specialise,
    watch::WatchConfig,
};
use crate::{
    chain::SlotMaps,
    link::XdpError,
    program::{kernel_has, module_has, to_io},
    skel::shield::{
        ShieldSkelBuilder,
        types::{prefix_table, prefix_trie, rodata, shield_report},
    },
};

/// The treatment of packets when the control process is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// The longest silence; beyond it the program fails open or closed. The program's clock is up to 10 ms late.
    pub timeout: Duration,
    /// Closed: all but ARP and the packets that rules of the management allow-list pass are dropped. Open: everything passes.
    pub closed: bool,
}

/// The settings of the program, apart from its rules.
#[derive(Debug, Clone, Default)]
pub struct ShieldConfig {
    /// The program listens to a heartbeat ([`ShieldShared::beat`]).
    pub heartbeat: Option<Heartbeat>,
    /// The answers to SYNs; needed if a rule asks for cookies.
    pub cookies: Option<Cookies>,
    /// The counters of protected prefixes ([`super::Watch::config`]).
    pub watch: Option<WatchConfig>,
    /// Two interfaces: frames that pass leave by the other one, and the program is attached to both.
    pub between: Option<Between>,
    /// The places in chains that the program is for ([`Slot::maps`](crate::chain::Slot::maps)): one, or two with `between`, in its order. None: for test runs.
    pub slots: Vec<SlotMaps>,
    /// Lookups that the program can do for packets; required if a rule asks.
    pub known: Option<KnownPackets>,
    /// Frames begin with the IP header: the interface has no link layer.
    pub bare_ip: bool,
    /// For [`Shield::test`]: verdicts are reported, at a price; and rules may ask for cookies that are not set up.
    pub report: bool,
}

/// Lookups for packets, beside their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownPackets {
    /// The MAC address that packets for this machine have, so that nothing is said of a bridge's others; none: all are taken for its.
    pub mac: Option<[u8; 6]>,
    /// Packets are forwarded: nothing is said of who listens elsewhere.
    pub forwards: bool,
    /// Connection tracking has connections that no socket has ([`KnownPackets::tracks`]).
    pub tracked: bool,
    /// Nothing translates what comes to this machine: its own sockets are all that listens.
    pub listeners: bool,
    /// Nothing can be known: rules that ask apply to no packet.
    pub nothing: bool,
}

impl KnownPackets {
    /// True if this kernel lets a program look connections up.
    pub fn tracks() -> bool {
        kernel_has(CT_LOOKUP) || module_has("nf_conntrack", CT_LOOKUP)
    }

    fn set(self, knobs: &mut rodata) {
        knobs.known_nothing = self.nothing;
        knobs.known_forwards = self.forwards;
        knobs.known_tracks = self.tracked;
        knobs.known_listens = self.listeners;
        knobs.known_mac_given = self.mac.is_some();
        knobs.known_mac = self.mac.unwrap_or_default();
    }
}

/// The function that looks connections up, of Linux 6.0.
const CT_LOOKUP: &str = "bpf_xdp_ct_lookup";

/// The two interfaces that frames cross between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    pub first: u32,
    /// Index of the other.
    pub second: u32,
}

/// The result of parsing ([`Tested`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShieldParsed {
    /// A packet that rules are about.
    Ip,
    /// A frame of another protocol.
    NotIp,
    /// Cut short, or contradicts itself.
    Malformed,
}

/// The result of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    /// The program's answer: XDP_ABORTED 0, XDP_DROP 1, XDP_PASS 2, XDP_TX 3, XDP_REDIRECT 4.
    pub action: u32,
    /// The index of the rule that decided; none: the default, or no rule was asked.
    pub rule: Option<usize>,
    /// True if that rule asks for a cookie.
    pub challenged: bool,
    /// Result of parsing; none without one: the heartbeat had stopped, and everything passes.
    pub parsed: Option<ShieldParsed>,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}

/// The program as it was compiled, and the name that libbpf is to give it.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shield.o"));
const OBJECT_NAME: &str = "shield_bpf";
/// Bytes by which an answer can be longer than the frame in a test run.
const REPLY_ROOM_BYTES: usize = 256;

/// Names of a loaded program's sections and mappings of them.
pub(super) type Mapped = Vec<(&'static str, SharedMemory)>;

/// A loaded program with its tables, ready to be attached.
#[derive(Debug)]
pub struct Shield {
    program: OwnedFd,
    /// The maps of its tables, where others are to use them too.
    tables: Vec<(&'static str, MapHandle)>,
    slots: Vec<SlotMaps>,
    report: Option<Mutex<SharedMemory>>,
}

impl Shield {
    /// Loads the program for `tables`; what goes on from the one before is in `shared`.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for tables that contradict themselves; [`crate::ProgramError::Load`] if the kernel refuses.
    pub fn load(tables: &RuleTables, config: &ShieldConfig, shared: &ShieldShared) -> Result<Self, XdpError> {
        Self::load_as(&Layout::of(tables)?, tables, config, shared, &[]).map(|(shield, _)| shield)
    }

    /// Loads a program with the same `tables` for each of several `slots`: they are there once.
    ///
    /// # Errors
    /// As for [`Shield::load`].
    pub fn load_each(
        tables: &RuleTables,
        config: &ShieldConfig,
        slots: Vec<SlotMaps>,
        shared: &ShieldShared,
    ) -> Result<Vec<Self>, XdpError> {
        let layout = Layout::of(tables)?;
        let mut all: Vec<Self> = Vec::new();
        for slot in slots {
            let config = ShieldConfig { slots: vec![slot], ..config.clone() };
            let there = all.first().map_or(&[][..], |first| &first.tables);
            let (shield, _) = Self::load_as(&layout, tables, &config, shared, there)?;
            all.push(shield);
        }
        Ok(all)
    }

    /// Loads the program for tables that are laid out, which may be `there` already; also gives its sections, as [`Layout::sections`] has them.
    pub(super) fn load_as(
        layout: &Layout,
        tables: &RuleTables,
        config: &ShieldConfig,
        shared: &ShieldShared,
        there: &[(&'static str, MapHandle)],
    ) -> Result<(Self, Mapped), XdpError> {
        if layout.challenges && !config.report && config.cookies.is_none() {
            return Err(XdpError::setting("a rule asks for SYN cookies, which are not set up".to_owned()));
        }
        if layout.uses[KNOWN] && !config.report && config.known.is_none() {
            return Err(XdpError::setting("a rule asks what is known of packets, which is not set up".to_owned()));
        }
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<ShieldSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.shield_uses = layout.uses;
            knobs.shield_tcp_uses = layout.tcp_uses;
            knobs.shield_udp_uses = layout.udp_uses;
            knobs.shield_words = layout.words;
            knobs.shield_base = layout.base;
            knobs.shield_mask = layout.mask;
            knobs.shield_absent = layout.absent;
            knobs.shield_rules_mask = layout.rules_mask;
            knobs.shield_cpus_mask = shared.cpus() as u64 - 1;
            knobs.shield_sources_mask = shared.source_sets() as u64 - 1;
            knobs.shield_seed = shared.seed();
            knobs.shield_default = u32::from(tables.default_drop);
            knobs.shield_malformed = u32::from(tables.malformed_drop);
            knobs.shield_reports = config.report;
            knobs.parse_bare_ip = config.bare_ip;
            knobs.shield_limits = layout.limits;
            knobs.seen_on = layout.seen;
            knobs.shield_yields = layout.yields;
            knobs.shield_dscp_matters = layout.dscp_matters;
            for (i, few) in tables.protected_few.iter().take(FEW_MAX).enumerate() {
                let mask = u32::MAX.checked_shl(32 - u32::from(few.len)).unwrap_or(0);
                knobs.shield_few_mask[i] = mask.to_be();
                knobs.shield_few_address[i] = (few.address & mask).to_be();
                knobs.shield_few_number[i] = few.number.into();
            }
            if let Some(cookies) = config.cookies.as_ref().filter(|_| layout.challenges) {
                knobs.shield_cookies = true;
                cookies.set(knobs)?;
            }
            if let Some(known) = config.known {
                known.set(knobs);
            }
            if let Some(watch) = &config.watch {
                watch.set(knobs);
            }
            if let Some(between) = config.between {
                knobs.shield_crosses = true;
                knobs.shield_between_first = between.first;
            }
            if !config.slots.is_empty() {
                (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
            }
            if let Some(heartbeat) = config.heartbeat {
                knobs.shield_beat_ns = u64::try_from(heartbeat.timeout.as_nanos()).unwrap_or(u64::MAX).max(1);
                knobs.shield_fail_closed = heartbeat.closed;
            }
            let [source, destination, protected] = layout.prefixes.map(prefixes);
            knobs.shield_source_prefixes = source;
            knobs.shield_destination_prefixes = destination;
            knobs.shield_protected_prefixes = protected;
        }
        let constants = open.maps.rodata.initial_value().unwrap_or_default();
        let mut open = specialise::open(OBJECT_NAME, OBJECT, constants).map_err(failed)?;
        for mut map in open.maps_mut() {
            if let Some((name, bytes)) = layout.sections.iter().find(|(name, _)| map.name() == *name) {
                map.set_value_size(bytes.len() as u32).map_err(failed)?;
                if let Some((_, table)) = there.iter().find(|(of, _)| of == name) {
                    map.reuse_fd(table.as_fd()).map_err(failed)?;
                }
            }
        }
        shared.lend(&mut open).map_err(failed)?;
        let of_chain = [("ek_rests", ".data.chain"), ("chain_rests_2nd", ".data.chain_2nd")];
        for (slot, (rests, state)) in config.slots.iter().zip(of_chain) {
            slot.lend(&mut open, rests, state).map_err(failed)?;
        }
        if let Some(cookies) = &config.cookies {
            cookies.lend(&mut open).map_err(failed)?;
        }
        if let Some(watch) = &config.watch {
            watch.lend(&mut open).map_err(failed)?;
        }
        let loaded = open.load().map_err(failed)?;
        let missing = || failed(io::Error::from(io::ErrorKind::NotFound).into());
        if let Some(between) = config.between {
            let out = loaded.maps().find(|map| map.name() == "shield_out").ok_or_else(missing)?;
            for (entry, index) in [(0u32, between.second), (1, between.first)] {
                let value = index.to_ne_bytes();
                out.update(&entry.to_ne_bytes(), &value, MapFlags::ANY)
                    .map_err(|e| PROGRAM.failed("enter an interface into the map shield_out", to_io(&e)))?;
            }
        }
        let (mut report, mut sections, mut kept) = (None, Vec::new(), Vec::new());
        for map in loaded.maps() {
            let memory = |bytes: usize| {
                let handle = MapHandle::try_from(&map).map_err(failed)?;
                SharedMemory::of(handle.as_fd(), bytes, 0).map_err(|source| PROGRAM.failed("map a table", source))
            };
            let section = layout.sections.iter().find(|(name, _)| map.name() == *name);
            if let Some((name, bytes)) = section.filter(|_| there.is_empty()) {
                kept.push((*name, MapHandle::try_from(&map).map_err(failed)?));
                let memory = memory(bytes.len())?;
                // SAFETY: the program does not run yet, and nobody else has this mapping.
                unsafe { memory.slice_mut(0, bytes.len()) }.copy_from_slice(bytes);
                sections.push((*name, memory));
            }
            if config.report && map.name() == ".data.sh_report" {
                report = Some(Mutex::new(memory(size_of::<shield_report>())?));
            }
        }
        let program = loaded.progs().find(|program| program.name() == "ek_shield");
        let program = program.ok_or_else(missing)?;
        let program = PROGRAM.descriptor(program.as_fd())?;
        Ok((Self { program, tables: kept, slots: config.slots.clone(), report }, sections))
    }

    /// True if it was loaded for that place.
    pub(crate) fn is_for(&self, slot: &SlotMaps) -> bool {
        self.slots.iter().any(|other| other.is(slot))
    }

    /// Runs the program once on `frame`, attached or not. Counters count.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] if the program was not loaded to report, or for a frame of less than 14 bytes, which the kernel refuses.
    pub fn test(&self, frame: &[u8]) -> Result<Tested, XdpError> {
        self.test_split(frame, frame.len())
    }

    /// As [`Shield::test`], with the first `first` bytes in the frame's first buffer and the rest in further ones, as drivers hand over
    /// frames that are larger than a buffer. The kernel itself splits what is larger than a page less 576 bytes.
    ///
    /// # Errors
    /// As there; kernels before 6.18 refuse a first buffer that is not all of the frame (EINVAL).
    pub fn test_split(&self, frame: &[u8], first: usize) -> Result<Tested, XdpError> {
        let Some(report) = &self.report else {
            return Err(XdpError::setting("the shield's program was not loaded to report verdicts".to_owned()));
        };
        if frame.len() < 14 {
            return Err(XdpError::setting(format!("a frame of {} bytes, but test runs take 14 or more", frame.len())));
        }
        let report = report.lock().unwrap_or_else(PoisonError::into_inner);
        let word = |offset: usize| report.half_word(offset_of!(shield_report, parsed) + offset);
        for at in [0, 4, 8, 12] {
            word(at).store(0, Ordering::Relaxed);
        }
        let ran = PROGRAM.run(&self.program, frame, first, frame.len() + REPLY_ROOM_BYTES, 1)?;
        let failed = word(offset_of!(shield_report, failed)).load(Ordering::Relaxed) != 0;
        let parsed = match word(offset_of!(shield_report, parsed)).load(Ordering::Relaxed) {
            0 => None,
            1 => Some(ShieldParsed::Ip),
            2 => Some(ShieldParsed::NotIp),
            _ => Some(ShieldParsed::Malformed),
        };
        debug_assert!(failed || parsed.is_some());
        Ok(Tested {
            action: ran.verdict,
            rule: (word(offset_of!(shield_report, rule)).load(Ordering::Relaxed) as usize).checked_sub(1),
            challenged: word(offset_of!(shield_report, verdict)).load(Ordering::Relaxed) == 3,
            parsed,
            frame: ran.frame,
        })
    }

    /// Runs the program `repeat` times on `frame` and gives the mean time of a run.
    pub fn time(&self, frame: &[u8], repeat: u32) -> Result<Duration, XdpError> {
        let repeat = i32::try_from(repeat).unwrap_or(i32::MAX);
        Ok(PROGRAM.run(&self.program, frame, frame.len(), frame.len() + REPLY_ROOM_BYTES, repeat)?.time)
    }
}

impl AsFd for Shield {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

fn prefixes(layout: PrefixLayout) -> prefix_table {
    prefix_table {
        v4: trie(layout.v4),
        v6: trie(layout.v6),
        kinds: layout.kinds,
        lengths: layout.lengths,
        slots: layout.slots,
        kinds_len: layout.kinds_len,
        lengths_len: layout.lengths_len,
        slot_mask: layout.slot_mask,
        hash: layout.hash.keys,
    }
}

fn trie(layout: TrieLayout) -> prefix_trie {
    prefix_trie {
        states: layout.states,
        top: layout.top,
        bits: layout.bits,
        entries: layout.entries,
        blocks: layout.blocks,
        runs: layout.runs,
        entries_len: layout.entries_len,
        blocks_len: layout.blocks_len,
        runs_len: layout.runs_len,
        used: layout.used,
        wide: layout.wide,
        ranks: layout.ranks,
        deep: layout.deep,
        deep_len: layout.deep_len,
    }
}
