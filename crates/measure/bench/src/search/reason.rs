//! Reason a trial is made, for people.

use model::units;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reason {
    Highest,
    /// A load that was not tried yet, at the gap in which the throughput probably lies; what came through at the highest load if nothing else is known.
    Probe {
        near: [Option<u64>; 2],
        came: Option<f64>,
    },
    /// A load that was tried, which is still the best place to look.
    Again {
        load: u64,
        upper: bool,
        number: usize,
    },
    /// A load whose trials had too few units to judge the goal.
    TooFew {
        load: u64,
        number: usize,
        sent: u64,
    },
    /// The same share is lost at all loads so far.
    Same {
        loss_ratio: f64,
    },
    /// A bound that another contradicts.
    Contradicted {
        load: u64,
        fine: u64,
        number: usize,
    },
}

impl Reason {
    /// The reason in words; `goal` is named where there are several.
    pub(super) fn text(&self, goal: Option<&str>) -> String {
        let pps = |n: u64| units::pps(n as f64);
        let text = match *self {
            Self::Highest => "the highest load first: what comes through shows where to look".into(),
            Self::Probe { came: Some(came), .. } => {
                format!("{} came through at the highest load: close to that", units::pps(came))
            }
            Self::Probe { near: [Some(lower), Some(upper)], .. } => {
                format!("after all that was seen, most likely between {} and {}", pps(lower), pps(upper))
            }
            Self::Probe { near: [Some(lower), None], .. } => {
                format!("after all that was seen, most likely above {}", pps(lower))
            }
            Self::Probe { near: [None, upper], .. } => {
                format!("after all that was seen, most likely below {}", pps(upper.unwrap_or_default()))
            }
            Self::Again { load, upper, number } => {
                let what = if upper { "too much seems to be lost" } else { "all seems fine" };
                format!("{what} at {}: trial {number} there, to be sure", pps(load))
            }
            Self::TooFew { load, number, sent } => {
                let sent = units::grouped(sent);
                format!("{sent} units at {} are too few to judge the goal: trial {number} there is longer", pps(load))
            }
            Self::Same { loss_ratio } => {
                format!("{} lost at every load so far: is it so at this one, too", units::percent(loss_ratio))
            }
            Self::Contradicted { load, fine, number } => {
                format!("too much lost at {}, but not at {}: trial {number} at the first", pps(load), pps(fine))
            }
        };
        goal.map_or(text.clone(), |goal| format!("[{goal}] {text}"))
    }
}
