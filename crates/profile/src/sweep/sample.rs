//! What the box's core did, by samples: its own work by class, and what the lab itself took of it.

use std::collections::BTreeMap;

use bpf::{CpuProfile, ProfileOptions, StackCount};
use host::{Root, symbols::KernelSymbols};
use model::profile::Class;

use crate::{classify, rules::bare, tally::is_generator};

use super::SweepError;

/// Samples per second: no divisor of the kernel's tick.
pub(super) const FREQUENCY_HZ: u32 = 997;

/// Where the kernel takes the frames of an interface without NAPI.
const BACKLOG: &str = "process_backlog";
/// Packet work that is nobody's own: soft interrupts of the network, and NAPI in a kernel thread.
const PACKETS: [&str; 4] = ["net_rx_action", "net_tx_action", "napi_threaded_poll", "napi_threaded_poll_loop"];

/// The sampling of one core.
pub(super) struct Sampler {
    profile: CpuProfile,
    symbols: KernelSymbols,
    lost: u64,
}

/// The samples of one measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Samples {
    /// The box's own work, and idle, by class.
    pub classes: BTreeMap<Class, u64>,
    /// The generator's work.
    pub generator: u64,
    /// The work of the receiving end of the lab.
    pub receiver: u64,
    /// What had nothing to do with the box.
    pub others: u64,
    /// Samples that could not be kept.
    pub lost: u64,
}

impl Sampler {
    pub(super) fn start(cpu: u32) -> Result<Self, SweepError> {
        let symbols = KernelSymbols::load(&Root::live())?;
        let profile = CpuProfile::open(&ProfileOptions { frequency_hz: FREQUENCY_HZ, cpus: vec![cpu] })?;
        Ok(Self { profile, symbols, lost: 0 })
    }

    /// Throws away what was seen so far.
    pub(super) fn begin(&mut self) -> Result<(), SweepError> {
        self.profile.read()?;
        self.lost = self.profile.counts()?.lost();
        Ok(())
    }

    /// What was seen since [`Self::begin`]; `has_receiver` says that frames end behind the box, on the same core.
    pub(super) fn end(&mut self, has_receiver: bool) -> Result<Samples, SweepError> {
        let stacks = self.profile.read()?;
        let lost = self.profile.counts()?.lost() - self.lost;
        // Programs of the box came after the names were read.
        let unknown = |s: &StackCount| s.kernel.iter().any(|&a| self.symbols.lookup(a).is_none());
        if stacks.iter().any(unknown) {
            self.symbols.reload()?;
        }
        let mut samples = Samples { lost, ..Samples::default() };
        for stack in &stacks {
            let frames: Vec<&str> =
                self.symbols.stack(&stack.kernel).into_iter().map(|s| s.map_or("", |s| s.name)).collect();
            let ours = stack.pid == std::process::id();
            samples.add(&Seen { ours, user: stack.user, frames: &frames }, has_receiver, stack.samples);
        }
        Ok(samples)
    }
}

/// One thing that the core was seen doing.
struct Seen<'a> {
    /// A thread of this process had its turn.
    ours: bool,
    /// It was in user mode.
    user: bool,
    /// The kernel's stack, innermost first.
    frames: &'a [&'a str],
}

impl Samples {
    fn add(&mut self, seen: &Seen<'_>, has_receiver: bool, n: u64) {
        let &Seen { ours, user, frames } = seen;
        let class = if user { Class::User } else { classify(frames).class };
        if ours && is_generator(frames) {
            self.generator += n;
        } else if has_receiver && frames.contains(&BACKLOG) {
            // The receiving interface runs no NAPI, so that the backlog takes its frames; those of the box come by its NAPI.
            self.receiver += n;
        } else if ours || class == Class::Idle || frames.iter().any(|f| PACKETS.contains(&bare(f))) {
            *self.classes.entry(class).or_default() += n;
        } else {
            self.others += n;
        }
    }

    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.classes.values().sum::<u64>() + self.generator + self.receiver + self.others
    }

    /// `n` of them in percent of a core's time of which `steal_percent` was stolen: no sample is taken in that.
    pub(super) fn percent(&self, n: u64, steal_percent: f64) -> f64 {
        (100.0 - steal_percent) * n as f64 / self.total().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen<'a>(ours: bool, user: bool, frames: &'a [&'a str]) -> Seen<'a> {
        Seen { ours, user, frames }
    }

    #[test]
    fn the_lab_itself_is_told_from_the_box() {
        let mut samples = Samples::default();
        let of_box = ["fib_table_lookup", "ip_rcv", "veth_poll", "__napi_poll", "napi_threaded_poll_loop", "kthread"];
        samples.add(&seen(false, false, &of_box), true, 5);
        let behind = ["ip_rcv_core", "process_backlog", "net_rx_action", "handle_softirqs"];
        samples.add(&seen(false, false, &behind), true, 3);
        samples.add(&seen(true, false, &["veth_xdp_xmit", "xdp_test_run_batch", "bpf_test_run_xdp_live"]), true, 2);
        samples.add(&seen(true, true, &[]), true, 1);
        samples.add(&seen(false, true, &[]), true, 4);
        samples.add(&seen(false, false, &["filemap_read", "ksys_read"]), true, 4);
        assert_eq!((samples.generator, samples.receiver, samples.others, samples.total()), (2, 3, 8, 19));
        assert_eq!(samples.classes, BTreeMap::from([(Class::Ip, 5), (Class::User, 1)]));
        assert_eq!(samples.percent(19, 20.0), 80.0);
    }

    #[test]
    fn without_a_receiver_the_backlog_is_the_boxs_own() {
        let mut samples = Samples::default();
        samples.add(&seen(false, false, &["ip_rcv_core", "process_backlog", "net_rx_action"]), false, 3);
        assert_eq!((samples.receiver, samples.others, samples.total()), (0, 0, 3));
        assert_eq!(Samples::default().percent(0, 0.0), 0.0);
    }
}
