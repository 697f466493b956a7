//! Single judgements on machines of a few files: when a check must find something, and when it must hold its tongue.

use doctor::{Diagnosis, Evidence, Selection, diagnose};
use host::{
    Root,
    root::{Node, Tree},
};
use model::doctor::{Finding, Role, Verdict};

const NIC: &str = "sys/devices/pci0000:00/0000:03:00.0/net/eth0";

/// A machine of these files, and those without which it is none.
fn machine(files: &[(&str, &str)]) -> Root {
    let base = [
        ("sys/devices/system/cpu/present", "0-1"),
        ("sys/devices/system/cpu/online", "0-1"),
        ("proc/interrupts", "           CPU0       CPU1\n"),
        ("proc/sys/net/ipv4/ip_forward", "0"),
        ("NIC/ifindex", "2"),
        ("NIC/flags", "0x1003"),
        ("NIC/mtu", "1500"),
    ];
    let files = base.iter().chain(files);
    let mut tree: Tree = files.map(|(path, text)| (path.replace("NIC", NIC), Node::File((*text).to_owned()))).collect();
    tree.insert("sys/class/net/eth0", Node::Link("../../devices/pci0000:00/0000:03:00.0/net/eth0".into()));
    Root::from_tree(tree)
}

fn examined(files: &[(&str, &str)], role: Role, check: &str) -> Diagnosis {
    let only = Selection::parse(&[check.to_owned()]).unwrap();
    diagnose(&Evidence::gather(&machine(files), Some(role)).unwrap(), &only)
}

fn only(files: &[(&str, &str)], role: Role, check: &str) -> Finding {
    let mut findings = examined(files, role, check).report.findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

fn shell(finding: &Finding) -> String {
    finding.fix.as_ref().map(|fix| fix.shell.join("\n")).unwrap_or_default()
}

#[test]
fn insert_failed_is_no_full_table() {
    let table = |statistics| {
        let files = [
            ("proc/sys/net/netfilter/nf_conntrack_max", "1000"),
            ("proc/sys/net/netfilter/nf_conntrack_count", "100"),
            ("proc/sys/net/netfilter/nf_conntrack_buckets", "1000"),
            ("proc/net/stat/nf_conntrack", statistics),
        ];
        only(&files, Role::Router, "conntrack-table")
    };
    assert_eq!(table("insert_failed drop early_drop\n000000ff 0 0\n").verdict, Verdict::Good);
    let full = table("insert_failed drop early_drop\n0 0 00000001\n");
    assert_eq!(full.verdict, Verdict::Bad);
    assert!(shell(&full).contains("echo 2000 > /proc/sys/net/netfilter/nf_conntrack_max"), "{}", shell(&full));
}

#[test]
fn suspended_interrupts_want_deferral() {
    let with = |defer: u32, suspend: u64| {
        let napi = format!(
            r#"{{"driver": "ice", "napis": [{{"ifindex": 2, "id": 8193, "irq": null, "pid": null, "rx_queue": 0,
            "defer_hard_irqs": {defer}, "gro_flush_timeout_ns": 20000, "irq_suspend_timeout_ns": {suspend}}}]}}"#
        );
        let files =
            [("ethtool/eth0.json", napi.as_str()), ("NIC/napi_defer_hard_irqs", "0"), ("NIC/gro_flush_timeout", "0")];
        only(&files, Role::Server, "irq-suspension")
    };
    assert_eq!(with(2, 20_000_000).verdict, Verdict::Good);
    let lacking = with(0, 20_000_000);
    assert_eq!(lacking.verdict, Verdict::Improve);
    assert!(shell(&lacking).contains(r#""id": 8193, "defer-hard-irqs": 2"#), "{}", shell(&lacking));
    assert_eq!(with(2, 60_000_000_000).verdict, Verdict::Bad);
    assert!(with(0, 0).evidence.concat().contains("napi_defer_hard_irqs 0"), "without suspension the old question");
}

#[test]
fn the_governor_is_a_setting_for_who_forwards() {
    let files = [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq"),
    ];
    assert_eq!(only(&files, Role::Server, "governor").verdict, Verdict::Good);
    let router = only(&files, Role::Router, "governor");
    assert_eq!(router.verdict, Verdict::Improve);
    assert_eq!(shell(&router), "echo performance > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
}

#[test]
fn jumbo_frames_are_never_set_by_the_program() {
    let found = only(&[], Role::Cluster, "mtu");
    assert_eq!(found.verdict, Verdict::Improve);
    assert!(found.fix.as_ref().is_some_and(|fix| fix.changes.is_empty()), "{found:?}");
    assert!(shell(&found).starts_with("ip link set dev eth0 mtu 9000"), "{}", shell(&found));
}

#[test]
fn lines_of_old_guides_are_named_by_their_text() {
    let conf = "net.ipv4.tcp_tw_recycle = 1\nnet.ipv4.tcp_fack=1\n";
    let found = examined(&[("etc/sysctl.conf", conf)], Role::Server, "removed-sysctls").report.findings;
    assert_eq!(found.len(), 2, "{found:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sysctl.conf");
    std::fs::write(&file, format!("{conf}net.ipv4.tcp_sack = 1\n")).unwrap();
    for finding in &found {
        let command = shell(finding).replace("/etc/sysctl.conf", file.to_str().unwrap());
        assert!(std::process::Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    }
    let left = std::fs::read_to_string(&file).unwrap();
    assert_eq!(left, "# net.ipv4.tcp_tw_recycle = 1\n# net.ipv4.tcp_fack=1\nnet.ipv4.tcp_sack = 1\n");
}

#[test]
fn a_strict_filter_that_drops_nothing_is_right() {
    let with = |dropped: &str| {
        let netstat = format!("TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 0 {dropped}\n");
        let files = [
            ("proc/sys/net/ipv4/conf/all/rp_filter", "1"),
            ("proc/sys/net/ipv4/conf/eth0/rp_filter", "0"),
            ("sys/class/net/eth1/ifindex", "3"),
            ("sys/class/net/eth1/flags", "0x1003"),
            ("sys/class/net/eth1/mtu", "1500"),
            ("proc/net/netstat", netstat.as_str()),
        ];
        let found = examined(&files, Role::Router, "rp-filter:eth0").report.findings;
        found.into_iter().next().expect("an answer")
    };
    assert_eq!(with("0").verdict, Verdict::Good);
    let dropping = with("12");
    assert_eq!(dropping.verdict, Verdict::Improve);
    assert_eq!(shell(&dropping), "echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter");
}

/// Counts begin anew when they are acknowledged; new losses are found again, and a finding that was set aside only when it is graver.
#[test]
fn what_was_acknowledged_is_not_repeated() {
    use doctor::ack::Acknowledged;
    let machine = |processed: u32, dropped: u32| {
        machine(&[
            ("proc/sys/net/core/netdev_max_backlog", "100000"),
            ("proc/sys/net/ipv4/tcp_sack", "0"),
            ("proc/net/softnet_stat", &format!("{processed:08x} {dropped:08x} 0 0 0 0 0 0 0 0 0 0 0\n")),
        ])
    };
    let only = Selection::parse(&["backlog".to_owned(), "tcp-options".to_owned()]).unwrap();
    let verdict = |root: &Root, acknowledged: &Acknowledged, check: &str| {
        let mut evidence = Evidence::gather(root, Some(Role::Server)).unwrap();
        evidence.acknowledge(acknowledged);
        diagnose(&evidence, &only).report.findings.iter().find(|f| f.check == check).unwrap().verdict
    };
    let before = machine(1_000_000, 5000);
    let mut acknowledged = Acknowledged::default();
    assert_eq!(verdict(&before, &acknowledged, "backlog"), Verdict::Improve);
    assert_eq!(verdict(&before, &acknowledged, "tcp-options"), Verdict::Bad);
    let evidence = Evidence::gather(&before, Some(Role::Server)).unwrap();
    acknowledged.count_from_now(&before, &evidence.host);
    assert_eq!(verdict(&before, &acknowledged, "backlog"), Verdict::Good);
    assert_eq!(verdict(&machine(1_001_000, 5000), &acknowledged, "backlog"), Verdict::Good);
    assert_eq!(verdict(&machine(1_001_000, 5010), &acknowledged, "backlog"), Verdict::Improve, "new ones");
    let mut findings = diagnose(&evidence, &only).report.findings;
    findings.iter_mut().for_each(|f| f.verdict = Verdict::Improve);
    acknowledged.accept(findings.iter());
    assert_eq!(verdict(&before, &acknowledged, "tcp-options"), Verdict::Bad, "graver than what was set aside");
    findings.iter_mut().for_each(|f| f.verdict = Verdict::Bad);
    acknowledged.accept(findings.iter());
    assert_eq!(verdict(&before, &acknowledged, "tcp-options"), Verdict::Acknowledged);
    let folder = tempfile::tempdir().unwrap();
    let file = doctor::ack::path(folder.path());
    acknowledged.save(&file).unwrap();
    assert_eq!(Acknowledged::load(&file).unwrap(), Some(acknowledged));
    assert!(Acknowledged::forget(&file).unwrap() && Acknowledged::load(&file).unwrap().is_none());
}

/// A card on another bus than PCI is looked at, and one of which nothing is known is said to be so.
#[test]
fn cards_of_every_bus_are_looked_at() {
    let board = |lines: &str| {
        let nic = "sys/devices/platform/fd580000.ethernet/net/eth0";
        let mut tree: Tree = [
            ("sys/devices/system/cpu/present".to_owned(), "0-3"),
            ("sys/devices/system/cpu/online".to_owned(), "0-3"),
            ("proc/sys/net/ipv4/ip_forward".to_owned(), "0"),
            ("proc/interrupts".to_owned(), lines),
            ("proc/irq/40/smp_affinity_list".to_owned(), "0-3"),
            ("proc/irq/40/effective_affinity_list".to_owned(), "0"),
            ("proc/irq/41/smp_affinity_list".to_owned(), "0-3"),
            ("proc/irq/41/effective_affinity_list".to_owned(), "0"),
            (format!("{nic}/ifindex"), "2"),
            (format!("{nic}/flags"), "0x1003"),
            (format!("{nic}/queues/rx-0/rps_cpus"), "0"),
            (format!("{nic}/queues/rx-1/rps_cpus"), "0"),
        ]
        .into_iter()
        .map(|(path, text)| (path, Node::File(text.to_owned())))
        .collect();
        tree.insert("sys/class/net/eth0", Node::Link(format!("../../{}", &nic[4..])));
        tree.insert(format!("{nic}/device"), Node::Link("../../../fd580000.ethernet".into()));
        let only = Selection::parse(&["queue-irqs".to_owned()]).unwrap();
        let evidence = Evidence::gather(&Root::from_tree(tree), Some(Role::Server)).unwrap();
        let findings = diagnose(&evidence, &only).report.findings;
        assert_eq!((findings.len(), findings[0].object.as_deref()), (1, Some("eth0")), "{findings:?}");
        findings[0].verdict
    };
    let both = " CPU0 CPU1 CPU2 CPU3\n40: 9 0 0 0 GICv2 189 Level eth0\n41: 9 0 0 0 GICv2 190 Level eth0\n";
    assert_eq!(board(both), Verdict::Bad, "both on one core");
    assert_eq!(board(" CPU0 CPU1 CPU2 CPU3\n40: 9 0 0 0 GICv2 189 Level end7\n"), Verdict::Unknown);
}

/// Counts of a machine that was watched: what did not grow meanwhile is told and is no finding, since boot it may be of any time.
#[test]
fn a_count_that_does_not_grow_is_no_finding() {
    let machine = |softnet: (u32, u32), statistics: &str, filtered: u32| {
        machine(&[
            ("proc/sys/net/core/netdev_max_backlog", "1000"),
            ("proc/sys/net/core/netdev_budget", "300"),
            ("proc/sys/net/core/netdev_budget_usecs", "2000"),
            ("proc/sys/net/core/somaxconn", "4096"),
            ("proc/net/softnet_stat", &format!("000f4240 {:08x} {:08x} 0 0 0 0 0 0 0 0 0 0\n", softnet.0, softnet.1)),
            ("proc/sys/net/netfilter/nf_conntrack_max", "1000"),
            ("proc/sys/net/netfilter/nf_conntrack_count", "100"),
            ("proc/sys/net/netfilter/nf_conntrack_buckets", "1000"),
            ("proc/net/stat/nf_conntrack", statistics),
            ("proc/net/netstat", &format!("TcpExt: ListenOverflows ListenDrops\nTcpExt: {filtered} {filtered}\n")),
        ])
    };
    let checks = ["backlog", "napi-budget", "conntrack-table", "accept-queues"];
    let (none, some) = ("drop early_drop\n00000000 0\n", "drop early_drop\n00000009 0\n");
    let now = machine((5000, 5000), some, 5000);
    let judged = |earlier: Option<Root>| {
        let mut evidence = Evidence::gather(&now, Some(Role::Server)).unwrap();
        evidence.earlier = earlier;
        checks.map(|check| {
            let mut found = diagnose(&evidence, &Selection::parse(&[check.to_owned()]).unwrap()).report.findings;
            assert_eq!(found.len(), 1, "{found:?}");
            found.remove(0)
        })
    };
    for finding in judged(None) {
        assert!(finding.verdict.is_finding(), "a saved copy has its sums alone: {finding:?}");
    }
    for finding in judged(Some(machine((4990, 4990), none, 4990))) {
        assert!(finding.verdict.is_finding(), "it grows: {finding:?}");
    }
    for finding in judged(Some(now.clone())) {
        assert_eq!(finding.verdict, Verdict::Good, "{finding:?}");
        assert!(finding.evidence.concat().contains("since boot"), "the sum is told: {finding:?}");
    }
}
