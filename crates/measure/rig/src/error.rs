//! Errors of what every measurement does.

use std::io;

use model::CpuSet;
use port::PortError;

/// CPUs that a measurement cannot have, a reader or sender that could not work, load that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("--cpus names no CPU, but online are {online}")]
    NoCpus {
        /// Online CPUs on which this process may run.
        online: CpuSet,
    },
    #[error("--cpus names CPU {missing}, but online are {online}")]
    MissingCpus {
        missing: CpuSet,
        /// Online CPUs on which this process may run.
        online: CpuSet,
    },
    #[error("cannot read where this process may run: {0}")]
    Affinity(#[source] io::Error),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("cannot pin a {who} to CPU {cpu}: {source}; name other CPUs with --cpus")]
    Pin { who: &'static str, cpu: u32, source: io::Error },
    #[error("a {0} panicked")]
    Panicked(&'static str),
    #[error("cannot read /proc/stat: {0}")]
    Load(#[source] io::Error),
}

model::classified!(MeasureError: Lacking, Usage: NoCpus MissingCpus, Internal: Affinity Panicked; within: Port);
