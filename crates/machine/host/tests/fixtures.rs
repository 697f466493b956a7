//! The pictures of the machines in `fixtures/`, and readers that survive anything.

use std::{fmt::Write, fs, path::PathBuf};

use host::{
    Host, Root,
    picture::QueueRole,
    root::{Node, Tree},
    snapshot::Snapshot,
};
use model::CpuSet;
use proptest::prelude::*;

#[path = "../examples/compose/machine.rs"]
mod machine;

const COMPOSED: &str = "ixgbe-8q-8cpu dual-socket-24cpu mlx5-64q-128cpu single-queue-vm offline-isolated shared-irq \
    four-drivers detuned-vm detuned-router";

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures")
}

fn compose(name: &str) -> Tree {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(format!("{name}.toml"));
    let machine: machine::Machine = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    machine.compose()
}

fn read(name: &str) -> Host {
    Host::read(&Root::open(&fixtures().join(format!("{name}.tar"))).unwrap()).unwrap()
}

fn summary(host: &Host) -> String {
    let mut out = format!("{} {} irqbalance {:?}\n", host.hostname, host.kernel, host.irqbalance_pid);
    let of = |which: &dyn Fn(&host::picture::Cpu) -> bool| -> CpuSet {
        host.cpus.iter().filter(|c| which(c)).map(|c| c.id).collect()
    };
    writeln!(out, "cpus: {} offline [{}] isolated [{}]", host.cpus.len(), of(&|c| !c.online), of(&|c| c.isolated))
        .unwrap();
    let mut groups: Vec<(u32, u32)> = host.cpus.iter().map(|c| (c.node, c.package)).collect();
    groups.sort_unstable();
    groups.dedup();
    for (node, package) in groups {
        writeln!(out, "node {node} package {package}: {}", of(&|c| (c.node, c.package) == (node, package))).unwrap();
    }
    let cores: Vec<String> = host
        .cpus
        .iter()
        .filter(|c| c.siblings.first() == Some(c.id))
        .map(|c| format!("{}.{}={}", c.package, c.core, c.siblings))
        .collect();
    writeln!(out, "cores: {}", cores.join(" ")).unwrap();
    for nic in &host.nics {
        writeln!(
            out,
            "{} {} {:?} {:?} node {:?} speed {:?} mtu {} {} rx {} tx {} threaded {:?}",
            nic.index,
            nic.name,
            nic.driver,
            nic.bus,
            nic.node,
            nic.speed_mbps,
            nic.mtu,
            nic.operstate,
            nic.rx_queues.len(),
            nic.tx_queues.len(),
            nic.threaded
        )
        .unwrap();
        let slots = nic.rss.as_ref().map_or(0, |rss| rss.indirection.len());
        writeln!(out, "  rings {:?} channels {:?} rss {slots}", nic.rings, nic.channels).unwrap();
        let xps = nic.tx_queues.iter().filter(|queue| queue.xps_cpus.is_some()).count();
        writeln!(out, "  coalescing {:?} xps {xps}", nic.coalescing.and_then(|c| c.rx_usecs)).unwrap();
        let on: Vec<&str> = nic.features.iter().filter(|(_, f)| f.on).map(|(name, _)| name.as_str()).collect();
        writeln!(out, "  {} features, on: {}", nic.features.len(), on.join(" ")).unwrap();
        for irq in &nic.irqs {
            let line = host.irq(irq.irq).unwrap();
            let role = match irq.role {
                QueueRole::Rx(n) => format!("rx {n}"),
                QueueRole::Tx(n) => format!("tx {n}"),
                QueueRole::RxTx(n) => format!("rxtx {n}"),
                QueueRole::Control => "control".to_owned(),
            };
            let effective = line.effective.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
            writeln!(out, "  irq {} {role} -> {effective} of {}: {}", irq.irq, line.affinity, line.actions.join(", "))
                .unwrap();
        }
        for napi in &nic.napis {
            writeln!(out, "  napi {} irq {:?} queue {:?}", napi.id, napi.irq, napi.rx_queue).unwrap();
        }
    }
    out
}

#[test]
fn the_tars_are_what_the_descriptions_compose() {
    for name in COMPOSED.split_whitespace() {
        let mut composed = Vec::new();
        Snapshot::of(compose(name)).write(&mut composed).unwrap();
        let checked_in = fs::read(fixtures().join(format!("{name}.tar"))).unwrap();
        assert!(composed == checked_in, "{name}.tar is out of date: cargo run -p host --example compose");
    }
}

#[test]
fn pictures() {
    for name in COMPOSED.split_whitespace() {
        insta::assert_snapshot!(name, summary(&read(name)));
    }
}

#[test]
fn the_recorded_machine() {
    insta::assert_snapshot!("recorded-virtio-2cpu", summary(&read("recorded-virtio-2cpu")));
}

#[test]
fn an_unpacked_folder_reads_like_its_tar() {
    for name in ["offline-isolated", "single-queue-vm", "recorded-virtio-2cpu"] {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::open(fixtures().join(format!("{name}.tar"))).unwrap();
        tar::Archive::new(file).unpack(folder.path()).unwrap();
        assert_eq!(Host::read(&Root::open(folder.path()).unwrap()).unwrap(), read(name), "{name}");
    }
}

#[test]
fn damaged_copies_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(fixtures().join("shared-irq.tar")).unwrap();
    let case = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        fs::write(&file, bytes).unwrap();
        Root::open(&file).unwrap_err().to_string()
    };
    assert!(case("cut.tar", &whole[..whole.len() / 2 + 100]).contains("not a complete plain tar"));
    assert!(case("noise.tar", &[7; 4096]).contains("not a complete plain tar"));
    assert!(case("empty.tar", &[]).contains("neither proc/ nor sys/"));
    let missing = Root::open(&folder.path().join("missing")).unwrap_err().to_string();
    assert!(missing.contains("evenkeel snapshot"), "{missing}");
    let error = Host::read(&Root::from_files([("proc/stat".into(), String::new())].into())).unwrap_err().to_string();
    assert!(error.contains("cpu/present does not exist in the saved copy"), "{error}");
    let cpus = [("sys/devices/system/cpu/present".into(), "0".into())];
    let error = Host::read(&Root::from_files(cpus.into())).unwrap_err().to_string();
    assert!(error.contains("proc/interrupts does not exist in the saved copy"), "{error}");
}

#[test]
fn garbled_answers_are_reported() {
    let read = |answers: Option<&str>| {
        let mut files: std::collections::BTreeMap<String, String> = [
            ("sys/devices/system/cpu/present".into(), "0".into()),
            ("proc/interrupts".into(), "CPU0\n".into()),
            ("sys/class/net/eth0/ifindex".into(), "2".into()),
        ]
        .into();
        files.extend(answers.map(|text| ("ethtool/eth0.json".into(), text.into())));
        Host::read(&Root::from_files(files)).map_err(|e| e.to_string())
    };
    let error = read(Some("{\"rings\": 512")).unwrap_err();
    assert!(error.contains("ethtool/eth0.json holds `{\"rings\": 512`"), "{error}");
    assert_eq!(read(Some("{\"failed\": [\"eth0: why\"]}")).unwrap().nics[0].unanswered, ["eth0: why"]);
    assert!(read(None).unwrap().nics[0].unanswered.is_empty());
}

#[test]
fn an_interface_name_cannot_leave_the_root() {
    let root = Root::open(&fixtures().join("shared-irq.tar")).unwrap();
    assert!(root.read("sys/class/net/../../../etc/passwd").is_err());
    assert!(Root::live().read("sys/class/net/../../../etc/hostname").is_err());
    assert_eq!(Root::live().path_of("/etc/passwd"), None);
}

fn garbage() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "\\PC{0,40}",
        "[0-9a-f,\\- \\n:.]{0,60}",
        any::<u64>().prop_map(|n| n.to_string()),
        Just("-1".to_owned()),
        Just("0-8191".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever a file holds, or wherever a link leads: the readers end, with a picture or with an error.
    #[test]
    fn no_garbage_makes_the_readers_panic(
        which in prop::sample::select(COMPOSED.split_whitespace().collect::<Vec<_>>()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), garbage(), 0..4u8), 1..8),
    ) {
        let mut tree = compose(which);
        let paths: Vec<String> = tree.iter().map(|(path, _)| path.to_owned()).collect();
        for (index, text, kind) in changes {
            let path = index.get(&paths);
            let old = match tree.get(path) { Some(Node::File(old)) => old.clone(), _ => String::new() };
            let node = match kind {
                0 => Node::File(text),
                1 => Node::Link(text),
                2 => Node::Folder,
                _ => {
                    // Garbage in the midst of what belongs there.
                    let middle = (0..=old.len() / 2).rev().find(|&at| old.is_char_boundary(at)).unwrap_or(0);
                    Node::File(format!("{}{text}{}", &old[..middle], &old[middle..]))
                }
            };
            tree.insert(path.as_str(), node);
        }
        if let Ok(host) = Host::read(&Root::from_tree(tree)) {
            let _ = summary_safe(&host);
        }
    }
}

/// Looks up every reference of a picture, as its users do.
fn summary_safe(host: &Host) -> usize {
    host.nics.iter().flat_map(|nic| &nic.irqs).filter(|irq| host.irq(irq.irq).is_some()).count()
}
