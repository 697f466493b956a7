//! Other programs on the cores of a measurement, by name and share.

use std::{collections::BTreeMap, fmt::Write, time::Instant};

use host::{
    Root,
    counters::{ProcessTime, TaskTime, ran_between, task_times},
};

/// Programs that are named.
const NAMED: usize = 3;

/// All threads of the machine before a measurement. Reading them takes some milliseconds.
pub(crate) struct Tasks {
    at: Instant,
    tasks: BTreeMap<u32, TaskTime>,
}

impl Tasks {
    pub(crate) fn read() -> Self {
        Self { at: Instant::now(), tasks: task_times(&Root::live()) }
    }

    /// The other programs that ran on `cpus` since then for at least `share` of a core, the busiest first, in words; empty when none did. Neither
    /// this process and those that it started nor threads of the kernel are among them.
    pub(crate) fn since(&self, cpus: &[u32], share: f64) -> String {
        let after = task_times(&Root::live());
        let window_ns = self.at.elapsed().as_nanos() as f64;
        let me = std::process::id();
        let other = |t: &TaskTime| t.pid != me && t.parent != me && !t.kernel && cpus.contains(&t.cpu);
        let mut all = ran_between(&self.tasks, &after, other);
        all.retain(|p| p.ran_ns as f64 >= share * window_ns);
        words(&all, window_ns)
    }
}

/// `stress-ng (pid 4711) 96 % of a core, cc1 (pid 12) 40 %`.
fn words(processes: &[ProcessTime], window_ns: f64) -> String {
    let mut text = String::new();
    for (i, process) in processes.iter().take(NAMED).enumerate() {
        // A process gives itself its name.
        let name: String = process.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let (comma, of) = if i == 0 { ("", " of a core") } else { (", ", "") };
        let share = 100.0 * process.ran_ns as f64 / window_ns;
        let _ = write!(text, "{comma}{name} (pid {}) {share:.0} %{of}", process.pid);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_named_with_their_shares() {
        let of = |pid, name: &str, ran_ns| ProcessTime { pid, name: name.to_owned(), ran_ns };
        let all = vec![of(7, "burn", 960), of(8, "cc\u{1b}1", 400), of(9, "sh", 20), of(10, "x", 10)];
        assert_eq!(words(&all, 1000.0), "burn (pid 7) 96 % of a core, cc?1 (pid 8) 40 %, sh (pid 9) 2 %");
        assert_eq!(words(&[], 1000.0), "");
    }

    #[test]
    fn a_program_that_burns_a_core_is_found_unless_it_is_our_own() {
        let all: Vec<u32> = (0..1024).collect();
        let burn = "while :; do :; done";
        let look = Tasks::read();
        let mut own = std::process::Command::new("sh").args(["-c", burn]).spawn().expect("a shell");
        // A grandchild is somebody else's.
        let script = format!("({burn}) & echo $!; wait");
        let mut parent = std::process::Command::new("sh");
        let mut parent = parent.args(["-c", &script]).stdout(std::process::Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let out = parent.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("its number");
        let other: i32 = line.trim().parse().expect("a number");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let after = task_times(&Root::live());
        let text = look.since(&all, 0.0);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(other), nix::sys::signal::Signal::SIGKILL)
            .expect("to end it");
        for child in [&mut own, &mut parent] {
            child.kill().expect("to end it");
            child.wait().expect("to end it");
        }
        assert!(after.values().any(|t| t.pid == other as u32 && t.ran_ns > 0 && !t.kernel), "{text}");
        assert!(!text.contains(&format!("(pid {})", own.id())), "{text}");
    }
}
