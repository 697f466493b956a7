//! Commit-confirm: a process of its own that takes a session back unless a confirmation comes in time.

use std::{
    fs,
    io::Write,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

use super::{Journal, Session, UndoOptions, UndoReport};
use crate::{knob::Store, root::Root};

/// Packets dropped so far, by the interfaces of a session and by the softnet backlog.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DropRate {
    pub per_second: f64,
}

/// The end of a guardian's watch.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The user confirmed; the changes stay.
    Confirmed,
    /// Somebody else took the session back.
    UndoneAlready,
    /// The guardian took it back.
    Reverted {
        reason: String,
        /// The values that it put back.
        report: UndoReport,
    },
}

/// Drops must exceed twice the rate before by this many per second, so that noise on a quiet machine reverts nothing.
const NOISE_PER_SECOND: f64 = 100.0;
/// Seconds in a row with such drops.
const SECONDS_IN_A_ROW: u32 = 3;
/// Time that another process has to give the lock back before the guardian acts without it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two looks of the guardian.
const POLL_PERIOD: Duration = Duration::from_secs(1);

/// True if drops rose: more than twice the rate before, and by more than 100 per second.
pub fn drops_rose(before: DropRate, now: DropRate) -> bool {
    now.per_second > before.per_second * 2.0 + NOISE_PER_SECOND
}

/// Watches over one session.
#[derive(Debug)]
pub struct Guardian {
    root: Root,
    nics: Vec<String>,
    before: DropRate,
    deadline_ms: u64,
}

impl Guardian {
    /// Measures the drops of `nics` for a second, before anything is changed, and starts the clock of `seconds`.
    pub fn arm(root: Root, nics: Vec<String>, seconds: u64) -> Self {
        let first = dropped(&root, &nics);
        thread::sleep(POLL_PERIOD);
        let before =
            DropRate { per_second: dropped(&root, &nics).saturating_sub(first) as f64 / POLL_PERIOD.as_secs_f64() };
        Self { root, nics, before, deadline_ms: boottime_ms() + seconds * 1000 }
    }

    /// The time at which it reverts, in milliseconds of CLOCK_BOOTTIME (which also counts suspended time).
    pub fn deadline_boottime_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Waits for the confirmation, the deadline, or rising drops, and acts. While the journal cannot be read, what was last
    /// read of `session` counts.
    pub fn watch(&self, journal: &Journal, mut current: Session, store: &mut dyn Store) -> Verdict {
        let (mut last, mut since, mut bad) = (dropped(&self.root, &self.nics), Instant::now(), 0);
        loop {
            let left = self.deadline_ms.saturating_sub(boottime_ms());
            thread::sleep(POLL_PERIOD.min(Duration::from_millis(left)));
            current = journal.session(&current.header.session).unwrap_or(current);
            if current.confirmed {
                return Verdict::Confirmed;
            }
            // A session without steps is one that is still being applied.
            if !current.is_open() && !current.steps.is_empty() {
                return Verdict::UndoneAlready;
            }
            if boottime_ms() >= self.deadline_ms {
                return revert(journal, current, store, "no confirmation came in time".to_owned());
            }
            let (total, elapsed) = (dropped(&self.root, &self.nics), since.elapsed());
            if elapsed < POLL_PERIOD / 2 {
                continue;
            }
            let now = DropRate { per_second: total.saturating_sub(last) as f64 / elapsed.as_secs_f64() };
            (last, since) = (total, Instant::now());
            bad = if drops_rose(self.before, now) { bad + 1 } else { 0 };
            if bad >= SECONDS_IN_A_ROW {
                let reason = format!("drops rose from {:.0}/s to {:.0}/s", self.before.per_second, now.per_second);
                return revert(journal, current, store, reason);
            }
        }
    }
}

fn revert(journal: &Journal, session: Session, store: &mut dyn Store, reason: String) -> Verdict {
    // Whoever holds the lock must not keep an untested change in force.
    let writer = journal.lock_within(LOCK_TIMEOUT).unwrap_or_else(|_| journal.without_lock());
    // A confirmation may have come while we waited for the lock.
    let mut session = journal.session(&session.header.session).unwrap_or(session);
    if session.confirmed {
        return Verdict::Confirmed;
    }
    // The setting that cut the connection may be any of them.
    let mut report = session.undo(&writer, store, UndoOptions { go_on: true, ..UndoOptions::default() });
    if let Err(error) = session.note_reverted(&reason, report.is_complete()) {
        report.unrecorded.get_or_insert_with(|| error.to_string());
    }
    Verdict::Reverted { reason, report }
}

/// Moves this process to the root of the control groups that systemd ends sessions by, so that the end of a login does not end the
/// guardian. Other controllers' groups (limits) stay.
///
/// # Errors
/// The group in which it stays, and why.
pub fn leave_control_group() -> Result<(), String> {
    // cgroups(7): `0::PATH` is version 2, `N:name=systemd:PATH` what systemd uses beside version 1.
    let text = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let mounts: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup/unified", "/sys/fs/cgroup"],
            "name=systemd" => &["/sys/fs/cgroup/systemd"],
            _ => continue,
        };
        if group == "/" {
            continue;
        }
        let roots = mounts.iter().map(|mount| Path::new(mount).join("cgroup.procs"));
        // Without O_CREAT: a file made there would be no control group.
        let Some(procs) = roots.into_iter().find(|procs| procs.exists()) else { continue };
        let moved = fs::OpenOptions::new().write(true).open(&procs).and_then(|mut file| file.write_all(b"0"));
        moved.map_err(|e| format!("{group} ({}: {e})", procs.display()))?;
    }
    Ok(())
}

/// Every packet that the interfaces and the softnet backlog have dropped so far; a counter that is missing counts as 0.
fn dropped(root: &Root, nics: &[String]) -> u64 {
    const COUNTERS: [&str; 3] = ["rx_dropped", "rx_missed_errors", "rx_fifo_errors"];
    let number = |path: String| root.read(&path).ok().and_then(|t| t.trim().parse::<u64>().ok()).unwrap_or(0);
    let of_nics: u64 =
        nics.iter().flat_map(|nic| COUNTERS.map(|c| format!("sys/class/net/{nic}/statistics/{c}"))).map(number).sum();
    // /proc/net/softnet_stat: one line per CPU; the second word is the packets dropped at the backlog.
    let softnet = root.read("proc/net/softnet_stat").unwrap_or_default();
    let of_backlog: u64 =
        softnet.lines().filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).sum();
    of_nics + of_backlog
}

/// CLOCK_BOOTTIME in milliseconds.
fn boottime_ms() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(0, |t| t.tv_sec().unsigned_abs() * 1000 + t.tv_nsec().unsigned_abs() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_real_rise_counts() {
        let rate = |per_second| DropRate { per_second };
        assert!(!drops_rose(rate(0.0), rate(100.0)));
        assert!(drops_rose(rate(0.0), rate(101.0)));
        assert!(!drops_rose(rate(1e6), rate(1.9e6)));
        assert!(drops_rose(rate(1e6), rate(2.1e6)));
    }
}
