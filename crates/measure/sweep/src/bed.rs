//! A configuration built: the box, its settings, its readers.

use std::time::Instant;

use lab::{BoxSpec, Lab, TestBox, boxes::Napi};
use model::run::Sharing;
use rig::{readers::Readers, receive::Sources};
use sys::packet::FanoutAlgorithm;

use super::{
    SweepError,
    plan::{Configuration, Side, SweepCores, Tweak},
};

/// The 256 KiB blocks of each ring.
const RING_BLOCKS: u32 = 64;

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
        let sources =
            |(backend, members)| Sources { backend, members, fanout: FanoutAlgorithm::Hash, ring_blocks: RING_BLOCKS };
        let open = |sources: Sources| namespace.run(|| sources.open(&entry.name, &[cores.of_box]));
        let readers = match configuration.reading.map(|read| open(sources(read))) {
            Some(opened) => Some(opened??.readers),
            None => None,
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
