//! The CPU time of a stage by class of work: stacks sampled within the measured window.

use model::run::Work;
use profile::{RecordError, Recorder, RecorderOptions, SetApart};

/// Samples per second and CPU: enough to tell the dearest classes, too few to be felt.
const FREQUENCY_HZ: u32 = 199;

/// A recorder, or the reason why there is none: the stage goes on without it.
#[derive(Debug)]
pub(crate) struct Sampling(Result<Recorder, RecordError>);

impl Sampling {
    /// Opens everything, which takes time.
    pub(crate) fn open() -> Self {
        Self(Recorder::with(RecorderOptions {
            frequency_hz: FREQUENCY_HZ,
            set_apart: SetApart::Generator,
            ..RecorderOptions::default()
        }))
    }

    pub(crate) fn begin(&mut self) {
        self.with(Recorder::restart);
    }

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

    /// The work that was sampled, or a note that says why there is none.
    pub(crate) fn finish(self) -> Result<Work, String> {
        match self.0.and_then(Recorder::finish) {
            Ok(recording) => Ok(Work::from(&recording.profile)),
            Err(error) => Err(format!("what the CPU time went to is unknown: {error}")),
        }
    }
}
