//! Protected prefixes as `status` shows them.

use model::{
    shield::{MeasureStatus, ProtectedStatus},
    shield_event::Measure,
};

use super::{Detector, State, baseline::LimitOrigin};

impl Detector {
    /// The protected prefixes, with what comes to them and their limits.
    pub fn protected(&self) -> Vec<ProtectedStatus> {
        self.states().map(|state| shown(&state)).collect()
    }
}

fn shown(state: &State<'_>) -> ProtectedStatus {
    let measures = Measure::ALL.into_iter().zip(state.limits).map(|(measure, limit)| MeasureStatus {
        measure: measure.word().to_owned(),
        rate: state.rates.get(measure),
        limit: limit.map(|limit| limit.rate),
        origin: limit.map(|limit| origin(limit.of).to_owned()),
    });
    ProtectedStatus {
        prefix: format!("{}/{}", state.prefix.address, state.prefix.len),
        learning_s: state.learning_s,
        measures: measures.collect(),
    }
}

fn origin(of: LimitOrigin) -> &'static str {
    match of {
        LimitOrigin::Configured => "given",
        LimitOrigin::Learned => "learned",
        LimitOrigin::Headroom => "headroom",
    }
}
