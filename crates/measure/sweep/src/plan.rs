//! The cores, the configurations and the loads of a sweep: pure.

use std::fmt;

use lab::boxes::{BoxKind, RuleForm, Ruleset};
use model::{
    CpuSet,
    run::{Arrangement, Sharing},
};
use rig::{cores::role, receive::Backend};

/// The rules of the firewall: as many as the sources had in theirs, roughly.
const RULE_COUNT: u32 = 25;
/// The highest offered load, as a share of the best ceiling.
const TOP_SHARE: f64 = 1.1;

/// The boxes that can be swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepBox {
    Router,
    /// Routing past rules of nftables.
    Filter,
    Bridge,
    /// A mirror port that a program captures from: a plain socket, and the tap.
    Capture,
    /// A mirror port that a program captures from: a plain socket, and rings in a fanout group.
    CaptureRing,
}

impl SweepBox {
    /// Name of the box on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Filter => "filter",
            Self::Bridge => "bridge",
            Self::Capture => "capture",
            Self::CaptureRing => "capture-ring",
        }
    }

    /// True if a program reads the frames, which end in the box.
    pub fn captures(self) -> bool {
        matches!(self, Self::Capture | Self::CaptureRing)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Filter => "packet filter",
            Self::Bridge => "bridge",
            Self::Capture | Self::CaptureRing => "capture on a mirror port",
        }
    }
}

impl fmt::Display for SweepBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side where frames enter.
    Entry,
    /// The side where they leave.
    Exit,
}

/// A setting of the box, made after it was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tweak {
    /// A sysctl of the box's namespace.
    Sysctl(&'static str, &'static str),
    /// An offload of an interface.
    Feature {
        side: Side,
        /// Name of the offload, as `ethtool -k` lists it or as the kernel does.
        name: &'static str,
        on: bool,
    },
    /// Rules of nftables in the forward hook.
    Rules(Ruleset),
}

impl Tweak {
    /// The tweak as a shell command; the interfaces are called ENTRY and EXIT.
    pub fn shell(&self) -> String {
        match self {
            Self::Sysctl(name, value) => format!("sysctl -w {name}={value}"),
            Self::Feature { side, name, on } => {
                let interface = if *side == Side::Entry { "ENTRY" } else { "EXIT" };
                format!("ethtool -K {interface} {name} {}", if *on { "on" } else { "off" })
            }
            Self::Rules(rules) => format!("nft: {}", rules_in_words(rules)),
        }
    }
}

fn rules_in_words(rules: &Ruleset) -> String {
    let refused = rules.rules.saturating_sub(1);
    let last = if rules.stateful { "one that accepts by the connection's state" } else { "one that accepts" };
    let form = match rules.form {
        _ if refused == 0 => return last.replacen("one", "one rule", 1),
        RuleForm::Linear => format!("{refused} rules that refuse an address each"),
        RuleForm::PerSide => format!("{refused} rules that refuse an address each on one of both interfaces"),
        RuleForm::Set => format!("one rule that refuses a set of {refused} addresses"),
    };
    format!("{form}, then {last}")
}

impl Configuration {
    /// Everything that differs from a bare box, as shell commands or in words.
    pub fn settings(&self) -> Vec<String> {
        let rules = match &self.kind {
            BoxKind::Firewall(rules) => Some(Tweak::Rules(*rules)),
            _ => None,
        };
        rules.iter().chain(&self.tweaks).map(Tweak::shell).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// `standard` or `optimised`.
    pub key: &'static str,
    pub name: &'static str,
    /// A description, in a sentence.
    pub what: &'static str,
    pub kind: BoxKind,
    /// Settings made in it.
    pub tweaks: Vec<Tweak>,
    /// The backend of a capture box, and its sources; none: the box forwards.
    pub reading: Option<(Backend, usize)>,
}

/// The standard and the optimised configuration of `what`.
pub fn configurations(what: SweepBox) -> [Configuration; 2] {
    let linear = Ruleset { rules: RULE_COUNT, stateful: false, form: RuleForm::Linear };
    let set = Ruleset { form: RuleForm::Set, ..linear };
    let stateful = Ruleset { stateful: true, ..linear };
    let one_rule = Ruleset { rules: 1, ..stateful };
    let make = |key, name, what, kind, tweaks: &[Tweak], reading| Configuration {
        key,
        name,
        what,
        kind,
        tweaks: tweaks.to_vec(),
        reading,
    };
    let standard = |name, what, kind, tweaks: &[Tweak], reading| make("standard", name, what, kind, tweaks, reading);
    let optimised = |name, what, kind, tweaks: &[Tweak], reading| make("optimised", name, what, kind, tweaks, reading);
    let forwarded = None;
    match what {
        SweepBox::Router => [
            standard(
                "with connection tracking",
                "One rule asks for the state of the connection, as firewalls, NAT and container run-times have it: the kernel \
                 tracks every flow that it forwards.",
                BoxKind::Router,
                &[Tweak::Rules(one_rule)],
                forwarded,
            ),
            optimised(
                "routing alone",
                "No rule, so that no flow is tracked; and no look for a local socket before routing.",
                BoxKind::Router,
                &[Tweak::Sysctl("net.ipv4.ip_early_demux", "0")],
                forwarded,
            ),
        ],
        SweepBox::Filter => [
            standard(
                "25 rules in a line",
                "Each packet is held against 24 rules, one after the other, before the last one accepts it.",
                BoxKind::Firewall(linear),
                &[],
                forwarded,
            ),
            optimised(
                "a set",
                "The same addresses in one set, which takes one lookup.",
                BoxKind::Firewall(set),
                &[],
                forwarded,
            ),
        ],
        SweepBox::Bridge => [
            standard(
                "bridged frames meet the firewall",
                "Each frame is taken through the rules of IP forwarding, which br_netfilter does by itself once it is there.",
                BoxKind::Bridge,
                &[Tweak::Rules(stateful), Tweak::Sysctl("net.bridge.bridge-nf-call-iptables", "1")],
                forwarded,
            ),
            optimised(
                "bridged frames do not",
                "The same rules are there for what is routed; what is bridged goes past them.",
                BoxKind::Bridge,
                &[Tweak::Rules(stateful), Tweak::Sysctl("net.bridge.bridge-nf-call-iptables", "0")],
                forwarded,
            ),
        ],
        SweepBox::Capture | SweepBox::CaptureRing => {
            let plain = standard(
                "plain socket",
                "One AF_PACKET socket, one packet per system call.",
                BoxKind::Capture,
                &[],
                Some((Backend::Packet, 1)),
            );
            let (name, text, reading) = match what {
                SweepBox::CaptureRing => (
                    "ring + fanout",
                    "Two rings shared with their readers, which the kernel hands over block by block; flows are spread over \
                     them by their hash.",
                    Some((Backend::Ring, 2)),
                ),
                _ => (
                    "tap",
                    "An XDP program copies each frame into memory shared with the reader; the frame goes on to the stack.",
                    Some((Backend::Tap, 1)),
                ),
            };
            [plain, optimised(name, text, BoxKind::Capture, &[], reading)]
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepCores {
    pub generator: u32,
    /// The box's core: its NAPI thread, and the readers of a capture.
    pub of_box: u32,
}

impl SweepCores {
    /// The last two of the usable CPUs, or the only one for both. None without any.
    pub fn split(usable: &CpuSet) -> Option<Self> {
        let all: Vec<u32> = usable.iter().collect();
        let of_box = *all.last()?;
        Some(Self { generator: all.len().checked_sub(2).map_or(of_box, |i| all[i]), of_box })
    }

    /// True if the generator has a core of its own.
    pub fn sharing(&self) -> Sharing {
        if self.generator == self.of_box { Sharing::Inline } else { Sharing::Apart }
    }

    /// In the words of a report.
    pub fn arrangement(&self, what: SweepBox) -> Arrangement {
        let of_box = match (self.sharing(), what.captures()) {
            (Sharing::Inline, true) => "the box, in the generator's soft interrupts; reader",
            (Sharing::Inline, false) => "the box, in the generator's soft interrupts",
            (Sharing::Apart, true) => "the box (NAPI thread, reader)",
            (Sharing::Apart, false) => "the box (NAPI thread) and the receiving end of the lab",
        };
        Arrangement {
            sharing: self.sharing(),
            roles: vec![role(&[self.generator], "generator"), role(&[self.of_box], of_box)],
        }
    }
}

/// The loads to offer: evenly spaced up to 110 % of `ceiling_pps`.
pub fn rates(ceiling_pps: f64, steps: u32) -> Vec<f64> {
    (1..=steps).map(|i| TOP_SHARE * ceiling_pps * f64::from(i) / f64::from(steps)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_rise_evenly_to_a_tenth_beyond_the_ceiling() {
        let rates = rates(1e6, 10);
        assert_eq!(rates.len(), 10);
        assert!((rates[0] - 1.1e5).abs() < 1e-3 && (rates[9] - 1.1e6).abs() < 1e-3);
        assert!(rates.windows(2).all(|w| (w[1] - w[0] - 1.1e5).abs() < 1e-3));
    }

    #[test]
    fn the_generator_has_its_own_core_where_there_are_two() {
        let split = |list: &str| SweepCores::split(&list.parse().unwrap());
        assert_eq!(split("0-1"), Some(SweepCores { generator: 0, of_box: 1 }));
        assert_eq!(split("0-7"), Some(SweepCores { generator: 6, of_box: 7 }));
        assert_eq!(split("3").unwrap().sharing(), Sharing::Inline);
        assert_eq!(SweepCores::split(&CpuSet::default()), None);
    }

    #[test]
    fn each_box_has_a_standard_and_an_optimised_configuration_that_differ() {
        use SweepBox::{Bridge, Capture, CaptureRing, Filter, Router};
        for what in [Router, Filter, Bridge, Capture, CaptureRing] {
            let [standard, optimised] = configurations(what);
            assert_eq!((standard.key, optimised.key), ("standard", "optimised"));
            let differs = |c: &Configuration| (c.kind.clone(), c.tweaks.clone(), c.reading);
            assert_ne!(differs(&standard), differs(&optimised), "{what}");
            assert_eq!(standard.kind.forwards(), standard.reading.is_none());
        }
    }

    #[test]
    fn settings_read_as_commands() {
        let sysctl = Tweak::Sysctl("net.ipv4.ip_early_demux", "0");
        assert_eq!(sysctl.shell(), "sysctl -w net.ipv4.ip_early_demux=0");
        let gro = Tweak::Feature { side: Side::Entry, name: "rx-gro-list", on: true };
        assert_eq!(gro.shell(), "ethtool -K ENTRY rx-gro-list on");
    }
}
