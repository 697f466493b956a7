//! Programs that a test starts, and what they say.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::wait_for;

/// A program that a test has started. It does not outlive the value.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a program that has nothing to say.
    pub fn silent(command: &mut Command) -> Self {
        Self::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts a program whose errors go to the file `log`, which is begun anew.
    pub fn logged(command: &mut Command, log: &Path) -> Self {
        Self::start(command.stdout(Stdio::null()).stderr(fs::File::create(log).expect("a file")))
    }

    /// Starts a program whose outputs are pipes.
    pub fn piped(command: &mut Command) -> Self {
        Self::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts a program with the input and outputs that the command has.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program())))
    }

    /// The process, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("the program is there");
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child")
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn end(mut self) -> ExitStatus {
        wait_for("the end of a program", || self.ended())
    }

    /// Sends it a signal, and waits until it ends.
    #[track_caller]
    pub fn stop(self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.end()
    }

    /// Waits until it ends by itself; what it said, where its outputs are pipes.
    pub fn output(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            if let Some(mut pipe) = self.0.stderr.take() {
                let stderr = &mut stderr;
                scope.spawn(move || pipe.read_to_end(stderr).expect("its errors"));
            }
            if let Some(mut pipe) = self.0.stdout.take() {
                pipe.read_to_end(&mut stdout).expect("its output");
            }
        });
        Output { status: self.end(), stdout, stderr }
    }

    /// Interrupts it, and waits until it ends; what it said.
    pub fn interrupt(self) -> Output {
        self.signal(Signal::SIGINT);
        self.output()
    }

    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program with these words as its arguments; what it prints. Fails unless it succeeds.
#[track_caller]
pub fn run(line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    succeeds(command)
}

/// Gives netfilter a script.
#[track_caller]
pub fn nft(script: &str) {
    let mut command = Command::new("nft");
    command.arg(script);
    succeeds(command);
}

#[track_caller]
fn succeeds(mut command: Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program()));
    assert!(done.status.success(), "{command:?}: {}", printed(&done));
    text(&done.stdout)
}

/// Fails unless a program ended with `code` without a panic; all that it said.
#[track_caller]
pub fn ended(output: &Output, code: i32) -> String {
    let printed = printed(output);
    assert!(
        output.status.code() == Some(code) && !printed.contains("panicked"),
        "{}, not {code}: {printed}",
        output.status
    );
    printed
}

/// Fails unless a program refused its work with `code` in one message on stderr, which names each of these.
#[track_caller]
pub fn refused(output: &Output, code: i32, named: &[&str]) {
    ended(output, code);
    let message = text(&output.stderr);
    assert!(message.lines().filter(|line| line.starts_with("evenkeel: ")).count() <= 1, "{message}");
    named.iter().for_each(|word| assert!(message.contains(word), "`{word}` is missing: {message}"));
}

/// The saved machine of this name.
pub fn fixture(name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../fixtures/{name}.tar"));
    assert!(file.exists(), "no saved machine {name}");
    file
}

/// Every saved machine.
pub fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures");
    let files = fs::read_dir(folder).expect("the saved machines").flatten().map(|entry| entry.path());
    let tars: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|is| is == "tar")).collect();
    assert!(tars.len() >= 11, "{tars:?}");
    tars
}

/// The words of a text, such as the arguments of a command line.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// All that a program said, on both outputs.
pub fn printed(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The contents of a file; nothing if it is not there yet.
pub fn log(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The JSON document that a program printed.
#[track_caller]
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("no JSON ({e}): {}", printed(output)))
}

/// The image of a Debian kernel of `series`, unpacked and not installed.
pub fn guest_kernel(series: &str) -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/guest-kernel");
    let done = Command::new(tool).arg(series).output().unwrap();
    ended(&done, 0);
    PathBuf::from(text(&done.stdout).trim())
}
