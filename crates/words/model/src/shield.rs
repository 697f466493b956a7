//! The shield in front of an interface at one moment (`evenkeel.shield.status/1`).

use serde::{Deserialize, Serialize};

pub use crate::shield_totals::Totals;

/// The fate of packets when the control process is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fail {
    Open,
    /// Only what the management allow-list lets in passes.
    Closed,
}

impl Fail {
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShieldStatus {
    /// The time of this status, RFC 3339 in UTC.
    pub timestamp: String,
    pub interface: String,
    /// The mode in which the program is attached: native, generic, offload, or packet rings.
    pub mode: String,
    pub program_id: u32,
    /// The control process; none: it has ended, or cannot be asked.
    pub pid: Option<u32>,
    /// True if a process runs the shield and cannot be asked, since its folder was removed.
    #[serde(default)]
    pub unreachable: bool,
    /// Seconds since the heart last beat.
    pub heartbeat_age_s: f64,
    /// Times that the program was put back into its place in the interface's chain, which others had emptied: frames passed unjudged for a moment.
    #[serde(default)]
    pub reattached: u64,
    /// Seconds of silence after which the shield fails.
    pub heartbeat_timeout_s: f64,
    /// The way in which it then fails; none: nobody runs it, and its settings are lost.
    pub fail: Option<Fail>,
    pub file: Option<String>,
    /// The time at which these rules came to hold, RFC 3339 in UTC.
    pub loaded: String,
    /// Reloads since the control process began.
    pub reloads: u64,
    /// The reason why the last reload was refused, if it was.
    pub reload_error: Option<String>,
    /// The rules in their order, those of the management allow-list first.
    pub rules: Vec<RuleStatus>,
    /// The verdict on packets that no rule decides about: pass or drop.
    pub default: String,
    /// All packets since the shared counters were made.
    pub totals: Totals,
    /// Rates over an interval.
    pub rates: Option<Rates>,
    /// Sources that send most, if they are watched.
    pub sources: Vec<SourceStatus>,
    /// Protected prefixes, if attacks are looked for.
    #[serde(default)]
    pub protected: Vec<ProtectedStatus>,
    /// Attacks that go on, with what is done about them.
    pub attacks: Vec<AttackStatus>,
    /// The way in which challenged SYNs are or would be answered; none: none are, or the shield stands between two interfaces.
    pub challenge: Option<ChallengeStatus>,
    /// Sources that were seen while there was no attack; none: they are not remembered.
    pub known_sources: Option<KnownSources>,
    /// Warnings: what is not as it should be.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Sources that were seen while there was no attack, within the last 12 to 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnownSources {
    pub sources: u64,
    /// The share of strangers that are taken for one of them.
    pub false_positives: f64,
}

impl KnownSources {
    /// A line of `shield status`.
    pub fn text(&self) -> String {
        let share = crate::units::percent(self.false_positives);
        format!("known sources: about {}; a stranger is mistaken for one with probability {share}", self.sources)
    }
}

/// The way in which challenged SYNs are answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeStatus {
    pub method: ChallengeMethod,
    /// The reason for it, in words.
    pub reason: String,
}

/// The ways in which a SYN is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChallengeMethod {
    /// An answer by a SYN cookie: the connection is made of the ACK.
    Cookies,
    /// By a SYN cookie while a listener's queue is full: the kernel makes the connection of the ACK by itself.
    KernelCookies,
    /// By a question that shows whether its source exists: the next SYN goes to the kernel, which makes the connection.
    Sources,
}

impl ChallengeStatus {
    /// A line of `shield status`.
    pub fn text(&self) -> String {
        let answer = match self.method {
            ChallengeMethod::Cookies => "SYNs are answered with cookies",
            ChallengeMethod::KernelCookies => {
                "SYNs are answered with plain cookies (without window scaling and SACK) once a listener's queue is full, or if net.ipv4.tcp_syncookies is 2"
            }
            ChallengeMethod::Sources => "sources are authenticated",
        };
        format!("challenge: {answer}, because {}", self.reason)
    }
}

impl ShieldStatus {
    /// Returns whether the shield has failed: no process has run it for longer than `heartbeat_timeout_s`.
    pub fn has_failed(&self) -> bool {
        self.heartbeat_age_s > self.heartbeat_timeout_s
    }
}

/// A rule with its counters, which go on when rules are reloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleStatus {
    pub name: String,
    pub line: Option<usize>,
    /// The rule's action, in words: `drop`, `limit 1000/s`.
    pub action: String,
    pub shadow: bool,
    /// True for the management allow-list.
    pub management: bool,
    /// Made against an attack.
    #[serde(default)]
    pub attack: bool,
    /// The time after which it no longer applies, RFC 3339.
    pub expires: Option<String>,
    /// True after that time.
    #[serde(default)]
    pub expired: bool,
    /// Packets that it applied to.
    pub packets: u64,
    pub bytes: u64,
    /// Packets that exceeded its limit.
    pub limited: u64,
    /// Packets per second of the last interval, if one was measured.
    pub pps: Option<f64>,
}

impl RuleStatus {
    /// True if it is of the file or the command line, and holds: what is counted as a rule.
    pub fn counts(&self) -> bool {
        !self.management && !self.attack && !self.expired
    }

    /// Its action in a few words, with a mark if it only counts or has expired.
    pub fn does(&self) -> String {
        let expired = if self.expired { "expired: " } else { "" };
        let shadow = if self.shadow { "shadow: " } else { "" };
        format!("{expired}{shadow}{}", self.action)
    }
}

/// Per second of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// The interval in seconds.
    pub interval_s: f64,
    pub passed_pps: f64,
    pub passed_bps: f64,
    /// Packets that were dropped.
    pub dropped_pps: f64,
    pub dropped_bps: f64,
    /// Packets that were challenged.
    pub challenged_pps: f64,
    /// Packets that limits dropped.
    pub limited_pps: f64,
}

impl Rates {
    /// Between two moments of the same counters, `seconds` apart.
    pub fn between(earlier: &Totals, later: &Totals, seconds: f64) -> Self {
        let per_s = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds.max(1e-9);
        Self {
            interval_s: seconds,
            passed_pps: per_s(earlier.passed, later.passed),
            passed_bps: 8.0 * per_s(earlier.passed_bytes, later.passed_bytes),
            dropped_pps: per_s(earlier.dropped, later.dropped),
            dropped_bps: 8.0 * per_s(earlier.dropped_bytes, later.dropped_bytes),
            challenged_pps: per_s(earlier.challenged, later.challenged),
            limited_pps: per_s(earlier.limited, later.limited),
        }
    }

    /// Packets per second of the counter of that name, where there is a rate of it.
    pub fn of(&self, counter: &str) -> Option<f64> {
        match counter {
            "passed" => Some(self.passed_pps),
            "dropped" => Some(self.dropped_pps),
            "challenged" => Some(self.challenged_pps),
            "limited" => Some(self.limited_pps),
            _ => None,
        }
    }
}

/// A source that sends much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    pub source: String,
    /// Packets per second, estimated from a sample.
    pub pps: f64,
}

/// A protected prefix: what comes to it, and from where on that is an attack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProtectedStatus {
    pub prefix: String,
    /// Seconds until limits that are learned count; 0: they do, or none are learned.
    pub learning_s: f64,
    pub measures: Vec<MeasureStatus>,
}

/// A measure of a protected prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasureStatus {
    /// Name of the measure in files: `packets`, `bits`, `syn`.
    pub measure: String,
    /// Per second, in the last look.
    pub rate: f64,
    /// Per second; none: it has no limit now.
    pub limit: Option<f64>,
    /// The origin of the limit: `learned`, `given`, or `headroom`: the machine can bear no more.
    pub origin: Option<String>,
}

impl ProtectedStatus {
    /// The measure that is closest to its limit, and the part of the limit that it has reached. None: nothing comes, or nothing has a limit.
    pub fn closest(&self) -> Option<(&MeasureStatus, f64)> {
        let come = self.measures.iter().filter(|measure| measure.rate > 0.0);
        let reached = come.filter_map(|measure| Some((measure, measure.rate / measure.limit?)));
        reached.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttackStatus {
    pub number: u64,
    pub prefix: String,
    /// The class that it is taken for.
    pub class: String,
    /// Seconds since its first look above a limit.
    pub since_s: f64,
    /// The measures against it, in words.
    pub mitigation: String,
    /// True: the measures only count.
    pub shadow: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closest_to_its_limit_comes_and_has_one() {
        let measure = |measure: &str, rate, limit| MeasureStatus {
            measure: measure.into(),
            rate,
            limit,
            origin: limit.map(|_| "given".into()),
        };
        let measures = vec![
            measure("packets", 500.0, Some(1000.0)),
            measure("syn", 90.0, Some(100.0)),
            measure("udp", 5000.0, None),
            measure("icmp", 0.0, Some(1.0)),
        ];
        let mut status = ProtectedStatus { prefix: "192.0.2.0/24".into(), learning_s: 0.0, measures };
        let (closest, part) = status.closest().unwrap();
        assert_eq!((&*closest.measure, part), ("syn", 0.9));
        status.measures.retain(|measure| measure.measure == "udp" || measure.measure == "icmp");
        assert_eq!(status.closest(), None);
    }

    #[test]
    fn rates_are_differences_by_time_and_never_negative() {
        let earlier = Totals { passed: 100, dropped: 50, dropped_bytes: 1000, ..Totals::default() };
        let later = Totals { passed: 300, dropped: 40, dropped_bytes: 2000, ..Totals::default() };
        let rates = Rates::between(&earlier, &later, 2.0);
        assert_eq!((rates.passed_pps, rates.dropped_pps, rates.dropped_bps), (100.0, 0.0, 4000.0));
    }
}
