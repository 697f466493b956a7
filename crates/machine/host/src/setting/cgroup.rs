//! Control groups with a limit on CPU time, and whether it was reached.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved};
use crate::root::Root;

/// Groups deeper than this are not looked at.
const DEPTH_MAX: u32 = 6;
/// Nor more than this: a machine with tens of thousands of them is not searched in a second.
const GROUPS_MAX: usize = 20_000;

/// A group with a limit on CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// Path of the group below the mount point.
    pub group: String,
    /// The limit in CPUs: 0.5 is half of one.
    pub cpus: f64,
    /// Periods since it was made.
    pub periods: u64,
    /// Periods in which it was held back.
    pub throttled: u64,
    /// Processes of the group, on the live machine only.
    #[serde(skip)]
    pub processes: Vec<u32>,
}

/// The groups with a limit on CPU time (cgroup v2, and v1's cpu controller).
pub fn limits(root: &Root) -> Result<Vec<Limited>, Missing> {
    live_or_saved(root, "cpu-limits", || {
        let mut found = Vec::new();
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
        let mut any = false;
        for mount in mounts.map(Path::new) {
            if mount.join("cgroup.procs").exists() {
                any = true;
                walk(mount, mount, 0, &mut 0, &mut found);
            }
        }
        // cpu is often a link to cpu,cpuacct.
        found.sort_by(|a, b| a.group.cmp(&b.group));
        found.dedup_by(|a, b| a.group == b.group);
        if any { Ok(found) } else { Err(Missing("no control groups are mounted on /sys/fs/cgroup".to_owned())) }
    })
}

/// The kept limits with numbers for the groups' names.
pub(crate) fn anonymous(text: &str) -> String {
    let mut limits: Vec<Limited> = serde_json::from_str(text).unwrap_or_default();
    for (n, limit) in (1..).zip(&mut limits) {
        limit.group = format!("/group{n}");
    }
    serde_json::to_string_pretty(&limits).unwrap_or_default() + "\n"
}

fn walk(mount: &Path, folder: &Path, depth: u32, seen: &mut usize, found: &mut Vec<Limited>) {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let limit =
        text("cpu.max").and_then(|t| v2(&t)).or_else(|| v1(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?));
    if let Some(cpus) = limit {
        let stat = text("cpu.stat").unwrap_or_default();
        let group = folder.strip_prefix(mount).map_or_else(|_| String::new(), |p| format!("/{}", p.display()));
        found.push(Limited {
            group,
            cpus,
            periods: field(&stat, "nr_periods"),
            throttled: field(&stat, "nr_throttled"),
            processes: text("cgroup.procs").unwrap_or_default().lines().filter_map(|l| l.parse().ok()).collect(),
        });
    }
    *seen += 1;
    if depth == DEPTH_MAX || *seen > GROUPS_MAX {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // The other controllers of v1 are mounted below the same folder.
        if entry.file_type().is_ok_and(|t| t.is_dir()) && entry.path().join("cgroup.procs").exists() {
            walk(mount, &entry.path(), depth + 1, seen, found);
        }
    }
}

/// `max 100000` or `50000 100000`.
fn v2(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    v1(quota, period)
}

fn v1(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions() {
        assert_eq!(v2("max 100000\n"), None);
        assert_eq!(v2("50000 100000\n"), Some(0.5));
        assert_eq!(v1("-1\n", "100000\n"), None);
        assert_eq!(v1("200000", "100000"), Some(2.0));
        assert_eq!(field("nr_periods 7\nnr_throttled 3\n", "nr_throttled"), 3);
    }

    #[test]
    fn names_of_groups_can_go() {
        let kept = r#"[{"group": "/customer-x", "cpus": 2.0, "periods": 9, "throttled": 1}]"#;
        let without = anonymous(kept);
        assert!(without.contains("/group1") && !without.contains("customer"), "{without}");
    }

    #[test]
    fn a_tree_is_walked() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        for (file, text) in [
            ("cgroup.procs", ""),
            ("a/cgroup.procs", ""),
            ("a/b/cgroup.procs", "17\n18\n"),
            ("a/b/cpu.max", "150000 100000\n"),
            ("a/b/cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 4\n"),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let mut found = Vec::new();
        walk(folder.path(), folder.path(), 0, &mut 0, &mut found);
        let expected = Limited { group: "/a/b".into(), cpus: 1.5, periods: 10, throttled: 4, processes: vec![17, 18] };
        assert_eq!(found, [expected]);
    }
}
