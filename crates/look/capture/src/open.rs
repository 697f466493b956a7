//! From a plan to open sources.

use bpf::{TapPlace, XdpMode};
use port::{
    FanoutProgram, Group, PacketOptions, PacketSource, PlainReading, PortError, RingSource, TapOptions, TapSource,
    XdpOptions, XdpSource,
};
use sys::packet::{Fanout, FanoutAlgorithm, Instruction, RingLayout};

use crate::{
    filtered::Filtered,
    plan::{Backend, Plan},
};

/// A source of any backend. It is told apart once per reader, not per packet.
#[derive(Debug)]
pub enum AnySource {
    Packet(PacketSource),
    Ring(RingSource),
    /// Some queues by AF_XDP.
    Xdp(XdpSource),
    /// Some CPUs' rings of a tap.
    Tap(TapSource),
    /// A plain packet socket whose filter runs in this process.
    FilteredPacket(Filtered<PacketSource>),
    /// A ring whose filter runs in this process.
    FilteredRing(Filtered<RingSource>),
}

impl AnySource {
    /// Puts a filter between a socket or ring and its reader; `program` is for the bytes of a frame with its tags. The kernel's filter must keep frames
    /// whole. XDP backends stay as they are.
    pub fn filtered(self, program: &[Instruction], snaplen: u32) -> Self {
        match self {
            Self::Packet(source) => Self::FilteredPacket(Filtered::new(source, program.to_vec(), snaplen)),
            Self::Ring(source) => Self::FilteredRing(Filtered::new(source, program.to_vec(), snaplen)),
            other => other,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Plain sockets: packets per system call and the socket's buffer.
    pub plain: PlainReading,
    /// The user asked for that buffer: a smaller one is an error, not a note.
    pub buffer_required: bool,
    /// Bytes of a ring's block.
    pub block_bytes: u32,
    /// Blocks of a ring; none: 64 for a reader alone, 16 for each member of a group.
    pub blocks: Option<u32>,
    /// Milliseconds after which a block that is not full is handed over.
    pub retire_ms: u32,
    /// Have the kernel write flow hashes into the ring.
    pub rx_hash: bool,
    /// Rule by which a fanout group chooses.
    pub fanout: Fanout,
    /// Mode of the XDP program of `xdp` and `tap`.
    pub xdp_mode: XdpMode,
    /// Frames captured by `tap` end there instead of passing on.
    pub consume: bool,
    /// Frames that `tap` sees on an interface that has a shield.
    pub place: TapPlace,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            plain: PlainReading::default(),
            buffer_required: false,
            // Tried on a flood: large blocks spare the kernel wake-ups and the closing of blocks.
            block_bytes: 1 << 20,
            blocks: None,
            retire_ms: 60,
            rx_hash: false,
            fanout: Fanout { algorithm: FanoutAlgorithm::Hash, defrag: false, rollover: false, ignore_outgoing: false },
            xdp_mode: XdpMode::Native,
            consume: false,
            place: TapPlace::Before,
        }
    }
}

/// Attachment of an XDP backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// Mode of the program, as the kernel says.
    pub mode: XdpMode,
    /// The NIC writes the frames of every queue straight into our memory; none for the tap, whose program copies.
    pub zero_copy: Option<bool>,
}

/// Attachment of these sources; none without an XDP program.
pub fn attachment<'a>(sources: impl IntoIterator<Item = &'a AnySource>) -> Option<Attachment> {
    let of = |source: &AnySource| match source {
        AnySource::Packet(_) | AnySource::Ring(_) | AnySource::FilteredPacket(_) | AnySource::FilteredRing(_) => None,
        AnySource::Xdp(xdp) => Some(Attachment { mode: xdp.mode(), zero_copy: Some(xdp.is_zero_copy()) }),
        AnySource::Tap(tap) => Some(Attachment { mode: tap.mode(), zero_copy: None }),
    };
    let zero_copy = |a: Option<bool>, b: Option<bool>| a.zip(b).map(|(a, b)| a && b);
    sources.into_iter().filter_map(of).reduce(|a, b| Attachment { zero_copy: zero_copy(a.zero_copy, b.zero_copy), ..a })
}

/// Warnings before a capture with these sources begins: a buffer that is smaller than it should be.
///
/// # Errors
/// If the user asked for that very size.
pub fn notes(sources: &[AnySource], interface: &str, tuning: &Tuning) -> Result<Vec<String>, PortError> {
    let wanted = tuning.plain.buffer_bytes;
    let Some(AnySource::Packet(source)) = sources.first() else { return Ok(Vec::new()) };
    let got = source.buffer_bytes()?;
    if got >= wanted {
        return Ok(Vec::new());
    }
    let text = format!(
        "the receive buffer became {got} bytes instead of {wanted}: without CAP_NET_ADMIN the kernel stops at net.core.rmem_max; give \
         the program that capability, or raise the limit (`sysctl -w net.core.rmem_max={wanted}`)"
    );
    if tuning.buffer_required {
        let reason = format!("{text}, or ask for less");
        return Err(PortError::Unsupported {
            backend: Backend::Packet.name(),
            interface: interface.to_owned(),
            reason,
        });
    }
    Ok(vec![text])
}

/// Opens the sources of a plan, at most one per reader: an interface may have fewer queues than that.
pub fn open(plan: &Plan, options: &PacketOptions, tuning: &Tuning) -> Result<Vec<AnySource>, PortError> {
    let layout = RingLayout {
        block_bytes: tuning.block_bytes,
        blocks: tuning.blocks.unwrap_or(if plan.readers.len() > 1 { 16 } else { 64 }),
        retire_ms: tuning.retire_ms,
        rx_hash: tuning.rx_hash,
        node: plan.node,
    };
    if matches!(plan.backend, Backend::Ring | Backend::RingFanout) {
        check_block(plan.backend, options, tuning.block_bytes)?;
    }
    Ok(match plan.backend {
        Backend::Packet => vec![AnySource::Packet(PacketSource::open(options, tuning.plain)?)],
        Backend::Ring => vec![AnySource::Ring(RingSource::open(options, layout)?)],
        Backend::PacketFanout => PacketSource::open_group(options, tuning.plain, &group(plan, options, tuning)?)?
            .into_iter()
            .map(AnySource::Packet)
            .collect(),
        Backend::RingFanout => RingSource::open_group(options, layout, &group(plan, options, tuning)?)?
            .into_iter()
            .map(AnySource::Ring)
            .collect(),
        Backend::Xdp => {
            let options = XdpOptions {
                filter: options.filter.clone(),
                snaplen: options.snaplen,
                promiscuous: options.promiscuous,
                mode: tuning.xdp_mode,
                numa_node: plan.node,
                ..XdpOptions::new(&options.interface)
            };
            XdpSource::open(&options, plan.readers.len())?.into_iter().map(AnySource::Xdp).collect()
        }
        Backend::Tap => {
            let options = TapOptions {
                filter: options.filter.clone(),
                snaplen: options.snaplen,
                promiscuous: options.promiscuous,
                mode: tuning.xdp_mode,
                consume: tuning.consume,
                place: tuning.place,
                numa_node: plan.node,
                ..TapOptions::new(&options.interface)
            };
            TapSource::open(&options, plan.readers.len())?.into_iter().map(AnySource::Tap).collect()
        }
    })
}

/// Bytes of a block beside a frame: the headers of block and frame, and the room before the frame.
const BESIDE_FRAME: u32 = 160;
/// Bytes of a frame that do not count for the MTU: addresses, two VLAN tags, type.
const LINK_HEADER: u32 = 22;

/// Refuses blocks in which frames of that interface have no room: the kernel cuts them without a word.
fn check_block(backend: Backend, options: &PacketOptions, block_bytes: u32) -> Result<(), PortError> {
    // The MTU of an interface that is not there is nobody's: opening tells.
    let Ok(mtu) = sys::link::mtu(&options.interface) else { return Ok(()) };
    let most = mtu.saturating_add(LINK_HEADER).min(options.snaplen).saturating_add(BESIDE_FRAME);
    if block_bytes >= most {
        return Ok(());
    }
    let (interface, keeps) = (&options.interface, block_bytes.saturating_sub(BESIDE_FRAME));
    let reason = format!(
        "a block of {block_bytes} bytes cuts packets of {interface}, whose MTU is {mtu}: use --block-size {}, or keep {keeps} bytes of each (-s {keeps})",
        most.next_power_of_two()
    );
    Err(PortError::Setting { backend: backend.name(), reason })
}

fn group(plan: &Plan, options: &PacketOptions, tuning: &Tuning) -> Result<Group, PortError> {
    let program = match tuning.fanout.algorithm {
        FanoutAlgorithm::ClassicBpf => Some(FanoutProgram::Classic(by_source_address())),
        FanoutAlgorithm::ExtendedBpf => Some(FanoutProgram::Extended(extended(plan, options)?)),
        _ => None,
    };
    Ok(Group { fanout: tuning.fanout, members: plan.readers.len(), program })
}

fn extended(plan: &Plan, options: &PacketOptions) -> Result<std::os::fd::OwnedFd, PortError> {
    bpf::fanout::by_source_address().map_err(|e| PortError::Unsupported {
        backend: plan.backend.name(),
        interface: options.interface.clone(),
        reason: format!("the program that chooses a member cannot be loaded: {e}"),
    })
}

/// The program of `cbpf`: all packets of one source address meet one member; what is neither IPv4 nor IPv6 meets the
/// first.
fn by_source_address() -> Vec<Instruction> {
    let instruction = |code: u32, jt, jf, k: i32| Instruction { code: code as u16, jt, jf, k: k as u32 };
    let load_word = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let load_half = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    let jump_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let return_a = libc::BPF_RET | libc::BPF_A;
    // linux/filter.h: offsets below zero reach the packet's metadata and its network header. Neighbours differ in their
    // last bytes, and the group takes the rest by its size: so the last four bytes count.
    vec![
        instruction(load_half, 0, 0, libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL),
        instruction(jump_equal, 0, 2, libc::ETH_P_IP),
        instruction(load_word, 0, 0, libc::SKF_NET_OFF + 12),
        instruction(return_a, 0, 0, 0),
        instruction(jump_equal, 0, 2, libc::ETH_P_IPV6),
        instruction(load_word, 0, 0, libc::SKF_NET_OFF + 20),
        instruction(return_a, 0, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}
