//! The backends: which one an interface can do, and each as a place where frames leave.

use std::time::Duration;

use port::{XdpSink, XdpSinkOptions};
use sys::{
    packet_tx::{TxLayout, TxRing},
    privilege::Capability,
    xsk::CopyMode,
};

use crate::{
    TrafficError,
    pace::Out,
    plan::{Backend, Frames, Origin, Plan},
};

const RING_SLOTS: usize = 512;
const XDP_FRAMES: u32 = 2048;
/// Sizes of a frame of AF_XDP's memory.
const XDP_FRAME_BYTES: [u32; 2] = [2048, 4096];
/// Time for the last frames of an AF_XDP socket to leave.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The reason why a veth refuses redirected frames, and what to do.
pub(crate) const NO_NAPI: &str = "it takes no redirected frames now: its driver has no ndo_xdp_xmit, or it is a veth whose peer runs no \
     NAPI. For a veth: `ethtool -K PEER gro off`, then `gro on`, or an XDP program on the peer; otherwise take --backend tx-ring";

impl Backend {
    /// The longest frame that it sends, in bytes without FCS; none: as long as the interface takes.
    pub(crate) fn frame_max(self) -> Option<usize> {
        match self {
            Self::XdpLive => Some(bpf::r#gen::LIVE_FRAME_MAX),
            Self::Xdp => Some(XDP_FRAME_BYTES[1] as usize),
            Self::TxRing => None,
        }
    }

    /// The capabilities that opening it needs; sending needs none.
    pub fn needs(self) -> &'static [Capability] {
        match self {
            // CAP_PERFMON: the verifier is told that it need not mask what the program adds to pointers.
            Self::XdpLive => &[Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON],
            Self::Xdp | Self::TxRing => &[Capability::CAP_NET_RAW],
        }
    }
}

/// The backend of the plan and why it was chosen.
///
/// # Errors
/// [`TrafficError::Unsupported`] if the one that was asked for cannot be done.
pub fn choose(plan: &Plan) -> Result<(Backend, String), TrafficError> {
    let name = &plan.interface.name;
    let stream = matches!(plan.frames, Frames::Cycles(_));
    let short = plan.longest <= bpf::r#gen::LIVE_FRAME_MAX;
    let random = matches!(&plan.config.origin, Origin::Stream(s) if s.random_sources);
    let (backend, why) = choose_any(plan, stream, short)?;
    if random && backend != Backend::XdpLive {
        return Err(TrafficError::Unsupported {
            backend: backend.name(),
            interface: name.clone(),
            reason: format!(
                "sources are drawn anew for each packet by xdp-live only; {} was chosen: {why}",
                backend.name()
            ),
        });
    }
    Ok((backend, why))
}

fn choose_any(plan: &Plan, stream: bool, short: bool) -> Result<(Backend, String), TrafficError> {
    let name = &plan.interface.name;
    match plan.config.backend {
        Some(Backend::XdpLive) => match bpf::takes_redirected_frames(name)? {
            Some(false) => Err(TrafficError::Unsupported {
                backend: Backend::XdpLive.name(),
                interface: name.clone(),
                reason: NO_NAPI.into(),
            }),
            _ => Ok((Backend::XdpLive, "asked for".into())),
        },
        Some(backend) => Ok((backend, "asked for".into())),
        None if !stream => Ok((Backend::TxRing, "live frames cannot replay a file".into())),
        None if !short => Ok((Backend::TxRing, "live frames cannot be that long".into())),
        None => match bpf::takes_redirected_frames(name)? {
            Some(true) => Ok((Backend::XdpLive, "the fastest, and the interface takes redirected frames".into())),
            Some(false) => Ok((
                Backend::TxRing,
                "the interface takes no redirected frames, which xdp-live needs (a veth does while its peer runs NAPI)"
                    .into(),
            )),
            None => {
                Ok((Backend::TxRing, "this kernel cannot say whether the interface takes redirected frames".into()))
            }
        },
    }
}

/// Opens the user-space sender `i` of the plan.
pub(crate) fn open(plan: &Plan, backend: Backend, i: usize) -> Result<Box<dyn Out>, TrafficError> {
    if backend == Backend::Xdp {
        let [short, long] = XDP_FRAME_BYTES;
        let frame_bytes = if plan.longest <= short as usize { short } else { long };
        let options = XdpSinkOptions {
            interface: plan.interface.name.clone(),
            queue: i as u32,
            frames: XDP_FRAMES,
            frame_bytes,
            copy: CopyMode::Any,
        };
        return Ok(Box::new(Xdp(XdpSink::open(&options)?)));
    }
    let layout = TxLayout { slots: RING_SLOTS, frame_max: plan.longest, qdisc_bypass: !plan.config.qdisc };
    Ok(Box::new(Ring(TxRing::open(plan.interface.index, layout)?)))
}

struct Ring(TxRing);

impl Out for Ring {
    fn push(&mut self, frame: &[u8]) -> Result<bool, TrafficError> {
        Ok(self.0.push(frame)?)
    }

    fn kick(&mut self) -> Result<(), TrafficError> {
        Ok(self.0.flush(false)?)
    }

    fn finish(&mut self) -> Result<(), TrafficError> {
        Ok(self.0.flush(true)?)
    }
}

struct Xdp(XdpSink);

impl Out for Xdp {
    fn push(&mut self, frame: &[u8]) -> Result<bool, TrafficError> {
        let mut fits = true;
        let taken = self.0.submit(1, |memory| match memory.get_mut(..frame.len()) {
            Some(room) => {
                room.copy_from_slice(frame);
                frame.len()
            }
            None => {
                fits = false;
                0
            }
        });
        if !fits {
            return Err(TrafficError::Setting(format!(
                "a frame of {} bytes does not fit a frame of AF_XDP",
                frame.len()
            )));
        }
        Ok(taken == 1)
    }

    fn kick(&mut self) -> Result<(), TrafficError> {
        self.0.kick()?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TrafficError> {
        self.0.flush(DRAIN_TIMEOUT)?;
        Ok(())
    }
}
