//! Settings of a shield, and the source of its rules.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use bpf::XdpMode;
use model::shield::Fail;
use nix::unistd::geteuid;
use rules::{
    Rule, RulesError,
    detect::DetectConfig,
    file::{self, RuleFile},
    flags,
    management::Session,
};
use sys::owner::trusted_program;

use super::paths::Paths;
use crate::{between::Pair, error::ShieldError};

/// The source of rules; it is read again at each reload.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Source {
    pub file: Option<PathBuf>,
    /// Rules of the command line, before those of the file.
    pub rules: Vec<Rule>,
    /// Sets of the command line, as `NAME=FILE`.
    pub sets: Vec<String>,
}

/// The settings of a rules file that let its writer act as root beyond the filter: a program that runs, a path that is written. Rules and their
/// names reach both.
fn acts_as_root(detection: &DetectConfig) -> Option<&'static str> {
    let hook = detection.hook.as_ref().map(|_| "rules with `detection.hook`, which root runs,");
    let events = detection.events.as_ref().map(|_| "rules with `detection.events`, a file that root writes,");
    let metrics =
        detection.metrics.file.as_ref().map(|_| "rules with `detection.metrics.file`, a file that root writes,");
    hook.or(events).or(metrics)
}

/// Refuses a file of rules that somebody else can change. A pipe comes from whoever started the shield.
fn refuse_foreign(path: &Path) -> io::Result<PathBuf> {
    // What this process has open already, whoever started it chose.
    let is_open = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|open| path.starts_with(open));
    let is_file = || fs::metadata(path).is_ok_and(|found| found.is_file());
    if !geteuid().is_root() || is_open && !is_file() {
        return Ok(path.to_owned());
    }
    trusted_program(path)
}

impl Source {
    pub fn read(&self) -> Result<RuleFile, ShieldError> {
        let mut read = match &self.file {
            Some(path) => {
                // Looked at before it is read, and read by the path that nobody else can have lead elsewhere: what is read is what was looked at.
                let trusted = refuse_foreign(path);
                let read = file::read(trusted.as_deref().unwrap_or(path))?;
                if let Err(source) = trusted
                    && let Some(what) = acts_as_root(&read.detection)
                {
                    return Err(ShieldError::Rules(RulesError::Read { what, path: path.to_owned(), source }));
                }
                read
            }
            None => file::parse_in("", "", Path::new(""))?,
        };
        for set in &self.sets {
            flags::set(&mut read, set)?;
        }
        flags::prepend(&mut read, &self.rules)?;
        Ok(read)
    }

    /// Reads them again. A pipe, which whoever runs the shield may have written the first rules into, would be waited for.
    ///
    /// # Errors
    /// The rules are wrong, or their file cannot be read twice.
    pub fn read_again(&self) -> Result<RuleFile, ShieldError> {
        let sets = self.sets.iter().filter_map(|set| set.split_once('=')).map(|(_, file)| Path::new(file));
        for path in self.file.as_deref().into_iter().chain(sets) {
            if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
                return Err(ShieldError::NotReloadable { path: path.to_owned() });
            }
        }
        self.read()
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// The interface; the first of two.
    pub interface: String,
    /// The two interfaces of a gateway: what passes leaves by the other one.
    pub between: Option<Pair>,
    pub mode: XdpMode,
    pub source: Source,
    /// The fate of packets when this process is gone.
    pub fail: Fail,
    /// The time after which that begins.
    pub fail_after: Duration,
    /// The paths of what outlives this process.
    pub paths: Paths,
    /// Sessions that the management allow-list lets in: those of the start, and those that reloads were asked from.
    pub sessions: Vec<Session>,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for_when_rules_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let by_file = Source { file: Some(pipe.clone()), ..Source::default() };
        let by_set = Source { sets: vec![format!("bad={}", pipe.display())], ..Source::default() };
        for source in [by_file, by_set] {
            let refused = source.read_again().unwrap_err().to_string();
            assert!(refused.contains(&format!("{} is no regular file", pipe.display())), "{refused}");
        }
        let file = folder.path().join("rules.toml");
        fs::write(&file, "default = \"drop\"\n").unwrap();
        assert!(Source { file: Some(file), ..Source::default() }.read_again().is_ok());
    }

    #[test]
    fn rules_that_act_as_root_are_refused_if_somebody_else_can_change_them() {
        if !geteuid().is_root() {
            return eprintln!("skipped: for root only");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let source = Source { file: Some(path.clone()), ..Source::default() };
        for (setting, key) in [
            ("hook = { run = [\"/bin/true\"] }", "detection.hook"),
            ("events = \"/run/events\"", "detection.events"),
            ("metrics = { file = \"/run/metrics\" }", "detection.metrics.file"),
        ] {
            fs::write(&path, format!("protect = [\"203.0.113.0/24\"]\n[detection]\n{setting}\n")).unwrap();
            chown(&path, Some(0), None).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            source.read().unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
            let message = source.read().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            chown(&path, Some(65533), None).unwrap();
            let message = source.read().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
        // Rules alone run and write nothing. A port of metrics is no file.
        fs::write(&path, "default = \"pass\"\n[detection]\nmetrics = { port = 9109 }\n").unwrap();
        source.read().unwrap();
    }

    #[test]
    fn rules_with_a_hook_are_not_read_through_a_link_of_others() {
        if !geteuid().is_root() {
            return eprintln!("skipped: for root only");
        }
        let folder = tempfile::tempdir().unwrap();
        let (rules, open) = (folder.path().join("rules.toml"), folder.path().join("open"));
        fs::write(&rules, "protect = [\"203.0.113.0/24\"]\n[detection]\nhook = { run = [\"/bin/true\"] }\n").unwrap();
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&rules, folder.path().join("own.toml")).unwrap();
        symlink(&rules, open.join("rules.toml")).unwrap();
        let read = |file: PathBuf| Source { file: Some(file), ..Source::default() }.read();
        for file in ["rules.toml", "own.toml"] {
            assert!(read(folder.path().join(file)).is_ok_and(|read| read.detection.hook.is_some()), "{file}");
        }
        let message = read(open.join("rules.toml")).unwrap_err().to_string();
        assert!(message.contains("hook"), "{message}");
    }
}
