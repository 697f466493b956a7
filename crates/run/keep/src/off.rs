//! The journal's sessions of kept files, and their undoing.

use host::{
    journal::{Journal, Session, UndoOptions, UndoReport},
    knob::Live,
};

use crate::KeepError;

/// The command of a journal's session that applied a file.
pub fn session_command(name: &str) -> String {
    marked("evenkeel keep run", name)
}

/// A command with the mark of the file that keeps its changes.
pub fn marked(command: &str, name: &str) -> String {
    format!("{command} [keep {name}]")
}

/// The open sessions of one file or of all, of this boot and network namespace, oldest first.
pub(crate) fn sessions(journal: &Journal, name: Option<&str>) -> Result<Vec<Session>, KeepError> {
    let mut found = Vec::new();
    for session in journal.sessions()? {
        let is_it = match name {
            Some(name) => session.header.command.ends_with(&format!(" [keep {name}]")),
            None => session.header.command.ends_with(']') && session.header.command.contains(" [keep "),
        };
        if is_it && session.is_open() && session.other_netns().is_none() && session.is_of_this_boot()? {
            found.push(session);
        }
    }
    Ok(found)
}

/// True if there are open sessions of the file of that name, which may have been removed.
///
/// # Errors
/// The journal cannot be read.
pub fn stands(journal: &Journal, name: &str) -> Result<bool, KeepError> {
    Ok(!sessions(journal, Some(name))?.is_empty())
}

/// Undoes the sessions of one file or of all, newest first. The reports name settings that another program has written, which stay.
///
/// # Errors
/// The journal cannot be read, or another process changes the machine.
pub fn take_back(journal: &Journal, name: Option<&str>) -> Result<Vec<(String, UndoReport)>, KeepError> {
    if sessions(journal, name)?.is_empty() {
        return Ok(Vec::new());
    }
    let writer = journal.lock_waiting()?;
    let options = UndoOptions { go_on: true, in_order: name.is_none(), ..UndoOptions::default() };
    let mut reports = Vec::new();
    for mut session in sessions(journal, name)?.into_iter().rev() {
        let report = session.undo(&writer, &mut Live, options);
        reports.push((session.header.session.clone(), report));
    }
    Ok(reports)
}
