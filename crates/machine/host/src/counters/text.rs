//! Pure parsers of the kernel's counter files. A line that does not fit is passed over: a newer kernel may add some.

use std::collections::BTreeMap;

/// Time of one CPU since boot, in ticks of USER_HZ (`/proc/stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// User programs, niced ones and guests included.
    pub user: u64,
    /// System calls and kernel threads.
    pub system: u64,
    /// Idle, waiting for I/O included.
    pub idle: u64,
    pub irq: u64,
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

/// A CPU's line of `/proc/net/softnet_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Softnet {
    /// Packets that entered the stack.
    pub processed: u32,
    /// Packets lost because the backlog was full.
    pub dropped: u32,
    /// Times that the packet work stopped with work left over.
    pub time_squeeze: u32,
    /// Packets dropped by the flow limit.
    pub flow_limited: u32,
    /// Packets in the backlog now.
    pub backlog: u32,
}

/// NET_RX and NET_TX soft interrupts of one CPU since boot (`/proc/softirqs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Softirqs {
    pub net_rx: u64,
    pub net_tx: u64,
}

/// `/proc/interrupts` as a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupts {
    /// The CPU of each column: those that are online.
    pub cpus: Vec<u32>,
    /// Counts of each numbered line, a row of `cpus.len()` each.
    lines: BTreeMap<u32, usize>,
    counts: Vec<u64>,
    /// All interrupts by column, those without a number included.
    pub totals: Vec<u64>,
}

impl Interrupts {
    /// Each numbered interrupt with its counts, in the order of `cpus`.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &[u64])> {
        let width = self.cpus.len();
        self.lines.iter().map(move |(&irq, &row)| (irq, &self.counts[row * width..(row + 1) * width]))
    }

    /// The counts of one interrupt, in the order of `cpus`.
    pub fn line(&self, irq: u32) -> Option<&[u64]> {
        let width = self.cpus.len();
        self.lines.get(&irq).map(|&row| &self.counts[row * width..(row + 1) * width])
    }
}

fn cpu_number(word: &str, prefix: &str) -> Option<u32> {
    word.strip_prefix(prefix)?.parse().ok().filter(|&cpu| cpu <= model::cpuset::CPU_MAX)
}

/// Reads the `cpuN` lines of `/proc/stat`.
pub fn cpu_times(text: &str) -> BTreeMap<u32, CpuTime> {
    let mut times = BTreeMap::new();
    for line in text.lines().take_while(|l| l.starts_with("cpu")) {
        let mut words = line.split_ascii_whitespace();
        let Some(cpu) = words.next().and_then(|w| cpu_number(w, "cpu")) else { continue };
        let mut next = || words.next().and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        let (user, nice, system, idle, iowait) = (next(), next(), next(), next(), next());
        let (irq, softirq, steal) = (next(), next(), next());
        let time =
            CpuTime { user: user.saturating_add(nice), system, idle: idle.saturating_add(iowait), irq, softirq, steal };
        times.insert(cpu, time);
    }
    times
}

/// Reads `/proc/net/softnet_stat`. `online` gives the CPU of each line for kernels that do not say it (before 5.14).
pub fn softnet(text: &str, online: impl Iterator<Item = u32>) -> BTreeMap<u32, Softnet> {
    let mut online = online;
    let mut lines = BTreeMap::new();
    for line in text.lines() {
        let by_order = online.next();
        let mut column = [None; 13];
        for (slot, word) in column.iter_mut().zip(line.split_ascii_whitespace()) {
            *slot = u32::from_str_radix(word, 16).ok();
        }
        let Some(cpu) = column[12].or(by_order).filter(|&cpu| cpu <= model::cpuset::CPU_MAX) else { continue };
        let Some(processed) = column[0] else { continue };
        let entry = Softnet {
            processed,
            dropped: column[1].unwrap_or(0),
            time_squeeze: column[2].unwrap_or(0),
            flow_limited: column[10].unwrap_or(0),
            backlog: column[11].unwrap_or(0),
        };
        lines.insert(cpu, entry);
    }
    lines
}

pub fn softirqs(text: &str) -> BTreeMap<u32, Softirqs> {
    let mut lines = text.lines();
    let cpus: Vec<u32> = header(lines.next());
    let mut table: BTreeMap<u32, Softirqs> = cpus.iter().map(|&cpu| (cpu, Softirqs::default())).collect();
    for line in lines {
        let Some((name, counts)) = line.split_once(':') else { continue };
        let field: fn(&mut Softirqs) -> &mut u64 = match name.trim() {
            "NET_RX" => |s| &mut s.net_rx,
            "NET_TX" => |s| &mut s.net_tx,
            _ => continue,
        };
        for (cpu, count) in cpus.iter().zip(counts.split_ascii_whitespace()) {
            if let (Some(entry), Ok(count)) = (table.get_mut(cpu), count.parse()) {
                *field(entry) = count;
            }
        }
    }
    table
}

pub fn interrupts(text: &str) -> Interrupts {
    let mut lines = text.lines();
    let cpus: Vec<u32> = header(lines.next());
    let mut table = Interrupts { totals: vec![0; cpus.len()], cpus, ..Interrupts::default() };
    let width = table.cpus.len();
    let mut row = Vec::with_capacity(width);
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else { continue };
        row.clear();
        row.extend(rest.split_ascii_whitespace().take(width).map_while(|word| word.parse::<u64>().ok()));
        // A shorter line counts the whole machine (ERR, MIS).
        if row.len() < width {
            continue;
        }
        for (total, count) in table.totals.iter_mut().zip(&row) {
            *total = total.saturating_add(*count);
        }
        if let Ok(irq) = name.trim().parse()
            && !table.lines.contains_key(&irq)
            && width > 0
        {
            table.lines.insert(irq, table.counts.len() / width);
            table.counts.extend_from_slice(&row);
        }
    }
    table
}

fn header(line: Option<&str>) -> Vec<u32> {
    line.unwrap_or_default().split_ascii_whitespace().map_while(|w| cpu_number(w, "CPU")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cpu_time_lines() {
        let text = "cpu  1 1 1 1\ncpu0 9912 5 2569 100824 88 3 548 9 7 0\ncpu3 1 2 3 4\nintr 5 5\ncpu9 1 1 1 1\n";
        let times = cpu_times(text);
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let want = CpuTime { user: 9917, system: 2569, idle: 100_912, irq: 3, softirq: 548, steal: 9 };
        assert_eq!(times[&0], want);
        assert_eq!(times[&3], CpuTime { user: 3, system: 3, idle: 4, ..CpuTime::default() });
    }

    #[test]
    fn softnet_lines_old_and_new() {
        let new = "0000000a 00000001 00000002 0 0 0 0 0 0 00000005 00000007 00000003 00000004 0 0\n";
        let line = softnet(new, [0].into_iter())[&4];
        assert_eq!(line, Softnet { processed: 10, dropped: 1, time_squeeze: 2, flow_limited: 7, backlog: 3 });
        let old = "ff 0 0 0 0 0 0 0 0 0 0\n01 0 0 0 0 0 0 0 0 0 0\n";
        let lines = softnet(old, [0, 2].into_iter());
        assert_eq!((lines[&0].processed, lines[&2].processed), (255, 1));
    }

    #[test]
    fn softirq_rows() {
        let text = "                    CPU0       CPU2\n      HI:   1   1\n  NET_TX:          4          5\n  NET_RX:    2110766       7961\n";
        let table = softirqs(text);
        assert_eq!(table[&0], Softirqs { net_rx: 2_110_766, net_tx: 4 });
        assert_eq!(table[&2], Softirqs { net_rx: 7961, net_tx: 5 });
    }

    #[test]
    fn interrupt_rows_with_an_offline_cpu() {
        let text = "           CPU0       CPU2       \n 41:       1080          7 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx\nLOC:      54137      54926   Local timer interrupts\nERR:          0\n";
        let table = interrupts(text);
        assert_eq!(table.cpus, [0, 2]);
        assert_eq!(table.line(41), Some([1080, 7].as_slice()));
        assert_eq!(table.line(42), None);
        assert_eq!(table.totals, [55_217, 54_933]);
        assert_eq!(table.lines().count(), 1);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*|( *(CPU|cpu)?[0-9]{0,12}:?[ \\n]*)*") {
            let _ = (cpu_times(&text), softnet(&text, 0..4), softirqs(&text), interrupts(&text));
        }

        #[test]
        fn what_is_written_is_read(rows in prop::collection::btree_map(0u32..2000, prop::collection::vec(any::<u32>(), 3), 1..20)) {
            let mut text = String::from(" CPU0 CPU1 CPU5\n");
            for (irq, c) in &rows {
                text.push_str(&format!("{irq:>4}: {:>10} {:>10} {:>10}  PCI-MSIX x {irq}-edge eth0-{irq}\n", c[0], c[1], c[2]));
            }
            let table = interrupts(&text);
            for (irq, c) in &rows {
                let want: Vec<u64> = c.iter().map(|&x| u64::from(x)).collect();
                prop_assert_eq!(table.line(*irq), Some(want.as_slice()));
            }
        }
    }
}
