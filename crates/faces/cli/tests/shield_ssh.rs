//! An administrator at work beside a spoofed SYN flood on sshd's own port: real sshd, real ssh, and `evenkeel shield` in between.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, Namespace, VethEnd};
use serde_json::Value;

const CLIENT: &str = "198.18.0.1";
/// The client once more, under addresses that the host has never met.
const STRANGERS: [&str; 3] = ["198.18.0.11", "198.18.0.12", "198.18.0.13"];
const HOST: &str = "198.18.0.2";
const SSH: u16 = 22;
const WEB: u16 = 80;
const SSHD: &str = "/usr/sbin/sshd";
/// What is not there after so long will not come.
const PATIENCE: Duration = Duration::from_secs(20);
const KEYSTROKES: usize = 200;
const FLOOD_PPS: u64 = 50_000;
const RULES: &str = "[management]\nsession = false\n\n[[rule]]\nname = \"services\"\naction = \"challenge\"\nprotocol = \"tcp\"\n\
                     destination-port = [22, 80]\n";

/// Why the test cannot run here.
fn lacking() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it takes root, for namespaces".into());
    }
    let missing = [SSHD, "/usr/bin/ssh", "/usr/bin/ssh-keygen"].into_iter().find(|path| !Path::new(path).exists());
    missing.map(|path| format!("{path} is missing (tools/setup test installs it)"))
}

/// A program that is killed when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client and a host that has an sshd.
struct Bed {
    // Programs go before the namespaces.
    running: Vec<Running>,
    client: Namespace,
    host: Namespace,
    near: VethEnd,
    far: VethEnd,
    folder: tempfile::TempDir,
    _lab: Lab,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.running.clear();
        // Whatever a failed test has left pinned.
        let _ = evenkeel(&self.host, &["shield", "stop", &self.far.name]).output();
    }
}

/// The program inside a namespace, which shares /sys with everybody else: there is the BPF file system.
fn evenkeel(namespace: &Namespace, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", namespace.name())).arg(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(arguments).env_remove("SSH_CONNECTION");
    command
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

impl Bed {
    fn new() -> Self {
        let lab = Lab::new("eksshd").expect("a lab");
        let (client, host) = (lab.namespace("c").expect("a namespace"), lab.namespace("h").expect("a namespace"));
        let names = (lab.interface("ssc"), lab.interface("ssh"));
        let (near, far) = lab.veth((&client, &names.0), (&host, &names.1), 1).expect("a veth pair");
        for (ns, end) in [(&client, &near), (&host, &far)] {
            // NAPI, so that both ends take live frames.
            ns.set_feature(&end.name, "rx-gro", true).expect("GRO");
        }
        let address = |text: &str| text.parse().expect("an address");
        for own in [CLIENT].into_iter().chain(STRANGERS) {
            client.add_address(&near.name, address(own), 24).expect("an address");
            host.add_neighbour(&far.name, address(own), near.mac).expect("a neighbour");
        }
        host.add_address(&far.name, address(HOST), 24).expect("an address");
        client.add_neighbour(&near.name, address(HOST), far.mac).expect("a neighbour");
        // Sources that do not exist lie behind the client: without a route to them a SYN gets no place in the queue.
        let mut route = Command::new("nsenter");
        route.arg(format!("--net=/run/netns/{}", host.name())).args(["ip", "route", "add", "default", "via", CLIENT]);
        assert!(route.status().expect("ip starts").success());
        // Without the shield nobody helps a listener whose queue of half-open connections is full.
        host.set_sysctl("net.ipv4.tcp_syncookies", "0").expect("the sysctl");
        let folder = tempfile::tempdir().expect("a folder");
        let mut bed = Self { running: Vec::new(), client, host, near, far, folder, _lab: lab };
        bed.sshd();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self, name: &str) -> fs::File {
        fs::File::create(self.path(name)).expect("a file")
    }

    fn wait(&self, what: &str, log: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: not yet; {}", read(&self.path(log)));
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn sshd(&mut self) {
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "ek", "-f"]).arg(self.path(key));
            assert!(keygen.status().expect("ssh-keygen starts").success());
        }
        fs::copy(self.path("user.pub"), self.path("authorized")).expect("a file");
        fs::set_permissions(self.path("authorized"), fs::Permissions::from_mode(0o600)).expect("its mode");
        // Without PAM sshd refuses an account whose password is locked.
        let locked = read(Path::new("/etc/shadow")).lines().any(|line| line.starts_with("root:!"));
        let config = format!(
            "Port {SSH}\nListenAddress {HOST}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM {}\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\n",
            self.path("host").display(),
            self.path("authorized").display(),
            if locked { "yes" } else { "no" },
        );
        fs::write(self.path("config"), config).expect("a file");
        // sshd wants a folder in /run that is its own: in a /run that only it sees.
        let script = format!("mount -t tmpfs none /run && mkdir /run/sshd && exec {SSHD} -D -e -f \"$0\"");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.host.name())).args(["unshare", "--mount", "sh", "-c", &script]);
        command.arg(self.path("config")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log("sshd"));
        self.running.push(Running(command.spawn().expect("sshd starts")));
        self.wait("sshd listens", "sshd", || read(&self.path("sshd")).contains("Server listening"));
    }

    /// ssh to the host from one of the client's addresses.
    fn ssh(&self, from: &str, command: &str) -> Command {
        let mut ssh = Command::new("nsenter");
        ssh.arg(format!("--net=/run/netns/{}", self.client.name())).args(["ssh", "-F", "none", "-T", "-b", from, "-i"]);
        ssh.arg(self.path("user")).arg("-o").arg(format!("UserKnownHostsFile={}", self.path("known").display()));
        for option in ["StrictHostKeyChecking=accept-new", "IdentitiesOnly=yes", "BatchMode=yes", "ConnectTimeout=3"] {
            ssh.args(["-o", option]);
        }
        ssh.arg(format!("root@{HOST}")).arg(command);
        ssh
    }

    /// A new login; the time that it took.
    fn login(&self, from: &str) -> (Output, Duration) {
        let begun = Instant::now();
        let output = self.ssh(from, "echo ek-$((40+2))").stdin(Stdio::null()).output().expect("ssh starts");
        (output, begun.elapsed())
    }

    /// SYNs to sshd, the source of each drawn anew, until the end of the test.
    fn flood(&mut self) {
        let (mac, rate, port) = (self.far.mac.to_string(), FLOOD_PPS.to_string(), SSH.to_string());
        let mut command = evenkeel(&self.client, &["gen", &self.near.name, "--syn-flood", "--random-sources"]);
        command.args(["--src", "10.0.0.0/8", "--dst", HOST, "--dst-port", &port, "--dst-mac", &mac, "--rate", &rate]);
        // Bursts would overflow the queue of 256 frames before anybody decides about them.
        command.args(["--pacing", "even", "--duration", "60s"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log("flood"));
        self.running.push(Running(command.spawn().expect("the flood starts")));
        let drops = || self.host.run(|| listen_drops(&read(Path::new("/proc/thread-self/net/netstat"))));
        self.wait("sshd's queue is full", "flood", || drops().expect("the namespace") > FLOOD_PPS / 10);
    }

    /// Starts the shield and waits until its rules hold.
    fn shield(&mut self) {
        fs::write(self.path("rules.toml"), RULES).expect("a file");
        // The kernel is to take the connections that the shield's cookies make.
        self.host.set_sysctl("net.ipv4.tcp_syncookies", "1").expect("the sysctl");
        let mut command = evenkeel(&self.host, &["shield", "run", &self.far.name, "--quiet", "--rules"]);
        command.arg(self.path("rules.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log("shield"));
        self.running.push(Running(command.spawn().expect("the shield starts")));
        self.wait("the rules hold", "shield", || read(&self.path("shield")).contains("shield up"));
    }

    /// SYNs that the shield has answered.
    fn challenged(&self) -> u64 {
        let mut command = evenkeel(&self.host, &["shield", "status", &self.far.name, "--json", "--interval", "0.1"]);
        let output = command.output().expect("the program starts");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        status["totals"]["challenged"].as_u64().expect("a number")
    }
}

/// SYNs that listeners dropped (ListenDrops of TcpExt in proc_pid_net_netstat(5)).
fn listen_drops(netstat: &str) -> u64 {
    let lines: Vec<&str> = netstat.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let [names, values] = lines[..] else { return 0 };
    let found = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "ListenDrops");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// A shell that somebody types into, over there.
struct Session {
    ssh: Running,
    lines: Receiver<String>,
}

impl Session {
    fn open(bed: &Bed) -> Self {
        let mut command = bed.ssh(CLIENT, "cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(bed.log("session"));
        let mut ssh = command.spawn().expect("ssh starts");
        let stdout = ssh.stdout.take().expect("a pipe");
        let (tell, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let mut session = Self { ssh: Running(ssh), lines };
        session.echo("hello", PATIENCE);
        session
    }

    /// Types a line, and waits until it is back.
    fn echo(&mut self, line: &str, patience: Duration) -> Duration {
        let begun = Instant::now();
        let stdin = self.ssh.0.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("the session stands");
        let back = self.lines.recv_timeout(patience).unwrap_or_else(|e| panic!("{line:?} after {patience:?}: {e}"));
        assert_eq!(back, line);
        begun.elapsed()
    }

    /// p50 and p99 of keystrokes, one each 20 ms.
    fn typing(&mut self) -> (Duration, Duration) {
        let mut times: Vec<Duration> = (0..KEYSTROKES)
            .map(|n| {
                thread::sleep(Duration::from_millis(20));
                self.echo(&n.to_string(), PATIENCE)
            })
            .collect();
        times.sort_unstable();
        (times[KEYSTROKES / 2], times[KEYSTROKES * 99 / 100])
    }
}

#[test]
fn a_session_and_new_logins_stay_usable_beside_a_syn_flood() {
    if let Some(why) = lacking() {
        assert!(std::env::var_os("CI").is_none(), "this cannot be skipped in CI: {why}");
        eprintln!("skipped: {why}");
        return;
    }
    let mut bed = Bed::new();
    let web = bed.host.run(|| TcpListener::bind((HOST, WEB)).expect("a listener")).expect("the namespace");
    thread::spawn(move || web.incoming().flatten().for_each(|mut client| drop(client.write_all(b"ek"))));
    let mut session = Session::open(&bed);

    bed.flood();
    let (refused, _) = bed.login(STRANGERS[0]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("timed out"), "without a shield nobody gets in: {refused:?}");

    bed.shield();
    let before = bed.challenged();
    let (p50, p99) = session.typing();
    let answered = bed.challenged() - before;
    eprintln!("keystrokes: p50 {p50:?}, p99 {p99:?}; {answered} SYNs challenged meanwhile");
    assert!(answered > FLOOD_PPS, "there is a flood: {answered}");

    let (login, took) = bed.login(STRANGERS[1]);
    assert!(login.status.success() && login.stdout == b"ek-42\n", "{login:?}; {}", read(&bed.path("sshd")));
    eprintln!("a new login took {took:?}");
    let answer = bed.client.run(|| {
        let to: SocketAddr = format!("{HOST}:{WEB}").parse().expect("an address");
        let mut stream = std::net::TcpStream::connect_timeout(&to, PATIENCE).expect("the web port answers");
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(answer.expect("the namespace").expect("an answer"), "ek");
    session.echo("bye", PATIENCE);
}
