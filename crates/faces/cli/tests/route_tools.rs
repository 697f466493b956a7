//! What people use every day, through a router whose mode changes meanwhile: ssh, curl, iperf3, traceroute, mtr, and BIRD that flaps routes.

use std::{
    fs,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use testbed::{Ends, RouteBed, Running, Sshd, printed, wait};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// Bytes that curl and ssh fetch: some seconds' worth.
const STREAM_BYTES: usize = 300 << 20;
const SWITCH_PERIOD: Duration = Duration::from_millis(400);

/// Does `work` while the mode is `mode` and standard in turn; how often it was switched.
fn while_modes_change(world: &RouteBed, mode: &str, work: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let switching = scope.spawn(|| {
            let mut times = 0;
            while !stop.load(Ordering::Relaxed) {
                let to = [mode, "standard"][times % 2];
                let answer = world.ask(&["mode", to]);
                assert!(answer.status.success(), "{}", printed(&answer));
                times += 1;
                thread::sleep(SWITCH_PERIOD);
            }
            times
        });
        {
            let _ends = Ends(&stop);
            work();
        }
        switching.join().unwrap()
    })
}

fn succeeds(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program()));
    assert!(done.status.success(), "{command:?}: {}", printed(&done));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn transfers_and_a_login_through_nat_outlive_changes_of_the_mode() {
    let Some(()) = Sshd::can_run() else { return };
    let Some(world) = RouteBed::new(EVENKEEL, "rttools") else { return };
    let (a, router, b) = (world.a.space(), world.router(), world.b.space());
    router.nft(
        "table ip t { chain f { type filter hook forward priority 0; policy drop; \
         ct state established ct mark set ct mark or 0x10000000; ct state established accept; \
         ip saddr 198.18.1.0/24 accept; }; chain p { type nat hook postrouting priority srcnat; \
         ip saddr 198.18.1.0/24 masquerade; }; }",
    );
    router.set("net.netfilter.nf_conntrack_tcp_be_liberal", "1");
    let folder = world.bed.path("");
    Sshd::keys(&folder);
    let _sshd = Sshd::start(b, "sshd", "198.18.2.2", 22, &folder);
    let served = folder.join("served");
    fs::create_dir(&served).unwrap();
    let bytes: Vec<u8> =
        (0..STREAM_BYTES / 8).flat_map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()).collect();
    fs::write(served.join("file"), bytes).unwrap();
    let sum = |path: &str| succeeds(Command::new("sha256sum").stdin(fs::File::open(path).unwrap()));
    let expected = sum(&served.join("file").display().to_string());
    let mut web = b.command("python3");
    web.args(["-m", "http.server", "8000", "--bind", "198.18.2.2", "--directory"]).arg(&served);
    let _web = Running::silent(&mut web);
    // A server of iperf3 closes its listener behind each test, and with it resets a client that is already in its backlog: one for each client.
    let servers = ["5201", "5202"];
    let _iperf = servers.map(|port| Running::silent(b.command("iperf3").args(["-s", "-B", "198.18.2.2", "-p", port])));

    let running = world.run(&["--mode", "stateful", "--trial", "0"]);
    wait("the server answers", || {
        let mut head = a.command("curl");
        head.args(["-sIf", "-m", "2", "http://198.18.2.2:8000/file"]).output().unwrap().status.success()
    });
    let times = while_modes_change(&world, "stateful", || {
        let fetched = folder.join("fetched");
        let mut curl = a.command("curl");
        succeeds(curl.args(["-sf", "-m", "120", "-o"]).arg(&fetched).arg("http://198.18.2.2:8000/file"));
        assert_eq!(sum(&fetched.display().to_string()), expected, "what curl fetched");
        let line = format!("cat {}", served.join("file").display());
        let mut ssh = Sshd::client(a, &folder, &["-o", "ConnectTimeout=10"], "198.18.2.2", &line);
        let shown = folder.join("shown");
        ssh.stdin(Stdio::null()).stdout(fs::File::create(&shown).unwrap());
        assert!(ssh.status().unwrap().success());
        assert_eq!(sum(&shown.display().to_string()), expected, "what ssh showed");
        let iperf = |port, words: &[&str]| {
            succeeds(a.command("iperf3").args(["-c", "198.18.2.2", "-p", port]).args(words));
        };
        iperf(servers[0], &["-t", "3"]);
        iperf(servers[1], &["-t", "2", "-R", "-u", "-b", "20M"]);
    });
    assert!(times >= 8, "{times} changes");
    let translated: u64 =
        world.status()["ports"].as_array().unwrap().iter().map(|p| p["totals"]["translated"].as_u64().unwrap()).sum();
    assert!(translated > 1000, "the fast path had {translated} of the packets");
    assert!(running.stop(Signal::SIGTERM).success());
}

#[test]
fn a_route_is_traced_as_without_the_fast_path() {
    let Some(world) = RouteBed::new(EVENKEEL, "rttrace") else { return };
    let a = world.a.space();
    let hops = |text: &str| -> Vec<String> {
        let addresses = text.split_whitespace().filter(|word| word.starts_with("198.18."));
        addresses.map(|word| word.trim_end_matches(',').to_owned()).collect()
    };
    let traced = || {
        let far = "198.18.2.2";
        let of = |program: &str, words: &[&str]| hops(&succeeds(a.command(program).args(words)));
        [
            of("traceroute", &["-n", "-q", "1", "-w", "2", far]),
            of("traceroute", &["-n", "-I", "-q", "1", "-w", "2", far]),
            of("traceroute", &["-n", "-T", "-q", "1", "-w", "2", far]),
            of("mtr", &["-n", "-r", "-c", "2", far]),
        ]
    };
    let without = traced();
    assert!(
        without.iter().all(|hops| hops.contains(&"198.18.1.1".to_owned()) && hops.contains(&"198.18.2.2".to_owned())),
        "{without:?}"
    );
    let running = world.run(&["--trial", "0"]);
    assert!(world.crosses());
    assert_eq!(traced(), without);
    assert!(running.stop(Signal::SIGTERM).success());
}
