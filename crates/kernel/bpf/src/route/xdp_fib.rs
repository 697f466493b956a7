//! Forwarding by the kernel's routing table in XDP: one program on every interface of a router.

use std::{mem::MaybeUninit, os::fd::AsFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sys::interface::index;

use crate::{
    counters::per_cpu,
    link::{XdpError, XdpLink, XdpMode},
    program::{Program, to_io},
    skel::xdp_fib::{XdpFibSkelBuilder, types::fib_count},
};

const PROGRAM: Program = Program("xdp_fib");
const PORTS_MAX: usize = 8;

per_cpu! {
    /// The ends of the frames that came in. All but the first field went to the stack.
    pub struct FibCounts of fib_count {
        /// Handed to another interface; what that one refuses is in its own counters.
        forwarded,
        /// Neither IPv4 nor IPv6, too short, IPv4 with options, or for more than one host.
        not_ip,
        /// Frames at the last hop that they may make.
        expired,
        /// Without a route, for a local address, or forwarding is off.
        no_route,
        /// Frames for a neighbour whose MAC address is not known.
        no_neighbour,
        /// Larger than the way out takes.
        too_big,
        /// Out of an interface that the program is not on, or of the one that they came from.
        elsewhere,
    }
}

impl FibCounts {
    /// Frames that the stack was left to deal with.
    pub fn passed(&self) -> u64 {
        self.not_ip + self.expired + self.no_route + self.no_neighbour + self.too_big + self.elsewhere
    }
}

/// The program on all interfaces of a router, until it is dropped.
#[derive(Debug)]
pub struct XdpFib {
    links: Vec<XdpLink>,
    counts: MapHandle,
}

impl XdpFib {
    /// Loads it and attaches it to `interfaces`, all of this thread's namespace; frames are forwarded among them.
    ///
    /// Routes, neighbours and the switches of forwarding are the kernel's: `ip route`, `ip neigh`, net.ipv4.ip_forward and
    /// net.ipv6.conf.all.forwarding.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for more than eight interfaces. See [`XdpLink::attach`] for what else is refused.
    pub fn attach(interfaces: &[&str], mode: XdpMode) -> Result<Self, XdpError> {
        if interfaces.len() > PORTS_MAX {
            return Err(XdpError::setting(format!(
                "{} interfaces, but XDP forwarding is made for up to {PORTS_MAX}",
                interfaces.len()
            )));
        }
        let mut object = MaybeUninit::uninit();
        let skel = PROGRAM.load(PROGRAM.open::<XdpFibSkelBuilder>(&mut object)?)?;
        for interface in interfaces {
            let index = index(interface)?.to_ne_bytes();
            skel.maps
                .fib_ports
                .update(&index, &index, MapFlags::ANY)
                .map_err(|e| PROGRAM.failed("enter an interface into the map fib_ports", to_io(&e)))?;
        }
        let attach = |interface: &&str| XdpLink::attach(skel.progs.xdp_fib.as_fd(), PROGRAM, interface, mode);
        let links = interfaces.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(Self { links, counts: PROGRAM.map(&skel.maps.fib_counts)? })
    }

    /// Counts so far, over all interfaces and CPUs.
    pub fn counts(&self) -> Result<FibCounts, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map fib_counts")?)
    }

    /// The attached programs, in the order of the interfaces.
    pub fn links(&self) -> &[XdpLink] {
        &self.links
    }
}
