//! Programs of other users than root: their messages pass, and what they try against each other does not. What the other ends of a killed one hear.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use link::{
    Claim, ETHERTYPE, Engine, Handle, Paths, Raw, Reason, Receive, State, Wire,
    broker::{Broker, BrokerSettings},
};
use nix::sys::signal::Signal;
use sys::packet::{Batch, PacketSocket};
use testbed::{Bed, End, Running, poll};

/// Of the programs: their group, and two users.
const GROUP: u32 = 65_531;
const USERS: [u32; 2] = [65_532, 65_533];
const PORT: u16 = 2000;
const BUSY_POLL_TIME: Duration = Duration::from_micros(50);
const WAIT_TIME: Duration = Duration::from_millis(10);
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A broker on a thread of its own, as long as `work` takes. What it says of refused forgeries when that is over.
fn served<T>(end: &End, xdp: Receive, work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let (done, forged, _) = served_with(end, xdp, work);
    (done, forged)
}

/// The same, with the broker's warning of what it cannot keep members of the group from.
fn served_with<T>(end: &End, xdp: Receive, work: impl FnOnce() -> T) -> (T, Option<u64>, Option<String>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (interface, stops) = (end.interface().to_owned(), Arc::clone(&stop));
    let (ready, is_ready) = mpsc::channel();
    let serves = move || {
        let held = Paths::here().lock().unwrap();
        let settings = BrokerSettings { interface, name: "left".to_owned(), group: Some(GROUP), xdp, udp: None };
        let mut broker = Broker::start(settings, &held).unwrap();
        ready.send(()).unwrap();
        broker.run(&stops, drop).unwrap();
        (broker.forged(), broker.unbounded())
    };
    let broker = end.run(|| thread::spawn(serves));
    is_ready.recv().expect("the broker serves");
    let done = work();
    stop.store(true, Ordering::Relaxed);
    let (forged, warning) = broker.join().unwrap();
    (done, forged, warning)
}

/// A program of that user that answers each message with the same one.
fn echo(end: &End, user: u32) -> Running {
    // Where every user can start it: people's own folders are closed to others.
    let folder = tempfile::Builder::new().prefix("ek-guard-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("guard");
    // By another process: a child that another test forks meanwhile would hold the file open for writing until its exec, which ends ours (ETXTBSY).
    assert!(Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status().unwrap().success());
    let mut command = Command::new(program);
    command.args(["--exact", "is_a_program", "--ignored", "--nocapture"]).env("EK_TEST_ECHOES", "1");
    command.uid(user).gid(if user == 0 { 0 } else { GROUP });
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    let mut running = end.run(|| Running::start(&mut command));
    let printed = BufReader::new(running.child().stdout.take().unwrap());
    assert!(printed.lines().map_while(Result::ok).any(|line| line.contains("listens")), "the program listens");
    running
}

/// Not a test: the process of [`echo`].
#[test]
#[ignore = "other tests start it"]
fn is_a_program() {
    if env::var_os("EK_TEST_ECHOES").is_none() {
        return;
    }
    let (claim, mut engine) = Claim::take().unwrap();
    claim.listen(PORT).unwrap();
    engine.listen(PORT, false, 8).unwrap();
    println!("listens");
    let (mut peers, mut place): (Vec<Handle>, _) = (Vec::new(), [0; 4096]);
    loop {
        engine.wait(BUSY_POLL_TIME, WAIT_TIME).unwrap();
        peers.extend(engine.accept(PORT));
        for &peer in &peers {
            while let Ok(Some(len)) = engine.receive(peer, &mut place) {
                engine.send(peer, &place[..len]).unwrap();
            }
        }
    }
}

fn joined(engine: &mut Engine<Raw>, to: &End) -> Handle {
    let address = to.run(|| Wire::of(to.interface()).unwrap().address);
    let ours = engine.connect(address, PORT, false).unwrap();
    poll("somebody answers", || {
        engine.wait(BUSY_POLL_TIME, WAIT_TIME).unwrap();
        engine.state(ours) != Some(State::Opening)
    });
    assert_eq!(engine.state(ours), Some(State::Open));
    ours
}

fn there_and_back(engine: &mut Engine<Raw>, ours: Handle, text: &[u8]) {
    engine.send(ours, text).unwrap();
    let (mut place, mut came) = ([0; 4096], None);
    poll("the answer comes", || {
        engine.wait(BUSY_POLL_TIME, WAIT_TIME).unwrap();
        came = engine.receive(ours, &mut place).unwrap();
        came.is_some()
    });
    // The acknowledgement leaves: nobody serves this engine while the other programs do their part, which may take longer than a node that waits
    // for one lives.
    serve_for(engine, Duration::from_millis(2));
    assert_eq!(&place[..came.unwrap()], text);
}

/// Serves the engine, and nobody else, for so long.
fn serve_for(engine: &mut Engine<Raw>, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        engine.wait(Duration::ZERO, Duration::from_millis(1)).unwrap();
    }
}

/// All frames of an interface, until `stop`.
fn watch(end: &End, stop: &Arc<AtomicBool>) -> thread::JoinHandle<Vec<Vec<u8>>> {
    let stop = Arc::clone(stop);
    let socket = end.run(|| {
        let socket = PacketSocket::open().unwrap();
        socket.set_receive_buffer(64 << 20).unwrap();
        socket.set_ignore_outgoing().unwrap();
        socket.bind(Wire::of(end.interface()).unwrap().index).unwrap();
        socket
    });
    thread::spawn(move || {
        let (mut batch, mut frames) = (Batch::new(64, 2048), Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let count = batch.receive(&socket).unwrap();
            frames.extend(batch.packets(count).map(|packet| packet.data.to_vec()));
            thread::sleep(Duration::from_micros(200));
        }
        frames
    })
}

fn has(frame: &[u8], text: &str) -> bool {
    frame.windows(text.len()).any(|at| at == text.as_bytes())
}

fn neither_reads_nor_forges(tag: &str, xdp: Receive) {
    let Some((bed, [left, right])) = Bed::pair(tag) else { return };
    let address = |end: &End| end.run(|| Wire::of(end.interface()).unwrap().address);
    let stop = Arc::new(AtomicBool::new(false));
    let frames = watch(&right, &stop);
    let ((first, last, mut read), forged) = served(&left, xdp, || {
        let _victim = echo(&left, USERS[0]);
        let mut engine = right.run(|| Engine::new(Raw::open(right.interface()).unwrap(), "right").unwrap());
        let ours = joined(&mut engine, &left);
        there_and_back(&mut engine, ours, b"SECRET before");
        let script = bed.file("forger.py", include_str!("guard/forger.py"));
        // Not the one that root's path may name: the user cannot look into root's folders.
        let mut command = Command::new("/usr/bin/python3");
        // It comes as a text: the folder is root's.
        command.args(["-c", &fs::read_to_string(script).unwrap()]);
        command.arg(left.run(|| Paths::here().claims()));
        command.args([address(&left).to_string(), address(&right).to_string(), PORT.to_string()]);
        command.uid(USERS[1]).gid(GROUP).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut forger = left.run(|| Running::start(&mut command));
        let mut lines = BufReader::new(forger.child().stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.next().expect("it has ports");
        let ports: Vec<u16> = ready.split(' ').skip(1).map(|port| port.parse().unwrap()).collect();
        assert_eq!(lines.next().as_deref(), Some("tried"));
        for at in 0..100 {
            there_and_back(&mut engine, ours, format!("SECRET {at}").as_bytes());
        }
        writeln!(forger.child().stdin.take().unwrap()).unwrap();
        let read: Vec<String> = lines.collect();
        assert!(forger.end().success());
        // The victim's connection has not suffered.
        there_and_back(&mut engine, ours, b"SECRET after");
        (ports[0], ports[1], read)
    });
    stop.store(true, Ordering::Relaxed);
    assert_eq!(read.pop().as_deref(), Some("done"));
    assert_eq!(read, Vec::<String>::new(), "it read what is not its own");
    let frames = frames.join().unwrap();
    let port = |frame: &[u8]| u16::from_be_bytes([frame[ETHERNET + 4], frame[ETHERNET + 5]]);
    let honest = frames.iter().filter(|frame| has(frame, "HONEST")).count();
    assert_eq!(honest, 2, "its own frames leave, from either socket");
    assert!(frames.iter().any(|frame| has(frame, "SECRET 99")), "the watcher sees");
    for frame in &frames {
        assert!(!has(frame, "FORGED"), "{}", String::from_utf8_lossy(frame));
        if has(frame, "MIXED") {
            assert!((first..=last).contains(&port(frame)), "{frame:02x?}");
            assert_eq!(frame[ETHERNET - 2..ETHERNET], ETHERTYPE.to_be_bytes());
        }
    }
    assert!(frames.iter().any(|frame| has(frame, "MIXED")), "a ring's frames in its own name leave");
    assert!(forged.is_some_and(|n| n > 20), "{forged:?} are counted");
    eprintln!("{tag}: {} frames seen, {forged:?} refused", frames.len());
    let doors = left.output("ip -o link");
    assert!(!doors.contains("ek-link"), "nothing is left: {doors}");
}

#[test]
fn programs_neither_read_nor_forge_what_is_anothers_by_sockets() {
    neither_reads_nor_forges("linkgs", Receive::Sockets);
}

#[test]
fn programs_neither_read_nor_forge_what_is_anothers_by_rings() {
    neither_reads_nor_forges("linkgr", Receive::Auto);
}

#[test]
fn the_other_ends_of_a_killed_program_hear_of_it_at_once() {
    let Some((_bed, [left, right])) = Bed::pair("linkgk") else { return };
    for (user, xdp) in [(0, Receive::Auto), (USERS[0], Receive::Auto), (USERS[0], Receive::Sockets)] {
        served(&left, xdp, || {
            let program = echo(&left, user);
            let mut engine = right.run(|| Engine::new(Raw::open(right.interface()).unwrap(), "right").unwrap());
            let [used, idle] = [0, 1].map(|_| joined(&mut engine, &left));
            there_and_back(&mut engine, used, b"a message");
            // Nothing is under way any more.
            serve_for(&mut engine, Duration::from_millis(300));
            program.signal(Signal::SIGKILL);
            let killed = Instant::now();
            let is_open = |engine: &Engine<Raw>| [used, idle].iter().any(|&c| engine.state(c) == Some(State::Open));
            poll("it hears of it", || {
                engine.wait(Duration::ZERO, Duration::from_millis(1)).unwrap();
                !is_open(&engine)
            });
            let took = killed.elapsed();
            eprintln!("user {user}, {xdp:?}: told {took:?} after SIGKILL");
            // By a time-out they would be silent, not unknown.
            assert_eq!(engine.state(used), Some(State::Failed(Reason::Unknown)));
            assert_eq!(engine.state(idle), Some(State::Failed(Reason::Unknown)));
        });
    }
}

/// Takes ports until it gets none, and then connects until it is let in no more.
const GREEDY: &str = r#"
import json, socket, sys
def talk():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.settimeout(20); return s
all = []
while True:
    s = talk(); all.append(s); s.send(b'"Ports"'); told = json.loads(socket.recv_fds(s, 4096, 16)[0])
    if 'Ports' not in told: break
print('blocks', len(all) - 1, told['Refused'][1], flush=True)
def listen(s, port):
    s.send(b'{"Listen": %d}' % port); told = json.loads(s.recv(4096)); return None if told == 'Done' else told['Refused'][1]
ports = iter(range(2000, 9000))
for s in all[:5]:
    n = 0
    while not (why := listen(s, next(ports))): n += 1
    print('listens', n, why, flush=True)
for n in range(200): all.append(talk())
# Those beyond the limit are told why and closed at once, the silent ones closed after a while.
told = [s.recv(4096) for s in all[33:]]
refused = [s for s, why in zip(all[33:], told) if b'too many connections' in why and s.recv(1) == b'']
print('refused', len(refused), 'closed', told.count(b''), flush=True)
sys.stdin.readline()
"#;

#[test]
fn one_user_takes_a_part_of_the_ports_and_of_the_connections() {
    let Some((_bed, [left, _right])) = Bed::pair("linkgm") else { return };
    served(&left, Receive::Auto, || {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", GREEDY]).arg(left.run(|| Paths::here().claims()));
        command.uid(USERS[0]).gid(GROUP).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut greedy = left.run(|| Running::start(&mut command));
        let mut lines = BufReader::new(greedy.child().stdout.take().unwrap()).lines().map_while(Result::ok);
        let blocks = lines.next().expect("it has ports");
        assert!(blocks.starts_with("blocks 32 ") && blocks.contains("65532"), "{blocks}");
        left.run(|| Claim::take().map(drop)).expect("root's programs have ports");
        for n in [64, 64, 64, 64, 0] {
            let listens = lines.next().expect("it listens");
            assert!(listens.starts_with(&format!("listens {n} ")), "{listens}");
        }
        assert_eq!(lines.next().as_deref(), Some("refused 169 closed 31"), "none stays that asks nothing");
        drop(greedy.child().stdin.take());
    });
}

/// Takes ports, and sets options of the packet sockets that come with them, by which a program takes the kernel's memory or hears more.
const OPTIONS: &str = r#"
import errno, socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.send(b'"Ports"')
fds = socket.recv_fds(s, 4096, 16)[1]
ring = struct.pack('IIII', 1 << 16, 16, 1 << 16, 16)
index = socket.if_nametoindex('inside') if 'inside' in [name for _, name in socket.if_nameindex()] else 2
options = {'RX_RING': (5, ring), 'TX_RING': (13, ring), 'ADD_MEMBERSHIP': (1, struct.pack('iHH8s', index, 0, 6, bytes(6))), 'FANOUT': (18, struct.pack('I', 7))}
for end in fds[:2]:
    packet = socket.socket(fileno=end)
    for name, (option, value) in options.items():
        try: packet.setsockopt(263, option, value); answer = 'taken'
        except OSError as e: answer = errno.errorcode[e.errno]
        print(name, answer, flush=True)
"#;

#[test]
fn sockets_of_other_users_take_no_more_memory_than_the_broker_gave_them() {
    let Some((_bed, [left, _right])) = Bed::pair("linkgo") else { return };
    for user in [USERS[0], 0] {
        let (printed, _, warning) = served_with(&left, Receive::Sockets, || {
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", OPTIONS]).arg(left.run(|| Paths::here().claims()));
            command.uid(user).gid(if user == 0 { 0 } else { GROUP });
            let done = left.run(|| command.output().unwrap());
            assert!(done.status.success(), "{}", testbed::printed(&done));
            String::from_utf8(done.stdout).unwrap()
        });
        assert_eq!(printed.lines().count(), 8, "user {user}: {printed}");
        let refused = printed.lines().filter(|line| line.ends_with(" EPERM")).count();
        // Where the kernel takes no such program, the broker says so.
        let expected = if user == 0 || warning.is_some() { 0 } else { 8 };
        assert_eq!(refused, expected, "user {user}: {printed}{warning:?}");
        let all = if warning.is_some() { "by a warning" } else { "by the kernel" };
        println!("user {user}: {all}\n{printed}");
    }
}
