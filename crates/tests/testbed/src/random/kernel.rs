use std::{collections::BTreeMap, net::IpAddr};

use bpf::filter::{Shield, ShieldConfig, ShieldParsed, ShieldShared, Tested};
use rules::{
    Rules,
    compile::{self, Counters, Now},
    known::Known,
    packet::{Packet, Parsed, Part},
    reference::{self, Decision, Outcome},
};

/// Frames that the kernel refuses to run on.
const FRAME_MIN: usize = 14;

/// Bytes of the first buffer of a test run: a page less 256 of headroom and 320 for what the kernel keeps behind.
pub const LINEAR_MAX: usize = 4096 - 576;

/// Where the bytes end that have to be in the first buffer to find this.
fn headers_end(parsed: &Parsed) -> usize {
    match parsed {
        Parsed::Ip(packet) => {
            let transport = match (packet.part, packet.protocol) {
                (Part::Later, _) => 0,
                (_, 6) => 20,
                (_, 17 | 33 | 132 | 136) => 4,
                (_, 1 | 58) if packet.icmp_type.is_some() => 4,
                _ => 0,
            };
            packet.transport_at + transport
        }
        // Ethernet and two tags.
        Parsed::NotIp => 22,
        Parsed::Malformed(_) => 0,
    }
}

/// True if the kernel runs frames of several buffers (6.18), which some tests need; printed if not.
pub fn splits() -> bool {
    let shared = ShieldShared::create().unwrap();
    let tables = compile::tables(&Rules::default(), &mut Counters::new(), Now::read()).unwrap();
    let shield = Shield::load(&tables, &ShieldConfig { report: true, ..Default::default() }, &shared).unwrap();
    let refused = shield.test_split(&[0; 60], 30).err();
    if let Some(why) = &refused {
        eprintln!("frames of several buffers are not tried: {why}");
    }
    refused.is_none()
}

/// Lookups of a machine without sockets: none for TCP and UDP to one host.
fn known(packet: &Packet) -> Known {
    let one_host = match packet.destination {
        IpAddr::V4(to) => !(to.is_multicast() || to.is_loopback() || to.octets()[0] == 0 || to.is_broadcast()),
        IpAddr::V6(to) => !(to.is_multicast() || to.octets()[..12].iter().all(|byte| *byte == 0)),
    };
    match packet.ports {
        Some(_) if one_host && [6, 17].contains(&packet.protocol) => {
            Known { connection: Some(false), listener: Some(false), source_seen: None }
        }
        _ => Known::default(),
    }
}

/// Rules, and the kernel program loaded with them. The program runs in a network namespace of the calling thread's own.
pub struct Kernel {
    pub rules: Rules,
    pub now: Now,
    shield: Shield,
    shared: ShieldShared,
    /// Packets that the reference says each rule counts.
    counted: BTreeMap<usize, u64>,
    /// Frames that were compared, and those that a rule decided about.
    pub frames: u64,
    pub decided: u64,
}

impl Kernel {
    pub fn load(rules: Rules, now: Now) -> Self {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let tables = compile::tables(&rules, &mut Counters::new(), now).unwrap();
        let shared = ShieldShared::create().unwrap();
        let shield = Shield::load(&tables, &ShieldConfig { report: true, ..Default::default() }, &shared).unwrap();
        Self { rules, now, shield, shared, counted: BTreeMap::new(), frames: 0, decided: 0 }
    }

    /// Runs the program on the frame; in what it differs from the reference.
    pub fn compare(&mut self, frame: &[u8]) -> Result<(), String> {
        self.compare_split(frame, frame.len())
    }

    /// As [`Self::compare`], the frame's first buffer ending behind `first` bytes: headers that are not all in it are malformed.
    pub fn compare_split(&mut self, frame: &[u8], first: usize) -> Result<(), String> {
        if frame.len() < FRAME_MIN {
            return Ok(());
        }
        let first = first.clamp(FRAME_MIN, frame.len());
        let found = self.shield.test_split(frame, first).map_err(|error| error.to_string())?;
        let whole = Packet::parse(frame);
        let unreached = found.parsed == Some(ShieldParsed::Malformed) && first.min(LINEAR_MAX) < headers_end(&whole);
        let Decision { rule, outcome, counted } = match unreached {
            true => Decision::undecided(self.rules.malformed.into()),
            false => match whole {
                Parsed::Ip(packet) => {
                    reference::decide(&self.rules, &Packet { known: known(&packet), ..packet }, self.now)
                }
                _ => reference::decide_frame(&self.rules, frame, self.now),
            },
        };
        let parsed = match whole {
            _ if unreached => ShieldParsed::Malformed,
            Parsed::Ip(_) => ShieldParsed::Ip,
            Parsed::NotIp => ShieldParsed::NotIp,
            Parsed::Malformed(_) => ShieldParsed::Malformed,
        };
        // What asks for a cookie passes a program that has none.
        let (action, challenged) = match outcome {
            Outcome::Pass => (2, false),
            Outcome::Drop => (1, false),
            Outcome::Challenge => (2, true),
        };
        self.frames += 1;
        self.decided += u64::from(rule.is_some());
        for rule in counted {
            *self.counted.entry(rule).or_default() += 1;
        }
        let meant = Tested { action, rule, challenged, parsed: Some(parsed), frame: frame.to_vec() };
        if found == meant {
            return Ok(());
        }
        let (why, rules) = (Packet::parse(frame), &self.rules);
        let of =
            |t: &Tested| format!("{:?} action {} rule {:?} challenged {}", t.parsed, t.action, t.rule, t.challenged);
        Err(format!(
            "{why:?}, {first} bytes in the first buffer: kernel {}, meant {}\nframe {frame:02x?}\n{rules:#?}",
            of(&found),
            of(&meant)
        ))
    }

    /// In what the kernel's counters differ from the reference.
    pub fn compare_counts(&self) -> Result<(), String> {
        let counts = self.shared.counts();
        for (number, count) in counts.rules.iter().enumerate() {
            let meant = self.counted.get(&number).copied().unwrap_or(0);
            if count.packets != meant {
                return Err(format!("rule {number} counted {} packets, meant {meant}", count.packets));
            }
        }
        let seen = counts.totals.passed + counts.totals.dropped;
        if seen == self.frames { Ok(()) } else { Err(format!("{seen} frames counted, meant {}", self.frames)) }
    }
}
