//! What the shield's process is fed by others, badly: its control socket, its hook, its port and files. Whatever they do, its heart beats
//! on (it fails closed here: without a beat nothing would come through), and attacks are met.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{OpenOptionsExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::Signal,
};
use serde_json::Value;
use testbed::{CLIENT, Running, ShieldBed, WAIT_TIMEOUT, alone, beside, bind, log, printed};

/// What is attacked, and protected.
const PROTECTED: &str = "198.18.0.3";
const METRICS: u16 = 9464;

/// A place where something is mounted, until it is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// A client and the host with the shield.
fn bed(tag: &str) -> Option<ShieldBed> {
    let shield = ShieldBed::host(env!("CARGO_BIN_EXE_evenkeel"), tag)?;
    shield.server.address(&format!("{PROTECTED}/24"));
    shield.client.knows(PROTECTED, &shield.server);
    Some(shield)
}

/// Starts the shield, which fails closed, and waits until it answers.
fn run(bed: &mut ShieldBed, rules: &str, more: &[&str], stdout: Stdio, stderr: Stdio) {
    let rules = bed.rules(rules);
    let mut command = bed.command(&["run", &bed.interface, "--rules", &rules, "--fail", "closed"]);
    command.args(["--fail-after", "0.4"]).args(more).stdout(stdout).stderr(stderr);
    bed.running = Some(Running::start(&mut command));
    let answers = || {
        let status = bed.shield(&["status", &bed.interface, "--json", "--interval", "0.1"]);
        serde_json::from_slice(&status.stdout).is_ok_and(|status: Value| status["pid"].is_number())
    };
    bed.wait("the shield answers", answers);
}

fn run_with_events(bed: &mut ShieldBed, rules: &str) {
    let log = fs::File::create(bed.path("log")).expect("a file");
    run(bed, rules, &["--quiet"], Stdio::null(), log.into());
}

/// The heart beats and has not stopped beating: a flow that no rule is about comes through, and always has.
fn is_well(bed: &ShieldBed) {
    assert_eq!(bed.come_through(10, 5), 5, "{}", bed.log());
    let status = bed.status();
    assert_eq!(status["totals"]["failed_closed"], 0, "{status}");
    assert!(status["heartbeat_age_s"].as_f64().is_some_and(|silent| silent < 0.4), "{status}");
}

/// Floods what is protected until `is_so`, without a pause: an attack that pauses has ended before its rules hold on a busy machine.
fn attack(bed: &ShieldBed, what: &str, is_so: impl Fn() -> bool) {
    let flood = |sender: &mut UdpSocket| {
        (0..40).for_each(|_| drop(sender.send_to(&[0; 64], (PROTECTED, 9))));
        thread::sleep(Duration::from_millis(5));
        Vec::<()>::new()
    };
    beside(&bed.client, || bind((CLIENT, 0)), flood, |_| bed.wait(what, &is_so));
}

fn is_mitigated(bed: &ShieldBed) -> bool {
    let status = bed.status();
    let attack = &status["attacks"][0]["mitigation"];
    attack.as_str().is_some_and(|mitigation| mitigation.starts_with("step 1"))
}

fn has_no_attack(bed: &ShieldBed) -> bool {
    bed.status()["attacks"].as_array().is_some_and(Vec::is_empty)
}

/// Where the control socket and what else is kept is.
fn state(bed: &ShieldBed) -> PathBuf {
    let folders = fs::read_dir("/run/evenkeel").expect("a folder").flatten().map(|entry| entry.path());
    let of_this = |path: &PathBuf| path.display().to_string().contains(&format!("shield-{}@", bed.interface));
    folders.into_iter().find(of_this).expect("the shield's folder")
}

/// A file system of 64 KiB without room.
fn full(bed: &ShieldBed) -> Mounted {
    let path = bed.path("full");
    fs::create_dir(&path).expect("a folder");
    mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).expect("mounted");
    let mounted = Mounted(path);
    let mut filler = fs::File::create(mounted.0.join("filler")).expect("a file");
    while filler.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    mounted
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made a program");
}

/// Rules against what does not come, with names so long that a status is more than a socket holds.
fn many_rules(count: u16) -> String {
    let rule = |n| format!("[[rule]]\nname = \"{n:0>63}\"\naction = \"drop\"\ndestination-port = {n}\n");
    (2000..2000 + count).map(rule).collect()
}

/// What is attacked, and how that is met; `more` is of `[detection]`.
fn detection(more: &str) -> String {
    let classes = ["few-sources", "syn-flood", "reflection", "fragments", "unknown"];
    let ladder: String = classes.map(|class| format!("ladder.{class} = [{{ do = \"limit\", pps = 100 }}]\n")).concat();
    format!(
        "protect = \"{PROTECTED}\"\n[detection]\nevery-ms = 20\nquiet-s = 2\nbaseline.learn = false\nthreshold.udp = 500\n{ladder}{more}"
    )
}

#[test]
fn a_control_socket_full_of_nonsense_answers_who_asks_properly() {
    let _alone = alone();
    let Some(mut bed) = bed("ekhoa") else { return };
    run_with_events(&mut bed, &many_rules(1500));
    let socket = state(&bed).join("control");
    let connect = || UnixStream::connect(&socket).expect("a connection");
    let garbage = [&b"\n"[..], b"{}\n", b"\"status\" and more\n", b"\"sto", &[0xff; 300], &vec![b'x'; 1 << 20]];
    for bytes in garbage {
        let mut stream = connect();
        // It may be hung up on before it has said all.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{:?} is answered", String::from_utf8_lossy(bytes));
    }
    // Some say nothing, some ask and never read.
    let _silent: Vec<_> = (0..40).map(|_| connect()).collect();
    let _deaf: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"\"status\"\n").expect("asked");
            stream
        })
        .collect();
    is_well(&bed);
    bed.reload();
    is_well(&bed);
    bed.stop();
}

#[test]
fn a_bad_hook_a_full_disk_and_rude_clients_do_not_hold_up_the_shield() {
    let _alone = alone();
    let Some(mut bed) = bed("ekhob") else { return };
    let (full, hook) = (full(&bed), bed.path("hook"));
    script(&hook, "[ $EVENKEEL_EVENT = began ] && sleep 1000\nexit 3");
    run_with_events(
        &mut bed,
        &detection(&format!(
            "events = \"{0}/events\"\nhook = {{ run = [\"{1}\"], timeout-s = 0.5 }}\nmetrics = {{ port = {METRICS}, file = \"{0}/metrics\" }}\n",
            full.0.display(),
            hook.display()
        )),
    );
    let client = || {
        let to: SocketAddr = ([127, 0, 0, 1], METRICS).into();
        bed.host.run(|| TcpStream::connect(to).expect("a connection"))
    };
    let mut rude: Vec<_> = (0..20).map(|_| client()).collect();
    rude[0].write_all(&[0xff; 10_000]).expect("said");
    rude[1].write_all(b"GET").expect("said");

    attack(&bed, "the attack is met", || is_mitigated(&bed));
    is_well(&bed);
    let troubles =
        ["cannot write to the file of events", "metrics: cannot write", "it was ended after 0.5 s", "exit code 3"];
    bed.wait("what went wrong is said", || troubles.iter().all(|trouble| bed.log().contains(trouble)));

    let (mut polite, mut answer) = (client(), String::new());
    polite.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a time-out");
    polite.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("asked");
    polite.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\nevenkeel_build_info{"), "{answer}");

    // There is room again: whole lines come, and only those. Were the flood of before not over, its attack would go on
    // instead of another that begins.
    bed.wait("the attack ends", || has_no_attack(&bed));
    fs::remove_file(full.0.join("filler")).expect("removed");
    let events = || log(&full.0.join("events"));
    attack(&bed, "an attack is written down", || events().contains("\"mitigating\""));
    bed.wait("and its end", || events().contains("\"ended\""));
    assert!(events().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", events());

    // A hook that is missing, and a pipe that nobody reads for events.
    let path = bed.path("rules.toml");
    fs::write(&path, detection("hook = { run = [\"/no/such/hook\"] }\n")).expect("a file");
    bed.reload();
    attack(&bed, "the next attack is met", || is_mitigated(&bed));
    bed.wait("the hook is missed", || bed.log().contains("cannot run the hook /no/such/hook"));
    nix::unistd::mkfifo(&bed.path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    fs::write(&path, detection(&format!("events = \"{}\"\n", bed.path("pipe").display()))).expect("a file");
    let refused = bed.shield(&["reload", &bed.interface]);
    assert!(!refused.status.success() && printed(&refused).contains("file of events"), "{}", printed(&refused));
    is_well(&bed);
    bed.stop();
}

#[test]
fn an_attack_is_met_though_nothing_can_be_kept_for_a_later_process() {
    let _alone = alone();
    let Some(mut bed) = bed("ekhod") else { return };
    run_with_events(&mut bed, &detection(""));
    // A disk that takes nothing more.
    let state = state(&bed);
    let none = None::<&str>;
    mount(Some(&state), &state, none, MsFlags::MS_BIND, none).expect("mounted");
    let _mounted = Mounted(state.clone());
    mount(none, &state, none, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).expect("read-only");
    attack(&bed, "the attack is met", || is_mitigated(&bed));
    bed.wait("it is told", || bed.log().contains("a process that takes over will not know"));
    is_well(&bed);
    bed.reload();
    umount2(&state, MntFlags::MNT_DETACH).expect("unmounted");
    bed.stop();
}

#[test]
fn an_attack_is_met_though_nobody_reads_what_is_reported() {
    let _alone = alone();
    let Some(mut bed) = bed("ekhoc") else { return };
    let (stdout_end, stdout) = std::io::pipe().expect("a pipe");
    let (stderr_end, stderr) = std::io::pipe().expect("a pipe");
    for pipe in [&stdout, &stderr] {
        fcntl(pipe, FcntlArg::F_SETPIPE_SZ(4096)).expect("a small pipe");
    }
    // An open file of its own, so that only the test does not wait.
    let again = |pipe: &std::io::PipeWriter| {
        let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).expect("the pipe again")
    };
    let mut fill = [again(&stdout), again(&stderr)];
    let rules = detection("") + &many_rules(50);
    run(&mut bed, &rules, &["--json", "--interval", "0.1"], stdout.into(), stderr.into());
    for pipe in &mut fill {
        while pipe.write(&[b'\n'; 512]).is_ok() {}
    }
    attack(&bed, "the attack is met", || is_mitigated(&bed));
    is_well(&bed);
    // Asked to end it takes the shield away, though what it has to say still waits.
    let state = state(&bed);
    bed.running.as_ref().expect("a running shield").signal(Signal::SIGTERM);
    bed.wait("the shield is gone", || !state.exists());
    assert_eq!(bed.ended().code(), Some(0));
    drop((stdout_end, stderr_end));
}

#[test]
fn a_pipe_as_the_file_of_metrics_holds_up_neither_status_nor_stop() {
    let _alone = alone();
    let Some(mut bed) = bed("ekhof") else { return };
    // A pipe that is there at the start is refused: this one comes later.
    let (pipe, metrics) = (bed.path("pipe"), bed.path("metrics"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    run_with_events(&mut bed, &(detection(&format!("metrics.file = {metrics:?}\n")) + &many_rules(3)));
    fs::rename(&pipe, &metrics).expect("the pipe in its place");
    // In each second there is something to write.
    bed.wait("it is told", || bed.log().contains("metrics"));
    is_well(&bed);
    bed.stop();
}

#[test]
fn the_shield_goes_on_though_its_reader_is_gone_or_the_disk_behind_it_full() {
    for (json, full) in [(&["--json"][..], false), (&[], true), (&[], false)] {
        let _alone = alone();
        let Some(mut bed) = bed("ekhoe") else { return };
        let log = || fs::File::create(bed.path("log")).expect("a file").into();
        let (why, stderr) = (if full { "No space left on device" } else { "nobody reads" }, log());
        let (mut reader, pipe) = std::io::pipe().expect("a pipe");
        let stdout = match full {
            true => OpenOptions::new().write(true).open("/dev/full").expect("a full disk").into(),
            false => pipe.into(),
        };
        run(&mut bed, &many_rules(3), &[json, &["--interval", "0.1"]].concat(), stdout, stderr);
        if !full {
            assert!(reader.read(&mut [0; 64]).expect("something") > 0);
        }
        drop(reader);
        bed.wait("it is told", || bed.log().contains(why));
        is_well(&bed);
        thread::sleep(Duration::from_millis(500));
        assert_eq!(bed.log().matches(why).count(), 1, "once: {}", bed.log());
        let ended = bed.running.take().expect("a running shield").stop(Signal::SIGTERM);
        assert!(ended.success() && bed.log().contains("shield removed"), "{}", bed.log());
    }
}
