//! Stacks as `perf script -F comm,pid,cpu,ip,sym` prints them: to class what was recorded elsewhere, or in a test.

use crate::tally::Seen;

/// Kernel addresses begin here on 64-bit machines, with room for 52-bit arm64.
const KERNEL: u64 = 0xfff0_0000_0000_0000;

/// Reads samples: a line `comm pid [cpu] …`, then a line `address symbol …` for each frame, innermost first, then an empty line. User frames (addresses
/// in the lower half) are passed over; a sample without kernel frames is one of user mode. What does not fit is passed over.
pub fn samples(text: &str) -> impl Iterator<Item = Seen<'_>> {
    text.split("\n\n").filter_map(|block| {
        let mut lines = block.lines().skip_while(|l| l.trim().is_empty() || l.starts_with('#'));
        let (comm, cpu) = head(lines.next()?)?;
        let frames: Vec<&str> = lines.map_while(frame).collect();
        Some(Seen { ours: false, cpu, comm, user: frames.is_empty(), frames, samples: 1 })
    })
}

/// The thread's name, which may hold blanks, and the CPU.
fn head(line: &str) -> Option<(&str, u32)> {
    let open = line.find(" [")?;
    let close = line[open..].find(']')? + open;
    let cpu = line[open + 2..close].trim().parse().ok()?;
    let comm = line[..open].trim_end().rsplit_once(char::is_whitespace)?.0;
    Some((comm.trim(), cpu))
}

/// The symbol of a kernel frame, without offset and without where it came from.
fn frame(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let symbol = words.next().unwrap_or_default();
    let symbol = symbol.split_once("+0x").map_or(symbol, |(name, _)| name);
    (address >= KERNEL).then_some(if symbol == "[unknown]" { "" } else { symbol })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_with_and_without_kernel_frames() {
        let text = "# head\nWeb Content  77 [001] 1.5: 99 cpu-clock:\n\tffffffff81ff80b9 ip_rcv+0x1f ([kernel.kallsyms])\n\tffffffff81000000 [unknown]\n\t  101829 syscall\n\nsh 5 [000]\n  14f38 main\n\n";
        let got: Vec<_> = samples(text).collect();
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].comm, got[0].cpu, &got[0].frames), ("Web Content", 1, &vec!["ip_rcv", ""]));
        assert!(got[1].user && got[1].frames.is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*|([a-z ]{0,9}[0-9 ]{0,4}\\[?[0-9]{0,3}\\]?\n(\t?[0-9a-f]{0,16} [a-z+]{0,5}\n){0,3}\n?)*") {
            let _ = samples(&text).count();
        }
    }
}
