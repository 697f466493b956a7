//! A systemd unit for a process that runs programs on interfaces (systemd.service(5), systemd.exec(5)).

use std::path::{Path, PathBuf};

/// Commands of a unit, and the permissions of its sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unit<'a> {
    /// Description for `systemctl status`.
    pub description: &'a str,
    /// A man page: `evenkeel-shield(1)`.
    pub manual: &'a str,
    /// Interfaces: the unit starts when they exist and ends when one of them is removed; empty for a unit of the whole machine.
    pub interfaces: &'a [&'a str],
    /// The program and its arguments.
    pub start: &'a [String],
    /// Reload command; empty: none.
    pub reload: &'a [String],
    pub capabilities: &'a [&'a str],
    /// Families of sockets that it may open beside AF_UNIX, AF_NETLINK, AF_INET and AF_INET6.
    pub families: &'a [&'a str],
    /// Folders that the process writes to and that must exist; systemd makes those in /var/lib.
    pub writes: &'a [&'a Path],
    /// Files that it writes; that a folder of theirs is missing it tells itself.
    pub files: &'a [PathBuf],
    /// System calls of the group @privileged or @mount that it makes.
    pub calls: &'a [&'a str],
    /// Kinds of namespaces that it makes or enters: `net`.
    pub namespaces: &'a [&'a str],
    /// The part of it that programs of other users talk to; none: it is root's alone.
    pub shared: Option<Shared<'a>>,
}

/// A part of a unit that programs of other users talk to.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    /// A folder of /run. Others may open what they know the name of.
    pub folder: &'a str,
}

impl Unit<'_> {
    /// The text of the unit.
    ///
    /// ProtectKernelTunables and ProcSubset=pid are not in it: the one makes /sys/fs/bpf read-only whatever ReadWritePaths says, the other
    /// hides /proc/sys/net.
    pub fn text(&self) -> String {
        let Self { description, manual, .. } = self;
        let (start, capabilities) = (line_of(self.start), self.capabilities.join(" "));
        let reload = match self.reload {
            [] => String::new(),
            words => format!("ExecReload={}\n", line_of(words)),
        };
        let families: String = self.families.iter().map(|family| format!(" {family}")).collect();
        // A minus sign: a folder that is missing is told by the process, which says what for.
        let folders = self.files.iter().filter_map(|file| Some(quoted(&format!("-{}", file.parent()?.display()))));
        let mut folders: Vec<String> = folders.collect();
        folders.sort();
        folders.dedup();
        let (states, others): (Vec<&Path>, Vec<&Path>) =
            self.writes.iter().partition(|folder| folder.parent() == Some(Path::new("/var/lib")));
        let states: Vec<String> = states.iter().filter_map(|folder| folder.file_name()?.to_str().map(quoted)).collect();
        let states = match states.is_empty() {
            true => String::new(),
            false => format!("StateDirectory={}\nStateDirectoryMode=0700\n", states.join(" ")),
        };
        let writes = others.iter().map(|folder| quoted(&folder.display().to_string())).chain(folders);
        let writes = writes.collect::<Vec<_>>().join(" ");
        let writes = if writes.is_empty() { String::new() } else { format!("ReadWritePaths={writes}\n") };
        let device = |name: &&str| format!("sys-subsystem-net-devices-{}.device", escaped(name));
        let description = description.replace('%', "%%");
        let device = self.interfaces.iter().map(device).collect::<Vec<_>>().join(" ");
        let (binds, wanted) = match device.is_empty() {
            true => (String::new(), String::new()),
            false => (format!("BindsTo={device}\nAfter={device}\n"), format!(" {device}")),
        };
        // The processes of its programs are named in what it shows, and looked at for sockets.
        let (run, mode, hidden) = match self.shared {
            Some(Shared { folder }) => (format!("evenkeel {folder}"), "0711", ""),
            None => ("evenkeel".to_owned(), "0700", "ProtectProc=invisible\n"),
        };
        let namespaces = if self.namespaces.is_empty() { "yes".to_owned() } else { self.namespaces.join(" ") };
        let calls: String = self.calls.iter().map(|call| format!(" {call}")).collect();
        format!(
            "[Unit]
Description={description}
Documentation=man:{manual}
{binds}Before=network.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={start}
{reload}Restart=on-failure
RestartSec=100ms
RuntimeDirectory={run}
RuntimeDirectoryMode={mode}
RuntimeDirectoryPreserve=yes
{states}AmbientCapabilities=
CapabilityBoundingSet={capabilities}
NoNewPrivileges=yes
ProtectSystem=strict
{writes}ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
{hidden}ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6{families}
RestrictNamespaces={namespaces}
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallFilter=bpf{calls}
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target{wanted}
"
        )
    }
}

/// As `systemd-escape` writes it (systemd.unit(5)).
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("\\x{other:02x}"),
    };
    name.bytes().map(byte).collect()
}

fn line_of(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
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
    fn names_of_devices_are_escaped_as_systemd_does() {
        for (name, unit) in [
            ("eth0.5", "eth0.5"),
            ("a@b", "a\\x40b"),
            ("x!y", "x\\x21y"),
            ("-x", "\\x2dx"),
            ("it's", "it\\x27s"),
            ("50%", "50\\x25"),
            ("a\"b", "a\\x22b"),
            ("$;*", "\\x24\\x3b\\x2a"),
            ("é0", "\\xc3\\xa90"),
            ("a\\b", "a\\x5cb"),
            ("a_b:c", "a_b:c"),
        ] {
            assert_eq!(escaped(name), unit, "{name}");
        }
    }

    #[test]
    fn words_are_quoted_and_what_is_not_needed_is_left_out() {
        let unit = Unit {
            description: "a thing",
            manual: "thing(1)",
            interfaces: &["eth-0", "b"],
            start: &["/usr/bin/thing".into(), "a b".into(), "50%".into()],
            capabilities: &["CAP_BPF"],
            files: &["/var/log/x/1".into(), "/var/log/x/2".into()],
            ..Unit::default()
        };
        let text = unit.text();
        let device = "sys-subsystem-net-devices-eth\\x2d0.device sys-subsystem-net-devices-b.device";
        for line in [
            "ExecStart=/usr/bin/thing \"a b\" 50%%",
            "ReadWritePaths=-/var/log/x",
            "CapabilityBoundingSet=CAP_BPF",
            &format!("BindsTo={device}"),
            &format!("WantedBy=multi-user.target {device}"),
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert!(!text.contains("ExecReload"), "{text}");
        assert!(!Unit { files: &[], ..unit }.text().contains("ReadWritePaths"));
        let machine = Unit { interfaces: &[], writes: &[Path::new("/var/lib/thing")], files: &[], ..unit }.text();
        assert!(machine.contains("StateDirectory=thing\n") && machine.contains("WantedBy=multi-user.target\n"));
        assert!(!machine.contains("BindsTo") && !machine.contains("ReadWritePaths"), "{machine}");
    }
}
