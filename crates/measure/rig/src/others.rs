//! Other programs on the cores of a measurement, by name and share.

use std::{collections::BTreeMap, fmt::Write, time::Instant};

use host::{
    Root,
    counters::{ProcessTime, TaskTime, ran_between, task_times},
};

/// Programs that are named.
const NAMED_MAX: usize = 3;

/// All threads of the machine before a measurement. Reading them takes some milliseconds.
pub struct Tasks {
    at: Instant,
    tasks: BTreeMap<u32, TaskTime>,
}

impl Tasks {
    pub fn read() -> Self {
        Self { at: Instant::now(), tasks: task_times(&Root::live()) }
    }

    /// The other programs that ran on `cpus` since then for at least `share` of a core, the busiest first, in words; empty when none did. Neither
    /// this process and those that it started nor threads of the kernel are among them.
    pub fn since(&self, cpus: &[u32], share: f64) -> String {
        self.words_and_share(cpus, share).0
    }

    /// The same, and the share of the time of `cpus` that all other programs took that still run.
    fn words_and_share(&self, cpus: &[u32], share: f64) -> (String, f64) {
        let after = task_times(&Root::live());
        let window_ns = self.at.elapsed().as_nanos() as f64;
        let me = std::process::id();
        let other = |t: &TaskTime| t.pid != me && t.parent != me && !t.kernel && cpus.contains(&t.cpu);
        let mut all = ran_between(&self.tasks, &after, other);
        let ran_ns: u64 = all.iter().map(|p| p.ran_ns).sum();
        all.retain(|p| p.ran_ns as f64 >= share * window_ns);
        (words(&all, window_ns), ran_ns as f64 / (window_ns * cpus.len().max(1) as f64).max(1.0))
    }
}

/// From this share of the CPUs' time on that other programs took, figures are the machine's as it was, and not those of what was measured.
const OTHERS_SHARE_MAX: f64 = 0.05;

/// The judgement of all measuring verbs of how busy the machine was: begun before the first measurement, asked after the last.
pub struct Watch {
    cpus: Vec<u32>,
    tasks: Tasks,
    own: (u64, u64),
}

impl Watch {
    /// Looks at the programs on `cpus` from now on.
    pub fn start(cpus: impl IntoIterator<Item = u32>) -> Self {
        let cpus: Vec<u32> = cpus.into_iter().collect();
        let own = ticks(&cpus);
        Self { cpus, tasks: Tasks::read(), own }
    }

    /// A sentence when other programs took too much of the CPUs since the start: how much, which, what helps.
    pub fn warning(&self) -> Option<String> {
        let (names, still) = self.tasks.words_and_share(&self.cpus, OTHERS_SHARE_MAX);
        let now = ticks(&self.cpus);
        // Programs that have ended, such as those of a build, are in no list; their time in user mode is known all the same.
        let users = now.0.saturating_sub(self.own.0).saturating_sub(now.1.saturating_sub(self.own.1));
        let span = self.tasks.at.elapsed().as_secs_f64() * TICKS_PER_SECOND * self.cpus.len().max(1) as f64;
        let share = still.max(users as f64 / span.max(1.0)).min(1.0);
        (share >= OTHERS_SHARE_MAX).then(|| warning(share, &names))
    }
}

fn warning(share: f64, names: &str) -> String {
    let names = if names.is_empty() { "programs that have ended".to_owned() } else { names.to_owned() };
    format!(
        "Other programs took {:.0} % of the CPUs of this run, so the figures mean little: {names}. Measure again without them",
        100.0 * share
    )
}

/// USER_HZ: the unit of /proc/stat on every architecture of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Time in user mode: of `cpus`, and of this process and the children that it has waited for.
fn ticks(cpus: &[u32]) -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = host::counters::cpu_times(&stat).iter().filter(|(cpu, _)| cpus.contains(cpu)).map(|(_, t)| t.user).sum();
    let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = own.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    // Fields 14 and 16 of proc(5); the first behind the name is the third.
    (all, field(11) + field(13))
}

/// `stress-ng (pid 4711) 96 % of a core, cc1 (pid 12) 40 %`.
fn words(processes: &[ProcessTime], window_ns: f64) -> String {
    let mut text = String::new();
    for (i, process) in processes.iter().take(NAMED_MAX).enumerate() {
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
    fn other_programs_are_a_warning_and_own_work_is_none() {
        let text = warning(0.934, "cc1 (pid 7) 90 % of a core");
        assert!(text.starts_with("Other programs took 93 % of the CPUs") && text.contains(": cc1 (pid 7)"), "{text}");
        assert!(warning(0.5, "").contains("programs that have ended"));
        // No CPU, no other program.
        assert_eq!(Watch::start([]).warning(), None);
    }

    #[test]
    fn a_program_that_burns_a_core_is_found_unless_it_is_our_own() {
        let all: Vec<u32> = (0..1024).collect();
        let burn = "while :; do :; done";
        let look = Tasks::read();
        let first: Vec<u32> = (0..2).collect();
        let watch = Watch::start(first);
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
        assert!(watch.warning().is_some(), "{text}");
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
