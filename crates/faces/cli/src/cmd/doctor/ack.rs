//! `evenkeel doctor --ack`: what somebody has seen is set aside, and counts begin anew.

use std::path::PathBuf;

use doctor::{
    Evidence, Selection,
    ack::{self, Acknowledged},
    diagnose,
};
use host::{Host, Root};
use model::doctor::{Finding, Verdict};
use serde::Serialize;

use super::{DoctorArgs, with_end};
use crate::{
    args::StateArg,
    failure::{Failure, Outcome, json, note, print},
};

/// The word that takes all acknowledgements back.
const NONE: &str = "none";

#[derive(Debug, Serialize)]
struct Done {
    file: PathBuf,
    #[serde(flatten)]
    acknowledged: Acknowledged,
}

/// The file of this machine's acknowledgements.
fn file(state: &StateArg) -> PathBuf {
    ack::path(state.journal().state())
}

/// Reads the acknowledgements of this machine; a damaged file is reported and counts as none.
pub(super) fn stands(state: &StateArg) -> Acknowledged {
    match Acknowledged::load(&file(state)) {
        Ok(acknowledged) => acknowledged.unwrap_or_default(),
        Err(e) => {
            note(format_args!("warning: {e}; nothing counts as acknowledged"));
            Acknowledged::default()
        }
    }
}

/// Lets the counts begin anew, after a fix.
pub(super) fn count_from_now(state: &StateArg, root: &Root) -> Result<(), Failure> {
    let mut acknowledged = stands(state);
    acknowledged.count_from_now(root, &Host::read(root)?);
    Ok(acknowledged.save(&file(state))?)
}

/// Sets the findings that `names` select aside; without names all that are not bad.
pub(super) fn run(args: &DoctorArgs, names: &[String]) -> Result<Outcome, Failure> {
    let path = file(&args.state);
    if names == [NONE] {
        let message = match Acknowledged::forget(&path)? {
            true => "Nothing is acknowledged any more; counts begin at boot.",
            false => "Nothing was acknowledged.",
        };
        return print(&with_end(message)).map(|()| Outcome::Fine);
    }
    let wanted = Selection::parse(names)?;
    let mut evidence = Evidence::gather(&Root::live(), args.role)?;
    let mut acknowledged = Acknowledged::load(&path)?.unwrap_or_default();
    acknowledged.count_from_now(&evidence.root, &evidence.host);
    // Most counts are good once they begin anew; what is left is a matter of settings, or goes on.
    evidence.acknowledge(&acknowledged);
    let left = diagnose(&evidence, &Selection::default()).report.findings;
    let meant = |f: &&Finding| match names {
        [] => f.verdict == Verdict::Improve,
        _ => f.verdict.is_finding() && wanted.has(&f.check, f.object.as_deref()),
    };
    acknowledged.accept(left.iter().filter(meant));
    acknowledged.save(&path)?;
    if args.json {
        return print(&with_end(&json("doctor.ack", Done { file: path, acknowledged })?)).map(|()| Outcome::Fine);
    }
    let name = |a: &ack::Accepted| match &a.object {
        Some(object) => format!("{}:{object}", a.check),
        None => a.check.clone(),
    };
    let aside: Vec<String> = acknowledged.accepted.iter().map(name).collect();
    let mut message = "Counts begin now.".to_owned();
    if !aside.is_empty() {
        message.push_str(&format!(" Set aside: {}.", aside.join(", ")));
    }
    let bad = left.iter().filter(|f| f.verdict == Verdict::Bad).count();
    if names.is_empty() && bad > 0 {
        message.push_str(&format!(" {bad} bad stay: name them to set them aside."));
    }
    print(&with_end(&format!("{message}\nTake it back: evenkeel doctor --ack none"))).map(|()| Outcome::Fine)
}
