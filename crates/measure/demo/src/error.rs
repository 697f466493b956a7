//! Errors of a demo.

use std::io;

/// A demo that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Ethtool(#[from] sys::ethtool::EthtoolError),
    #[error(transparent)]
    Program(#[from] bpf::XdpError),
    #[error(transparent)]
    Measure(#[from] rig::MeasureError),
    #[error("cannot make the frames of the flood: {0}")]
    Frames(#[from] wire::WireError),
    #[error("cannot set the signal handler that ends a sender: {0}")]
    Signals(#[source] io::Error),
}

model::classified!(DemoError: Internal; within: Lab Ethtool Program Measure);
