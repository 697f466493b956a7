//! What a fix brought: the counters that show it, watched before and after.

use std::{thread, time::Duration};

use host::{
    Host, Root,
    counters::{Sampler, delta},
    stack::Protocols,
};
use model::{top::TopSample, units};

use crate::failure::Failure;

/// Fewer packets than this in an interval say nothing.
const ENOUGH_PACKETS: f64 = 1000.0;

/// Counters of packets that the stack of this network namespace loses or handles twice, by the kernel's names.
const STACK: [(&str, &[&str]); 4] = [
    ("dropped at listening sockets", &["TcpExt.ListenDrops"]),
    ("dropped by the reverse path filter", &["TcpExt.IPReversePathFilter"]),
    ("lost in full UDP buffers", &["Udp.RcvbufErrors", "Udp6.RcvbufErrors"]),
    ("TCP segments sent again", &["Tcp.RetransSegs"]),
];

/// The counters over an interval.
#[derive(Debug, Default)]
pub(super) struct Seen {
    sample: TopSample,
    /// Per second, in the order of [`STACK`].
    stack: [f64; STACK.len()],
}

/// Watches the counters of this machine for so long.
pub(super) fn watch(interval: Duration) -> Result<Seen, Failure> {
    let host = Host::read(&Root::live())?;
    let first = Protocols::read(&Root::live()).unwrap_or_default();
    let mut sampler = Sampler::open()?;
    let before = sampler.read()?;
    thread::sleep(interval);
    let sample = delta(&host, &before, &sampler.read()?);
    let grown = Protocols::read(&Root::live()).unwrap_or_default().since(&first);
    let rate = |names: &[&str]| names.iter().map(|name| grown.get(name)).sum::<u64>() as f64 / sample.interval_s;
    let stack = STACK.map(|(_, names)| if sample.interval_s > 0.0 { rate(names) } else { 0.0 });
    Ok(Seen { sample, stack })
}

/// Compares two watches: a line for each gauge that moved or was not zero; one line that says so when there were too few packets.
pub(super) fn gain(seen_before: &Seen, seen_after: &Seen) -> Vec<String> {
    let (before, after) = (&seen_before.sample, &seen_after.sample);
    let (was, is) = (Gauges::of(before), Gauges::of(after));
    let few = |g: &Gauges, s: &TopSample| g.packets_pps * s.interval_s < ENOUGH_PACKETS;
    if few(&was, before) || few(&is, after) {
        return vec![format!(
            "nothing can be said: {:.0} packets came before and {:.0} after, and below {ENOUGH_PACKETS:.0} counters only show \
             chance",
            was.packets_pps * before.interval_s,
            is.packets_pps * after.interval_s
        )];
    }
    let mut lines = vec![format!(
        "watched {:.0} s before and {:.0} s after, at {} and {}",
        before.interval_s,
        after.interval_s,
        units::pps(was.packets_pps),
        units::pps(is.packets_pps)
    )];
    let mut line = |what: &str, was: f64, is: f64, shown: fn(f64) -> String| {
        if was > 0.0 || is > 0.0 {
            lines.push(format!("{what}: {} -> {}", shown(was), shown(is)));
        }
    };
    line("lost in interfaces", was.lost_pps, is.lost_pps, units::pps);
    line("lost in the backlog", was.backlog_pps, is.backlog_pps, units::pps);
    for (n, (what, _)) in STACK.iter().enumerate() {
        line(what, seen_before.stack[n], seen_after.stack[n], units::pps);
    }
    line("packet work cut short per second", was.squeezed, is.squeezed, plain);
    line("device interrupts per 1000 packets", was.irqs_per_1000(), is.irqs_per_1000(), plain);
    line("the busiest core's packets against the mean", was.unevenness, is.unevenness, times);
    line("softirq time, percent of a core", was.softirq_percent, is.softirq_percent, plain);
    lines
}

fn plain(value: f64) -> String {
    format!("{value:.1}")
}

fn times(value: f64) -> String {
    format!("{value:.2}x")
}

/// The gauges that show whether a fix helped.
#[derive(Debug, Default)]
struct Gauges {
    packets_pps: f64,
    lost_pps: f64,
    backlog_pps: f64,
    squeezed: f64,
    irqs: f64,
    unevenness: f64,
    softirq_percent: f64,
}

impl Gauges {
    fn of(sample: &TopSample) -> Self {
        let cores = &sample.cores;
        let sum = |f: fn(&model::top::CoreRates) -> f64| cores.iter().map(f).sum::<f64>();
        let packets_pps = sum(|c| c.softnet_processed_pps);
        let most = cores.iter().map(|c| c.softnet_processed_pps).fold(0.0, f64::max);
        let mean = packets_pps / (cores.len().max(1) as f64);
        Self {
            packets_pps,
            lost_pps: sample.interfaces.iter().map(model::top::InterfaceRates::drops_pps).sum(),
            backlog_pps: sum(|c| c.softnet_dropped_pps + c.flow_limited_pps),
            squeezed: sum(|c| c.softnet_squeezed_per_s),
            irqs: sum(|c| c.device_irqs_per_s),
            unevenness: if mean > 0.0 { most / mean } else { 0.0 },
            softirq_percent: sum(|c| c.load.softirq_percent),
        }
    }

    fn irqs_per_1000(&self) -> f64 {
        if self.packets_pps > 0.0 { 1000.0 * self.irqs / self.packets_pps } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use model::top::CoreRates;

    use super::*;

    fn sample(packets: [f64; 2], squeezed: f64) -> Seen {
        let core = |pps| CoreRates {
            softnet_processed_pps: pps,
            softnet_squeezed_per_s: squeezed,
            device_irqs_per_s: 500.0,
            ..CoreRates::default()
        };
        let sample = TopSample { interval_s: 2.0, cores: packets.map(core).to_vec(), ..TopSample::default() };
        Seen { sample, stack: [0.0, squeezed * 100.0, 0.0, 0.0] }
    }

    #[test]
    fn balance_and_squeezes_show() {
        let lines = gain(&sample([10_000.0, 0.0], 4.0), &sample([5_000.0, 5_000.0], 0.0)).join("\n");
        assert!(lines.contains("against the mean: 2.00x -> 1.00x"), "{lines}");
        assert!(lines.contains("cut short per second: 8.0 -> 0.0"), "{lines}");
        assert!(lines.contains("per 1000 packets: 100.0 -> 100.0"), "{lines}");
        assert!(!lines.contains("lost in interfaces"), "{lines}");
        assert!(lines.contains("reverse path filter: 400 pps -> 0 pps"), "{lines}");
        assert!(!lines.contains("listening sockets"), "{lines}");
    }

    #[test]
    fn a_quiet_machine_shows_nothing() {
        let lines = gain(&sample([10.0, 0.0], 0.0), &sample([10_000.0, 0.0], 0.0));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("nothing can be said: 20 packets"), "{lines:?}");
    }
}
