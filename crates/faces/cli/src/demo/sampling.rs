//! What the CPU time of a stage goes to: stacks sampled within the measured window.

use model::run::Work;
use profile::{RecordError, Recorder, RecorderOptions, SetApart};

/// Samples per second and CPU: enough to tell the dearest classes, too few to be felt.
const FREQUENCY_HZ: u32 = 199;

/// A sampling, or why there is none: the stage goes on without it.
#[derive(Debug)]
pub(crate) struct Sampling(Result<Recorder, RecordError>);

impl Sampling {
    /// Does everything that takes time.
    pub(crate) fn prepare() -> Self {
        Self(Recorder::with(RecorderOptions {
            frequency_hz: FREQUENCY_HZ,
            set_apart: SetApart::Generator,
            ..RecorderOptions::default()
        }))
    }

    /// The window begins.
    pub(crate) fn begin(&mut self) {
        self.with(Recorder::restart);
    }

    /// The window is over.
    pub(crate) fn end(&mut self) {
        self.with(Recorder::stop);
    }

    fn with(&mut self, step: impl FnOnce(&mut Recorder) -> Result<(), RecordError>) {
        if let Ok(recorder) = &mut self.0
            && let Err(error) = step(recorder)
        {
            self.0 = Err(error);
        }
    }

    /// What was found, or a note that says why there is nothing.
    pub(crate) fn finish(self) -> (Option<Work>, Option<String>) {
        match self.0.and_then(Recorder::finish) {
            Ok(profile) => (Some(Work::from(&profile)), None),
            Err(error) => (None, Some(format!("what the CPU time went to is unknown: {error}"))),
        }
    }
}
