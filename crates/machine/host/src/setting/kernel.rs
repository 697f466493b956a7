//! The kernel's build and start: preemption, tick, accounting.

use std::{collections::BTreeMap, fs, io::Read};

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use super::{Missing, live_or_saved};
use crate::root::Root;

/// Options of the kernel's configuration that checks ask for.
const OPTIONS: [&str; 14] = [
    "CONFIG_HZ",
    "CONFIG_HZ_PERIODIC",
    "CONFIG_NO_HZ_IDLE",
    "CONFIG_NO_HZ_FULL",
    "CONFIG_PREEMPT_NONE",
    "CONFIG_PREEMPT_VOLUNTARY",
    "CONFIG_PREEMPT",
    "CONFIG_PREEMPT_LAZY",
    "CONFIG_PREEMPT_RT",
    "CONFIG_PREEMPT_DYNAMIC",
    "CONFIG_VIRT_CPU_ACCOUNTING_GEN",
    "CONFIG_IRQ_TIME_ACCOUNTING",
    "CONFIG_NET_RX_BUSY_POLL",
    "CONFIG_RPS",
];

/// The options that are set, by name, with their value (`y`, `250`); from /proc/config.gz, or /boot/config-RELEASE.
pub fn config(root: &Root) -> Result<BTreeMap<String, String>, Missing> {
    live_or_saved(root, "kernel-config", || {
        let text = unpacked().or_else(|| {
            let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
            fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()
        });
        let text = text.ok_or_else(|| {
            Missing("the kernel's configuration is neither in /proc/config.gz nor in /boot/config-RELEASE".to_owned())
        })?;
        Ok(parse(&text))
    })
}

fn unpacked() -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(fs::File::open("/proc/config.gz").ok()?).take(4 << 20).read_to_string(&mut text).ok()?;
    Some(text)
}

fn parse(text: &str) -> BTreeMap<String, String> {
    let set = text.lines().filter_map(|line| line.split_once('='));
    set.filter(|(name, _)| OPTIONS.contains(name)).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The moments at which the kernel lets another task take the CPU from one that runs in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    /// Never.
    None,
    /// At a few marked places.
    Voluntary,
    /// Anywhere, at the next tick for ordinary tasks.
    Lazy,
    Full,
    /// Anywhere, with interrupts in threads and sleeping locks.
    RealTime,
}

impl Preemption {
    /// Name of the model, as the parameter `preempt=` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Voluntary => "voluntary",
            Self::Lazy => "lazy",
            Self::Full => "full",
            Self::RealTime => "real-time",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::None, Self::Voluntary, Self::Lazy, Self::Full].into_iter().find(|p| p.as_str() == name)
    }
}

/// The preemption model, and where that is known from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempt {
    pub model: Preemption,
    /// The source of this knowledge.
    pub from: String,
}

/// The preemption model: debugfs says what is in effect; else what the command line asks of a kernel that can change it; else
/// what it was built with. None when none of these tells.
///
/// # Errors
/// When a copy does not tell. (It keeps the answer, for the command line may hold what is nobody's business.)
pub fn preemption(root: &Root) -> Result<Option<Preempt>, Missing> {
    live_or_saved(root, "preemption", || Ok(judge(&Root::live(), &config(&Root::live()).unwrap_or_default())))
}

fn judge(root: &Root, config: &BTreeMap<String, String>) -> Option<Preempt> {
    const DEBUGFS: &str = "sys/kernel/debug/sched/preempt";
    let text = |rel: &str| root.read_opt(rel).ok().flatten();
    let known = |model, from: &str| Some(Preempt { model, from: from.to_owned() });
    // `none voluntary (full) lazy`
    let in_effect = text(DEBUGFS).and_then(|text| Preemption::named(text.split_once('(')?.1.split_once(')')?.0));
    if let Some(model) = in_effect {
        return known(model, "/sys/kernel/debug/sched/preempt");
    }
    let version = text("proc/version").unwrap_or_default();
    if version.contains("PREEMPT_RT") {
        return known(Preemption::RealTime, "/proc/version");
    }
    let dynamic = version.contains("PREEMPT_DYNAMIC") || config.contains_key("CONFIG_PREEMPT_DYNAMIC");
    let live_or_saved = text("proc/cmdline").and_then(|line| {
        let value = line.split_whitespace().rev().find_map(|word| word.strip_prefix("preempt="))?;
        Preemption::named(value)
    });
    if let Some(model) = live_or_saved.filter(|_| dynamic) {
        return known(model, "/proc/cmdline");
    }
    let built = [
        ("CONFIG_PREEMPT_RT", Preemption::RealTime),
        ("CONFIG_PREEMPT_NONE", Preemption::None),
        ("CONFIG_PREEMPT_VOLUNTARY", Preemption::Voluntary),
        ("CONFIG_PREEMPT_LAZY", Preemption::Lazy),
        ("CONFIG_PREEMPT", Preemption::Full),
    ];
    if let Some((_, model)) = built.iter().find(|(option, _)| config.contains_key(*option)) {
        return known(*model, "the kernel's configuration");
    }
    // Without a word of it a kernel has none, or voluntary preemption; with it (and not dynamic), the full one.
    if version.contains(" PREEMPT ") && !dynamic { known(Preemption::Full, "/proc/version") } else { None }
}

pub(super) fn record(root: &Root) {
    let _ = preemption(root);
    let _ = config(root);
    let _ = root.read("sys/devices/system/cpu/nohz_full");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(files: &[(&str, &str)], config: &str) -> Option<(Preemption, String)> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        judge(&Root::from_files(files.collect()), &parse(config)).map(|p| (p.model, p.from))
    }

    #[test]
    fn what_is_in_effect_counts_before_what_was_built() {
        let config = "CONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_PREEMPT_DYNAMIC=y\n";
        let of = |files: &[(&str, &str)], config| model(files, config).map(|m| m.0);
        assert_eq!(model(&[], config), Some((Preemption::Voluntary, "the kernel's configuration".to_owned())));
        let line = ("proc/cmdline", "ro preempt=full quiet");
        assert_eq!(of(&[line], config), Some(Preemption::Full));
        assert_eq!(of(&[line], "CONFIG_PREEMPT_VOLUNTARY=y\n"), Some(Preemption::Voluntary), "it cannot change");
        let debug = ("sys/kernel/debug/sched/preempt", "(none) voluntary full lazy\n");
        assert_eq!(of(&[line, debug], config), Some(Preemption::None));
        assert_eq!(of(&[("proc/version", "Linux 6.1 #1 SMP PREEMPT_RT x")], ""), Some(Preemption::RealTime));
        assert_eq!(of(&[("proc/version", "Linux 5.4 #1 SMP PREEMPT Mon")], ""), Some(Preemption::Full));
        assert_eq!(of(&[], ""), None);
    }

    #[test]
    fn only_what_is_set_and_requested_is_kept() {
        let text = "CONFIG_HZ=250\n# CONFIG_NO_HZ_FULL is not set\nCONFIG_FOO=y\nCONFIG_PREEMPT_NONE=y\n";
        let config = parse(text);
        assert_eq!(config.len(), 2);
        assert_eq!(config["CONFIG_HZ"], "250");
    }
}
