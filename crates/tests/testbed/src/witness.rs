//! Witnesses that are not ours: tcpdump in a namespace, tshark on what it wrote.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use lab::NamespaceHandle;
use nix::sys::signal::Signal;

use crate::{Running, Space, printed, text};

/// A tcpdump that writes to a file. It does not outlive its test.
#[derive(Debug)]
pub struct Tcpdump {
    running: Running,
    file: PathBuf,
}

impl Tcpdump {
    /// Looks at `interface`, at once and at whole frames; `more` is options, such as `-c` and a number of frames, and a filter. Listens when
    /// this comes back.
    #[track_caller]
    pub fn start(space: &NamespaceHandle, interface: &str, file: &Path, more: &[&str]) -> Self {
        // Frames of this size, so that the buffer holds thousands.
        let fixed = ["-i", interface, "-n", "-p", "-U", "--immediate-mode", "-s", "2048", "-B", "32768"];
        Self::start_with(space, file, &[&fixed, more].concat())
    }

    /// A witness with these options and no others.
    #[track_caller]
    pub fn start_with(space: &NamespaceHandle, file: &Path, options: &[&str]) -> Self {
        let mut command = Command::new("tcpdump");
        command.args(["-Z", "root", "-w"]).arg(file).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = Space::of(space).run(|| Running::start(&mut command));
        let mut lines = BufReader::new(running.child().stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("listening on")), "tcpdump does not start");
        // It goes on to say what it lost, and must not find its pipe closed.
        thread::spawn(move || lines.for_each(|line| eprintln!("tcpdump: {line}")));
        Self { running, file: file.to_owned() }
    }

    pub fn running(&self) -> &Running {
        &self.running
    }

    /// The file, once it has as many frames as were asked for.
    #[track_caller]
    pub fn finish(self) -> PathBuf {
        done(self.running.end());
        self.file
    }

    /// The file, once tcpdump has had time to write what is still on its way.
    #[track_caller]
    pub fn stop(self) -> PathBuf {
        thread::sleep(Duration::from_millis(300));
        done(self.running.stop(Signal::SIGINT));
        self.file
    }
}

#[track_caller]
fn done(status: ExitStatus) {
    assert!(status.success(), "tcpdump: {status}");
}

/// The output of tshark for a file with these arguments, a line each, checksums verified and datagrams put together.
#[track_caller]
fn lines(file: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output = command.args(["-n", "-r"]).arg(file).args(arguments).output().expect("tshark is installed");
    assert!(output.status.success(), "{}", printed(&output));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Fields of every frame of `file`, as tshark reads them. Of a field that a frame has several times, `occurrence` is the first one (`f`) or
/// all (`a`).
#[track_caller]
pub fn tshark(file: &Path, fields: &[&str], occurrence: char) -> Vec<Vec<String>> {
    let occurrence = format!("occurrence={occurrence}");
    let mut arguments = vec!["-T", "fields", "-E", "separator=;", "-E", &occurrence];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    lines(file, &arguments).iter().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

/// The number of frames of `file` that match a display filter of Wireshark.
#[track_caller]
pub fn matching(file: &Path, filter: &str) -> usize {
    lines(file, &["-Y", filter]).len()
}
