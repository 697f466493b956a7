//! The kernel's counters as looks.

use std::time::{Duration, Instant};

use bpf::filter::{Watch, WatchSample};
use rules::packet::{Packet, Part};

use super::window::{Counts, Window};

/// VLAN id of frames without a tag.
const VLAN_NONE: u16 = 4096;

/// Turns readings of a [`Watch`] into [`Window`]s.
#[derive(Debug)]
pub struct Reader {
    watch: Watch,
    before: Vec<Counts>,
    last: Instant,
}

impl Reader {
    /// Begins with what comes from now on.
    pub fn new(mut watch: Watch) -> Self {
        let last = Instant::now();
        let before = watch.read().counts;
        Self { watch, before, last }
    }

    /// Returns what came since the last look. The rules' and the machine's counters are the caller's to fill in.
    pub fn look(&mut self) -> Window {
        // Samples are taken after the counters, and may take a while.
        let now = Instant::now();
        let reading = self.watch.read();
        let time: Duration = now - self.last;
        self.last = now;
        let prefixes = reading.counts.iter().zip(&self.before).map(|(now, before)| now.since(before)).collect();
        self.before = reading.counts;
        let samples = reading.samples.iter().map(|s| (s.prefix, packet_of(s))).collect();
        Window { time, prefixes, samples, ..Window::default() }
    }

    /// The maps that it reads.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
}

/// A sample as the rules see it.
pub fn packet_of(sample: &WatchSample) -> Packet {
    Packet {
        source: sample.source,
        destination: sample.destination,
        ports: sample.ports,
        len: sample.len,
        vlan: (sample.vlan != VLAN_NONE).then_some(sample.vlan),
        protocol: sample.protocol,
        tcp_flags: sample.flags.filter(|_| sample.protocol == 6),
        icmp_type: sample.flags.filter(|_| sample.protocol != 6),
        part: match sample.fragment {
            0 => Part::Whole,
            1 => Part::First,
            _ => Part::Later,
        },
        dscp: sample.dscp,
        known: rules::known::Known::default(),
        ip_at: 0,
        transport_at: 0,
    }
}

/// A packet to the protected prefix of that number, as what counts wants it.
pub fn sample_of(packet: &Packet, prefix: usize) -> WatchSample {
    WatchSample {
        prefix,
        source: packet.source,
        destination: packet.destination,
        ports: packet.ports,
        flags: packet.tcp_flags.or(packet.icmp_type),
        len: packet.len,
        vlan: packet.vlan.unwrap_or(VLAN_NONE),
        protocol: packet.protocol,
        fragment: match packet.part {
            Part::Whole => 0,
            Part::First => 1,
            Part::Later => 2,
        },
        dscp: packet.dscp,
    }
}
