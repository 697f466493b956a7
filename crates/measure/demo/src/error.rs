//! Errors of a demo.

use std::io;

/// A demo that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The lab could not be built or entered.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// An interface of the lab did not answer.
    #[error(transparent)]
    Ethtool(#[from] sys::ethtool::EthtoolError),
    /// A kernel program did not run.
    #[error(transparent)]
    Program(#[from] bpf::XdpError),
    /// A way to receive could not be opened.
    #[error(transparent)]
    Port(#[from] port::PortError),
    /// A reader could not do its work.
    #[error(transparent)]
    Readers(#[from] rig::readers::ReadersError),
    /// The load of the cores could not be read.
    #[error(transparent)]
    Load(#[from] rig::window::LoadError),
    #[error("cannot make the frames of the flood: {0}")]
    Frames(#[from] wire::WireError),
    #[error("cannot pin a sender to CPU {cpu}: {source}; name other CPUs with --cpus")]
    Pin { cpu: u32, source: io::Error },
    #[error("cannot set the signal handler that ends a sender: {0}")]
    Signals(#[source] io::Error),
    #[error("a sender of the flood panicked")]
    Panicked,
}

model::classified!(DemoError: Internal, Lacking: Pin; within: Lab Ethtool Program Port Readers Load);
