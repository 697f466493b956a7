//! A systemd unit for `keep run`.

use std::path::Path;

use serve::unit::Unit;

/// Capabilities for settings of interfaces and for priority and CPUs of kernel threads.
const CAPABILITIES: [&str; 2] = ["CAP_NET_ADMIN", "CAP_SYS_NICE"];
/// System calls of the group @resources that set priority and CPUs of kernel threads.
const CALLS: [&str; 2] = ["sched_setaffinity", "setpriority"];

/// The text of a unit that runs `program keep run` with `arguments`, with the journal in `state`.
pub fn text(program: &Path, arguments: &[String], state: &Path) -> String {
    let words = [program.display().to_string(), "keep".to_owned(), "run".to_owned()].into_iter();
    let start: Vec<String> = words.chain(arguments.iter().cloned()).collect();
    Unit {
        description: "evenkeel keep",
        manual: "evenkeel-keep(1)",
        start: &start,
        capabilities: &CAPABILITIES,
        writes: &[state],
        calls: &CALLS,
        ..Unit::default()
    }
    .text()
}
