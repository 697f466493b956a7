//! `link bench --with` and `link speedup --with`: ends and nodes in processes of their own, over a real sshd.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use testbed::{Bed, End, Space, Sshd, ended, json, printed};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
const PORT: u16 = 2223;

fn address(node: usize) -> String {
    format!("10.77.7.{}", node + 1)
}

/// Runs a verb of link there, with what ssh needs.
fn link(space: &Space, folder: &Path, verb: &[&str], more: &[&str]) -> Output {
    let mut command = Command::new(EVENKEEL);
    command.arg("link").args(verb).args(["--quick", "--json"]).args(more);
    command.args(Sshd::options(folder, PORT));
    space.run(|| command.output().unwrap())
}

/// The folder with the keys, and an sshd in each namespace but the first.
fn daemons(bed: &Bed, spaces: &[Space]) -> (PathBuf, Vec<Sshd>) {
    let folder = bed.path("");
    Sshd::keys(&folder);
    let start = |(at, space): (usize, &Space)| Sshd::start(space, &format!("n{at}"), &address(at), PORT, &folder);
    let all = spaces.iter().enumerate().skip(1).map(start).collect();
    (folder, all)
}

#[test]
fn two_machines_measure_what_their_link_carries() {
    let Some(()) = Sshd::can_run() else { return };
    let Some((bed, [left, right])) = Bed::pair("lnkbtw") else { return };
    [&left, &right].iter().enumerate().for_each(|(at, end)| end.address(&format!("{}/24", address(at))));
    let (folder, _daemons) = daemons(&bed, &[left.space().clone(), right.space().clone()]);
    let peer = format!("root@{}", address(1));
    let bench = |program: &str, there: &str| {
        let verb = ["bench", left.interface(), "--with", &peer, "--messages", "20", "--megabytes", "1"];
        let more = ["--cpus", "0", "--peer-cpu", "1", "--program", program, "--peer-interface", there];
        link(left.space(), &folder, &verb, &more)
    };

    let ran = bench(EVENKEEL, right.interface());
    ended(&ran, 0);
    let run = json(&ran);
    assert!(run["peer_machine"]["cpus"].as_u64() > Some(0), "{run}");
    for by in ["link", "link-sockets", "packet", "udp", "tcp"] {
        let rows: Vec<_> = run["pings"].as_array().unwrap().iter().filter(|row| row["transport"] == by).collect();
        assert!(rows.len() > 2, "{by}: {run}");
        for row in rows {
            let [least, median] = ["min_ns", "p50_ns"].map(|name| row["rounds"][0][name].as_f64().unwrap());
            assert!(0.0 < least && least <= median, "{by}: {row}");
        }
    }
    assert!(
        run["pings"].as_array().unwrap().iter().any(|row| row["transport"] == "link" && row["beside_transfer"] == true)
    );
    let moved: Vec<_> = run["transfers"].as_array().unwrap().iter().map(|row| &row["transport"]).collect();
    assert_eq!(moved, ["link", "tcp"]);
    assert!(run["skipped"].as_array().unwrap().iter().any(|left| left["what"] == "AF_XDP spinning"), "{run}");

    // What is wrong there is said as that machine says it.
    let ran = bench(EVENKEEL, "ek-none");
    ended(&ran, 3);
    assert!(printed(&ran).contains(&peer) && printed(&ran).contains("ek-none"), "{}", printed(&ran));
    // An interface of another Ethernet: neither end hears the other.
    right.output("ip link add ekbtwx type veth peer name ekbtwy");
    right.output("ip link set ekbtwx up");
    right.output("ip link set ekbtwy up");
    let ran = bench(EVENKEEL, "ekbtwx");
    ended(&ran, 3);
    assert!(printed(&ran).contains(&format!("no message of link from {peer}")), "{}", printed(&ran));
    let ran = bench("/nowhere/evenkeel", right.interface());
    ended(&ran, 3);
    assert!(printed(&ran).contains("/nowhere/evenkeel"), "{}", printed(&ran));
    right.link_set("mtu 1400");
    let ran = bench(EVENKEEL, right.interface());
    ended(&ran, 3);
    assert!(printed(&ran).contains("1500") && printed(&ran).contains("1400"), "{}", printed(&ran));
}

#[test]
fn three_machines_measure_their_speedup() {
    let Some(()) = Sshd::can_run() else { return };
    let Some(bed) = Bed::new("lnkspd", &["a", "b", "c", "hub"]) else { return };
    let hub = bed.space("hub");
    hub.output("ip link add ekbr0 type bridge");
    hub.output("ip link set ekbr0 up");
    let join = |(at, role): (usize, &str)| {
        let [node, port]: [End; 2] = bed.join([role, "hub"], 1);
        hub.output(&format!("ip link set {} master ekbr0", port.interface()));
        node.address(&format!("{}/24", address(at)));
        // Interfaces of machines have one name; those of a process's beds do not.
        node.link_set("down");
        node.space().output(&format!("ip link set {} name ekn0 up", node.interface()));
        node.space().clone()
    };
    let spaces: Vec<Space> = ["a", "b", "c"].into_iter().enumerate().map(join).collect();
    let (folder, _daemons) = daemons(&bed, &spaces);
    let others = format!("root@{},root@{}", address(1), address(2));
    let verb = ["speedup", "ekn0", "--with", &others, "--repeats", "3", "--step", "5ms", "--program", EVENKEEL];
    let ran = link(&spaces[0], &folder, &verb, &[]);
    let run = json(&ran);
    assert_eq!(run["nodes"].as_array().unwrap().len(), 3, "{run}");
    let series = run["series"].as_array().unwrap();
    assert_eq!(series.len(), 4, "{run}");
    for series in series {
        let points = series["points"].as_array().unwrap();
        assert_eq!(points.iter().map(|p| p["nodes"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3], "{series}");
        // Three nodes wait (0.05 + 0.95 / 3) 5 ms, and nobody waits for an acknowledgement that is lost.
        let seconds: Vec<f64> = points.iter().map(|p| p["seconds"].as_f64().unwrap()).collect();
        assert!(seconds[0] >= 0.005 && seconds[2] >= 0.001_83 && seconds[2] < 0.1, "{series}");
    }
    assert!(run["notes"].to_string().contains("Nodes are machines"), "{run}");

    // More nodes than machines.
    let ran = link(&spaces[0], &folder, &verb, &["--nodes", "1,2,3,4"]);
    ended(&ran, 2);
    assert!(printed(&ran).contains("--with"), "{}", printed(&ran));
}
