//! Two hosts and a router between them.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod beside;
mod tap;

use std::time::Duration;

pub(crate) use beside::{Control, beside, beside_with, totals};
use bpf::XdpMode;
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
};
use route::{RouteSettings, Router};
pub(crate) use tap::Tap;
use testbed::{Bed, End};

/// `a` - `r` - `b`, where `r` forwards: 198.18.1.0/24 and 2001:2:0:1::/64, 198.18.2.0/24 and 2001:2:0:2::/64.
pub(crate) struct World {
    pub(crate) bed: Bed,
    pub(crate) a: End,
    pub(crate) ra: End,
    pub(crate) rb: End,
    pub(crate) b: End,
}

impl World {
    pub(crate) fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["a", "r", "b"])?;
        let ([a, ra], [rb, b]) = (bed.join(["a", "r"], 1), bed.join(["r", "b"], 1));
        for (end, v4, v6) in [
            (&a, "198.18.1.2/24", "2001:2:0:1::2/64"),
            (&ra, "198.18.1.1/24", "2001:2:0:1::1/64"),
            (&rb, "198.18.2.1/24", "2001:2:0:2::1/64"),
            (&b, "198.18.2.2/24", "2001:2:0:2::2/64"),
        ] {
            end.space().set(&format!("net.ipv6.conf.{}.accept_dad", end.interface()), "0");
            end.space().set(&format!("net.ipv6.conf.{}.disable_ipv6", end.interface()), "0");
            end.address(v4);
            end.space().output(&format!("ip addr add {v6} dev {} nodad", end.interface()));
            // The other end takes redirected frames, and nobody leaves checksums to a device that is not there.
            end.feature("rx-gro", true);
            end.feature("tx-checksum-ip-generic", false);
        }
        for (end, far) in [(&a, "1"), (&b, "2")] {
            end.space().output(&format!("ip route add default via 198.18.{far}.1"));
            end.space().output(&format!("ip -6 route add default via 2001:2:0:{far}::1"));
        }
        ra.space().set("net.ipv4.ip_forward", "1");
        ra.space().set("net.ipv6.conf.all.forwarding", "1");
        Some(Self { bed, a, ra, rb, b })
    }

    pub(crate) fn settings(&self) -> RouteSettings {
        settings(&[self.ra.interface(), self.rb.interface()])
    }

    /// A router in this mode; for the router's namespace.
    pub(crate) fn router(&self, mode: RouteMode) -> Router {
        let mut router = Router::start(self.settings()).unwrap();
        router.set_mode(mode).unwrap();
        router
    }
}

/// Mode standard, native, no trial, and back when an obstacle is gone.
pub(crate) fn settings(ports: &[&str]) -> RouteSettings {
    RouteSettings {
        ports: ports.iter().map(|&port| port.to_owned()).collect(),
        xdp: XdpMode::Native,
        slots: Some(4096),
        mode: RouteMode::Standard,
        auto_return: true,
        trial: Duration::ZERO,
        mark: CtMark::default(),
        cpus: CpuSet::new(),
        queue: 2048,
    }
}
