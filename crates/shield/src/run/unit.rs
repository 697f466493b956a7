//! A systemd unit for the shield of an interface (systemd.service(5), systemd.exec(5)).

use std::path::Path;

/// Capabilities that the shield needs: programs and maps, tracing helpers of them, interfaces.
pub const CAPABILITIES: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"];

/// The text of a unit that runs `program` with `arguments` (behind `shield run`) for `interface`, or two as `A,B`.
pub fn text(program: &Path, interface: &str, arguments: &[String]) -> String {
    let program = quoted(&program.display().to_string());
    let arguments: String = arguments.iter().map(|word| format!(" {}", quoted(word))).collect();
    let name = quoted(interface);
    let target = if interface.contains(',') { format!("--between {name}") } else { name.clone() };
    let capabilities = CAPABILITIES.join(" ");
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
ExecStart={program} shield run {target} --json{arguments}
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
ReadWritePaths=/sys/fs/bpf
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service bpf
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
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
        let unit = text(Path::new("/usr/bin/evenkeel"), "eth-0", &words);
        let start = "ExecStart=/usr/bin/evenkeel shield run eth-0 --json --rules \"/etc/evenkeel/my rules.toml\" --fail closed\n";
        assert!(unit.contains(start), "{unit}");
        assert!(unit.contains("BindsTo=sys-subsystem-net-devices-eth\\x2d0.device\n"), "{unit}");
        assert!(unit.contains("CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_NET_ADMIN\n"), "{unit}");
    }
}
