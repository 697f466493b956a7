//! A machine without libpcap: filters and capture files are refused with the name of the package, and a capture without a filter works.

use std::{process::Command, time::Duration};

use testbed::{Wire, ended, fixture, json, pcap, refused};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A script that hides libpcap's files and runs `$@`.
const HIDDEN: &str = r#"for file in $(/sbin/ldconfig -p | sed -n 's|.*libpcap.* => ||p' | sort -u); do mount --bind /dev/null "$file"; done; exec "$@""#;

fn hidden<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--mount", "sh", "-c", HIDDEN, "sh", EVENKEEL], args].concat()
}

#[test]
fn without_libpcap_filters_are_refused_and_all_else_works() {
    let Some(wire) = Wire::new("nopcap") else { return };
    let interface = wire.receiver.interface();
    let run = |args: &[&str]| wire.receiver.ran("unshare", &hidden(args));

    let file = wire.bed.file("one.pcap", pcap(1, [(Duration::from_secs(1), [0u8; 60], 60)]));
    let rules = wire.bed.file("rules.toml", "[[rule]]\nname = \"u\"\naction = \"drop\"\nprotocol = \"udp\"\n");
    for args in [
        &["capture", "-r", &file][..],
        &["capture", interface, "udp"],
        &["ledger", "--filter", "udp", "--once"],
        &["gen", interface, "--pcap", &file, "--allow-non-ip"],
        &["shield", "explain", &file, "--rules", &rules],
    ] {
        refused(&run(args), 3, &["libpcap is not installed", "libpcap0.8"]);
    }

    let machine = fixture("mlx5-64q-128cpu");
    ended(&run(&["spread", "plan", "--root", machine.to_str().unwrap()]), 0);
    let capture = wire.receiver.starts(
        "unshare",
        &hidden(&["capture", interface, "--json", "--quiet", "--backend", "packet", "--count", "5"]),
    );
    wire.hears(1);
    let sent = [
        "gen",
        wire.sender.interface(),
        "--udp",
        "--backend",
        "tx-ring",
        "--sizes",
        "64",
        "--count",
        "20",
        "--rate",
        "1000",
    ];
    ended(&wire.sender.ran(EVENKEEL, &sent), 0);
    let output = capture.output();
    ended(&output, 0);
    assert_eq!(json(&output)["packets"], 5);
}

#[test]
fn the_program_is_not_linked_to_libpcap() {
    let linked = Command::new("ldd").arg(EVENKEEL).output().unwrap();
    ended(&linked, 0);
    let linked = String::from_utf8(linked.stdout).unwrap();
    assert!(linked.contains("libelf") && !linked.contains("pcap"), "{linked}");
}
