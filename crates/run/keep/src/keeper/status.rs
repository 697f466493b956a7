//! The keeper's state for `keep status`, and plans that change nothing.

use std::time::Instant;

use host::knob::Change;

use super::{FilePlan, Keeper};
use crate::{
    KeepError,
    drift::{likely, writers},
    folder::IntentFile,
    planner::Planner,
    status::{Contested, FileState, FileStatus, Status},
};

impl<P: Planner> Keeper<P> {
    /// Plans the files without applying them, for a status while no process keeps.
    ///
    /// # Errors
    /// The machine cannot be read, in words.
    pub fn survey(&mut self) -> Result<(), String> {
        self.read_files();
        let planned = self.planner.plan(&self.files.good)?;
        self.plans = self.plans_of(planned);
        for plan in &mut self.plans {
            plan.kept = plan.kept_values(&self.memory);
        }
        Ok(())
    }

    /// Plans a new file together with the others.
    ///
    /// # Errors
    /// The new file would set a setting to another value than an existing file.
    pub fn plan_beside(&mut self, new: &IntentFile) -> Result<(), KeepError> {
        let mut files: Vec<IntentFile> = self.folder.read(|name| self.planner.check(name))?.good;
        files.retain(|file| file.name != new.name);
        files.push(new.clone());
        files.sort_by(|a, b| a.name.cmp(&b.name));
        // A plan that fails has no targets to compare; its error appears in the status.
        let planned = self.planner.plan(&files).unwrap_or_default();
        let all = || files.iter().zip(&planned);
        let own = all().filter(|(file, _)| file.name == new.name).flat_map(|(_, planned)| &planned.targets);
        for mine in own {
            let others = all().filter(|(file, _)| file.name != new.name);
            let is_it = |it: &&Change| it.knob == mine.knob && !it.knob.same(&it.new, &mine.new);
            let other = others.filter_map(|(file, planned)| Some((file, planned.targets.iter().find(is_it)?))).next();
            let Some((file, theirs)) = other else { continue };
            let [mine, theirs] = [mine, theirs].map(|it| (it.knob.to_string(), it.knob.phrase(&it.new)));
            return Err(KeepError::Intent(format!(
                "{} is not written: it would set {} to {}, and {} has it as {}. Change that file, or take it back: evenkeel keep off {}",
                new.name,
                mine.0,
                mine.1,
                self.folder.file(&file.name).display(),
                theirs.1,
                file.name
            )));
        }
        Ok(())
    }

    pub fn status(&mut self) -> Status {
        let now = Instant::now();
        let mut files: Vec<FileStatus> = Vec::new();
        for (file, plan) in self.files.good.iter().zip(&self.plans) {
            let mut status = described(file, plan);
            for (knob, kept) in &plan.kept {
                match self.store.read(knob) {
                    Ok(found) if knob.same(&found, kept) => status.settings += 1,
                    Ok(found) => {
                        let (found, kept) = (knob.phrase(&found), knob.phrase(kept));
                        status.differing.push(format!("{knob} is {found} instead of {kept}"));
                    }
                    Err(error) => status.differing.push(error.to_string()),
                }
            }
            status.state = match (&status.problem, status.differing.is_empty(), status.pending.is_empty()) {
                (Some(_), ..) => FileState::Failed,
                (None, false, _) => FileState::Differs,
                (None, true, false) => FileState::Pending,
                (None, true, true) => FileState::Kept,
            };
            files.push(status);
        }
        files.extend(self.files.bad.iter().map(|bad| FileStatus {
            name: bad.name.clone(),
            state: FileState::Refused,
            problem: Some(bad.problem.clone()),
            ..FileStatus::default()
        }));
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let resting: Vec<_> = self.memory.contests.resting(now).collect();
        let running = if resting.is_empty() { Vec::new() } else { writers() };
        let contested = resting.into_iter().map(|(knob, rest)| Contested {
            setting: knob.to_string(),
            rest_s: rest.as_secs(),
            likely: likely(knob, &running),
        });
        Status {
            folder: self.folder.path().display().to_string(),
            files,
            contested: contested.collect(),
            events: self.log.all(),
            ..Status::default()
        }
    }
}

fn described(file: &IntentFile, plan: &FilePlan) -> FileStatus {
    FileStatus {
        name: file.name.clone(),
        intents: file.intents.phrases(),
        drift: file.intents.drift.name().to_owned(),
        pending: plan.planned.pending.clone(),
        warnings: plan.planned.warnings.clone(),
        problem: plan.planned.problem.clone(),
        ..FileStatus::default()
    }
}
