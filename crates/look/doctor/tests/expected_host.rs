//! Expected findings of the checks of host, links, rules and leftovers on each machine in `fixtures/`.
//!
//! The table was written before the checks. A finding that it does not name fails the test as well.

use doctor::{Evidence, Selection, diagnose};
use host::Root;
use model::doctor::{
    Finding, Role,
    Verdict::{self, Bad, Good, Improve, NotApplicable, Unknown},
};

/// The checks that this table is about.
const CHECKS: &str = "emulated-nic virtio-queues steal governor idle-states clock-source pcie-link pause-frames duplex \
    bridge-mtu tx-queue-length conntrack-table linear-rules syn-cookies accept-queues neighbour-table \
    rp-filter xdp-programs packet-readers removed-sysctls tcp-options socket-defaults tcp-memory \
    backlog-length polling-router rps-many-queues rfs-half";

type Row = (&'static str, &'static str, Verdict);

const DETUNED_VM: &[Row] = &[
    ("emulated-nic", "ens3", Bad),
    ("virtio-queues", "ens4", Improve),
    ("steal", "", Bad),
    ("governor", "", NotApplicable),
    ("idle-states", "", Good),
    ("clock-source", "", Bad),
    ("duplex", "ens3", Good),
    ("tx-queue-length", "ens3", Improve),
    ("tx-queue-length", "ens4", Good),
    ("conntrack-table", "", Bad),
    ("linear-rules", "inet filter input", Improve),
    ("syn-cookies", "", Bad),
    ("accept-queues", "", Improve),
    ("neighbour-table", "ipv4", Bad),
    ("rp-filter", "", NotApplicable),
    ("xdp-programs", "ens4", Improve),
    ("packet-readers", "snort", Improve),
    ("packet-readers", "dhclient", Good),
    ("removed-sysctls", "net.ipv4.tcp_tw_recycle", Improve),
    ("removed-sysctls", "net.ipv4.tcp_low_latency", Improve),
    ("tcp-options", "net.ipv4.tcp_timestamps", Bad),
    ("tcp-options", "net.ipv4.tcp_sack", Bad),
    ("tcp-options", "net.ipv4.tcp_window_scaling", Good),
    ("socket-defaults", "net.core.rmem_default", Improve),
    ("socket-defaults", "net.core.wmem_default", Good),
    ("tcp-memory", "net.ipv4.tcp_mem", Improve),
    ("tcp-memory", "net.ipv4.udp_mem", Good),
    ("backlog-length", "", Improve),
    ("polling-router", "", NotApplicable),
    ("rfs-half", "", Good),
];

const DETUNED_ROUTER: &[Row] = &[
    ("emulated-nic", "", NotApplicable),
    ("virtio-queues", "", NotApplicable),
    ("steal", "", NotApplicable),
    ("governor", "", Bad),
    ("idle-states", "", Improve),
    ("clock-source", "", Good),
    ("pcie-link", "eth0", Improve),
    ("pcie-link", "eth1", Bad),
    ("pcie-link", "eno3", Good),
    ("pause-frames", "eth0", Bad),
    ("pause-frames", "eth1", Improve),
    ("pause-frames", "eno3", Good),
    ("duplex", "eth0", Good),
    ("duplex", "eno3", Bad),
    ("bridge-mtu", "br0", Bad),
    ("tx-queue-length", "eth0", Good),
    ("conntrack-table", "", NotApplicable),
    ("linear-rules", "", NotApplicable),
    ("syn-cookies", "", Good),
    ("accept-queues", "", Good),
    ("neighbour-table", "ipv4", Improve),
    ("rp-filter", "eth0", Improve),
    ("xdp-programs", "eth0", Good),
    ("packet-readers", "", NotApplicable),
    ("removed-sysctls", "", Good),
    ("tcp-options", "net.ipv4.tcp_sack", Good),
    ("socket-defaults", "net.core.rmem_default", Good),
    ("tcp-memory", "net.ipv4.tcp_mem", Good),
    ("backlog-length", "", Good),
    ("polling-router", "", Improve),
    ("rps-many-queues", "eth0", Improve),
    ("rps-many-queues", "eth1", Good),
    ("rfs-half", "", Improve),
];

/// A copy without the readings that these checks need: what the picture tells is said, the rest is unknown.
const OLD: &str = "governor idle-states clock-source conntrack-table linear-rules syn-cookies accept-queues neighbour-table \
    xdp-programs packet-readers removed-sysctls tcp-options socket-defaults tcp-memory";

const SINGLE_QUEUE: &[Row] = &[("virtio-queues", "ens3", Improve), ("steal", "", Unknown)];
const FOUR_DRIVERS: &[Row] = &[("emulated-nic", "eno1", Improve)];
const RECORDED: &[Row] = &[("virtio-queues", "eth0", Improve), ("steal", "", Good), ("backlog-length", "", Good)];

fn findings(fixture: &str) -> (Role, Vec<Finding>) {
    let evidence = Evidence::gather(&Root::open(&testbed::fixture(fixture)).unwrap(), None).unwrap();
    let all = diagnose(&evidence, &Selection::default()).report.findings;
    (evidence.role, all.into_iter().filter(|f| CHECKS.split_whitespace().any(|check| check == f.check)).collect())
}

fn shown(findings: &[&Finding]) -> String {
    let line = |f: &&Finding| {
        format!("  {} {} {}: {:?} {}\n", f.check, f.object.as_deref().unwrap_or("-"), f.verdict, f.evidence, f.reason)
    };
    findings.iter().map(line).collect()
}

fn expect(fixture: &str, tables: &[&[Row]]) {
    let (_, all) = findings(fixture);
    let rows: Vec<Row> = tables.iter().flat_map(|table| table.iter().copied()).collect();
    for &(check, object, verdict) in &rows {
        let of_check: Vec<&Finding> = all.iter().filter(|f| f.check == check).collect();
        let found = of_check.iter().find(|f| object.is_empty() || f.object.as_deref() == Some(object));
        assert_eq!(
            found.map(|f| f.verdict),
            Some(verdict),
            "{fixture}: {check} {object}; it said:\n{}",
            shown(&of_check)
        );
    }
    let unexpected = |f: &&Finding| {
        let named = |row: &Row| row.0 == f.check && (row.1.is_empty() || f.object.as_deref() == Some(row.1));
        f.verdict.is_finding() && !rows.iter().any(named)
    };
    let more: Vec<&Finding> = all.iter().filter(unexpected).collect();
    assert!(more.is_empty(), "{fixture}: findings that nobody expected:\n{}", shown(&more));
}

#[test]
fn the_detuned_guest() {
    assert_eq!(findings("detuned-vm").0, Role::Server);
    expect("detuned-vm", &[DETUNED_VM]);
}

#[test]
fn the_detuned_router() {
    assert!(findings("detuned-router").0.forwards());
    expect("detuned-router", &[DETUNED_ROUTER]);
}

#[test]
fn copies_without_these_readings_say_unknown() {
    let old: Vec<Row> = OLD.split_whitespace().map(|check| (check, "", Unknown)).collect();
    for fixture in ["dual-socket-24cpu", "ixgbe-8q-8cpu", "mlx5-64q-128cpu", "offline-isolated", "shared-irq"] {
        expect(fixture, &[&old]);
    }
    expect("single-queue-vm", &[&old, SINGLE_QUEUE]);
    expect("four-drivers", &[&old, FOUR_DRIVERS]);
    expect("recorded-virtio-2cpu", &[&old, RECORDED]);
}
