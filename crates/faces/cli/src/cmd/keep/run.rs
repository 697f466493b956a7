//! `keep run`: the process that keeps the files' intents.

use std::time::Instant;

use clap::Args;
use keep::{KeepService, Keeper, hold, state::Reader, status::Event};
use model::Classified;
use sys::privilege::{self, Capability};

use super::{EtcArg, planner::VerbPlanner, show};
use crate::{
    args::StateArg,
    failure::{Failure, Lines, Outcome, note},
    output::end_soon,
    shown,
};

/// Apply the files, and again after each change of the machine, until Ctrl-C.
///
///     evenkeel keep run
///
/// Changes that lead to new plans: a link, an interrupt's request, CPUs, files. Each kept setting is read once a second. Settings stay when
/// this process ends.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Apply the files once and exit.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    etc: EtcArg,
    #[command(flatten)]
    state: StateArg,
}

pub(super) fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    privilege::require_root("keep run", &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_NICE])?;
    host::namespace::check()?;
    let held = hold()?;
    let mut keeper = Keeper::new(args.etc.folder(), args.state.journal(), VerbPlanner::live());
    if args.once {
        keeper.recall()?;
        let begun = Instant::now();
        let failed = |source| keep::KeepError::System { operation: "read the links", source };
        let state = Reader::open().and_then(|mut reader| reader.read(&Default::default(), &Default::default()));
        keeper.look(state.map_err(failed)?, begun).iter().for_each(say);
        let status = keeper.status();
        let mut lines = Lines::default();
        lines.print(show::text(&status).trim_end());
        return lines.end(true, if status.is_bad() { Outcome::No } else { Outcome::Fine });
    }
    let mut server = shown::server()?;
    let kept = server.add(KeepService::open(held, keeper, |event| say(&event))?)?;
    shown::run(&mut server);
    let ended = kept.ended().transpose();
    end_soon(ended.as_ref().err().map_or(0, |error| error.class().exit_code()));
    ended?;
    note("ended; the settings stay");
    Ok(Outcome::Fine)
}

fn say(event: &Event) {
    note(show::line(event));
}
