//! Sysctls: their values now, and what files set them at the start.

use super::{Missing, text};
use crate::{picture::Host, root::Root};

/// Sysctls of the network stack that checks ask for.
pub const RECORDED: [&str; 30] = [
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv4/tcp_syncookies",
    "net/ipv4/tcp_max_syn_backlog",
    "net/core/somaxconn",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_low_latency",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_tw_recycle",
    "net/ipv4/tcp_fin_timeout",
    "net/ipv4/tcp_mem",
    "net/ipv4/udp_mem",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_moderate_rcvbuf",
    "net/ipv4/tcp_congestion_control",
    "net/core/rmem_default",
    "net/core/rmem_max",
    "net/core/wmem_default",
    "net/core/wmem_max",
    "net/core/netdev_max_backlog",
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/rps_sock_flow_entries",
    "net/core/default_qdisc",
    "net/core/optmem_max",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/default/rp_filter",
];

/// The folders of sysctls for the start of the machine, the later the stronger (sysctl.d(5)).
const FOLDERS: [&str; 4] = ["usr/lib/sysctl.d", "usr/local/lib/sysctl.d", "run/sysctl.d", "etc/sysctl.d"];
const FILE: &str = "etc/sysctl.conf";
/// Only settings of the network are read from these files, and kept.
const PREFIX: &str = "net.";

/// The value of a sysctl, such as `net/ipv4/tcp_sack`, with single spaces; none when the kernel has no such.
pub fn value(root: &Root, path: &str) -> Result<Option<String>, Missing> {
    Ok(text(root, &format!("proc/sys/{path}"))?.map(|t| t.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// The values of a sysctl that holds numbers.
pub fn numbers(root: &Root, path: &str) -> Result<Option<Vec<i64>>, Missing> {
    let Some(text) = value(root, path)? else { return Ok(None) };
    let parsed: Result<Vec<i64>, _> = text.split(' ').map(str::parse).collect();
    parsed.map(Some).map_err(|_| Missing(format!("/proc/sys/{path} holds `{text}`, which are no numbers")))
}

/// The value of a sysctl that holds one number.
pub fn number(root: &Root, path: &str) -> Result<Option<i64>, Missing> {
    Ok(numbers(root, path)?.and_then(|all| all.first().copied()))
}

/// The interfaces with a setting of their own, with its value: `conf/eth0/rp_filter`.
pub fn by_interface(root: &Root, host: &Host, setting: &str) -> Result<Vec<(String, i64)>, Missing> {
    let mut found = Vec::new();
    for nic in &host.nics {
        if let Some(value) = number(root, &format!("net/ipv4/conf/{}/{setting}", nic.name))? {
            found.push((nic.name.clone(), value));
        }
    }
    Ok(found)
}

/// A line that sets a sysctl at the start of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file, without a leading slash.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The sysctl with dots, such as `net.ipv4.tcp_sack`.
    pub key: String,
    pub value: String,
}

/// The lines of sysctl.d and sysctl.conf that set something of the network.
pub fn lines(root: &Root) -> Result<Vec<Line>, Missing> {
    super::kept(root)?;
    let mut found = Vec::new();
    let mut files: Vec<String> = Vec::new();
    for folder in FOLDERS {
        // Silent root: only the lines that count are kept in a copy.
        let quiet = if root.is_live() { Root::live() } else { root.clone() };
        let names = quiet.list(folder).unwrap_or_default();
        files.extend(names.into_iter().filter(|n| n.ends_with(".conf")).map(|name| format!("{folder}/{name}")));
    }
    files.push(FILE.to_owned());
    for file in files {
        let quiet = if root.is_live() { Root::live() } else { root.clone() };
        let Some(text) = quiet.read_opt(&file)? else { continue };
        let lines = parse(&file, &text);
        if !lines.is_empty() {
            root.note(&file, &kept_text(&text, &lines));
        }
        found.extend(lines);
    }
    Ok(found)
}

fn parse(file: &str, text: &str) -> Vec<Line> {
    let line = |(number, line): (usize, &str)| {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            return None;
        }
        let (key, value) = line.split_once('=')?;
        // `-` before the key: no complaint if it fails. Slashes may stand for dots.
        let key = key.trim().trim_start_matches('-').replace('/', ".");
        key.starts_with(PREFIX).then(|| Line {
            file: file.to_owned(),
            line: number + 1,
            key,
            value: value.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    };
    text.lines().enumerate().filter_map(line).collect()
}

/// The text with every line that is no setting of the network emptied, so that numbers of lines stay.
fn kept_text(text: &str, lines: &[Line]) -> String {
    let keep = |(number, line): (usize, &str)| {
        let kept = lines.iter().any(|l| l.line == number + 1);
        format!("{}\n", if kept { line } else { "" })
    };
    text.lines().enumerate().map(keep).collect()
}

pub(super) fn record(root: &Root, host: &Host) {
    for path in RECORDED {
        let _ = value(root, path);
    }
    let _ = by_interface(root, host, "rp_filter");
    let _ = by_interface(root, host, "forwarding");
    let _ = lines(root);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn values_with_several_numbers() {
        let root = machine(&[("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")]);
        assert_eq!(numbers(&root, "net/ipv4/tcp_rmem"), Ok(Some(vec![4096, 131_072, 6_291_456])));
        assert_eq!(value(&root, "net/ipv4/tcp_rmem").unwrap().unwrap(), "4096 131072 6291456");
        assert_eq!(number(&root, "net/ipv4/tcp_sack"), Ok(None));
    }

    #[test]
    fn files_give_key_value_and_place() {
        let text = "# a guide\nvm.swappiness = 1\n-net/ipv4/tcp_tw_recycle=1\nnet.ipv4.tcp_mem =  1  2 3\n; net.x = 1\nbroken\n";
        let root = machine(&[("etc/sysctl.d/90-guide.conf", text), ("etc/sysctl.d/README", "net.a = 1\n")]);
        let lines = lines(&root).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].key.as_str(), lines[0].line, lines[1].value.as_str()),
            ("net.ipv4.tcp_tw_recycle", 3, "1 2 3")
        );
        let kept = kept_text(text, &lines);
        assert!(!kept.contains("swappiness") && parse("x", &kept)[1].line == 4);
    }
}
