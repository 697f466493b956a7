//! The owner of a namespace, whose pid and start time are in its name.

use std::{fs, io};

pub(crate) use host::owner::{is_dead, name};

use crate::{LabError, netns};

/// A name of at most 15 characters for an interface of this process.
pub(crate) fn interface(label: &str) -> String {
    let mut pid = std::process::id();
    let mut digits = Vec::new();
    while pid > 0 || digits.is_empty() {
        digits.push(char::from_digit(pid % 36, 36).unwrap_or('0'));
        pid /= 36;
    }
    format!("ek{}{label}", digits.iter().rev().collect::<String>())
}

/// The namespaces of this program whose owner is no longer alive.
pub fn dead() -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(netns::FOLDER) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(LabError::Namespace { what: "list", name: netns::FOLDER.into(), source }),
    };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut dead: Vec<String> = names.filter(|name| is_dead(name)).collect();
    dead.sort();
    Ok(dead)
}

/// Removes every namespace of this program whose owner is no longer alive, with the interfaces in it; returns their names.
///
/// # Errors
/// The first namespace that cannot be removed.
pub fn clear_dead() -> Result<Vec<String>, LabError> {
    let dead = dead()?;
    dead.iter().try_for_each(|name| netns::remove(name))?;
    Ok(dead)
}
