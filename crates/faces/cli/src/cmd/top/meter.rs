//! Sample after sample of the live machine, for the interfaces that were asked for.

use std::time::{Duration, Instant};

use host::{
    Host, HostError, Root,
    counters::{Counters, CountersError, Sampler, delta},
    interface::NoInterface,
};
use model::top::TopSample;

use super::fast_path::FastPath;

/// Time for which the picture of the machine (drivers, queues, interrupts, affinities) is believed.
const PICTURE_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum MeterError {
    #[error(transparent)]
    Counters(#[from] CountersError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
}

model::classified!(MeterError; within: Counters Host NoInterface);

/// Gives the rates since it was asked last.
pub(crate) struct Meter {
    sampler: Sampler,
    root: Root,
    host: Host,
    pictured: Instant,
    last: Counters,
    fast_path: FastPath,
    wanted: Vec<String>,
}

impl Meter {
    /// Takes the first reading. `wanted` are the interfaces to show, all when there are none.
    pub(crate) fn open(wanted: Vec<String>) -> Result<Self, MeterError> {
        let root = Root::live();
        let host = Host::read(&root)?;
        let mut sampler = Sampler::open()?;
        let last = sampler.read()?;
        if let Some(name) = wanted.iter().find(|w| !last.links.values().any(|l| l.name == **w)) {
            return Err(NoInterface::among(name, last.links.values().map(|l| l.name.as_str())).into());
        }
        let mut fast_path = FastPath::new();
        // What is there already is no rate.
        fast_path.fill(&last, &mut TopSample::default());
        Ok(Self { sampler, root, host, pictured: Instant::now(), last, fast_path, wanted })
    }

    /// The rates since the last call, or since it was opened.
    pub(crate) fn next(&mut self) -> Result<TopSample, MeterError> {
        let now = self.sampler.read()?;
        let unknown = now.links.values().any(|l| self.host.nic(&l.name).is_none());
        let due = self.pictured.elapsed();
        if due >= PICTURE_AGE_MAX || (unknown && due >= PICTURE_AGE_MAX / 10) {
            self.host = Host::read(&self.root)?;
            self.pictured = Instant::now();
        }
        let mut sample = delta(&self.host, &self.last, &now);
        self.fast_path.fill(&now, &mut sample);
        self.last = now;
        if !self.wanted.is_empty() {
            sample.interfaces.retain(|i| self.wanted.contains(&i.name));
            let missing = self.wanted.iter().filter(|w| !self.last.links.values().any(|l| l.name == **w));
            sample.notes.extend(missing.map(|name| format!("{name} is not there")));
        }
        Ok(sample)
    }
}
