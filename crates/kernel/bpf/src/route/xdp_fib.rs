//! Forwarding by the kernel's routing table in XDP: one program on every interface of a router.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::AsFd,
};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{
    capture::redirect::{number, per_cpu, to_io},
    skel::xdp_fib::{XdpFibSkelBuilder, types::fib_count},
    xdp::{XdpError, XdpLink, XdpMode, interface_index, quiet_libbpf},
};

const PROGRAM: &str = "xdp_fib";
/// The entries of the map fib_ports.
const PORTS_MAX: usize = 8;

/// What became of the frames that came in. All but the first field went to the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FibCounts {
    /// Handed to another interface; what that one refuses is in its own counters.
    pub forwarded: u64,
    /// Neither IPv4 nor IPv6, too short, IPv4 with options, or for more than one host.
    pub not_ip: u64,
    /// At the last hop that they may make.
    pub expired: u64,
    /// Without a route, for a local address, or forwarding is off.
    pub no_route: u64,
    /// For a neighbour whose MAC address is not known.
    pub no_neighbour: u64,
    /// Larger than the way out takes.
    pub too_big: u64,
    /// Out of an interface that the program is not on, or of the one that they came from.
    pub elsewhere: u64,
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
    /// [`XdpError::Setting`] for more than eight interfaces. See [`XdpLink::attach`] for what else is refused.
    pub fn attach(interfaces: &[&str], mode: XdpMode) -> Result<Self, XdpError> {
        if interfaces.len() > PORTS_MAX {
            return Err(XdpError::Setting(format!(
                "{} interfaces, but XDP forwarding is made for up to {PORTS_MAX}",
                interfaces.len()
            )));
        }
        quiet_libbpf();
        let failed = |source| XdpError::load(PROGRAM, source);
        let mut object = MaybeUninit::uninit();
        let skel = XdpFibSkelBuilder::default().open(&mut object).map_err(failed)?.load().map_err(failed)?;
        for interface in interfaces {
            let index = interface_index(interface)?.to_ne_bytes();
            skel.maps.fib_ports.update(&index, &index, MapFlags::ANY).map_err(|e| XdpError::Map {
                program: PROGRAM,
                operation: "enter an interface into the map fib_ports",
                source: to_io(&e),
            })?;
        }
        let attach = |interface: &&str| XdpLink::attach(skel.progs.xdp_fib.as_fd(), PROGRAM, interface, mode);
        let links = interfaces.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(Self { links, counts: MapHandle::try_from(&skel.maps.fib_counts).map_err(failed)? })
    }

    /// What it has done so far, over all interfaces and CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counts(&self) -> Result<FibCounts, XdpError> {
        let mut sum = FibCounts::default();
        for count in per_cpu(&self.counts, PROGRAM, "read the map fib_counts")? {
            let at = |offset: usize| number(count.get(offset..).unwrap_or_default());
            sum.forwarded += at(offset_of!(fib_count, forwarded));
            sum.not_ip += at(offset_of!(fib_count, not_ip));
            sum.expired += at(offset_of!(fib_count, expired));
            sum.no_route += at(offset_of!(fib_count, no_route));
            sum.no_neighbour += at(offset_of!(fib_count, no_neighbour));
            sum.too_big += at(offset_of!(fib_count, too_big));
            sum.elsewhere += at(offset_of!(fib_count, elsewhere));
        }
        Ok(sum)
    }

    /// The attached programs, in the order of the interfaces.
    pub fn links(&self) -> &[XdpLink] {
        &self.links
    }
}
