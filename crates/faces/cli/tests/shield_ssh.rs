//! An administrator at work beside a spoofed SYN flood on sshd's own port: real sshd, real ssh, and `evenkeel shield` in between.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    ops::Deref,
    process::{Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use testbed::{CLIENT, Running, SERVER, ShieldBed, Sshd, WAIT_TIMEOUT, log, wait_reporting};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
/// The client once more, under addresses that the host has never met.
const STRANGERS: [&str; 3] = ["198.18.0.11", "198.18.0.12", "198.18.0.13"];
const SSH: u16 = 22;
const WEB: u16 = 80;
const KEYSTROKES: usize = 200;
const FLOOD_PPS: u64 = 50_000;
const RULES: &str = "[management]\nsession = false\n\n[[rule]]\nname = \"services\"\naction = \"challenge\"\nprotocol = \"tcp\"\n\
                     destination-port = [22, 80]\n";

/// A client and a host that has an sshd.
struct Bed {
    // Programs go before the namespaces.
    flooding: Option<Running>,
    sshd: Sshd,
    shield: ShieldBed,
}

impl Deref for Bed {
    type Target = ShieldBed;

    fn deref(&self) -> &ShieldBed {
        &self.shield
    }
}

impl Bed {
    fn new() -> Option<Self> {
        Sshd::can_run()?;
        let shield = ShieldBed::host(EVENKEEL, "eksshd")?;
        let (client, host) = (&shield.client, &shield.server);
        // NAPI, so that both ends take live frames.
        host.feature("rx-gro", true);
        for own in STRANGERS {
            client.address(&format!("{own}/24"));
            host.knows(own, client);
        }
        // Sources that do not exist lie behind the client: without a route to them a SYN gets no place in the queue.
        host.output(&format!("ip route add default via {CLIENT}"));
        // Without the shield nobody helps a listener whose queue of half-open connections is full.
        host.set("net.ipv4.tcp_syncookies", "0");
        let folder = shield.path("");
        Sshd::keys(&folder);
        let sshd = Sshd::start(host, "sshd", SERVER, SSH, &folder);
        Some(Self { flooding: None, sshd, shield })
    }

    /// ssh to the host from one of the client's addresses.
    fn ssh(&self, from: &str, command: &str) -> Command {
        let options = ["-b", from, "-o", "ConnectTimeout=3"];
        Sshd::client(&self.client, &self.path(""), &options, SERVER, command)
    }

    /// A new login; the time that it took.
    fn login(&self, from: &str) -> (Output, Duration) {
        let begun = Instant::now();
        let output = self.ssh(from, "echo ek-$((40+2))").output().expect("ssh starts");
        (output, begun.elapsed())
    }

    /// SYNs to sshd, the source of each drawn anew, until the end of the test.
    fn flood(&mut self) {
        let (mac, rate, port) = (self.server.link.mac.to_string(), FLOOD_PPS.to_string(), SSH.to_string());
        let mut command = self.client.command(EVENKEEL);
        command.args(["gen", self.client.interface(), "--syn-flood", "--random-sources", "--src", "10.0.0.0/8"]);
        command.args(["--dst", SERVER, "--dst-port", &port, "--dst-mac", &mac, "--rate", &rate]);
        // Bursts would overflow the queue of 256 frames before anybody decides about them.
        command.args(["--pacing", "even", "--duration", "60s"]);
        let path = self.path("flood");
        self.flooding = Some(Running::logged(&mut command, &path));
        let drops = || listen_drops(&self.host.read("/proc/thread-self/net/netstat"));
        wait_reporting("sshd's queue is full", || drops() > FLOOD_PPS / 10, || log(&path));
    }

    /// Starts the shield and waits until its rules hold.
    fn protect(&mut self) {
        // The kernel is to take the connections that the shield's cookies make.
        self.host.set("net.ipv4.tcp_syncookies", "1");
        let rules = self.rules(RULES);
        self.shield.run(&rules, &[]);
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
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut ssh = Running::start(&mut command);
        let stdout = ssh.child().stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut session = Self { ssh, lines };
        session.echo("hello", WAIT_TIMEOUT);
        session
    }

    /// Types a line, and waits until it is back.
    fn echo(&mut self, line: &str, patience: Duration) -> Duration {
        let begun = Instant::now();
        let stdin = self.ssh.child().stdin.as_mut().expect("a pipe");
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
                self.echo(&n.to_string(), WAIT_TIMEOUT)
            })
            .collect();
        times.sort_unstable();
        (times[KEYSTROKES / 2], times[KEYSTROKES * 99 / 100])
    }
}

#[test]
fn a_session_and_new_logins_stay_usable_beside_a_syn_flood() {
    let Some(mut bed) = Bed::new() else { return };
    let web = bed.host.run(|| TcpListener::bind((SERVER, WEB)).expect("a listener"));
    thread::spawn(move || web.incoming().flatten().for_each(|mut client| drop(client.write_all(b"ek"))));
    let mut session = Session::open(&bed);

    bed.flood();
    let (refused, _) = bed.login(STRANGERS[0]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("timed out"), "without a shield nobody gets in: {refused:?}");

    bed.protect();
    let before = bed.total("challenged");
    let (p50, p99) = session.typing();
    let answered = bed.total("challenged") - before;
    eprintln!("keystrokes: p50 {p50:?}, p99 {p99:?}; {answered} SYNs challenged meanwhile");
    assert!(answered > FLOOD_PPS, "there is a flood: {answered}");

    let (login, took) = bed.login(STRANGERS[1]);
    assert!(login.status.success() && login.stdout == b"ek-42\n", "{login:?}; {}", bed.sshd.log());
    eprintln!("a new login took {took:?}");
    let answer = bed.client.run(|| {
        let to: SocketAddr = format!("{SERVER}:{WEB}").parse().expect("an address");
        let mut stream = std::net::TcpStream::connect_timeout(&to, WAIT_TIMEOUT).expect("the web port answers");
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(answer.expect("an answer"), "ek");
    session.echo("bye", WAIT_TIMEOUT);
}
