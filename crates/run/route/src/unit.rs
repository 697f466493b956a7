//! A systemd unit for a router.

use std::path::{Path, PathBuf};

use serve::unit::Unit;

/// Capabilities that a router needs: programs and maps, their tracing helpers, interfaces and neighbours.
const CAPABILITIES: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"];

/// The text of a unit that runs `program` with `arguments` (behind `route run`) on `ports`, and that writes `files`.
///
/// A unit whose router `reloads` its rules does so by `systemctl reload`.
pub fn text(program: &Path, ports: &[String], arguments: &[String], reloads: bool, files: &[PathBuf]) -> String {
    let words = [program.display().to_string(), "route".to_owned(), "run".to_owned()].into_iter();
    let start: Vec<String> =
        words.chain(ports.iter().cloned()).chain(["--quiet".to_owned()]).chain(arguments.iter().cloned()).collect();
    let reload = [program.display().to_string(), "route".to_owned(), "reload".to_owned()];
    let unit = Unit {
        description: &format!("evenkeel route between {}", ports.join(", ")),
        manual: "evenkeel-route(1)",
        interfaces: &ports.iter().map(String::as_str).collect::<Vec<_>>(),
        start: &start,
        reload: if reloads { &reload } else { &[] },
        capabilities: &CAPABILITIES,
        files,
        ..Unit::default()
    };
    unit.text()
}
