//! The machine of a run, and the cores of those who took part.

use model::run::{Arrangement, Machine};

/// The machine in a line.
pub(crate) fn machine_line(m: &Machine) -> String {
    let guest = m.virtualised.as_ref().map_or_else(String::new, |v| format!(", a guest of {v}"));
    format!("{}, {} CPUs, {}, Linux {}{guest}", m.hostname, m.cpus, m.cpu_model, m.kernel)
}

/// The cores of each part in a line.
pub(crate) fn roles(arrangement: &Arrangement) -> String {
    let roles: Vec<String> = arrangement.roles.iter().map(|r| format!("CPU {} {}", r.cpus, r.does)).collect();
    roles.join("; ")
}
