//! Runs ssh with a time limit, and keeps what it says.

use std::{
    io::{Read, Write},
    process::{Child, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use host::ssh::last_words;

use super::{NodesError, NodesOptions};

/// More than this is no report, in bytes.
const OUTPUT_BYTES_MAX: u64 = 32 << 20;
/// Wait for the end of the output after ssh has ended: a shared connection's master may keep it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two looks for the end.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// Answer of ssh.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs `command` on the machine `name`, with `input` on its standard input.
pub(super) fn ssh(
    name: &str,
    options: &NodesOptions,
    command: &str,
    input: Option<&[u8]>,
) -> Result<Answer, NodesError> {
    let mut child = host::ssh::command(name, &options.ssh_options, options.timeout, command)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(NodesError::Start)?;
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    if let (Some(mut to), Some(input)) = (child.stdin.take(), input) {
        let input = input.to_vec();
        // A broken pipe shows in the exit code.
        thread::spawn(move || to.write_all(&input));
    }
    let code = wait_for(&mut child, options.timeout);
    let text = |from: &Receiver<Vec<u8>>| {
        let mut all = Vec::new();
        let end = Instant::now() + OUTPUT_TIMEOUT;
        while let Ok(bytes) = from.recv_timeout(end.saturating_duration_since(Instant::now())) {
            all.extend(bytes);
        }
        String::from_utf8_lossy(&all).into_owned()
    };
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    match code {
        Some(code) => Ok(Answer { code, stdout, stderr }),
        None => {
            let message = match stderr.trim() {
                "" => String::new(),
                _ => format!(" (ssh said: {})", last_words(&stderr)),
            };
            Err(NodesError::TimedOut { timeout: options.timeout, message })
        }
    }
}

/// The exit code; none when the time is over, and then the child is gone.
fn wait_for(child: &mut Child, timeout: Duration) -> Option<i32> {
    let end = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.code().unwrap_or(255)),
            Ok(None) if Instant::now() < end => thread::sleep(POLL_PERIOD),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// Reads in a thread of its own, so that neither pipe fills up.
fn collect(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (to, chunks) = mpsc::channel();
    if let Some(from) = from {
        thread::spawn(move || {
            let mut from = from.take(OUTPUT_BYTES_MAX);
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read) = from.read(&mut buffer) {
                if read == 0 || to.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
    }
    chunks
}
