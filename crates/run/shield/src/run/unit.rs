//! A systemd unit for the shield of an interface.

use std::path::{Path, PathBuf};

use rules::detect::DetectConfig;
use serve::unit::Unit;

/// Capabilities that the shield needs: programs and maps, tracing helpers of them, interfaces.
pub const CAPABILITIES: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"];
/// The capability that packet sockets need.
const RING_CAPABILITY: &str = "CAP_NET_RAW";

/// The text of a unit that runs `program` with `arguments` (behind `shield run`) for `interface`, or two as `A,B`; `rings`: by packet sockets.
/// `detection` names files that it writes. SYN cookies take /proc/sys/net/ipv4, by which they are made as the kernel makes them.
pub fn text(program: &Path, interface: &str, arguments: &[String], rings: bool, detection: &DetectConfig) -> String {
    let word = |text: &str| text.to_owned();
    let program = program.display().to_string();
    let mut start = vec![program.clone(), word("shield"), word("run")];
    match interface {
        pair if pair.contains(',') => start.push(format!("--between={pair}")),
        flag if flag.starts_with('-') => {}
        name => start.push(word(name)),
    }
    start.push(word("--quiet"));
    start.extend_from_slice(arguments);
    let mut reload = vec![program, word("shield"), word("reload")];
    // Behind `--` nothing is a flag.
    if interface.starts_with('-') {
        reload.push(word("--"));
        if !interface.contains(',') {
            start.extend([word("--"), word(interface)]);
        }
    }
    reload.push(word(interface));
    let files: Vec<PathBuf> = [&detection.events, &detection.metrics.file].into_iter().flatten().cloned().collect();
    let unit = Unit {
        description: &format!("evenkeel shield of {interface}"),
        manual: "evenkeel-shield(1)",
        interfaces: &interface.split(',').collect::<Vec<_>>(),
        start: &start,
        reload: &reload,
        capabilities: &CAPABILITIES.into_iter().chain(rings.then_some(RING_CAPABILITY)).collect::<Vec<_>>(),
        families: if rings { &["AF_PACKET"] } else { &[] },
        writes: &[Path::new("/sys/fs/bpf")],
        files: &files,
        ..Unit::default()
    };
    unit.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_starts_the_shield_with_what_was_requested() {
        let words =
            ["--rules".to_owned(), "/etc/evenkeel/my rules.toml".to_owned(), "--fail".to_owned(), "closed".to_owned()];
        let unit = text(Path::new("/usr/bin/evenkeel"), "eth-0", &words, false, &DetectConfig::default());
        let start = "ExecStart=/usr/bin/evenkeel shield run eth-0 --quiet --rules \"/etc/evenkeel/my rules.toml\" --fail closed\n";
        assert!(unit.contains(start), "{unit}");
        assert!(unit.contains("BindsTo=sys-subsystem-net-devices-eth\\x2d0.device\n"), "{unit}");
        assert!(unit.contains("CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_NET_ADMIN\n"), "{unit}");
    }

    #[test]
    fn an_interface_that_begins_with_a_dash_is_no_flag() {
        let unit = |interface: &str| {
            text(Path::new("/usr/bin/evenkeel"), interface, &["--rule".to_owned()], false, &DetectConfig::default())
        };
        for (interface, start, reload) in [
            ("-x", "run --quiet --rule -- -x", "reload -- -x"),
            ("-x,y", "run --between=-x,y --quiet --rule", "reload -- -x,y"),
            ("a,b", "run --between=a,b --quiet --rule", "reload a,b"),
        ] {
            let text = unit(interface);
            for line in [
                format!("ExecStart=/usr/bin/evenkeel shield {start}"),
                format!("ExecReload=/usr/bin/evenkeel shield {reload}"),
            ] {
                assert!(text.lines().any(|other| other == line), "{line}: {text}");
            }
        }
    }

    #[test]
    fn a_unit_has_what_rings_and_files_need_and_no_more() {
        let mut detection = DetectConfig { events: Some("/var/log/ek/events.jsonl".into()), ..DetectConfig::default() };
        detection.metrics.file = Some("/var/lib/my metrics/ek.prom".into());
        let unit = text(Path::new("/usr/bin/evenkeel"), "a,b", &[], true, &detection);
        for line in [
            "CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_NET_RAW",
            "RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6 AF_PACKET",
            "ReadWritePaths=/sys/fs/bpf \"-/var/lib/my metrics\" -/var/log/ek",
        ] {
            assert!(unit.lines().any(|other| other == line), "{line}: {unit}");
        }
        let plain = text(Path::new("/usr/bin/evenkeel"), "a", &[], false, &DetectConfig::default());
        assert!(plain.lines().any(|line| line == "ReadWritePaths=/sys/fs/bpf"), "{plain}");
        assert!(!plain.contains("CAP_NET_RAW") && !plain.contains("AF_PACKET"), "{plain}");
    }
}
