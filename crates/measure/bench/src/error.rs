//! Errors of the bench.

use thiserror::Error;

/// An error that keeps a run from beginning or going on.
#[derive(Debug, Error)]
pub enum BenchError {
    #[error("{0}")]
    Setting(String),
    #[error("{0}; --save names the file of the run")]
    Save(#[from] host::file::FileError),
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Guest(#[from] guest::GuestError),
    #[error(transparent)]
    Program(#[from] bpf::XdpError),
    #[error(transparent)]
    Route(#[from] route::RouteError),
    #[error(transparent)]
    Traffic(#[from] traffic::TrafficError),
    #[error(transparent)]
    Measure(#[from] rig::MeasureError),
    #[error("the {0} ended unexpectedly")]
    Panicked(&'static str),
    #[error("what watches the box under test failed: {0}")]
    Observer(String),
    #[error("{0}")]
    Machine(String),
    /// The run has no prospect: its time is over, or no trial counts any more.
    #[error("{0}")]
    GivenUp(String),
    #[error("interrupted")]
    Interrupted,
}

model::classified!(
    BenchError: Lacking,
    Usage: Setting,
    Internal: Panicked;
    within: Route Save Lab Guest Program Traffic Measure
);
