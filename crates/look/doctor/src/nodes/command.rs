//! Command for the other machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use host::ssh::{quoted, script};
use sha2::{Digest, Sha256};

use super::{NodesError, NodesOptions};

/// Exit codes of the script that takes the copied program; the program itself ends with 4 at most.
const NO_FOLDER: i32 = 71;
const NOT_WRITTEN: i32 = 72;
pub(super) const CHECKSUM: i32 = 73;
const ARCHITECTURE: i32 = 74;
const NOT_RUN: i32 = 75;

/// Reason why the copy could not be run, by the script's exit code.
pub(super) fn copy_failure(code: i32) -> Option<&'static str> {
    Some(match code {
        NO_FOLDER => "no folder could be made in /tmp there",
        NOT_WRITTEN => "it could not be written (no room in /tmp there?)",
        CHECKSUM => "its checksum there is another one (sha256sum; the connection may have broken off)",
        ARCHITECTURE => "that machine is of another architecture: copy a program built for it with --copy-from",
        NOT_RUN => "/tmp there does not let programs run (noexec), or its C library is too old",
        _ => return None,
    })
}

pub(super) fn installed(options: &NodesOptions) -> String {
    // The login shell may be any; sh is everywhere.
    script(&format!("exec {} {}", quoted(&options.program), arguments(options)))
}

fn arguments(options: &NodesOptions) -> String {
    let mut words = vec!["doctor".to_owned(), "--json".to_owned()];
    if let Some(role) = options.role {
        words.push(format!("--role={role}"));
    }
    words.extend(options.only.iter().map(|check| quoted(&format!("--only={check}"))));
    words.join(" ")
}

/// A program to run on machines that lack it.
#[derive(Debug)]
pub(super) struct Copy {
    bytes: Vec<u8>,
    sum: String,
}

impl Copy {
    pub(super) fn read(path: &Path) -> Result<Self, NodesError> {
        let bytes = fs::read(path).map_err(|source| NodesError::Copy { path: PathBuf::from(path), source })?;
        let sum = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, sum })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the program from its standard input, checks it, runs it, and takes it away again, whatever happens.
    pub(super) fn command(&self, options: &NodesOptions) -> String {
        let (sum, arguments) = (&self.sum, arguments(options));
        let run = format!(
            "umask 077\n\
             d=$(mktemp -d /tmp/evenkeel.XXXXXX) || exit {NO_FOLDER}\n\
             trap 'rm -rf \"$d\"' EXIT\n\
             trap 'exit 129' HUP INT TERM PIPE\n\
             cat > \"$d/evenkeel\" || exit {NOT_WRITTEN}\n\
             echo '{sum}  '\"$d/evenkeel\" | sha256sum -c >/dev/null 2>&1 || exit {CHECKSUM}\n\
             chmod 700 \"$d/evenkeel\" || exit {NOT_WRITTEN}\n\
             \"$d/evenkeel\" --version >/dev/null 2>&1\n\
             case $? in 0) ;; 126|127) [ \"$(uname -m)\" = {architecture} ] && exit {NOT_RUN}; exit {ARCHITECTURE} ;; *) exit {NOT_RUN} ;; esac\n\
             \"$d/evenkeel\" {arguments}\n\
             exit $?\n",
            architecture = std::env::consts::ARCH,
        );
        script(&run)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
        time::Duration,
    };

    use super::*;

    fn options() -> NodesOptions {
        NodesOptions {
            ssh_options: vec![],
            timeout: Duration::from_secs(5),
            parallel: 1,
            program: "/opt/even keel's".into(),
            copy: None,
            role: None,
            only: vec!["rings:eth0;reboot".into()],
        }
    }

    fn sh(command: &str, input: &[u8]) -> (i32, String) {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn a_missing_program_is_exit_127_in_any_shell() {
        assert_eq!(sh(&installed(&options()), b"").0, 127);
    }

    #[test]
    fn the_copy_is_checked_run_and_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("p");
        fs::write(&program, "#!/bin/sh\n[ \"$1\" = --version ] || { echo \"$0 $*\"; exit 1; }\n").unwrap();
        let copy = Copy::read(&program).unwrap();
        let (code, reply) = sh(&copy.command(&options()), copy.bytes());
        assert_eq!(code, 1, "{reply}");
        assert!(reply.contains("doctor --json --only=rings:eth0;reboot"), "{reply}");
        let place = reply.split(' ').next().unwrap();
        assert!(place.starts_with("/tmp/evenkeel.") && !Path::new(place).parent().unwrap().exists(), "{place} is left");
        assert_eq!(sh(&copy.command(&options()), b"cut off").0, CHECKSUM);
        assert!(Copy::read(Path::new("/ek-missing")).unwrap_err().to_string().contains("/ek-missing"));
    }

    #[test]
    fn a_program_that_cannot_run_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("p");
        fs::write(&program, b"\x7fELF garbage").unwrap();
        let copy = Copy::read(&program).unwrap();
        let (code, _) = sh(&copy.command(&options()), copy.bytes());
        assert!(copy_failure(code).is_some(), "{code}");
    }
}
