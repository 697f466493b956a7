//! One module per verb: its arguments (doc comments are the help) and `run`.

mod capture;
pub(crate) use capture::called_here;
mod changes;
mod clean;
mod doctor;
mod r#gen;
mod keep;
mod ledger;
mod link;
#[cfg(feature = "measure")]
mod measure;
mod meta;
mod profile;
mod route;
mod selftest;
mod shield;
mod snapshot;
mod spread;
mod top;
mod undo;

use clap::Subcommand;
use host::mounted::Mount;

pub(crate) use meta::complete;

use crate::failure::{Failure, Outcome};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Top(top::TopArgs),
    Ledger(ledger::LedgerArgs),
    Profile(Box<profile::ProfileVerb>),
    Spread(Box<spread::SpreadArgs>),
    Doctor(Box<doctor::DoctorArgs>),
    Shield(Box<shield::ShieldArgs>),
    Route(route::RouteArgs),
    Link(link::LinkArgs),
    #[cfg(feature = "measure")]
    #[command(flatten)]
    Measure(measure::Verb),
    Keep(Box<keep::KeepArgs>),
    Undo(undo::UndoArgs),
    Confirm(undo::ConfirmArgs),
    Clean(clean::CleanArgs),
    Capture(Box<capture::CaptureArgs>),
    Gen(Box<r#gen::GenArgs>),
    Snapshot(snapshot::SnapshotArgs),
    Selftest(selftest::SelftestArgs),
    #[command(hide = true)]
    Frames(r#gen::FramesArgs),
    #[command(hide = true)]
    Guardian(undo::GuardianArgs),
    Completions(meta::CompletionsArgs),
    Man(meta::ManArgs),
}

impl Verb {
    /// Does what the verb says.
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        host::mounted::check(self.needs())?;
        match self {
            Self::Gen(args) => r#gen::run(&args),
            Self::Capture(args) => capture::run(*args),
            Self::Snapshot(args) => snapshot::run(&args),
            Self::Selftest(args) => selftest::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Ledger(args) => ledger::run(&args),
            Self::Profile(args) => profile::run(&args),
            Self::Spread(args) => spread::run(*args),
            Self::Doctor(args) => doctor::run(&args),
            Self::Shield(args) => shield::run(&args),
            Self::Route(args) => route::run(&args),
            Self::Link(args) => link::run(&args),
            #[cfg(feature = "measure")]
            Self::Measure(verb) => verb.run(),
            Self::Keep(args) => keep::run(&args),
            Self::Undo(args) => undo::run(&args),
            Self::Confirm(args) => undo::confirm(&args),
            Self::Frames(args) => r#gen::frames(&args),
            Self::Guardian(args) => undo::guard(args),
            Self::Clean(args) => clean::run(&args),
            Self::Completions(args) => meta::completions(&args),
            Self::Man(args) => meta::man(&args),
        }
    }

    /// The file systems that it reads of this machine. Without them it would answer that nothing is there.
    fn needs(&self) -> &'static [Mount] {
        let is_elsewhere = match self {
            Self::Top(args) => args.is_saved(),
            Self::Spread(args) => args.is_saved(),
            Self::Doctor(args) => args.is_elsewhere(),
            Self::Capture(args) => args.is_saved(),
            Self::Shield(args) => args.is_pure(),
            #[cfg(feature = "measure")]
            Self::Measure(verb) => verb.is_saved(),
            Self::Completions(_) | Self::Man(_) => true,
            _ => false,
        };
        match self {
            _ if is_elsewhere => &[],
            // The broker does the rest.
            Self::Link(args) if args.needs_broker() => &[Mount::Proc],
            _ => &[Mount::Proc, Mount::Sys],
        }
    }
}
