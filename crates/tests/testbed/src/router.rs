//! A router between neighbours that have no addresses: what reaches them stays there.

use std::path::Path;

use crate::{Bed, End, Space, Tcpdump};

/// The router, and by number its ends of the links and those of its neighbours.
#[derive(Debug)]
pub struct RouterBed {
    pub router: Space,
    pub near: Vec<End>,
    pub far: Vec<End>,
    pub bed: Bed,
}

impl RouterBed {
    /// A router that tells all that it has to tell, and its neighbours' namespaces.
    pub fn new(tag: &str, neighbours: &[&str]) -> Option<Self> {
        let bed = Bed::new(tag, &[&["r"], neighbours].concat())?;
        let router = bed.space("r");
        for (sysctl, value) in [
            ("net.ipv4.icmp_ratelimit", "0"),
            ("net.ipv4.icmp_msgs_per_sec", "1000000"),
            ("net.ipv4.icmp_msgs_burst", "1000000"),
            ("net.ipv6.icmp.ratelimit", "0"),
            // What it waits for in vain, of packets for itself, it would tell after half a minute.
            ("net.ipv4.ipfrag_time", "3600"),
            ("net.ipv6.ip6frag_time", "3600"),
            // And what it learnt of a path, of a message to itself about a packet from its own address, it would forget each half minute.
            ("net.ipv6.route.gc_interval", "3600"),
        ] {
            router.set(sysctl, value);
        }
        Some(Self { router, near: Vec::new(), far: Vec::new(), bed })
    }

    /// A link to a neighbour, with the MAC addresses of the router and the neighbour. On it are 198.18.`net`.0/24 and 2001:2:0:`net`::/64, in which
    /// the router is 1 and knows hosts 2 and 99, and two of fe80::/64. The neighbour takes redirected frames if it has `gro`.
    pub fn join(&mut self, neighbour: &str, net: u8, macs: [[u8; 6]; 2], gro: bool) {
        let ends = self.bed.join(["r", neighbour], 1);
        let macs = macs.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        for (end, mac) in ends.iter().zip(&macs) {
            end.link_set("down");
            end.link_set(&format!("address {mac}"));
            end.link_set("up");
        }
        let ([near, far], name) = (&ends, ends[0].interface());
        near.feature("rx-gro", false);
        far.feature("rx-gro", gro);
        near.set(&format!("net.ipv6.conf.{name}.accept_dad"), "0");
        near.set(&format!("net.ipv6.conf.{name}.disable_ipv6"), "0");
        near.address(&format!("198.18.{net}.1/24"));
        near.output(&format!("ip addr add 2001:2:0:{net}::1/64 dev {name} nodad"));
        let hosts = [format!("198.18.{net}.2"), format!("198.18.{net}.99"), format!("2001:2:0:{net}::2")];
        // Answers to the last two would wait for a neighbour that does not exist, and keep others from being sent.
        for host in hosts.iter().map(String::as_str).chain(["fe80::77", "fe80::1"]) {
            near.output(&format!("ip neigh add {host} lladdr {} dev {name}", macs[1]));
        }
        let [near, far] = ends;
        self.near.push(near);
        self.far.push(far);
    }

    /// Has the router forward, with these routes and rules of `ip`.
    pub fn forward(&self, routes: &[impl AsRef<str>]) {
        self.router.set("net.ipv4.ip_forward", "1");
        self.router.set("net.ipv6.conf.all.forwarding", "1");
        for route in routes {
            self.router.output(&format!("ip {}", route.as_ref()));
        }
    }

    /// The names of the router's interfaces.
    pub fn ports(&self) -> Vec<&str> {
        self.near.iter().map(End::interface).collect()
    }

    /// The frames that come to each neighbour while those of a file are sent by one of them.
    #[track_caller]
    pub fn received(&self, from: usize, file: &Path) -> Vec<Vec<Vec<u8>>> {
        self.received_while(|| self.far[from].replay(file, 20_000))
    }

    /// The frames that come to each neighbour meanwhile.
    #[track_caller]
    pub fn received_while(&self, work: impl FnOnce()) -> Vec<Vec<Vec<u8>>> {
        let tap = |(n, end): (usize, &End)| {
            Tcpdump::start(end.space(), end.interface(), &self.bed.path(&format!("{n}.pcap")), &["-Q", "in"])
        };
        let taps: Vec<Tcpdump> = self.far.iter().enumerate().map(tap).collect();
        work();
        let files: Vec<_> = taps.into_iter().map(Tcpdump::stop).collect();
        files.iter().map(|file| crate::read_pcap(file).into_iter().map(|(_, frame)| frame).collect()).collect()
    }
}
