//! A client and a host with `evenkeel shield` in front of its interface.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

#[path = "../privileged/mod.rs"]
mod privileged;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use self::privileged::skip;
use lab::{Lab, LabError, Namespace};
use serde_json::Value;

const CLIENT: &str = "198.18.0.1";
const HOST: &str = "198.18.0.2";
/// What is not there after so long will not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client and the host with the shield.
pub struct Bed {
    pub client: Namespace,
    pub host: Namespace,
    pub interface: String,
    pub folder: tempfile::TempDir,
    pub child: Option<Child>,
    client_mac: String,
    client_interface: String,
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Whatever a failed test has left pinned.
        let _ = self.shield(&["stop", &self.interface]);
    }
}

pub fn bed(tag: &str) -> Option<Bed> {
    if !nix::unistd::geteuid().is_root() {
        skip("root is needed");
        return None;
    }
    build(tag).map_err(skip).ok()
}

fn build(tag: &str) -> Result<Bed, LabError> {
    let lab = Lab::new(tag)?;
    let (client, host) = (lab.namespace("c")?, lab.namespace("h")?);
    let (near, far) = (lab.interface("shc"), lab.interface("shh"));
    let (near, far) = lab.veth((&client, &near), (&host, &far), 1)?;
    let address = |text: &str| text.parse().expect("an address");
    client.handle().add_address(&near.name, address(CLIENT), 24)?;
    host.handle().add_address(&far.name, address(HOST), 24)?;
    client.handle().add_neighbour(&near.name, address(HOST), far.mac)?;
    host.handle().add_neighbour(&far.name, address(CLIENT), near.mac)?;
    // Without NAPI there it takes no answers of XDP.
    client.handle().set_feature(&near.name, "rx-gro", true)?;
    let folder = tempfile::tempdir().expect("a folder");
    let client_mac = near.mac.to_string();
    Ok(Bed { client, host, interface: far.name, folder, child: None, client_mac, client_interface: near.name })
}

impl Bed {
    /// The program inside the host, which shares /sys with everybody else: there is the BPF file system.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.host.name())).arg(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("shield").args(arguments).env_remove("SSH_CONNECTION");
        command
    }

    pub fn shield(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    pub fn rules(&self, text: &str) -> String {
        let path = self.folder.path().join("rules.toml");
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Starts the shield and waits until its rules hold.
    pub fn run(&mut self, rules: &str, more: &[&str]) {
        self.run_fed(rules, more, "");
    }

    /// Likewise, with this text in a pipe on its standard input.
    pub fn run_fed(&mut self, rules: &str, more: &[&str], input: &str) {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(input.as_bytes()).expect("room in the pipe");
        drop(writer);
        let log = fs::File::create(self.folder.path().join("log")).expect("a file");
        let mut command = self.command(&["run", &self.interface, "--quiet", "--rules", rules]);
        command.args(more).stdin(reader).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("the program starts"));
        let log = self.folder.path().join("log");
        self.wait("the rules hold", || read(&log).contains("shield up"));
    }

    /// What it has said.
    pub fn log(&self) -> String {
        read(&self.folder.path().join("log"))
    }

    /// The client's.
    pub fn client_mac(&self) -> &str {
        &self.client_mac
    }

    /// Switches an offload of the client's interface, by its ethtool name.
    pub fn set_client(&self, feature: &str, on: bool) {
        self.client.handle().set_feature(&self.client_interface, feature, on).expect("an offload");
    }

    /// Has the client know the host by another MAC address.
    pub fn know_host(&self, mac: &str) {
        let neighbour = ["neigh", "replace", HOST, "lladdr", mac, "dev", &self.client_interface];
        let done = Command::new("ip").args(["-n", self.client.name()]).args(neighbour).output().expect("ip");
        assert!(done.status.success(), "{}", said(&done));
    }

    /// Whether the client connects to port 80, and a byte crosses.
    pub fn connects(&self) -> bool {
        let listener = self.host.run(|| TcpListener::bind((HOST, 80)).expect("a socket")).expect("a namespace");
        let address = listener.local_addr().expect("its address");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
        self.client.run(connect).expect("a namespace").is_ok_and(|mut stream| {
            let (mut accepted, _) = listener.accept().expect("a connection");
            stream.write_all(b"e").is_ok() && accepted.read_exact(&mut [0]).is_ok()
        })
    }

    /// `ethtool` in the host.
    pub fn ethtool(&self, arguments: &str) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.host.name())).arg("ethtool").args(arguments.split(' '));
        let done = command.output().expect("ethtool");
        assert!(done.status.success(), "ethtool {arguments}: {}", said(&done));
    }

    /// What a start of the shield is refused with.
    pub fn refused(&self, interface: &str, rules: &str, more: &[&str]) -> String {
        let mut arguments = vec!["run", interface, "--quiet", "--rules", rules];
        arguments.extend(more);
        let output = self.shield(&arguments);
        let text = said(&output);
        assert!(output.status.code() == Some(3) && text.lines().count() == 1, "one error: {text}");
        text
    }

    /// What `status` warns of.
    pub fn warnings(&self) -> String {
        self.status()["warnings"].to_string()
    }

    /// The shield ends, and is gone.
    pub fn stop(&mut self) {
        let stopped = self.shield(&["stop", &self.interface]);
        assert!(stopped.status.success(), "{}", said(&stopped));
        self.child.take().expect("the shield").wait().expect("its end");
    }

    /// `ip` in the host.
    pub fn ip(&self, arguments: &str) {
        Self::ip_in(&self.host, arguments);
    }

    /// `ip` in a namespace.
    pub fn ip_in(space: &Namespace, arguments: &str) {
        let done = Command::new("ip").args(["-n", space.name()]).args(arguments.split(' ')).output().expect("ip");
        assert!(done.status.success(), "ip {arguments}: {}", said(&done));
    }

    /// The client's interface.
    pub fn client_interface(&self) -> &str {
        &self.client_interface
    }

    /// A program inside a namespace, which shares /sys with everybody else.
    pub fn inside(space: &Namespace, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", space.name())).arg(program).stdin(Stdio::null());
        command
    }

    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: not yet; {}", read(&self.folder.path().join("log")));
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn status(&self) -> Value {
        let output = self.shield(&["status", &self.interface, "--json", "--interval", "0.1"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Packets that a rule applied to.
    pub fn count(&self, rule: &str) -> u64 {
        let status = self.status();
        let rules = status["rules"].as_array().expect("rules");
        let found = rules.iter().find(|entry| entry["name"] == rule).unwrap_or_else(|| panic!("no {rule}: {status}"));
        found["packets"].as_u64().expect("a number")
    }

    /// Which of `count` datagrams to `port` come through.
    pub fn come_through(&self, port: u16, count: usize) -> usize {
        let receiver = self.host.run(|| UdpSocket::bind((HOST, port)).expect("a socket")).expect("a namespace");
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        let sender = self.client.run(|| UdpSocket::bind((CLIENT, 0)).expect("a socket")).expect("a namespace");
        for _ in 0..count {
            sender.send_to(b"ek", (HOST, port)).expect("sent");
        }
        (0..count).take_while(|_| receiver.recv(&mut [0; 8]).is_ok()).count()
    }

    pub fn killed(&mut self) {
        let mut child = self.child.take().expect("a running shield");
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub const DROP_9: &str = "[[rule]]\nname = \"nine\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination-port = 9\n";
