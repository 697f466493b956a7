//! The fast path of a port as another process sees it.

use std::{mem::offset_of, os::fd::AsFd, sync::atomic::Ordering};

use libbpf_rs::{MapCore, MapHandle};
use model::route::{RouteMode, RouteTotals};
use sys::map_mmap::SharedMemory;

use super::tables::{CONFIG, PROGRAM, number};
use crate::{
    chain::{self, Maps, Place},
    link::XdpError,
    skel::route::types::route_config,
};

/// The map of a port's counters, and that of the queues to the CPUs that forward.
const COUNTS: &str = "route_counts";
const QUEUES: &str = "route_cpus";

/// The fast path of a port that some process runs. It ends with that process, whoever looks.
#[derive(Debug)]
pub struct RouteLook {
    id: u32,
    queues: Option<u32>,
    counts: MapHandle,
    config: SharedMemory,
}

impl RouteLook {
    /// The fast path in the chain whose resident program has the id `entry`. None: there is none, or it may not be read.
    pub fn of(entry: u32) -> Option<Self> {
        let (_, program) = chain::users(entry).into_iter().find(|(place, _)| *place == Place::Route)?;
        let open = |program| Maps::of(program, |name| [COUNTS, CONFIG, QUEUES, chain::RESTS].contains(&name)).ok();
        let mut maps = open(program)?;
        if maps.get(COUNTS).is_err() {
            // Rules stand before it.
            maps = open(chain::behind(&maps)?)?;
        }
        let config = SharedMemory::of(maps.get(CONFIG).ok()?.as_fd(), size_of::<route_config>(), 0).ok()?;
        let counts = maps.take(COUNTS).ok()?;
        let id = |map: &MapHandle| Some(map.info().ok()?.info.id);
        Some(Self { id: id(&counts)?, queues: maps.get(QUEUES).ok().and_then(id), counts, config })
    }

    /// The number of its counters in the kernel, by which it is known: programs of one port take turns, the counters go on.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The number of the CPU map by which frames are handed on; none: the cores that receive forward.
    pub fn queues(&self) -> Option<u32> {
        self.queues
    }

    /// The active mode; none: a mode that this version does not know.
    pub fn mode(&self) -> Option<RouteMode> {
        let now = self.config.half_word(offset_of!(route_config, mode)).load(Ordering::Acquire);
        RouteMode::ALL.into_iter().find(|mode| number(*mode) == now)
    }

    /// Counters of the port so far, over all CPUs.
    pub fn totals(&self) -> Result<RouteTotals, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map route_counts")?)
    }
}
