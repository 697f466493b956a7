//! A systemd unit for the shield of an interface (systemd.service(5), systemd.exec(5)).

use std::{collections::BTreeSet, path::Path};

use rules::detect::DetectConfig;

/// Capabilities that the shield needs: programs and maps, tracing helpers of them, interfaces.
pub const CAPABILITIES: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"];
/// For packet sockets.
const OF_RINGS: &str = "CAP_NET_RAW";

/// The text of a unit that runs `program` with `arguments` (behind `shield run`) for `interface`, or two as `A,B`; `rings`: by packet sockets.
/// `detection` names files that it writes.
///
/// ProtectKernelTunables and ProcSubset=pid are not in it: the one makes /sys/fs/bpf read-only whatever ReadWritePaths says, the other
/// hides /proc/sys/net/ipv4, by which SYN cookies are made as the kernel makes them.
pub fn text(program: &Path, interface: &str, arguments: &[String], rings: bool, detection: &DetectConfig) -> String {
    let program = quoted(&program.display().to_string());
    let arguments: String = arguments.iter().map(|word| format!(" {}", quoted(word))).collect();
    let name = quoted(interface);
    let target = if interface.contains(',') { format!("--between {name}") } else { name.clone() };
    let capabilities = CAPABILITIES.into_iter().chain(rings.then_some(OF_RINGS)).collect::<Vec<_>>().join(" ");
    let families = if rings { " AF_PACKET" } else { "" };
    // A minus sign: a folder that is missing is told by the shield, which says what for.
    let folder = |path: &Path| Some(format!(" {}", quoted(&format!("-{}", path.parent()?.display()))));
    let files = [&detection.events, &detection.metrics.file].into_iter().flatten();
    let writable: BTreeSet<String> = files.filter_map(|path| folder(path)).collect();
    let writable: String = writable.into_iter().collect();
    // A device unit's name has its slashes escaped; interface names have none (systemd.unit(5)).
    let device = |name: &str| format!("sys-subsystem-net-devices-{}.device", name.replace('-', "\\x2d"));
    let device = interface.split(',').map(device).collect::<Vec<_>>().join(" ");
    format!(
        "[Unit]
Description=evenkeel shield of {interface}
Documentation=man:evenkeel-shield(1)
BindsTo={device}
After={device}
Before=network.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} shield run {target} --quiet{arguments}
ExecReload={program} shield reload {name}
Restart=on-failure
RestartSec=100ms
RuntimeDirectory=evenkeel
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
AmbientCapabilities=
CapabilityBoundingSet={capabilities}
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=/sys/fs/bpf{writable}
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6{families}
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallFilter=bpf
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target {device}
"
    )
}

/// A word of a command line of systemd: quoted where it must be, percent signs and dollars doubled.
fn quoted(word: &str) -> String {
    let escaped = word.replace('%', "%%").replace('$', "$$").replace('\\', "\\\\").replace('"', "\\\"");
    match escaped.chars().any(|c| c.is_whitespace() || c == '\'' || c == ';') || escaped.is_empty() {
        true => format!("\"{escaped}\""),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_starts_the_shield_with_what_was_asked_for() {
        let words =
            ["--rules".to_owned(), "/etc/evenkeel/my rules.toml".to_owned(), "--fail".to_owned(), "closed".to_owned()];
        let unit = text(Path::new("/usr/bin/evenkeel"), "eth-0", &words, false, &DetectConfig::default());
        let start = "ExecStart=/usr/bin/evenkeel shield run eth-0 --quiet --rules \"/etc/evenkeel/my rules.toml\" --fail closed\n";
        assert!(unit.contains(start), "{unit}");
        assert!(unit.contains("BindsTo=sys-subsystem-net-devices-eth\\x2d0.device\n"), "{unit}");
        assert!(unit.contains("CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_NET_ADMIN\n"), "{unit}");
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
