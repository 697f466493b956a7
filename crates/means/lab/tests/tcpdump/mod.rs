//! Witnesses that are not ours: tcpdump in a namespace, tshark on what it wrote.

#![allow(unreachable_pub, reason = "a module of several tests")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lab::Namespace;

/// A tcpdump that writes the first frames that it sees to a file. It does not outlive its test.
pub struct Tcpdump(Child);

impl Tcpdump {
    /// Looks at `interface` until `count` frames have come; `more` is options and a filter. Listens when this comes back.
    pub fn start(ns: &Namespace, interface: &str, file: &Path, count: u64, more: &[&str]) -> Self {
        let mut command = Command::new("tcpdump");
        command.args(["-i", interface, "-n", "-p", "-U", "--immediate-mode", "-Z", "root", "-B", "16384"]);
        command.args(["-c", &count.to_string(), "-w"]).arg(file).args(more).stderr(Stdio::piped());
        let mut child = ns.run(|| command.spawn()).unwrap().expect("tcpdump is installed");
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "tcpdump does not start");
        }
        std::thread::spawn(move || stderr.lines().count());
        Self(child)
    }

    /// Waits until it has its frames.
    pub fn finish(&mut self) {
        for _ in 0..200 {
            if self.0.try_wait().unwrap().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("tcpdump waits for frames that did not come");
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fields of every frame of `file`, as tshark reads them: checksums verified, datagrams put together. Of a field that a frame has several times,
/// `occurrence` is the first one (`f`) or all (`a`).
pub fn tshark(file: &Path, fields: &[&str], occurrence: char) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-T", "fields", "-E", "separator=;"]);
    command.args(["-E", &format!("occurrence={occurrence}")]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    fields.iter().for_each(|f| {
        command.args(["-e", f]);
    });
    let output = command.output().expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|l| l.split(';').map(str::to_owned).collect()).collect()
}
