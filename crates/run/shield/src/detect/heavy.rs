//! Top senders, by the samples of all windows: for display, not for decisions.

use std::collections::HashMap;

use rules::Prefix;

use super::{Window, mix::source_prefix};

/// A look counts for this long, in seconds: what is shown follows within two or three intervals of a view.
const DECAY_S: f64 = 2.0;
/// Samples, each worth less as it ages, without which nothing is said about a source: five are off by 45 % (one in the root of five).
/// The sources of a spoofed flood have one each.
const SAMPLES_MIN: f64 = 5.0;
/// Sources that are remembered.
const SOURCES_MAX: usize = 16_384;
/// Below so many samples a source is forgotten: one that was seen once after a second and a half.
const SAMPLES_FORGET: f64 = 0.5;

/// Sources by what they send.
#[derive(Debug, Clone, Default)]
pub struct Heavy {
    sources: HashMap<Prefix, Source>,
    /// Seconds of looks, each worth less as it ages.
    seconds: f64,
}

/// A source; both numbers decay with time.
#[derive(Debug, Clone, Copy, Default)]
struct Source {
    samples: f64,
    packets: f64,
}

impl Heavy {
    /// Takes down one look.
    pub fn look(&mut self, window: &Window) {
        let fade = (-window.time.as_secs_f64() / DECAY_S).exp();
        self.seconds = self.seconds * fade + window.time.as_secs_f64();
        self.sources.retain(|_, source| {
            source.samples *= fade;
            source.packets *= fade;
            source.samples > SAMPLES_FORGET
        });
        // A sample stands for as many packets of its prefix as there are packets for each.
        let mut of_prefix = vec![0.0; window.prefixes.len()];
        for (number, _) in &window.samples {
            of_prefix.get_mut(*number).into_iter().for_each(|samples| *samples += 1.0);
        }
        for (number, packet) in &window.samples {
            let Some(counts) = window.prefixes.get(*number) else { continue };
            let key = source_prefix(packet.source);
            if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&key) {
                continue;
            }
            let source = self.sources.entry(key).or_default();
            source.samples += 1.0;
            source.packets += counts.packets as f64 / of_prefix[*number];
        }
    }

    /// The `count` heaviest with their packets per second, the heaviest first.
    pub fn top(&self, count: usize) -> Vec<(Prefix, f64)> {
        let sure = self.sources.iter().filter(|(_, source)| source.samples >= SAMPLES_MIN);
        let mut top: Vec<(Prefix, f64)> =
            sure.map(|(prefix, source)| (*prefix, source.packets / self.seconds.max(f64::MIN_POSITIVE))).collect();
        top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        top.truncate(count);
        top
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, time::Duration};

    use super::*;
    use crate::detect::Counts;
    use rules::packet::Packet;

    fn packet(source: u32) -> Packet {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(source.to_be_bytes());
        frame.extend([198, 18, 0, 2, 0, 53, 0, 80, 0, 8, 0, 0]);
        match Packet::parse(&frame) {
            rules::packet::Parsed::Ip(packet) => packet,
            other => panic!("{other:?}"),
        }
    }

    /// 50 ms with 1000 packets, of which 20 were picked: half of them of source 1, the others each of another one.
    fn window(n: u32, packets: u64) -> Window {
        let samples = (0..20).map(|i| (0, packet(if i % 2 == 0 { 1 } else { 1000 + n * 20 + i }))).collect();
        let prefixes = vec![Counts { packets, ..Counts::default() }];
        Window { time: Duration::from_millis(50), prefixes, samples, ..Window::default() }
    }

    #[test]
    fn the_heavy_one_stands_out_with_its_rate_and_fades() {
        let mut heavy = Heavy::default();
        for n in 0..100 {
            heavy.look(&window(n, 1000));
        }
        let top = heavy.top(5);
        let [(prefix, pps)] = top[..] else { panic!("{top:?}") };
        assert_eq!(prefix.address, IpAddr::from([0, 0, 0, 1]));
        assert!((pps - 10_000.0).abs() < 1.0, "half of 1000 in 50 ms: {pps}");
        assert!(heavy.sources.len() <= SOURCES_MAX);
        for _ in 0..200 {
            heavy.look(&Window { time: Duration::from_millis(50), ..Window::default() });
        }
        assert!(heavy.top(5).is_empty(), "gone after ten seconds");
    }
}
