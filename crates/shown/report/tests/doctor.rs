//! A doctor's report as text at two widths.

use model::doctor::{CheckRow, Finding, Fix, Report, Role, Setting, Unreadable, Verdict};
use report::{Look, Paint, doctor_list, doctor_table, doctor_text};

fn finding(check: &str, object: Option<&str>, verdict: Verdict) -> Finding {
    Finding {
        check: check.into(),
        object: object.map(str::to_owned),
        group: "rings".into(),
        question: "Do the NIC's rings hold a burst?".into(),
        evidence: vec!["receive ring 512 of 4096, transmit ring 4096 of 4096".into()],
        verdict,
        reason: "A burst that comes while the CPU is busy overflows a small ring, and the NIC drops what does not fit."
            .into(),
        values: Vec::new(),
        fix: None,
    }
}

fn report() -> Report {
    let fix = Fix {
        changes: vec![Setting { knob: "eth0 rx ring".into(), from: "512".into(), to: "4096".into(), cpus: false }],
        shell: vec!["ethtool -G eth0 rx 4096".into()],
        risk: "the link pauses while the driver makes its rings anew".into(),
        gain: Some("lost in interfaces: 12.3 kpps -> 0 pps".into()),
    };
    let advice = Fix {
        shell: vec![
            "# preempt=none on the kernel's command line, and then a restart of the machine when nobody minds".into(),
        ],
        risk: "programs with deadlines wait longer".into(),
        ..Fix::default()
    };
    let many = Fix {
        shell: (0..64).map(|n| format!("echo {n} > /sys/class/net/eth0/queues/tx-{n}/xps_cpus")).collect(),
        risk: "none".into(),
        ..Fix::default()
    };
    Report {
        hostname: "made-up".into(),
        kernel: "6.1.0".into(),
        role: Role::Router,
        role_guessed: true,
        role_reasons: vec!["net.ipv4.ip_forward = 1".into(), "2 interfaces to forward between: eth0, eth1".into()],
        watched_s: Some(0.25),
        findings: vec![
            Finding { fix: Some(fix), ..finding("rings", Some("eth0"), Verdict::Bad) },
            Finding { fix: Some(advice), ..finding("preemption", None, Verdict::Improve) },
            Finding { fix: Some(many), ..finding("xps", Some("eth0"), Verdict::Improve) },
            finding("tick", None, Verdict::Unknown),
            finding("ring-loss", Some("eth0"), Verdict::Good),
            finding("busy-poll", None, Verdict::NotApplicable),
        ],
        unreadable: vec![Unreadable {
            source: "/sys/x".into(),
            reason: "cannot read /sys/x: Permission denied (run as root to read it)".into(),
        }],
    }
}

#[test]
fn findings_as_text() {
    insta::assert_snapshot!(
        "doctor_80",
        doctor_text(&report(), Look { width: 80, lines: true }, Paint::default(), false)
    );
    insta::assert_snapshot!("doctor_200_pipe_all", doctor_text(&report(), Look::plain(200), Paint::default(), true));
}

#[test]
fn only_commands_may_be_wider_than_the_page() {
    for width in [60, 80, 120] {
        for line in doctor_text(&report(), Look::plain(width), Paint::default(), true).lines() {
            let is_command = line.contains("ethtool ") || line.contains("echo ");
            assert!(is_command || line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

/// Commands write CPUs as masks: `echo 1` is CPU 0.
#[test]
fn masks_are_shown_as_cpus() {
    let setting =
        |from: &str, to: &str| Setting { knob: "IRQ 64".into(), from: from.into(), to: to.into(), cpus: true };
    let fix = Fix {
        changes: vec![setting("0-7", "0"), setting("none", "2,4")],
        shell: vec!["echo 1 > /proc/irq/64/smp_affinity".into(), "echo 14 > /x/rps_cpus".into()],
        ..Fix::default()
    };
    let report =
        Report { findings: vec![Finding { fix: Some(fix), ..finding("queue-irqs", None, Verdict::Bad) }], ..report() };
    let text = doctor_text(&report, Look::plain(120), Paint::default(), false);
    assert!(text.contains("smp_affinity  # CPU 0; now CPUs 0-7"), "{text}");
    assert!(text.contains("rps_cpus  # CPUs 2,4; now no CPU"), "{text}");
}

/// Nobody can make the fixes of a copy.
#[test]
fn a_saved_machine_is_not_mended_here() {
    let saved = Report { watched_s: None, ..report() };
    let text = doctor_text(&saved, Look::plain(120), Paint::default(), false);
    assert!(!text.contains("--fix") && text.contains("--dry-run"), "{text}");
}

#[test]
fn the_list_of_checks() {
    let row = CheckRow {
        check: "rings".into(),
        group: "rings".into(),
        question: "Do the rings hold a burst?".into(),
        evidence: "ethtool -g | now and at most".into(),
        fix: "ethtool -G".into(),
        risk: "the link pauses".into(),
        roles: vec![Role::Router, Role::Capture],
    };
    let rows = [CheckRow { roles: Vec::new(), check: "other".into(), ..row.clone() }, row];
    insta::assert_snapshot!("doctor_list", doctor_list(&rows, Look::plain(80)));
    insta::assert_snapshot!("doctor_table", doctor_table(&rows));
}
