//! Settings that another program wrote: the limit on restoring them, and the likely writer.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use host::{Root, knob::Knob};

/// A setting that was restored this many times within [`CONTEST_PERIOD`] has another owner.
const RESTORES_MAX: usize = 3;
const CONTEST_PERIOD: Duration = Duration::from_secs(60);
/// Time for which a setting with another owner is left alone; afterwards it is restored once.
const REST_PERIOD: Duration = Duration::from_secs(600);

/// The verdict on a setting that another program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Restore,
    /// The setting has another owner and is left alone for [`REST_PERIOD`].
    Rest,
}

#[derive(Debug, Clone, Default)]
struct Contest {
    restored: Vec<Instant>,
    rests_until: Option<Instant>,
}

/// The settings that other programs wrote, with the times at which they were restored.
#[derive(Debug, Clone, Default)]
pub struct Contests(BTreeMap<Knob, Contest>);

impl Contests {
    /// Judges a setting that reads differently from its kept value.
    pub fn judge(&mut self, knob: &Knob, now: Instant) -> Answer {
        let contest = self.0.entry(knob.clone()).or_default();
        contest.restored.retain(|at| now.duration_since(*at) < CONTEST_PERIOD);
        // One restore after a rest is the only one.
        let is_tried = contest.rests_until.is_some_and(|until| now < until + CONTEST_PERIOD);
        let tries = if is_tried && !contest.restored.is_empty() { 1 } else { RESTORES_MAX };
        if contest.restored.len() >= tries {
            contest.restored.clear();
            contest.rests_until = Some(now + REST_PERIOD);
            return Answer::Rest;
        }
        contest.restored.push(now);
        Answer::Restore
    }

    /// The rest of the time for which a setting is left alone; none: it is not.
    pub fn rest(&self, knob: &Knob, now: Instant) -> Option<Duration> {
        let until = self.0.get(knob)?.rests_until?;
        until.checked_duration_since(now).filter(|rest| !rest.is_zero())
    }

    pub fn resting(&self, now: Instant) -> impl Iterator<Item = (&Knob, Duration)> {
        self.0.keys().filter_map(move |knob| Some((knob, self.rest(knob, now)?)))
    }
}

/// The kinds of settings that programs are known to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Affinity,
    /// RPS, XPS, RFS and other files of an interface.
    Steering,
    /// Settings of ethtool.
    Device,
    Mtu,
    Sysctl,
    Cpu,
    Other,
}

fn kind(knob: &Knob) -> Kind {
    match knob {
        Knob::IrqAffinity { .. } => Kind::Affinity,
        Knob::RpsCpus { .. } | Knob::XpsCpus { .. } | Knob::RpsFlowCnt { .. } => Kind::Steering,
        Knob::Ring { .. } | Knob::Channels { .. } | Knob::Coalesce { .. } | Knob::Feature { .. } => Kind::Device,
        Knob::RssIndirection { .. } => Kind::Device,
        Knob::Mtu { .. } => Kind::Mtu,
        Knob::Sysctl { .. } | Knob::RfsEntries => Kind::Sysctl,
        Knob::Governor { .. } | Knob::GuestHaltPoll => Kind::Cpu,
        _ => Kind::Other,
    }
}

/// Names of processes (15 characters at most), names of programs, and the kinds of settings that they write. Sources: irqbalance(1),
/// tuned-profiles(7), nm-settings-nmcli(5), systemd.link(5), which udev and networkd apply, and cloud-init's network configuration.
const WRITERS: [(&str, &str, &[Kind]); 7] = [
    ("irqbalance", "irqbalance", &[Kind::Affinity]),
    ("ethtool", "ethtool", &[Kind::Device]),
    ("tuned", "tuned", &[Kind::Sysctl, Kind::Cpu, Kind::Device, Kind::Affinity]),
    ("NetworkManager", "NetworkManager", &[Kind::Device, Kind::Mtu]),
    ("systemd-network", "systemd-networkd", &[Kind::Mtu, Kind::Device]),
    ("systemd-udevd", "systemd-udevd", &[Kind::Device, Kind::Mtu, Kind::Steering]),
    ("cloud-init", "cloud-init", &[Kind::Mtu]),
];

/// The number and name of a process.
pub type Process = (u32, String);

/// The running processes of [`WRITERS`].
pub fn writers() -> Vec<Process> {
    Root::live().processes(|_, comm| WRITERS.iter().any(|(name, ..)| *name == comm))
}

/// The likely writer of a setting: the first running program of [`WRITERS`] with its kind. The kernel keeps no record of writers.
pub fn likely(knob: &Knob, running: &[Process]) -> Option<String> {
    let kind = kind(knob);
    let mut writes = WRITERS.iter().filter(|(.., kinds)| kinds.contains(&kind));
    writes.find_map(|(comm, program, _)| {
        let (pid, _) = running.iter().find(|(_, name)| name == comm)?;
        Some(format!("likely {program}, process {pid}"))
    })
}

#[cfg(test)]
mod tests {
    use host::knob::Direction;

    use super::*;

    #[test]
    fn a_contested_setting_is_restored_three_times_and_once_after_a_rest() {
        let (mut contests, begun, knob) = (Contests::default(), Instant::now(), Knob::IrqAffinity { irq: 7 });
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        for second in 0..3 {
            assert_eq!(contests.judge(&knob, at(second)), Answer::Restore);
        }
        assert_eq!(contests.judge(&knob, at(3)), Answer::Rest);
        assert_eq!(contests.rest(&knob, at(4)), Some(Duration::from_secs(599)));
        assert_eq!(contests.resting(at(4)).count(), 1);
        // One restore after the rest, then another rest.
        assert_eq!(contests.rest(&knob, at(603)), None);
        assert_eq!(contests.judge(&knob, at(603)), Answer::Restore);
        assert_eq!(contests.judge(&knob, at(604)), Answer::Rest);
        assert!(contests.rest(&knob, at(605)).is_some());
        // The restore held, so that later writes begin a new contest.
        assert_eq!(contests.judge(&knob, at(1205)), Answer::Restore);
        assert_eq!(contests.judge(&knob, at(1400)), Answer::Restore);
        assert_eq!(contests.judge(&knob, at(1401)), Answer::Restore);
    }

    #[test]
    fn writes_a_minute_apart_are_always_restored() {
        let (mut contests, begun, knob) = (Contests::default(), Instant::now(), Knob::RfsEntries);
        for minute in 0..20 {
            assert_eq!(contests.judge(&knob, begun + Duration::from_secs(61 * minute)), Answer::Restore);
        }
    }

    #[test]
    fn the_likely_writer_is_a_program_that_writes_this_kind_of_setting() {
        let running = [(7, "tuned".to_owned()), (9, "irqbalance".to_owned())];
        let ring = Knob::Ring { nic: "eth0".into(), direction: Direction::Rx };
        assert_eq!(likely(&Knob::IrqAffinity { irq: 1 }, &running).as_deref(), Some("likely irqbalance, process 9"));
        assert_eq!(likely(&ring, &running).as_deref(), Some("likely tuned, process 7"));
        assert_eq!(likely(&Knob::RpsCpus { nic: "eth0".into(), queue: 0 }, &running), None);
        assert_eq!(likely(&ring, &[]), None);
    }
}
