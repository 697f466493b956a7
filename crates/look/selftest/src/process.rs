//! Programs with a time limit.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const POLL_PERIOD: Duration = Duration::from_millis(10);

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; none: a signal ended the program, or the time was over.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The last line of stderr, or of stdout if stderr is empty.
    pub(crate) fn last_words(&self) -> String {
        host::ssh::last_words(if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr })
    }
}

/// A running program. Dropping the value kills it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let folder = host::owner::temporary_folder("selftest", "output")?;
        let open = |name: &str| File::options().read(true).write(true).create_new(true).open(folder.path().join(name));
        // The files stay open without names after the folder is removed.
        let (stdout, stderr) = (open("stdout")?, open("stderr")?);
        command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        Ok(Self { child: command.spawn()?, stdout, stderr })
    }

    /// Waits until the output contains `words`; false: the program has ended, or the time is over.
    pub(crate) fn has_printed(&mut self, words: &str, timeout: Duration) -> bool {
        let began = Instant::now();
        loop {
            let ended = !self.is_running();
            if text(&self.stdout).contains(words) || text(&self.stderr).contains(words) {
                return !ended;
            }
            if ended || began.elapsed() > timeout {
                return false;
            }
            sleep(POLL_PERIOD);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM.
    pub(crate) fn tell_to_end(&self) {
        // Sending fails if the program has just ended.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
    }

    /// Waits for the program's end, and kills it after `timeout`.
    pub(crate) fn end(mut self, timeout: Duration) -> Ran {
        let began = Instant::now();
        let code = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status.code(),
                Ok(None) if began.elapsed() < timeout => sleep(POLL_PERIOD),
                _ => break None,
            }
        };
        Ran { code, stdout: text(&self.stdout), stderr: text(&self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program and waits for its end.
pub(crate) fn run(command: &mut Command, timeout: Duration) -> io::Result<Ran> {
    Ok(Running::start(command)?.end(timeout))
}

/// The content of a file, read without moving the offset that the writing process shares.
fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |it| it.len() as usize)];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_in_time_or_is_ended() {
        let ran = run(Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"]), Duration::from_secs(10)).unwrap();
        assert_eq!((ran.code, ran.stdout.as_str(), ran.last_words().as_str()), (Some(3), "a\n", "b"));
        let began = Instant::now();
        let ran = run(Command::new("sleep").arg("30"), Duration::from_millis(50)).unwrap();
        assert!(ran.code.is_none() && began.elapsed() < Duration::from_secs(20));
        let mut running = Running::start(Command::new("sh").args(["-c", "echo up; exec sleep 30"])).unwrap();
        assert!(running.has_printed("up", Duration::from_secs(10)));
        assert_eq!(running.end(Duration::ZERO).code, None);
    }
}
