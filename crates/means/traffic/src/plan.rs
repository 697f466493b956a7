//! From settings to a checked plan: nothing here sends.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bpf::RandomSources;
use model::CpuSet;
use wire::{FrameSize, Kind, Mac, Tag, Template, ethernet::ether_type};

use crate::{
    TrafficError,
    cycle::{Cycle, FlowSpace},
    interface::Interface,
    pacing::{Pacing, SLEEP_PPS_MAX},
    rate::Rate,
    replay::{Recording, Timing},
    safety::Allowance,
};

/// The longest a run may be asked to last.
pub const DURATION_MAX: Duration = Duration::from_secs(86_400);
/// Default destination of frames: a locally administered address that nobody answers to.
pub const NOBODY: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// The way in which frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    XdpLive,
    Xdp,
    TxRing,
}

impl Backend {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpLive => "xdp-live",
            Self::Xdp => "xdp",
            Self::TxRing => "tx-ring",
        }
    }
}

/// Frames from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    pub kind: Kind,
    pub space: FlowSpace,
    /// The number of different flows that follow each other in turn.
    pub flows: usize,
    /// Draw each packet's source anew: its port, and what the prefix of the sources leaves of the last 32 bits of its address, or of
    /// the last 32 before an IPv6 /64. Live frames only.
    pub random_sources: bool,
    pub sizes: Vec<FrameSize>,
    pub destination: Mac,
    /// Source MAC address; none is the interface's own.
    pub source: Option<Mac>,
    /// VLAN tags, the outer one first.
    pub tags: [Option<Tag>; 2],
}

/// Frames from a capture file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayConfig {
    pub path: PathBuf,
    /// The times at which its frames are sent.
    pub timing: Timing,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    Stream(StreamConfig),
    Replay(ReplayConfig),
}

#[derive(Debug, Clone, PartialEq)]
pub struct GenConfig {
    pub interface: String,
    pub origin: Origin,
    pub rate: Rate,
    pub duration: Duration,
    /// The most packets, over all senders.
    pub count: Option<u64>,
    /// The senders' wait for the time of the next packet; none is as the rate suggests.
    pub pacing: Option<Pacing>,
    /// The backend; none is the fastest that the interface can do.
    pub backend: Option<Backend>,
    /// A sender on each of these CPUs; none is one sender where the scheduler puts it.
    pub cpus: Option<CpuSet>,
    /// The seed of the order of the flows.
    pub seed: u64,
    pub allowance: Allowance,
    /// The transmit ring goes through the qdisc instead of past it.
    pub qdisc: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frames {
    Cycles(Vec<Cycle>),
    /// A recording for the one sender, at its own times (in nanoseconds of the file per 1000 of the run) or at the rate.
    Recording(Recording),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub config: GenConfig,
    pub interface: Interface,
    pub frames: Frames,
    /// The CPU of each sender; none where the scheduler decides.
    pub cpus: Vec<Option<u32>>,
    /// Packets per second of all senders together; none is as fast as it goes. Of a replay at its own times, their mean.
    pub pps: Option<f64>,
    /// Mean size of a frame in bytes with FCS.
    pub mean_with_fcs: f64,
    /// The longest frame in bytes without FCS.
    pub longest: usize,
}

impl Plan {
    /// Checks `config` against the interface and lays out the frames. Reads the capture file of a replay, and nothing else.
    ///
    /// # Errors
    /// The rule or the bound that is broken, with the way out.
    pub fn new(config: GenConfig, interface: Interface) -> Result<Self, TrafficError> {
        Self::with(config, interface, Recording::read)
    }

    /// As [`Plan::new`], with another reader of the capture file.
    ///
    /// # Errors
    /// As [`Plan::new`], and the reader's own.
    pub fn with(
        config: GenConfig,
        interface: Interface,
        read: impl FnOnce(&Path) -> Result<Recording, TrafficError>,
    ) -> Result<Self, TrafficError> {
        let bad = |text: String| Err(TrafficError::Setting(text));
        if config.duration.is_zero() || config.duration > DURATION_MAX {
            return bad(format!(
                "a duration of {:?} is not possible: it is above 0 and at most {} s",
                config.duration,
                DURATION_MAX.as_secs()
            ));
        }
        if config.count == Some(0) {
            return bad("a count of 0 packets sends nothing: leave it out or ask for at least 1".into());
        }
        let timed = matches!(&config.origin, Origin::Replay(ReplayConfig { timing: Timing::Speed(_), .. }));
        if config.rate == Rate::Max && !timed && config.pacing.is_some() {
            return bad("a rate of `max` has no pace: leave --pacing out or name a rate".into());
        }
        config.allowance.check_interface(&interface)?;
        let cpus: Vec<Option<u32>> = match &config.cpus {
            Some(set) if set.is_empty() => return bad("the list of CPUs is empty".into()),
            Some(set) => set.iter().map(Some).collect(),
            None => vec![None],
        };
        let (frames, mean_with_fcs, longest, tagged) = match &config.origin {
            Origin::Stream(stream) => {
                let cycles = lay_out(stream, &config, &interface, cpus.len())?;
                let sizes = stream.sizes.iter().map(|s| s.bytes_with_fcs());
                let mean = sizes.clone().sum::<usize>() as f64 / stream.sizes.len() as f64;
                let longest = stream.sizes.iter().map(|s| s.bytes_in_memory()).max().unwrap_or(0);
                // Beyond the MTU the kernel leaves room for an 802.1Q tag, and for no other.
                let outer = stream.tags.iter().flatten().next();
                (Frames::Cycles(cycles), mean, longest, outer.is_some_and(|t| t.protocol == ether_type::VLAN))
            }
            Origin::Replay(replay) => {
                if cpus.len() > 1 {
                    return bad("a capture file is replayed in its order by one sender: name one CPU".into());
                }
                if config.backend == Some(Backend::XdpLive) {
                    return bad("xdp-live sends templates only: replay with --backend tx-ring or xdp".into());
                }
                if let Timing::Speed(speed) = replay.timing
                    && !(speed.is_finite() && speed > 0.0)
                {
                    return bad(format!("a replay at {speed} times its speed is not possible"));
                }
                let recording = read(&replay.path)?;
                // Repeating such a file at its own times would be a flood without a rate.
                if timed && recording.timeless && config.count.is_none_or(|n| n > recording.frames.len() as u64) {
                    return bad(format!(
                        "all packets of {} bear the same time, which makes no rate to repeat them at: say --rate, or --count {} to send them once",
                        replay.path.display(),
                        recording.frames.len()
                    ));
                }
                recording.check(&interface, &config.allowance)?;
                // Frames of a file may bring their own tags.
                let (mean, longest) = (recording.mean_with_fcs(), recording.longest());
                (Frames::Recording(recording), mean, longest, true)
            }
        };
        let room = interface.mtu as usize + wire::ethernet::HEADER_LEN + usize::from(tagged) * wire::ethernet::TAG_LEN;
        if longest > room {
            return bad(format!(
                "frames of {} bytes with FCS do not fit {}, whose MTU is {}: raise it with `ip link set {} mtu N`, or send smaller ones",
                FrameSize::in_memory(longest),
                interface.name,
                interface.mtu,
                interface.name
            ));
        }
        if let Some((backend, most)) = config.backend.and_then(|backend| Some((backend, backend.frame_max()?)))
            && longest > most
        {
            return bad(format!(
                "frames of {} bytes with FCS are too long for --backend {}, which sends up to {}: take --backend tx-ring, or send smaller ones",
                FrameSize::in_memory(longest),
                backend.name(),
                FrameSize::in_memory(most)
            ));
        }
        let pps = match (&frames, &config.origin) {
            (Frames::Recording(r), Origin::Replay(ReplayConfig { timing: Timing::Speed(speed), .. })) => {
                Some(r.frames.len() as f64 * 1e9 / r.span_ns as f64 * speed)
            }
            _ => config.rate.pps(mean_with_fcs),
        };
        let plan = Self { config, interface, frames, cpus, pps, mean_with_fcs, longest };
        if let Some(pps) = plan.pps_of_one().filter(|&pps| !timed && pps > bpf::r#gen::PACED_PPS_MAX) {
            return bad(format!(
                "{pps:.0} packets/s of one sender cannot be paced, at most {:.0}: take --rate max, or more --cpus",
                bpf::r#gen::PACED_PPS_MAX
            ));
        }
        Ok(plan)
    }

    /// Random sources of sender `i`; none where they are those of its cycle.
    pub fn random_sources(&self, i: usize, cycle: &Cycle) -> Option<RandomSources> {
        let Origin::Stream(stream) = &self.config.origin else { return None };
        let sources = stream.space.sources;
        stream.random_sources.then_some(RandomSources {
            ip_offset: cycle.ip_offset,
            transport_offset: cycle.transport_offset,
            bits: sources.networks().unwrap_or_else(|| sources.count().trailing_zeros() as u8),
            networks: sources.networks().is_some(),
            seed: self.config.seed.wrapping_add(i as u64),
        })
    }

    /// Packets without which there is no rate to compare with that of the plan: a recording has its own only over all of its times.
    pub(crate) fn least_of_a_rate(&self) -> u64 {
        match (&self.frames, &self.config.origin) {
            (Frames::Recording(recording), Origin::Replay(ReplayConfig { timing: Timing::Speed(_), .. })) => {
                recording.frames.len() as u64
            }
            _ => 1,
        }
    }

    /// Packets that sender `i` is to send; none is no limit.
    pub fn count_of(&self, i: usize) -> Option<u64> {
        let n = self.cpus.len() as u64;
        self.config.count.map(|count| count / n + u64::from((i as u64) < count % n))
    }

    /// The senders' wait and its reason; none where they need not wait.
    pub fn pacing(&self) -> Option<(Pacing, &'static str)> {
        let pps = self.pps_of_one()?;
        let timed = matches!(&self.config.origin, Origin::Replay(ReplayConfig { timing: Timing::Speed(_), .. }));
        Some(match self.config.pacing {
            Some(pacing) => (pacing, "asked for"),
            None if timed => (Pacing::Even, "a file's own times are kept"),
            None if pps <= SLEEP_PPS_MAX => (Pacing::Sleep, "the rate of a sender is at most 100000 packets/s"),
            None => (Pacing::Even, "the rate of a sender is above 100000 packets/s"),
        })
    }

    /// A sender's sleep between bursts; none where it does not sleep.
    pub fn nap(&self) -> Option<Duration> {
        match (self.pacing(), self.pps_of_one()) {
            (Some((Pacing::Sleep, _)), Some(pps)) => Some(crate::pacing::nap(pps)),
            _ => None,
        }
    }

    /// Packets per second of each sender.
    pub fn pps_of_one(&self) -> Option<f64> {
        self.pps.map(|pps| pps / self.cpus.len() as f64)
    }
}

fn lay_out(
    stream: &StreamConfig,
    config: &GenConfig,
    interface: &Interface,
    senders: usize,
) -> Result<Vec<Cycle>, TrafficError> {
    config.allowance.check_prefix(interface, &stream.space.destinations)?;
    if stream.flows == 0 {
        return Err(TrafficError::Setting("0 flows send nothing: ask for at least 1".into()));
    }
    let template = Template {
        destination: stream.destination,
        source: stream.source.unwrap_or(interface.mac),
        tags: stream.tags,
        kind: stream.kind,
    };
    let flows = stream.space.flows(stream.flows, config.seed)?;
    (0..senders).map(|i| Cycle::build(&template, &flows, &stream.sizes, (i, senders), config.seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> GenConfig {
        GenConfig {
            interface: "x0".into(),
            origin: Origin::Stream(StreamConfig {
                kind: Kind::TcpSyn,
                space: FlowSpace {
                    sources: "198.18.0.0/16".parse().unwrap(),
                    destinations: "198.19.0.1".parse().unwrap(),
                    source_ports: "1024-65535".parse().unwrap(),
                    destination_ports: "80".parse().unwrap(),
                },
                flows: 100,
                random_sources: false,
                sizes: vec![FrameSize::MIN],
                destination: NOBODY,
                source: None,
                tags: [None; 2],
            }),
            rate: Rate::Packets(1000.0),
            duration: Duration::from_secs(1),
            count: None,
            pacing: None,
            backend: None,
            cpus: None,
            seed: 1,
            allowance: Allowance::default(),
            qdisc: false,
        }
    }

    fn plan(change: impl FnOnce(&mut GenConfig)) -> Result<Plan, TrafficError> {
        let mut c = config();
        change(&mut c);
        on(c, 1500)
    }

    fn on(config: GenConfig, mtu: u32) -> Result<Plan, TrafficError> {
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        Plan::new(config, Interface { name: "x0".into(), index: 1, mac, mtu, default_route: false, in_lab: false })
    }

    fn stream(c: &mut GenConfig) -> &mut StreamConfig {
        match &mut c.origin {
            Origin::Stream(s) => s,
            Origin::Replay(_) => unreachable!("the test made a stream"),
        }
    }

    #[test]
    fn senders_share_rate_and_count() {
        let p = plan(|c| {
            c.cpus = Some(CpuSet::parse_list("0-2").unwrap());
            c.count = Some(11);
        })
        .unwrap();
        assert_eq!((p.count_of(0), p.count_of(1), p.count_of(2)), (Some(4), Some(4), Some(3)));
        assert!((p.pps_of_one().unwrap() - 1000.0 / 3.0).abs() < 1e-9);
        let Frames::Cycles(cycles) = &p.frames else { panic!("a stream has cycles") };
        assert_eq!(cycles.iter().map(|c| c.frames.len()).sum::<usize>(), 100);
        assert_eq!(&cycles[0].frames[0][6..12], &[2, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn slow_senders_sleep_and_fast_ones_do_not() {
        let pacing = |rate, cpus: &str, wanted| {
            let p = plan(|c| (c.rate, c.cpus, c.pacing) = (rate, Some(CpuSet::parse_list(cpus).unwrap()), wanted));
            p.map(|p| (p.pacing().map(|(pacing, _)| pacing), p.nap().is_some()))
        };
        let pps = Rate::Packets;
        assert_eq!(pacing(pps(100_000.0), "0", None).unwrap(), (Some(Pacing::Sleep), true));
        assert_eq!(pacing(pps(100_001.0), "0", None).unwrap(), (Some(Pacing::Even), false));
        assert_eq!(pacing(pps(200_000.0), "0-1", None).unwrap(), (Some(Pacing::Sleep), true));
        assert_eq!(pacing(pps(10.0), "0", Some(Pacing::Even)).unwrap(), (Some(Pacing::Even), false));
        assert_eq!(pacing(pps(1e6), "0", Some(Pacing::Sleep)).unwrap(), (Some(Pacing::Sleep), true));
        assert_eq!(pacing(Rate::Max, "0", None).unwrap(), (None, false));
        assert!(pacing(Rate::Max, "0", Some(Pacing::Even)).is_err());
    }

    #[test]
    fn unbounded_and_impossible_runs_are_refused() {
        assert!(plan(|c| c.duration = Duration::ZERO).is_err());
        assert!(plan(|c| c.duration = DURATION_MAX * 2).is_err());
        assert!(plan(|c| c.count = Some(0)).is_err());
        assert!(plan(|c| c.rate = Rate::Packets(5.1e7)).unwrap_err().to_string().contains("--rate max"));
        assert!(plan(|c| c.cpus = Some(CpuSet::new())).is_err());
        assert!(plan(|c| stream(c).flows = 0).is_err());
        assert!(plan(|c| stream(c).sizes = vec![]).is_err());
        assert!(plan(|c| stream(c).space.destinations = "10.0.0.1".parse().unwrap()).is_err());
        let too_long = plan(|c| stream(c).sizes = vec![FrameSize::with_fcs(1519)]).unwrap_err().to_string();
        assert!(too_long.starts_with("frames of 1519 bytes with FCS do not fit x0, whose MTU is 1500"), "{too_long}");
        assert!(plan(|c| stream(c).sizes = vec![FrameSize::MAX_STANDARD]).is_ok());
        let backends = [(Backend::Xdp, 4100), (Backend::XdpLive, bpf::r#gen::LIVE_FRAME_MAX + 4)];
        for (backend, most) in backends {
            let of = |size| {
                let mut c = config();
                c.backend = Some(backend);
                stream(&mut c).sizes = vec![FrameSize::with_fcs(64), FrameSize::with_fcs(size)];
                on(c, 9000)
            };
            assert!(of(most).is_ok());
            let message = of(most + 1).unwrap_err().to_string();
            assert!(
                message.contains(&format!("too long for --backend {}, which sends up to {most}", backend.name())),
                "{message}"
            );
        }
        let tagged = |protocol, size| {
            plan(|c| {
                stream(c).tags[0] = Some(Tag { protocol, control: 5 });
                stream(c).sizes = vec![FrameSize::with_fcs(size)];
            })
        };
        assert!(tagged(ether_type::VLAN, 1522).is_ok() && tagged(ether_type::SERVICE_VLAN, 1522).is_err());
    }
}
