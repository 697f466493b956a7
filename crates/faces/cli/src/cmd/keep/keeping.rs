//! The file that `keep add` and the flag `--keep` of other verbs write.

use std::path::{Path, PathBuf};

use host::journal::Journal;
use keep::{
    Folder, Keeper,
    folder::IntentFile,
    intent::{Drift, Intents},
    off,
};
use model::doctor::Role;
use spread::Options;

use super::{EtcArg, add, note_unkept, planner::VerbPlanner, told};
use crate::{args::state_flag, failure::Failure};

/// A file of intents without a contradiction to the other files. It is written before any setting.
pub(crate) struct Keeping {
    folder: Folder,
    etc: Option<PathBuf>,
    file: IntentFile,
    /// None before the file is written; afterwards its earlier text, if it existed.
    before: Option<Option<String>>,
}

impl Keeping {
    /// # Errors
    /// The intents or the name are refused, or they contradict another file.
    pub(super) fn new(etc: &EtcArg, name: &str, intents: &Intents) -> Result<Self, Failure> {
        let folder = etc.folder();
        let file = folder.prepare(name, intents, add::check_name)?;
        Keeper::new(folder.clone(), Journal::at(None), VerbPlanner::live()).plan_beside(&file)?;
        Ok(Self { folder, etc: etc.path().map(Path::to_owned), file, before: None })
    }

    /// The file of `spread apply --keep`.
    pub(crate) fn spread(
        etc: &EtcArg,
        name: Option<&str>,
        interfaces: &[String],
        options: &Options,
    ) -> Result<Self, Failure> {
        let intents = add::spread_intents(interfaces, options, Drift::default())?;
        Self::new(etc, name.unwrap_or(&add::default_name("spread", interfaces)), &intents)
    }

    /// The file of `doctor --fix --keep`. `named` are the checks of the command line, `checks` those to keep.
    pub(crate) fn doctor(
        etc: &EtcArg,
        name: Option<&str>,
        named: &[String],
        checks: Vec<String>,
        role: Option<Role>,
    ) -> Result<Self, Failure> {
        let intents = add::doctor_intents(checks, role, Drift::default());
        Self::new(etc, name.unwrap_or(&add::default_name("doctor", named)), &intents)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.file(&self.file.name)
    }

    pub(crate) fn write(&mut self) -> Result<(), Failure> {
        self.before = Some(self.folder.write(&self.file)?);
        Ok(())
    }

    /// `written`, or `replaced`.
    pub(super) fn done(&self) -> &'static str {
        if matches!(self.before, Some(Some(_))) { "replaced" } else { "written" }
    }

    /// Restores the file after a failure to set anything, and adds that to the failure's text.
    pub(crate) fn put_back(self, failure: Failure) -> Failure {
        let Some(before) = self.before else { return failure };
        match self.folder.put_back(&self.file.name, before.as_deref()) {
            Ok(()) => {
                failure.after(&format!("Nothing is kept: {} is as before", self.folder.file(&self.file.name).display()))
            }
            Err(error) => failure.after(&format!("{error}: it is still kept")),
        }
    }

    /// The command for the journal's session, by which `keep off` finds it.
    pub(crate) fn session_command(&self, command: &str) -> String {
        off::marked(command, &self.file.name)
    }

    /// The command that undoes the changes and removes the file.
    pub(crate) fn way_back(&self, state: Option<&Path>) -> String {
        let etc = self.etc.as_ref().map_or_else(String::new, |etc| format!(" --etc {}", etc.display()));
        format!("evenkeel keep off {}{etc}{}", self.file.name, state_flag(state))
    }

    /// Makes `keep run` read the file, or prints how to start it.
    pub(crate) fn tell(&self) -> Result<(), Failure> {
        if !told()? {
            note_unkept();
        }
        Ok(())
    }
}
