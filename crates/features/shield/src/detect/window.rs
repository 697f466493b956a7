//! One look at the counters: what came to each protected prefix since the last.

use std::time::Duration;

use model::shield_event::Measure;
use rules::packet::Packet;

/// One look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    /// Since the last look.
    pub time: Duration,
    /// By the number of the protected prefix.
    pub prefixes: Vec<Counts>,
    /// Packets that were picked at random, with the number of their prefix.
    pub samples: Vec<(usize, Packet)>,
    /// Packets that the rules of mitigations applied to since the last look, by name; of a limit what exceeded it. In shadow, what
    /// would have been so.
    pub applied: Vec<(String, u64)>,
}

/// Traffic to one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames without FCS.
    pub bytes: u64,
    /// TCP SYN without ACK.
    pub syn: u64,
    /// TCP SYN with ACK.
    pub syn_ack: u64,
    /// Other TCP.
    pub tcp: u64,
    /// UDP.
    pub udp: u64,
    /// ICMP and ICMPv6.
    pub icmp: u64,
    /// Other protocols.
    pub other: u64,
    /// Fragments, each also counted in its protocol.
    pub fragments: u64,
    /// Packets of flows that were not seen lately.
    pub new_flows: u64,
    /// Distinct sources, by a sketch with an error of about 4 %.
    pub sources: f64,
}

impl Counts {
    /// Traffic that has a limit, in packets or bits.
    pub fn measure(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Packets => self.packets,
            Measure::Bits => self.bytes * 8,
            Measure::Syn => self.syn,
            Measure::SynAck => self.syn_ack,
            Measure::Udp => self.udp,
            Measure::Icmp => self.icmp,
            Measure::Fragments => self.fragments,
            Measure::NewFlows => self.new_flows,
        }
    }

    /// Adds a later look; of the sources the larger number stays.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.syn += other.syn;
        self.syn_ack += other.syn_ack;
        self.tcp += other.tcp;
        self.udp += other.udp;
        self.icmp += other.icmp;
        self.other += other.other;
        self.fragments += other.fragments;
        self.new_flows += other.new_flows;
        self.sources = self.sources.max(other.sources);
    }
}

/// Rates per second in the order of [`Measure::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates(pub [f64; Measure::ALL.len()]);

impl Rates {
    /// Of what came within `time`.
    pub fn of(counts: &Counts, time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(1e-3);
        Self(Measure::ALL.map(|m| counts.measure(m) as f64 / seconds))
    }

    /// One of them.
    pub fn get(&self, measure: Measure) -> f64 {
        self.0[measure as usize]
    }
}
