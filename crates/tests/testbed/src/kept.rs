//! Settings of the whole machine that a test changes, put back also when the test is killed.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

/// Waits until nobody can write to its input any more, then writes every file that differs from what it was: `$1` = path, `$2` =
/// value, and so on. A mask is compared as the kernel shows it.
const KEEPER: &str = r#"trap "" HUP INT TERM; cat
while [ $# -gt 0 ]; do [ "$(cat "$1")" = "$2" ] || printf %s "$2" > "$1"; shift 2; done"#;

/// Files of `/proc` and `/sys` as they were when this was made; they are that again when it is dropped, or its process dies.
#[derive(Debug)]
pub struct Kept {
    keeper: Child,
    /// None once dropped. No other program inherits it.
    alive: Option<ChildStdin>,
}

impl Kept {
    /// Keeps the files among `paths` that can be read.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh"]).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        for path in paths {
            if let Ok(value) = fs::read_to_string(&path) {
                keeper.arg(path).arg(value.trim_end());
            }
        }
        let mut keeper = keeper.spawn().expect("a shell");
        let alive = keeper.stdin.take();
        Self { keeper, alive }
    }

    /// Keeps one file and gives it `value` meanwhile.
    pub fn set(path: &Path, value: &str) -> Self {
        let kept = Self::new([path.to_path_buf()]);
        fs::write(path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.keeper.wait();
    }
}

/// Every affinity and steering mask of the machine: the files of each interrupt and of each queue.
pub fn steering() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir("/proc/irq").expect("/proc").flatten().map(|e| e.path().join("smp_affinity")).collect();
    for nic in fs::read_dir("/sys/class/net").expect("/sys").flatten() {
        for queue in fs::read_dir(nic.path().join("queues")).into_iter().flatten().flatten() {
            files.extend(["rps_cpus", "xps_cpus"].map(|f| queue.path().join(f)));
        }
    }
    files.retain(|path| fs::read_to_string(path).is_ok());
    files
}

/// Gives the machine the steering it was started with (every interrupt anywhere, no RPS), so that there is something to spread also
/// where somebody has spread before.
pub fn unspread(files: &[PathBuf]) {
    let anywhere = fs::read_to_string("/proc/irq/default_smp_affinity").expect("/proc");
    for path in files {
        // The kernel refuses it for interrupts that it manages itself.
        let _ = match path.file_name().and_then(|n| n.to_str()) {
            Some("smp_affinity") => fs::write(path, anywhere.trim()),
            Some("rps_cpus") => fs::write(path, "0"),
            _ => Ok(()),
        };
    }
}
