//! `evenkeel doctor --nodes` against real sshds in namespaces, one of which is detuned.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, Namespace};

const PORT: u16 = 2222;
const SSHD: &str = "/usr/sbin/sshd";
/// The end of each node, under the same name everywhere.
const IFACE: &str = "ekn";

/// Why the test cannot run here.
fn lacking() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it takes root, for namespaces".into());
    }
    let missing = [SSHD, "/usr/bin/ssh", "/usr/bin/ssh-keygen"].into_iter().find(|path| !Path::new(path).exists());
    missing.map(|path| format!("{path} is missing (tools/setup test installs it)"))
}

/// A daemon that is ended, with what it started, when the value is dropped.
struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keys, configuration and three nodes that a fourth namespace reaches.
struct World {
    folder: tempfile::TempDir,
    control: Namespace,
    nodes: Vec<(Namespace, Sshd)>,
}

fn address(node: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, node, host)
}

fn target(node: u8) -> String {
    format!("root@{}", address(node, 2))
}

impl World {
    fn new(tag: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "ek", "-f"]).arg(path(key));
            assert!(keygen.status().expect("ssh-keygen starts").success());
        }
        fs::copy(path("user.pub"), path("authorized")).unwrap();
        fs::set_permissions(path("authorized"), fs::Permissions::from_mode(0o600)).unwrap();
        let lab = Lab::new(tag).expect("a lab");
        let control = lab.namespace("control").expect("a namespace");
        let nodes = (1..=3u8).map(|n| node(&lab, &control, n, folder.path())).collect();
        let world = Self { folder, control, nodes };
        for n in 1..=3 {
            world.wait_for(n);
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Until the daemon answers: it may take a while to start on a busy machine.
    fn wait_for(&self, node: u8) {
        let end = Instant::now() + Duration::from_secs(20);
        let to = (IpAddr::V4(address(node, 2)), PORT).into();
        let connect = || std::net::TcpStream::connect_timeout(&to, Duration::from_millis(500)).is_ok();
        while !self.control.run(connect).expect("the namespace") {
            assert!(Instant::now() < end, "node {node} does not answer; sshd said:\n{}", self.log(node));
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self, node: u8) -> String {
        fs::read_to_string(self.path(&format!("log{node}"))).unwrap_or_default()
    }

    /// Runs the program in the namespace from which the nodes are reached.
    fn doctor(&self, arguments: &[&str]) -> Output {
        let options = [
            format!("Port={PORT}"),
            format!("IdentityFile={}", self.path("user").display()),
            format!("UserKnownHostsFile={}", self.path("known").display()),
            "StrictHostKeyChecking=accept-new".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
        ];
        self.control
            .run(|| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
                command.arg("doctor").args(arguments);
                for option in &options {
                    command.arg("--ssh-option").arg(option);
                }
                command.output().expect("the program starts")
            })
            .expect("the namespace")
    }
}

/// A namespace with an address, a way to `control`, and an sshd.
fn node(lab: &Lab, control: &Namespace, n: u8, folder: &Path) -> (Namespace, Sshd) {
    let ns = lab.namespace(&format!("n{n}")).expect("a namespace");
    let here = format!("ekc{n}");
    lab.veth((control, &here), (&ns, IFACE), 1).expect("a veth pair");
    control.add_address(&here, address(n, 1).into(), 30).expect("an address");
    ns.add_address(IFACE, address(n, 2).into(), 30).expect("an address");
    let path = |name: &str| folder.join(name).display().to_string();
    // Without PAM sshd refuses an account whose password is locked.
    let locked = fs::read_to_string("/etc/shadow").unwrap_or_default().lines().any(|l| l.starts_with("root:!"));
    let config = format!(
        "Port {PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         UsePAM {}\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\n",
        address(n, 2),
        path("host"),
        path("authorized"),
        if locked { "yes" } else { "no" },
    );
    let file = folder.join(format!("sshd{n}"));
    fs::write(&file, config).unwrap();
    let log = fs::File::create(folder.join(format!("log{n}"))).unwrap();
    // sshd wants a folder in /run that is its own: in a /run that only this daemon sees.
    let script = format!("mount -t tmpfs none /run && mkdir /run/sshd && exec {SSHD} -D -e -f \"$0\"");
    let child = ns.run(|| {
        let mut sh = Command::new("sh");
        sh.args(["-c", &script]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    });
    (ns, Sshd(child.expect("the namespace").expect("sh starts")))
}

fn json(output: &Output) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("no JSON ({e}); it said: {said}"))
}

/// The outliers whose value goes by that name: node, value, usual value, fix.
fn outliers<'a>(of: &'a serde_json::Value, subject: &str) -> Vec<[&'a str; 4]> {
    let all = of["outliers"].as_array().expect("outliers").iter();
    let text = |o: &'a serde_json::Value, field: &str| o[field].as_str().unwrap_or_default();
    all.filter(|o| o["subject"] == subject).map(|o| ["node", "value", "usual", "fix"].map(|f| text(o, f))).collect()
}

#[test]
fn the_detuned_node_is_found() {
    if let Some(why) = lacking() {
        assert!(std::env::var_os("CI").is_none(), "this cannot be skipped in CI: {why}");
        eprintln!("skipped: {why}");
        return;
    }
    let world = World::new("ssh");
    let (detuned, _) = &world.nodes[1];
    detuned.run(|| fs::write("/proc/sys/net/ipv4/tcp_sack", "0")).expect("the namespace").expect("the sysctl");
    let program = env!("CARGO_BIN_EXE_evenkeel");
    let all = [target(1), target(2), target(3)].join(",");
    let guilty = target(2);

    let output = world.doctor(&["--nodes", &all, "--program", program, "--json"]);
    let found = json(&output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(found["schema"], "evenkeel.doctor.nodes/1");
    assert!(found["nodes"].as_array().unwrap().iter().all(|node| node["report"]["kernel"].is_string()), "{found}");
    let sack = outliers(&found["comparison"], "tcp_sack");
    let [[node, value, usual, fix]] = sack[..] else { panic!("{sack:?}") };
    assert_eq!((node, value, usual), (guilty.as_str(), "0", "1"));
    assert!(fix.contains("tcp_sack") && fix.contains('1'), "{fix}");

    the_text_names_it(&world, &all, program);
    saved_reports_say_the_same(&world, &output.stdout);
    a_missing_node_is_named_and_the_rest_goes_on(&world, program);
    a_missing_program_is_said_and_a_copy_helps(&world);
    a_node_that_never_answers_is_given_up(&world);
}

fn the_text_names_it(world: &World, all: &str, program: &str) {
    let list = world.path("list");
    fs::write(&list, all.replace(',', "\n") + "\n# the lab\n").unwrap();
    let list = list.display().to_string();
    let output =
        world.doctor(&["--nodes-file", &list, "--program", program, "--only", "tcp-options", "--role", "server"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let sentence = format!("{}: tcp_sack", target(2));
    let line = text.lines().find(|line| line.starts_with(&sentence)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("is 0, the others 1"), "{line}");
    assert!(text.contains("  fix  echo 1 > /proc/sys/net/ipv4/tcp_sack"), "{text}");
}

fn saved_reports_say_the_same(world: &World, answer: &[u8]) {
    let file = world.path("answer.json");
    fs::write(&file, answer).unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["doctor", "compare", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(outliers(&json(&output), "tcp_sack").len(), 1);
}

fn a_missing_node_is_named_and_the_rest_goes_on(world: &World, program: &str) {
    // Nobody has that port open on the near end.
    let nobody = format!("root@{}", address(1, 1));
    let all = [target(1), nobody.clone(), target(3)].join(",");
    let output = world.doctor(&["--nodes", &all, "--program", program, "--only", "tcp-options", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let found = json(&output);
    let answered: Vec<bool> =
        found["nodes"].as_array().unwrap().iter().map(|node| node["report"].is_object()).collect();
    assert_eq!(answered, [true, false, true]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("{nobody}: ssh failed")) && said.contains("1 of 3 machines"), "{said}");
}

fn a_missing_program_is_said_and_a_copy_helps(world: &World) {
    let node = target(3);
    let missing = ["--nodes", &node, "--program", "/ek-no-such-program", "--only", "tcp-options"];
    let output = world.doctor(&missing);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("there is no `/ek-no-such-program` there") && said.contains("--copy"), "{said}");
    let output = world.doctor(&[&missing[..], &["--copy", "--json"]].concat());
    assert_eq!(json(&output)["nodes"][0]["report"]["hostname"].as_str().map(str::is_empty), Some(false), "{output:?}");
}

fn a_node_that_never_answers_is_given_up(world: &World) {
    let slow = world.path("slow");
    fs::write(&slow, "#!/bin/sh\nexec sleep 3\n").unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    let slow = slow.display().to_string();
    let output = world.doctor(&["--nodes", &target(1), "--program", &slow, "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer within 1 s"), "{output:?}");
}
