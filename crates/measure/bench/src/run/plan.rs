//! The steps of a run in their order: pure.

use std::fmt;

use model::bench::FrameSpec;
use serde::{Deserialize, Serialize};

use super::request::{Request, Test, WIRE};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Ceiling,
    Test(Test),
}

impl What {
    /// The remedy if the time of such a step is too short and no trial was void. The length of a ceiling's trials is the preset's.
    pub(crate) fn too_slow(self) -> &'static str {
        match self {
            Self::Ceiling => "the tester itself loses frames at these rates: allow some loss (--loss-ratio)",
            Self::Test(_) => "longer trials (--duration) get more time",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ceiling => f.pad("tester's ceiling"),
            Self::Test(test) => test.fmt(f),
        }
    }
}

/// A step: a box, a kind of frame, a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepId {
    pub mode: String,
    pub frame: FrameSpec,
    pub what: What,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.mode, self.frame, self.what)
    }
}

/// A step and how long it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub id: StepId,
    /// Seconds that it is expected to take.
    pub seconds: f64,
}

/// The steps of a run: the ceilings of all kinds of frames first, then mode by mode, frame by frame, test by test. `seconds` says how
/// long a step takes.
pub fn steps(request: &Request, seconds: &dyn Fn(What) -> f64) -> Vec<Step> {
    let modes = request.boxes.modes();
    let tests = request.tests_with_needs();
    // An outside box has the same ports as the tester's ceiling; a lab's is that of its wire.
    let ceilings_of = match &request.boxes {
        super::request::Boxes::Lab(_) | super::request::Boxes::Guests(_) => WIRE.to_owned(),
        super::request::Boxes::Ports(..) => super::request::PORTS.to_owned(),
    };
    let ceilings = request.frames.iter().map(|frame| (ceilings_of.clone(), frame, What::Ceiling));
    let of_modes = modes.iter().flat_map(|mode| {
        let tests = &tests;
        request
            .frames
            .iter()
            .flat_map(move |frame| tests.iter().map(move |&test| (mode.clone(), frame, What::Test(test))))
    });
    ceilings
        .chain(of_modes)
        .map(|(mode, frame, what)| Step { id: StepId { mode, frame: frame.clone(), what }, seconds: seconds(what) })
        .collect()
}

/// Seconds that all of them take.
pub fn seconds(steps: &[Step]) -> f64 {
    steps.iter().map(|s| s.seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_come_first_and_every_test_has_its_throughput() {
        let plan = steps(&Request::simulated(&["router", "stateful"], &[Test::Latency]), &|_| 2.5);
        let words: Vec<String> = plan.iter().map(|s| s.id.to_string()).collect();
        assert_eq!(
            words[..3],
            ["wire, 64, tester's ceiling", "wire, 1518, tester's ceiling", "router, 64, throughput"]
        );
        assert_eq!(words[3], "router, 64, latency");
        assert_eq!((words.len(), words[9].as_str()), (10, "stateful, 1518, latency"));
        assert_eq!(seconds(&plan), 25.0);
    }

    #[test]
    fn a_ceiling_without_time_is_not_told_to_take_longer_trials() {
        let message = |what: What| {
            let patience = crate::patience::Patience::default();
            patience.begin(3.0, std::time::Duration::ZERO, what.too_slow());
            patience.time_message()
        };
        let ceiling = message(What::Ceiling);
        assert!(ceiling.contains("--loss-ratio") && !ceiling.contains("--duration"), "{ceiling}");
        assert!(message(What::Test(Test::Throughput)).contains("--duration"));
    }
}
