//! A systemd unit for the process that keeps.

use std::path::Path;

use serve::unit::Unit;

/// Capabilities that settings take: interfaces and their files, priority and CPUs of kernel threads.
const CAPABILITIES: [&str; 2] = ["CAP_NET_ADMIN", "CAP_SYS_NICE"];
/// System calls of the group @resources that place kernel threads.
const CALLS: [&str; 2] = ["sched_setaffinity", "setpriority"];

/// The text of a unit that runs `program` with `arguments` behind `keep run`, with the journal in `state`.
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
