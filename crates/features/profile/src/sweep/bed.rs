//! A configuration built: the box, its settings, its readers.

use std::time::Instant;

use lab::{BoxSpec, Lab, TestBox, boxes::Napi};
use model::run::Sharing;
use port::{Group, PacketOptions, PacketSource, PlainReading, RingSource, TapOptions, TapSource, WHOLE_FRAME};
use rig::readers::{PLAIN_BUFFER_BYTES, Readers};
use sys::packet::{Fanout, FanoutAlgorithm, RingLayout};

use super::{
    SweepError,
    plan::{Configuration, Reading, Side, SweepCores, Tweak},
};

/// The members of a fanout group, and the ring of each.
const RINGS: usize = 2;
const RING: RingLayout = RingLayout { block_bytes: 1 << 18, blocks: 64, retire_ms: 60, rx_hash: false, node: None };

/// A box ready for load.
pub(super) struct Bed {
    /// None: the box forwards, and counters tell.
    readers: Option<Readers>,
    pub(super) made: TestBox,
}

/// BoxCounts at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoxCounts {
    offered: (Instant, u64),
    forwarded: (Instant, u64),
}

impl BoxCounts {
    /// Offered and forwarded packets per second since `earlier`.
    pub(super) fn rates(&self, earlier: &Self) -> (f64, f64) {
        let rate = |now: (Instant, u64), then: (Instant, u64)| {
            now.1.saturating_sub(then.1) as f64 / now.0.duration_since(then.0).as_secs_f64().max(1e-9)
        };
        (rate(self.offered, earlier.offered), rate(self.forwarded, earlier.forwarded))
    }
}

impl Bed {
    pub(super) fn build(lab: &Lab, configuration: &Configuration, cores: &SweepCores) -> Result<Self, SweepError> {
        let napi = match cores.sharing() {
            Sharing::Apart => Napi::Threads(vec![cores.of_box]),
            Sharing::Inline => Napi::Inline,
        };
        let made = TestBox::build(lab, &BoxSpec { napi: napi.clone(), ..BoxSpec::new(configuration.kind.clone()) })?;
        let (namespace, entry) = made.entry();
        for tweak in &configuration.tweaks {
            match tweak {
                Tweak::Sysctl(name, value) => namespace.set_sysctl(name, value)?,
                Tweak::Feature { side, name, on } => {
                    let exit = made.inside().and_then(|i| i.exit.as_ref()).unwrap_or(entry);
                    let interface = if *side == Side::Entry { entry } else { exit };
                    namespace.set_feature(&interface.name, name, *on)?;
                }
                Tweak::Rules(rules) => made.load_rules(rules)?,
            }
        }
        let cpu = [cores.of_box];
        let options = PacketOptions {
            interface: entry.name.clone(),
            filter: Vec::new(),
            snaplen: WHOLE_FRAME,
            promiscuous: true,
            ignore_outgoing: true,
        };
        let readers = match configuration.reading {
            Reading::Forwarded => None,
            Reading::Packet => {
                let plain = PlainReading { batch: 1, buffer_bytes: PLAIN_BUFFER_BYTES };
                Some(Readers::start(vec![namespace.run(|| PacketSource::open(&options, plain))??], &cpu))
            }
            Reading::RingFanout => {
                let fanout =
                    Fanout { algorithm: FanoutAlgorithm::Hash, defrag: false, rollover: false, ignore_outgoing: true };
                let group = Group { fanout, members: RINGS, program: None };
                Some(Readers::start(namespace.run(|| RingSource::open_group(&options, RING, &group))??, &cpu))
            }
            Reading::Tap => {
                let mut options = TapOptions::new(&entry.name);
                options.promiscuous = true;
                Some(Readers::start(namespace.run(|| TapSource::open(&options, 1))??, &cpu))
            }
        };
        if let (Napi::Threads(cpus), false) = (&napi, readers.is_none()) {
            // An XDP program that comes may have made new threads.
            namespace.thread_napi(&entry.name, cpus)?;
        }
        Ok(Self { readers, made })
    }

    /// True if frames end behind the box.
    pub(super) fn has_receiver(&self) -> bool {
        self.made.receiver().is_some()
    }

    pub(super) fn counts(&self) -> Result<BoxCounts, SweepError> {
        let counters = self.made.counters()?;
        let offered = (counters.sender.at, counters.offered());
        let forwarded = match &self.readers {
            Some(readers) => (Instant::now(), readers.counted()),
            None => (counters.receiver.map_or(counters.entry.at, |r| r.at), counters.forwarded()),
        };
        Ok(BoxCounts { offered, forwarded })
    }

    /// Ends the readers, and says whether one failed on the way.
    pub(super) fn finish(self) -> Result<(), SweepError> {
        if let Some(readers) = self.readers {
            readers.finish()?;
        }
        Ok(())
    }
}
