//! Two hosts and a router between them.

use crate::{Bed, End, Space};

/// `a` - `r` - `b`, where `r` forwards between 198.18.1.0/24 and 198.18.2.0/24; in each of them the router is 1, and the host 2.
#[derive(Debug)]
pub struct HostsBed {
    pub bed: Bed,
    pub a: End,
    /// The router's ends.
    pub ra: End,
    pub rb: End,
    pub b: End,
}

impl HostsBed {
    /// None, and a word why, without the privilege.
    pub fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["a", "r", "b"])?;
        let ([a, ra], [rb, b]) = (bed.join(["a", "r"], 1), bed.join(["r", "b"], 1));
        for (end, address) in
            [(&a, "198.18.1.2/24"), (&ra, "198.18.1.1/24"), (&rb, "198.18.2.1/24"), (&b, "198.18.2.2/24")]
        {
            end.address(address);
            // The other end takes redirected frames, and nobody leaves checksums to a device that is not there.
            end.feature("rx-gro", true);
            end.feature("tx-checksum-ip-generic", false);
        }
        a.output("ip route add default via 198.18.1.1");
        b.output("ip route add default via 198.18.2.1");
        ra.set("net.ipv4.ip_forward", "1");
        Some(Self { bed, a, ra, rb, b })
    }

    /// Likewise, and between 2001:2:0:1::/64 and 2001:2:0:2::/64.
    pub fn with_ipv6(tag: &str) -> Option<Self> {
        let hosts = Self::new(tag)?;
        for (end, address) in [(&hosts.a, "1::2"), (&hosts.ra, "1::1"), (&hosts.rb, "2::1"), (&hosts.b, "2::2")] {
            end.set(&format!("net.ipv6.conf.{}.accept_dad", end.interface()), "0");
            end.set(&format!("net.ipv6.conf.{}.disable_ipv6", end.interface()), "0");
            end.output(&format!("ip addr add 2001:2:0:{address}/64 dev {} nodad", end.interface()));
        }
        hosts.a.output("ip -6 route add default via 2001:2:0:1::1");
        hosts.b.output("ip -6 route add default via 2001:2:0:2::1");
        hosts.ra.set("net.ipv6.conf.all.forwarding", "1");
        Some(hosts)
    }

    pub fn router(&self) -> &Space {
        self.ra.space()
    }

    /// The names of the router's interfaces.
    pub fn ports(&self) -> [&str; 2] {
        [self.ra.interface(), self.rb.interface()]
    }

    /// True if `b` answers `a`.
    pub fn crosses(&self) -> bool {
        let mut ping = self.a.command("ping");
        ping.args(["-c", "1", "-W", "1", "198.18.2.2"]).output().expect("ping").status.success()
    }
}
