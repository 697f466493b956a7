//! Frames that the kernel sends out of a port, compared with the program's decisions.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, OwnedFd},
};

use libbpf_rs::{MapCore, MapFlags, libbpf_sys, skel::OpenSkel};
use sys::interface::index;

use super::tables::{PROGRAM as ROUTE, RouteTables};
use crate::{
    bytes::{word32, word64},
    link::{XdpError, attach_at_tcx},
    program::{Program, ProgramError, needs_tcx, to_io},
    skel::{
        route::types::{route_egress, route_sample},
        route_out::RouteOutSkelBuilder,
    },
};

const PROGRAM: Program = Program("ek_route_out");
const NO_TAG: u16 = 4096;

/// The first requirement of the shadow that the running kernel lacks.
pub fn shadow_lacks() -> Option<ProgramError> {
    needs_tcx("the trial in shadow", "`evenkeel route run --trial 0` forwards without a trial").err()
}

/// The program at a port's egress. Dropping it takes it off.
#[derive(Debug)]
pub struct RouteEgressWatch {
    _link: OwnedFd,
}

impl RouteEgressWatch {
    /// Puts it behind all other programs at tc egress (tcx) of `interface`.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] where the kernel has no tcx (below 6.6), and what else it refuses.
    pub fn attach(tables: &RouteTables, interface: &str) -> Result<Self, XdpError> {
        if let Some(lacking) = shadow_lacks() {
            return Err(lacking.into());
        }
        let index = index(interface)?;
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<RouteOutSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.route_out_ifindex = index;
        }
        tables.lend(open.open_object_mut()).map_err(|source| PROGRAM.refused(source))?;
        let skel = PROGRAM.load(open)?;
        let (program, at) = (skel.progs.ek_route_out.as_fd(), (libbpf_sys::BPF_TCX_EGRESS, 0));
        let operation = "attach the program that compares at tc egress";
        Ok(Self { _link: attach_at_tcx(program, interface, at, operation)? })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteEgress {
    pub ifindex: u32,
    /// The VLAN's id on the link; none: untagged.
    pub tag: Option<u16>,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Destination MAC address.
    pub to: [u8; 6],
    /// Source MAC address.
    pub from: [u8; 6],
}

/// A frame that the shadow has written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSample {
    /// The program's decision.
    pub own: RouteEgress,
    /// The kernel's way; none: it sent the frame by no port.
    pub kernel: Option<RouteEgress>,
    /// Time of arrival (CLOCK_MONOTONIC).
    pub ingress_ns: u64,
    /// The interface that it came by.
    pub in_ifindex: u32,
    /// Length of the frame without FCS.
    pub len: u32,
    /// First bytes of the frame as it came.
    pub head: Vec<u8>,
}

impl RouteTables {
    /// Takes the frames out that were written down before `before_ns` (CLOCK_MONOTONIC).
    pub fn take_samples(&self, before_ns: u64) -> Result<Vec<RouteSample>, XdpError> {
        let map = self.map("route_samples")?;
        let failed = |e: libbpf_rs::Error| ROUTE.failed("read the map route_samples", to_io(&e));
        let mut samples = Vec::new();
        for key in map.keys().collect::<Vec<_>>() {
            let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(failed)? else { continue };
            let sample = sample(&value);
            if sample.ingress_ns < before_ns {
                // That it was displaced meanwhile is as good.
                let _ = map.delete(&key);
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

fn leaving(raw: &[u8]) -> RouteEgress {
    let tag = raw[offset_of!(route_egress, tag)..].first_chunk().map_or(NO_TAG, |&tag| u16::from_ne_bytes(tag));
    let macs = &raw[offset_of!(route_egress, macs)..];
    let mac = |at: usize| macs[at..].first_chunk().copied().unwrap_or_default();
    RouteEgress {
        ifindex: word32(raw, offset_of!(route_egress, ifindex)),
        tag: (tag != NO_TAG).then_some(tag),
        hop_limit: raw[offset_of!(route_egress, hop_limit)],
        to: mac(0),
        from: mac(6),
    }
}

fn sample(raw: &[u8]) -> RouteSample {
    let kept = word32(raw, offset_of!(route_sample, kept)) as usize;
    let head = &raw[offset_of!(route_sample, head)..];
    RouteSample {
        own: leaving(&raw[offset_of!(route_sample, own)..]),
        kernel: (word32(raw, offset_of!(route_sample, sent)) > 0)
            .then(|| leaving(&raw[offset_of!(route_sample, kernel)..])),
        ingress_ns: word64(raw, offset_of!(route_sample, ingress_ns)),
        in_ifindex: word32(raw, offset_of!(route_sample, in_ifindex)),
        len: word32(raw, offset_of!(route_sample, len)),
        head: head[..kept.min(head.len())].to_vec(),
    }
}
