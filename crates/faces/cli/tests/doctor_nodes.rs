//! `evenkeel doctor --nodes` against real sshds in namespaces, one of which is detuned.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use testbed::{Bed, End, Sshd, ended, json};

const PORT: u16 = 2222;
/// The end of each node, under the same name everywhere.
const IFACE: &str = "ekn";

/// Keys, configuration and three nodes that a fourth namespace reaches.
struct World {
    // The daemons go before their namespaces.
    _daemons: Vec<Sshd>,
    nodes: Vec<End>,
    bed: Bed,
}

fn address(node: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, node, host)
}

fn target(node: u8) -> String {
    format!("root@{}", address(node, 2))
}

impl World {
    fn new(tag: &str) -> Option<Self> {
        Sshd::can_run()?;
        let bed = Bed::new(tag, &["control", "n1", "n2", "n3"])?;
        let folder = bed.path("");
        Sshd::keys(&folder);
        let (mut nodes, mut daemons) = (Vec::new(), Vec::new());
        for n in 1..=3u8 {
            let role = format!("n{n}");
            let [control, node] = bed.join_named(["control", &role], [&format!("ekc{n}"), IFACE], 1);
            control.address(&format!("{}/30", address(n, 1)));
            node.address(&format!("{}/30", address(n, 2)));
            daemons.push(Sshd::start(&node, &role, &address(n, 2).to_string(), PORT, &folder));
            nodes.push(node);
        }
        Some(Self { _daemons: daemons, nodes, bed })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bed.path(name)
    }

    /// Runs the program in the namespace from which the nodes are reached.
    fn doctor(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("doctor").args(arguments).args(Sshd::options(&self.bed.path(""), PORT));
        self.bed.space("control").run(|| command.output().expect("the program starts"))
    }
}

/// The outliers whose value goes by that name: node, value, usual value, fix.
fn outliers<'a>(of: &'a serde_json::Value, subject: &str) -> Vec<[&'a str; 4]> {
    let all = of["outliers"].as_array().expect("outliers").iter();
    let text = |o: &'a serde_json::Value, field: &str| o[field].as_str().unwrap_or_default();
    all.filter(|o| o["subject"] == subject).map(|o| ["node", "value", "majority", "fix"].map(|f| text(o, f))).collect()
}

#[test]
fn the_detuned_node_is_found() {
    let Some(world) = World::new("ssh") else { return };
    world.nodes[1].set("net.ipv4.tcp_sack", "0");
    let program = env!("CARGO_BIN_EXE_evenkeel");
    let all = [target(1), target(2), target(3)].join(",");
    let guilty = target(2);

    let output = world.doctor(&["--nodes", &all, "--program", program, "--json"]);
    let found = json(&output);
    ended(&output, 1);
    assert_eq!(found["schema"], "evenkeel.doctor.nodes/1");
    assert!(found["nodes"].as_array().unwrap().iter().all(|node| node["report"]["kernel"].is_string()), "{found}");
    let sack = outliers(&found["comparison"], "tcp_sack");
    let [[node, value, usual, fix]] = sack[..] else { panic!("{sack:?}") };
    assert_eq!((node, value, usual), (guilty.as_str(), "0", "1"));
    assert!(fix.contains("tcp_sack") && fix.contains('1'), "{fix}");

    the_text_names_it(&world, &all, program);
    saved_reports_say_the_same(&world, &output.stdout);
    a_missing_node_is_named_and_the_rest_goes_on(&world, program);
    a_missing_program_is_reported_and_a_copy_helps(&world);
    a_node_that_never_answers_is_given_up(&world);
}

fn the_text_names_it(world: &World, all: &str, program: &str) {
    let list = world.path("list");
    fs::write(&list, all.replace(',', "\n") + "\n# the lab\n").unwrap();
    let list = list.display().to_string();
    let output =
        world.doctor(&["--nodes-file", &list, "--program", program, "--only", "tcp-options", "--role", "server"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ended(&output, 1);
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
    ended(&output, 1);
    assert_eq!(outliers(&json(&output), "tcp_sack").len(), 1);
}

fn a_missing_node_is_named_and_the_rest_goes_on(world: &World, program: &str) {
    // Nobody has that port open on the near end.
    let nobody = format!("root@{}", address(1, 1));
    let all = [target(1), nobody.clone(), target(3)].join(",");
    let output = world.doctor(&["--nodes", &all, "--program", program, "--only", "tcp-options", "--json"]);
    ended(&output, 3);
    let found = json(&output);
    let answered: Vec<bool> =
        found["nodes"].as_array().unwrap().iter().map(|node| node["report"].is_object()).collect();
    assert_eq!(answered, [true, false, true]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains(&format!("{nobody}: ssh failed")) && printed.contains("1 of 3 machines"), "{printed}");
}

fn a_missing_program_is_reported_and_a_copy_helps(world: &World) {
    let node = target(3);
    let missing = ["--nodes", &node, "--program", "/ek-no-such-program", "--only", "tcp-options"];
    let output = world.doctor(&missing);
    ended(&output, 3);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("there is no `/ek-no-such-program` there") && printed.contains("--copy"), "{printed}");
    let output = world.doctor(&[&missing[..], &["--copy", "--json"]].concat());
    assert_eq!(json(&output)["nodes"][0]["report"]["hostname"].as_str().map(str::is_empty), Some(false), "{output:?}");
}

fn a_node_that_never_answers_is_given_up(world: &World) {
    let slow = world.path("slow");
    fs::write(&slow, "#!/bin/sh\nexec sleep 3\n").unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    let slow = slow.display().to_string();
    let output = world.doctor(&["--nodes", &target(1), "--program", &slow, "--timeout", "1"]);
    ended(&output, 3);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer within 1 s"), "{output:?}");
}
