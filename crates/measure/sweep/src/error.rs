//! Errors of a sweep.

/// A sweep that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Traffic(#[from] traffic::TrafficError),
    #[error(transparent)]
    Record(#[from] profile::RecordError),
    #[error(transparent)]
    Measure(#[from] rig::MeasureError),
    #[error("the generator ran, but no load came through the {0} without loss: there is nothing to sweep")]
    Nothing(String),
    #[error("a sweep needs at least one CPU")]
    NoCpu,
    #[error("the {0} of the sweep stopped by a fault of its own")]
    Panicked(&'static str),
}

model::classified!(SweepError: Usage, Lacking: Nothing, Internal: Panicked; within: Lab Traffic Record Measure);
