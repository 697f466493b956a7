//! A systemd unit for a broker.

use std::path::Path;

use serve::unit::{Shared, Unit};

use crate::{broker::BrokerSettings, rights};

/// The text of a unit that runs `program` with `arguments` (behind `link serve`): a broker with these settings, which carries the sockets of programs if it
/// `carries_sockets`, and writes files of other nodes below `receives`.
pub fn text(
    program: &Path,
    settings: &BrokerSettings,
    arguments: &[String],
    carries_sockets: bool,
    receives: Option<&Path>,
) -> String {
    let words = [program.display().to_string(), "link".to_owned(), "serve".to_owned(), settings.interface.clone()];
    let start: Vec<String> = words.into_iter().chain(arguments.iter().cloned()).collect();
    let capabilities = rights::of_start(settings, carries_sockets, receives.is_some());
    let capabilities: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
    // Rights are given up by capset, the file of the group's socket is chowned, pairs of sockets are made by a thread that becomes nobody's.
    let mut calls = vec!["capset", "chown", "setgroups", "setresuid", "setresgid"];
    // The sockets of the group are in a namespace of their own, whose interfaces /sys shows.
    let namespaces: &[&str] = if settings.group.is_some() { &["net", "mnt"] } else { &[] };
    calls.extend(settings.group.map(|_| "mount"));
    let writes: Vec<&Path> = [Path::new("/sys/fs/bpf")].into_iter().chain(receives).collect();
    let unit = Unit {
        description: &format!("evenkeel link on {}", settings.interface),
        manual: "evenkeel-link(1)",
        interfaces: &[&settings.interface],
        start: &start,
        capabilities: &capabilities.iter().map(String::as_str).collect::<Vec<_>>(),
        families: &["AF_PACKET"],
        writes: &writes,
        calls: &calls,
        namespaces,
        shared: Some(Shared { folder: "evenkeel-link" }),
        ..Unit::default()
    };
    unit.text()
}
