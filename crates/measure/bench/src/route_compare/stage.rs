//! The boxes of a comparison, and what counts the memory of their packets.

use bpf::{Allocated, AllocationCounter};

use super::Plan;
use crate::{
    BenchError, Cores,
    benches::RealBenches,
    run::{Benches, StandingBox},
};

/// Memory use of packets on the box's cores so far.
pub type Counter = Box<dyn Fn() -> Result<Allocated, BenchError>>;

/// Starts a counter, which counts until it is dropped; an error if the kernel lacks what it takes.
pub type StartCount = Box<dyn Fn() -> Result<Counter, BenchError>>;

/// Builds the boxes of a comparison, one at a time. Tests put simulated ones in their place.
pub trait Stage {
    /// Builds the box `key` on so many cores. It goes when it is dropped.
    fn build(&mut self, cores: u32, key: &str) -> Result<StandingBox, BenchError>;

    /// The start of counting memory on the cores of such a box.
    fn count(&self, cores: u32) -> StartCount;
}

/// Boxes in network namespaces.
pub struct RealStage {
    beds: Vec<(u32, Cores, RealBenches)>,
}

impl RealStage {
    /// Makes a lab for each arrangement of cores.
    pub fn new(plan: &Plan) -> Result<Self, BenchError> {
        let bed = |(cores, split): &(u32, Cores)| {
            Ok((*cores, split.clone(), RealBenches::on(&plan.request, &plan.settings, split.clone())?))
        };
        Ok(Self { beds: plan.beds.iter().map(bed).collect::<Result<_, BenchError>>()? })
    }
}

impl Stage for RealStage {
    fn build(&mut self, cores: u32, key: &str) -> Result<StandingBox, BenchError> {
        let bed = self.beds.iter_mut().find(|(n, ..)| *n == cores);
        bed.map_or(Err(BenchError::Panicked("lab")), |(.., benches)| benches.build(key))
    }

    fn count(&self, cores: u32) -> StartCount {
        let failed = |e: bpf::ProgramError| BenchError::Machine(e.to_string());
        let bed = self.beds.iter().find(|(n, ..)| *n == cores);
        let of_box = bed.map_or_else(Vec::new, |(_, split, _)| split.of_box.clone());
        Box::new(move || {
            let (counter, of_box) = (AllocationCounter::attach().map_err(failed)?, of_box.clone());
            Ok(Box::new(move || counter.read(&of_box).map_err(failed)))
        })
    }
}
