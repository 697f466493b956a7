//! Interception of the calls of a program.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use object::{Object, ObjectSection, read::ReadCache};

/// Interpreters of scripts that are followed in a chain.
const INTERPRETERS_MAX: u32 = 4;
/// Bytes read of the first line of a script.
const LINE_MAX: u64 = 256;

/// The interception of the calls of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interception {
    /// By a library that the dynamic linker loads before the C library.
    Library,
    /// By a supervisor process: the program makes system calls without the C library (static, Go), or its kind is unknown.
    Supervisor,
}

/// The interception for a program, which is searched for as by execvp(3).
///
/// # Errors
/// There is no such program, or it cannot be read.
pub fn interception(program: &OsStr) -> io::Result<Interception> {
    let mut path = find(program)?;
    for _ in 0..INTERPRETERS_MAX {
        match interpreter(&path)? {
            None => return Ok(of(&path)),
            Some(next) => path = next,
        }
    }
    Ok(Interception::Supervisor)
}

fn find(program: &OsStr) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let places = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&places).map(|folder| folder.join(program)).filter(|path| path.is_file());
    found.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Interpreter of a script; none: it is no script.
fn interpreter(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut line = Vec::new();
    io::Read::take(BufReader::new(File::open(path)?), LINE_MAX).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_prefix(b"#!") else { return Ok(None) };
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = words.next().unwrap_or_default();
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        return Ok(Some(first.into()));
    }
    let is_word = |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    words.find(is_word).map(|word| find(&OsString::from(word))).transpose()
}

fn of(path: &Path) -> Interception {
    let Ok(file) = File::open(path) else { return Interception::Supervisor };
    let cache = ReadCache::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return Interception::Supervisor };
    // Go makes its own system calls, even in a program linked to the C library.
    let has = |name: &str| elf.sections().any(|section| section.name() == Ok(name));
    if has(".interp") && !has(".go.buildinfo") { Interception::Library } else { Interception::Supervisor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_what_reads_them_and_the_linked_are_reached_by_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.into_os_string()
        };
        assert_eq!(interception(OsStr::new("sh")).unwrap(), Interception::Library);
        assert_eq!(interception(&file("a", "#!/bin/sh -e\nexit\n")).unwrap(), Interception::Library);
        assert_eq!(interception(&file("b", "#!/usr/bin/env -S X=1 sh\n")).unwrap(), Interception::Library);
        assert_eq!(interception(&file("c", "no program")).unwrap(), Interception::Supervisor);
        let itself = folder.path().join("d");
        assert_eq!(interception(&file("d", &format!("#!{}\n", itself.display()))).unwrap(), Interception::Supervisor);
        assert_eq!(interception(OsStr::new("no-such-program")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
