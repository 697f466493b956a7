//! The CPU time of a stage by class of work: stacks sampled within the measured window.

use model::run::Work;
use profile::{RecordError, Recorder, RecorderOptions, SetApart};

/// Samples per second and CPU: enough to tell the dearest classes, too few to be felt.
const FREQUENCY_HZ: u32 = 199;

/// A sampling, or why there is none: the stage goes on without it.
#[derive(Debug, Default)]
pub(crate) struct Sampling(Option<Result<Recorder, RecordError>>);

impl Sampling {
    fn with(&mut self, step: impl FnOnce(&mut Recorder) -> Result<(), RecordError>) {
        if let Some(Ok(recorder)) = &mut self.0
            && let Err(error) = step(recorder)
        {
            self.0 = Some(Err(error));
        }
    }

    /// Opens everything, which takes time.
    pub(crate) fn prepare(&mut self) {
        self.0 = Some(Recorder::with(RecorderOptions {
            frequency_hz: FREQUENCY_HZ,
            set_apart: SetApart::Generator,
            ..RecorderOptions::default()
        }));
    }

    /// The window begins.
    pub(crate) fn begin(&mut self) {
        self.with(Recorder::restart);
    }

    /// The window is over.
    pub(crate) fn end(&mut self) {
        self.with(Recorder::stop);
    }

    /// The work that was sampled, or a note that says why there is none.
    pub(crate) fn finish(&mut self) -> (Option<Work>, Option<String>) {
        match self.0.take().map(|sampling| sampling.and_then(Recorder::finish)) {
            Some(Ok(profile)) => (Some(Work::from(&profile)), None),
            Some(Err(error)) => (None, Some(format!("what the CPU time went to is unknown: {error}"))),
            None => (None, None),
        }
    }
}
