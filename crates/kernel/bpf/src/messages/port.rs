//! The reference protocol's program on one interface.

use std::{
    mem::{MaybeUninit, offset_of},
    ops::RangeInclusive,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
    time::Duration,
};

use libbpf_rs::{MapHandle, skel::OpenSkel};
use sys::{ethtool::Ethtool, map_mmap::SharedMemory};

use super::{counts::LinkCounts, endpoints::Endpoints, ring::LinkRing};
use crate::{
    chain::{Place, STATE, Slot, SlotMaps},
    link::{XdpError, XdpMode, query},
    program::Program,
    skel::link::{LinkSkelBuilder, types::link_own},
};

const PROGRAM: Program = Program("ek_link");
/// Of XDP features (include/uapi/linux/netdev.h): verdicts up to XDP_TX.
const ACT_BASIC: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSettings {
    /// Checksums are looked at. Without, what a cable or a switch damages is delivered: only where who reads the ring looks himself.
    pub checked: bool,
    /// Probes of the node are answered in the hook on a veth, too, where the answers are lost while the other end runs no XDP program
    /// ([`LinkAnswers::IfPeerRunsXdp`]), as the ports of a bridge run none. Without, they go up to the stack there.
    pub answers_on_veth: bool,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self { checked: true, answers_on_veth: true }
    }
}

/// Way of the program's own answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkAnswers {
    Sent,
    /// Only while the other end of the veth pair runs an XDP program, such as this one. GRO there is not enough: the answers would stay in its queue.
    IfPeerRunsXdp,
    /// The driver cannot send what it has just received, or its other end may not take it: probes go up to the stack.
    ByStack,
}

/// The program that delivers the frames of docs/protocol/link.md, in its place on an interface until it is dropped: then, and when the process
/// dies, rings get nothing any more.
#[derive(Debug)]
pub struct LinkPort {
    slot: Slot,
    program: OwnedFd,
    counts: MapHandle,
    own: SharedMemory,
    endpoints: Endpoints,
    next: MapHandle,
    answers: LinkAnswers,
}

impl LinkPort {
    /// Loads the program and puts it in its place in the chain of `interface`, an interface of this thread's network namespace with an Ethernet
    /// address.
    pub fn attach(interface: &str, mode: XdpMode, settings: LinkSettings) -> Result<Self, XdpError> {
        let mac = mac_of(interface)?;
        let mut slot = Slot::take(interface, mode, &[Place::Link])?;
        let answers = match answers(interface, mode)? {
            LinkAnswers::IfPeerRunsXdp if !settings.answers_on_veth => LinkAnswers::ByStack,
            answers => answers,
        };
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<LinkSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            (knobs.chain_on, knobs.chain_cpus_mask) = (true, SlotMaps::cpus_mask()?);
            knobs.link_checked = settings.checked;
            knobs.link_answers = answers != LinkAnswers::ByStack;
        }
        slot.maps().lend(open.open_object_mut(), "ek_rests", STATE).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let program = PROGRAM.descriptor(skel.progs.ek_link.as_fd())?;
        let own = PROGRAM.memory(&skel.maps.data_link, size_of::<link_own>(), "map the address")?;
        set_mac(&own, mac);
        let maps = [&skel.maps.link_rings, &skel.maps.link_states, &skel.maps.link_slots];
        let [rings, states, slots] = maps.map(|map| PROGRAM.map(map));
        let endpoints = Endpoints::new(PROGRAM, rings?, states?, &slots?)?;
        let (counts, next) = (PROGRAM.map(&skel.maps.link_counts)?, PROGRAM.map(&skel.maps.link_next)?);
        slot.put(&[program.as_fd()])?;
        Ok(Self { slot, program, counts, own, endpoints, next, answers })
    }

    /// Makes a ring of at least `bytes` (a power of two is made of it), and has what comes for `ports` go there from now on. Some tens of
    /// milliseconds, whatever the number of ports.
    ///
    /// # Errors
    /// A port that has a ring; no ports; more than 1 GiB; what the kernel refuses.
    pub fn endpoint(&mut self, ports: RangeInclusive<u16>, bytes: usize) -> Result<LinkRing, XdpError> {
        self.endpoints.add(wide(&ports), bytes)
    }

    /// Has what comes for one more port go to a ring of this program's.
    ///
    /// # Errors
    /// A port that has a ring; what the kernel refuses.
    pub fn join(&mut self, port: u16, ring: &LinkRing) -> Result<(), XdpError> {
        self.endpoints.join(port.into(), ring)
    }

    /// Has what comes for `ports` go up to the stack from now on, whoever reads the ring. Ports that have none are passed over. Some tens
    /// of milliseconds for all of them.
    pub fn remove(&mut self, ports: impl IntoIterator<Item = u16>) {
        self.endpoints.remove(ports.into_iter().map(u32::from));
    }

    /// The interface has another address now. Frames to any other one are left to the stack.
    pub fn set_mac(&self, mac: [u8; 6]) {
        set_mac(&self.own, mac);
    }

    /// Way of the node's answers to probes.
    pub fn answers(&self) -> LinkAnswers {
        self.answers
    }

    /// Counters so far, over all CPUs.
    pub fn counts(&self) -> Result<LinkCounts, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map link_counts")?)
    }

    /// The mode in which the kernel says that it runs.
    pub fn mode(&self) -> XdpMode {
        self.slot.mode()
    }

    /// The program's place in the interface's chain.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Runs the program `repeat` times on `frame`, as if it had just arrived, with the first `first` bytes in the first buffer; gives the verdict,
    /// the frame as it is afterwards, and the mean time of a run. Where it delivers, it delivers each time.
    pub fn try_frame(&self, frame: &[u8], first: usize, repeat: u32) -> Result<(u32, Vec<u8>, Duration), XdpError> {
        let ran = PROGRAM.run(&self.program, frame, first, frame.len(), repeat.cast_signed())?;
        Ok((ran.verdict, ran.frame, ran.time))
    }

    /// The place of another protocol in the same place.
    pub(super) fn next(&self) -> Result<MapHandle, XdpError> {
        Ok(PROGRAM.map(&self.next)?)
    }
}

fn wide(ports: &RangeInclusive<u16>) -> RangeInclusive<u32> {
    u32::from(*ports.start())..=u32::from(*ports.end())
}

pub(super) fn mac_of(interface: &str) -> Result<[u8; 6], XdpError> {
    let mac = sys::link::mac(interface).map_err(XdpError::on(interface, "ask for the address"))?;
    mac.ok_or_else(|| {
        XdpError::setting(format!("{interface} has no Ethernet address: messages between nodes need one"))
    })
}

/// Writes this node's address for the program (union link_address).
pub(super) fn set_mac(own: &SharedMemory, [a, b, c, d, e, f]: [u8; 6]) {
    let word = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
    own.word(offset_of!(link_own, address)).store(word, Ordering::Relaxed);
}

fn answers(interface: &str, mode: XdpMode) -> Result<LinkAnswers, XdpError> {
    if mode == XdpMode::Generic {
        return Ok(LinkAnswers::Sent);
    }
    let driver = Ethtool::open().and_then(|mut ethtool| ethtool.driver(interface)).ok().flatten();
    if driver.is_some_and(|driver| driver.driver == "veth") {
        return Ok(LinkAnswers::IfPeerRunsXdp);
    }
    // 0: a kernel before 6.3, which does not tell.
    let features = query(interface, "ask for the XDP features")?.feature_flags;
    Ok(if features == 0 || features & ACT_BASIC != 0 { LinkAnswers::Sent } else { LinkAnswers::ByStack })
}
