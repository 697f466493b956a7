//! The machine that a run was made on, in the words of a report.

use std::fs;

use model::run::Machine;

use crate::picture::Host;

/// Reads it from /proc and /sys; what cannot be read is said to be unknown.
pub fn describe(host: &Host) -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let product = fs::read_to_string("/sys/class/dmi/id/product_name").unwrap_or_default();
    Machine {
        hostname: host.hostname.clone(),
        kernel: host.kernel.clone(),
        cpu_model: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
        cpus: host.online().len() as u32,
        memory_bytes: field(&meminfo, "MemTotal")
            .and_then(|v| v.split_ascii_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib << 10),
        virtualised: field(&cpuinfo, "flags").filter(|flags| flags.split(' ').any(|f| f == "hypervisor")).map(|_| {
            match product.trim() {
                "" => "a hypervisor".to_owned(),
                product => product.to_owned(),
            }
        }),
    }
}

/// The time as reports have it (RFC 3339, UTC).
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Threads that run or want to run, as a mean of a minute; 0 where it cannot be read.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// The value behind `name :` or `name:` in a file of /proc.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name).map(|(_, v)| v.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_both_files_are_found() {
        assert_eq!(field("processor\t: 0\nmodel name\t: Some CPU\n", "model name"), Some("Some CPU"));
        assert_eq!(field("MemTotal:       24684092 kB\n", "MemTotal"), Some("24684092 kB"));
        assert_eq!(field("", "flags"), None);
    }
}
