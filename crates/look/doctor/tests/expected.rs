//! Expected findings of the checks of rings, queues, soft interrupts, stack, kernel and programs on each machine in `fixtures/`.
//!
//! `tests/expected/NAME.toml` was written before the checks: every finding as `check` or `check:object`. A finding that it does not name fails as
//! well as one that is missing.

use std::{collections::BTreeSet, fs, path::Path};

use doctor::{Evidence, Selection, diagnose, fix_plan};
use host::{
    Root,
    root::{Node, Tree},
};
use model::doctor::{Finding, Report, Role, Verdict};
use serde::Deserialize;

const GROUPS: [&str; 6] = ["rings", "queues", "softnet", "stack", "kernel", "apps"];

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expected {
    /// The role that must be guessed; server where it is not said.
    role: Option<Role>,
    /// The role that is given.
    given: Option<Role>,
    bad: BTreeSet<String>,
    improve: BTreeSet<String>,
    /// Checks that must have an answer other than unknown; the others may lack their evidence.
    known: BTreeSet<String>,
}

fn open(name: &str) -> Root {
    Root::open(&testbed::fixture(name)).unwrap()
}

fn report(name: &str, role: Option<Role>) -> Report {
    let evidence = Evidence::gather(&open(name), role).unwrap();
    diagnose(&evidence, &Selection::default()).report
}

fn name(finding: &Finding) -> String {
    match &finding.object {
        Some(object) => format!("{}:{object}", finding.check),
        None => finding.check.clone(),
    }
}

fn found(report: &Report, verdict: Verdict) -> BTreeSet<String> {
    let of_ours = |f: &&Finding| GROUPS.contains(&f.group.as_str()) && f.verdict == verdict;
    report.findings.iter().filter(of_ours).map(name).collect()
}

#[test]
fn each_machine_has_the_findings_expected_of_it() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong: Vec<String> = Vec::new();
    for file in testbed::fixtures() {
        let machine = file.file_stem().and_then(|name| name.to_str()).unwrap();
        let text = fs::read_to_string(here.join(format!("tests/expected/{machine}.toml")))
            .unwrap_or_else(|e| panic!("{machine}: nobody said what is expected of it: {e}"));
        let expected: Expected = toml::from_str(&text).unwrap();
        let report = report(machine, expected.given);
        let role = expected.given.or(expected.role).unwrap_or(Role::Server);
        assert_eq!(report.role, role, "{machine}: {:?}", report.role_reasons);
        for (verdict, expected) in [(Verdict::Bad, &expected.bad), (Verdict::Improve, &expected.improve)] {
            let found = found(&report, verdict);
            if found != *expected {
                let (more, less): (Vec<_>, Vec<_>) =
                    (found.difference(expected).collect(), expected.difference(&found).collect());
                wrong.push(format!("{machine}: {verdict}: more {more:?}, missing {less:?}"));
            }
        }
        let unknown: BTreeSet<String> =
            report.findings.iter().filter(|f| f.verdict == Verdict::Unknown).map(|f| f.check.clone()).collect();
        let missing: Vec<&String> = expected.known.intersection(&unknown).collect();
        assert!(missing.is_empty(), "{machine}: {missing:?} should be known");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_finding_has_evidence_and_a_way_out() {
    let machines =
        "dual-socket-24cpu mlx5-64q-128cpu four-drivers shared-irq detuned-router detuned-vm single-queue-vm";
    for machine in machines.split_whitespace() {
        for role in Role::ALL {
            for finding in report(machine, Some(role)).findings {
                let who = format!("{machine} as {role}: {}", name(&finding));
                assert!(finding.verdict != Verdict::Unknown || !finding.reason.is_empty(), "{who}");
                if !finding.verdict.is_finding() {
                    continue;
                }
                assert!(!finding.evidence.is_empty(), "{who} has no evidence");
                let fix = finding.fix.as_ref().unwrap_or_else(|| panic!("{who} has no fix"));
                assert!(!fix.shell.is_empty() && !fix.risk.is_empty(), "{who}");
                assert!(finding.reason.ends_with('.'), "{who}: {}", finding.reason);
            }
        }
    }
}

#[test]
fn a_plan_of_all_fixes_sets_nothing_twice_and_devices_first() {
    for machine in ["dual-socket-24cpu", "mlx5-64q-128cpu", "four-drivers", "detuned-router"] {
        let evidence = Evidence::gather(&open(machine), None).unwrap();
        let plan = fix_plan(&diagnose(&evidence, &Selection::default()), &Selection::default());
        assert!(!plan.changes.is_empty(), "{machine}");
        let knobs: BTreeSet<String> = plan.changes.iter().map(|c| format!("{:?}", c.knob)).collect();
        assert_eq!(knobs.len(), plan.changes.len(), "{machine}");
        assert!(plan.changes.is_sorted_by_key(|c| !c.knob.resets_queues()), "{machine}");
        assert!(plan.changes.iter().all(|c| !c.is_idle()), "{machine}");
    }
}

#[test]
fn the_far_queues_come_to_the_near_node() {
    let evidence = Evidence::gather(&open("dual-socket-24cpu"), None).unwrap();
    let only = Selection::parse(&["far-node:eth1".to_owned()]).unwrap();
    let diagnosis = diagnose(&evidence, &only);
    assert_eq!(diagnosis.report.findings.len(), 1, "{:?}", diagnosis.report.findings);
    let plan = fix_plan(&diagnosis, &only);
    let mut cpus = BTreeSet::new();
    for change in &plan.changes {
        let set = change.knob.cpus(&change.new).unwrap();
        assert_eq!(set.len(), 1, "one core each");
        cpus.extend(set.first());
    }
    assert!(plan.changes.len() >= 6, "{}", plan.changes.len());
    // Odd CPUs are on node 1, the card's.
    assert!(cpus.iter().all(|cpu| cpu % 2 == 1), "{cpus:?}");
    assert_eq!(cpus.len(), plan.changes.len(), "no core twice");
}

/// The offloads of a machine with LRO on, by role.
#[test]
fn lro_is_bad_on_a_router_and_good_on_a_server() {
    let nic = "sys/devices/pci0000:00/0000:03:00.0/net/eth0";
    let answers = r#"{"driver": "ixgbe", "features": {"rx-lro": {"on": true, "fixed": false}}}"#;
    let files = [
        ("sys/devices/system/cpu/present".to_owned(), "0-1"),
        ("sys/devices/system/cpu/online".to_owned(), "0-1"),
        ("proc/interrupts".to_owned(), "           CPU0       CPU1\n"),
        (format!("{nic}/ifindex"), "2"),
        (format!("{nic}/flags"), "0x1003"),
        (format!("{nic}/mtu"), "1500"),
        ("ethtool/eth0.json".to_owned(), answers),
    ];
    let mut tree: Tree = files.into_iter().map(|(path, text)| (path, Node::File(text.to_owned()))).collect();
    tree.insert("sys/class/net/eth0", Node::Link("../../devices/pci0000:00/0000:03:00.0/net/eth0".into()));
    let root = Root::from_tree(tree);
    let only = Selection::parse(&["lro".to_owned()]).unwrap();
    let verdict = |role| {
        let report = diagnose(&Evidence::gather(&root, Some(role)).unwrap(), &only).report;
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        (report.findings[0].verdict, report.findings[0].fix.clone().map(|f| f.shell))
    };
    let off = Some(vec!["ethtool -K eth0 rx-lro off".to_owned()]);
    assert_eq!(verdict(Role::Router), (Verdict::Bad, off.clone()));
    assert_eq!(verdict(Role::Firewall), (Verdict::Bad, off.clone()));
    assert_eq!(verdict(Role::Capture), (Verdict::Improve, off));
    assert_eq!(verdict(Role::Server), (Verdict::Good, None));
    assert_eq!(verdict(Role::Cluster), (Verdict::Good, None));
}

/// Whatever a file of a copy holds, the checks answer; none panics.
#[test]
fn no_garbage_makes_a_check_panic() {
    const GARBAGE: [&str; 8] = [
        "",
        "-1",
        "18446744073709551615",
        "x y z",
        "0 0 0",
        "4294967295\n4294967295 4294967295",
        "\u{0}\u{fffd} \n -",
        "[{}]",
    ];
    for machine in ["detuned-cluster", "detuned-vm", "detuned-router"] {
        let tar = fs::File::open(testbed::fixture(machine)).unwrap();
        let mut files: Vec<(String, Node)> = Vec::new();
        for entry in tar::Archive::new(tar).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            if let Some(target) = entry.link_name().unwrap() {
                files.push((path, Node::Link(target.to_string_lossy().into_owned())));
            } else if entry.header().entry_type().is_file() {
                let mut text = String::new();
                std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
                files.push((path, Node::File(text)));
            }
        }
        let mut answered = 0;
        for spoilt in 0..files.len() {
            // Each file gets two of them, its neighbours the others.
            for n in 0..2 {
                let garbage = GARBAGE[(2 * spoilt + n) % GARBAGE.len()];
                let mut tree: Tree = files.iter().cloned().collect();
                if matches!(files[spoilt].1, Node::Link(_)) {
                    continue;
                }
                tree.insert(files[spoilt].0.clone(), Node::File(garbage.to_owned()));
                // A machine that cannot be read at all is an error of its own.
                let Ok(evidence) = Evidence::gather(&Root::from_tree(tree), Some(Role::Cluster)) else { continue };
                answered += usize::from(!diagnose(&evidence, &Selection::default()).report.findings.is_empty());
            }
        }
        assert!(answered > 100, "{machine}: {answered}");
    }
}
