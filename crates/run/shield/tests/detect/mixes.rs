//! Synthetic traffic: looks as the kernel's counters and samples would give them.

use std::{net::Ipv4Addr, time::Duration};

use model::shield_event::{Happened, ShieldEvent};
use rules::{
    Action, Prefix, Rule, Rules,
    detect::DetectConfig,
    known::Known,
    packet::{Packet, Part},
    reference,
};
use shield::detect::{Counts, Detector, Window, mix::Kind};
use testbed::random::Random;

pub(crate) const SAMPLE_PERIOD: Duration = Duration::from_millis(50);
/// Looks of a second.
const PER_SECOND: u64 = 20;
/// Samples of one look.
const SAMPLE_COUNT: u64 = 500;

/// The prefix under attack.
pub(crate) fn protected() -> Prefix {
    Prefix { address: Ipv4Addr::new(198, 18, 0, 0).into(), len: 24 }
}

/// A stream of packets.
pub(crate) struct Stream {
    pub(crate) pps: u64,
    pub(crate) make: fn(&mut Random) -> Packet,
}

pub(crate) fn packet(source: u32, protocol: u8, ports: Option<(u16, u16)>, len: u16) -> Packet {
    Packet {
        source: Ipv4Addr::from_bits(source).into(),
        destination: Ipv4Addr::new(198, 18, 0, 7).into(),
        ports,
        len,
        vlan: None,
        protocol,
        tcp_flags: None,
        icmp_type: None,
        part: Part::Whole,
        dscp: 0,
        known: Known::default(),
        ip_at: 14,
        transport_at: 34,
    }
}

/// 200 clients of a web server: three connections' SYNs in a hundred packets, some QUIC, a little ICMP and DNS.
pub(crate) fn web(dice: &mut Random) -> Packet {
    let source = 0x0a00_0000 + dice.below(200) as u32;
    match dice.below(100) {
        0..3 => Packet { tcp_flags: Some(2), ..packet(source, 6, Some((1024 + dice.below(60000) as u16, 443)), 60) },
        3..80 => Packet { tcp_flags: Some(16), ..packet(source, 6, Some((1024 + dice.below(60000) as u16, 443)), 500) },
        80..97 => packet(source, 17, Some((1024 + dice.below(60000) as u16, 443)), 900),
        97..99 => packet(source, 17, Some((53, 4000)), 200),
        _ => Packet { icmp_type: Some(8), ..packet(source, 1, None, 84) },
    }
}

pub(crate) fn syn_flood(dice: &mut Random) -> Packet {
    Packet { tcp_flags: Some(2), ..packet(dice.below(1 << 32) as u32, 6, Some((dice.below(65536) as u16, 80)), 40) }
}

pub(crate) fn few_sources(dice: &mut Random) -> Packet {
    packet(0x0b00_0001 + dice.below(4) as u32, 17, Some((1024 + dice.below(60000) as u16, 80)), 100)
}

/// Three clients' long connections.
pub(crate) fn few_uploads(dice: &mut Random) -> Packet {
    let source = 0x0a00_0001 + dice.below(3) as u32;
    Packet { tcp_flags: Some(16), ..packet(source, 6, Some((40_000, 443)), 1500) }
}

/// Answers of 5,000 name and time servers; a third of the name servers' are fragments.
pub(crate) fn reflection(dice: &mut Random) -> Packet {
    let source = 0x0c00_0000 + dice.below(5000) as u32;
    match dice.below(3) {
        0 => packet(source, 17, Some((123, 1024 + dice.below(60000) as u16)), 468),
        1 => Packet { part: Part::First, ..packet(source, 17, Some((53, 33000)), 1500) },
        _ => Packet { part: Part::Later, ..packet(source, 17, None, 1500) },
    }
}

pub(crate) fn fragments(dice: &mut Random) -> Packet {
    Packet { part: Part::Later, ..packet(dice.below(1 << 32) as u32, 17, None, 1500) }
}

pub(crate) fn gre(dice: &mut Random) -> Packet {
    packet(dice.below(1 << 32) as u32, 47, None, 512)
}

/// The detector beside a kernel that does as its rules say.
pub(crate) struct World {
    pub(crate) detector: Detector,
    pub(crate) now: Duration,
    pub(crate) dice: Random,
    pub(crate) events: Vec<ShieldEvent>,
    /// Samples of one look.
    pub(crate) samples: u64,
    /// The packets per second with which the machine's busiest CPU is as busy as it should be; none: the machine takes in whatever comes.
    pub(crate) takes_pps: Option<f64>,
    /// Looks that rules take to hold.
    pub(crate) loads_for: u32,
    /// Every so many looks the rules' counters were read so much earlier than the others that what is in them is in the next look; 0: never.
    pub(crate) held_up_every: u32,
    pub(crate) given: Vec<Rule>,
    pub(crate) held: Vec<Rule>,
    pub(crate) loading: u32,
    pub(crate) looks: u32,
    pub(crate) applied_before: Vec<(String, u64)>,
}

impl World {
    pub(crate) fn new(config: DetectConfig) -> Self {
        let detector = Detector::new(config, &[protected()]);
        Self {
            detector,
            now: Duration::from_secs(1000),
            dice: Random(7),
            events: Vec::new(),
            samples: SAMPLE_COUNT,
            takes_pps: None,
            loads_for: 0,
            held_up_every: 0,
            given: Vec::new(),
            held: Vec::new(),
            loading: 0,
            looks: 0,
            applied_before: Vec::new(),
        }
    }

    /// Lets `streams` come for so many tenths of a second, each of two looks, and gives the events of that time.
    pub(crate) fn run(&mut self, tenths: u32, streams: &[Stream]) -> Vec<ShieldEvent> {
        let before = self.events.len();
        for _ in 0..2 * tenths {
            let pending = self.load();
            let mut window = Window { pending, ..self.window(streams) };
            self.hold_up(&mut window.applied);
            self.now += SAMPLE_PERIOD;
            let at = jiff::Timestamp::from_millisecond(self.now.as_millis() as i64).expect("a time");
            self.events.extend(self.detector.step(&window, self.now, at));
        }
        self.events[before..].to_vec()
    }

    /// Has the rules hold that were given, once they are loaded. True: those of an earlier look do not hold yet.
    fn load(&mut self) -> bool {
        let rules = self.detector.rules();
        if rules != self.given {
            (self.given, self.loading) = (rules, self.loads_for);
        }
        let pending = self.loading > 1;
        match self.loading.checked_sub(1) {
            Some(rest) => self.loading = rest,
            None => self.held.clone_from(&self.given),
        }
        pending
    }

    fn hold_up(&mut self, applied: &mut [(String, u64)]) {
        self.looks += 1;
        let before = std::mem::take(&mut self.applied_before);
        if self.held_up_every > 0 && self.looks.is_multiple_of(self.held_up_every) {
            self.applied_before = applied.to_vec();
            applied.iter_mut().for_each(|(_, count)| *count = 0);
        }
        for (name, count) in before {
            applied.iter_mut().filter(|(of, _)| *of == name).for_each(|(_, now)| *now += count);
        }
    }

    fn window(&mut self, streams: &[Stream]) -> Window {
        let total: u64 = streams.iter().map(|s| s.pps).sum::<u64>() / PER_SECOND;
        let each = (total / self.samples).max(1);
        let rules = self.held.clone();
        let mut window = Window { time: SAMPLE_PERIOD, prefixes: vec![Counts::default()], ..Window::default() };
        let mut applied = vec![0u64; rules.len()];
        let mut sources = std::collections::HashSet::new();
        for stream in streams {
            // What a look holds varies by a tenth.
            let packets = stream.pps / PER_SECOND * (95 + self.dice.below(11) as u64) / 100;
            for _ in 0..packets / each {
                let packet = (stream.make)(&mut self.dice);
                sources.insert(packet.source);
                window.prefixes[0].add(&counted(&packet, each));
                window.samples.push((0, packet));
                for (rule, applied) in rules.iter().zip(&mut applied) {
                    let packet = Packet { known: known(&packet), ..packet };
                    *applied += u64::from(reference::applies(&Rules::default(), &rule.when, &packet)) * each;
                }
            }
        }
        window.packets = window.prefixes[0].packets;
        window.ceiling = self.takes_pps.filter(|pps| (total * PER_SECOND) as f64 > *pps);
        window.prefixes[0].sources = sources.len() as f64;
        // A limit on all together ends what is above it; one per source, in these mixes, nothing.
        window.applied = rules
            .iter()
            .zip(applied)
            .map(|(rule, applied)| match rule.action {
                Action::Limit(limit) if !rule.shadow && limit.per_source.is_none() => {
                    (rule.name.clone(), applied.saturating_sub(limit.pps / PER_SECOND))
                }
                Action::Limit(_) if !rule.shadow => (rule.name.clone(), 0),
                _ => (rule.name.clone(), applied),
            })
            .collect();
        window
    }
}

/// Lookups of a server with the clients of [`web`] and the open ports TCP 80 and 443, UDP 443 and 4000.
fn known(packet: &Packet) -> Known {
    let is_client = matches!(packet.source, std::net::IpAddr::V4(source) if source.octets()[0] == 10);
    let open = |port| match packet.protocol {
        6 => port == 80 || port == 443,
        _ => port == 443 || port == 4000,
    };
    let (connection, listener) = match packet.ports {
        Some((_, port)) if [6, 17].contains(&packet.protocol) => (Some(is_client), Some(open(port))),
        _ => (None, None),
    };
    Known { connection, listener, source_seen: Some(is_client) }
}

fn counted(packet: &Packet, times: u64) -> Counts {
    let mut counts = Counts {
        packets: times,
        bytes: times * (u64::from(packet.len) + 14),
        fragments: times * u64::from(packet.part != Part::Whole),
        ..Counts::default()
    };
    match Kind::of(packet) {
        Kind::Syn => (counts.syn, counts.new_flows) = (times, times),
        Kind::SynAck => counts.syn_ack = times,
        Kind::Tcp => counts.tcp = times,
        Kind::Udp => counts.udp = times,
        Kind::Icmp => counts.icmp = times,
        Kind::Other => counts.other = times,
    }
    counts
}

/// The names of events, in order.
pub(crate) fn words(events: &[ShieldEvent]) -> Vec<&'static str> {
    events.iter().map(|e| e.what.word()).collect()
}

/// The first event about acting rules: action and time since the attack began.
pub(crate) fn first_action(events: &[ShieldEvent]) -> Option<(String, f64)> {
    events.iter().find_map(|e| match &e.what {
        Happened::Mitigating { action, shadow: false, .. } => Some((action.clone(), e.since_s)),
        _ => None,
    })
}
