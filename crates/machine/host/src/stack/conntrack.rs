//! The counts of connection tracking (`/proc/net/stat/nf_conntrack`), and the entries of its table.

use crate::root::{Root, RootError};

/// The counters of connection tracking of a network namespace, all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conntrack {
    /// Connections in the table now.
    pub entries: u64,
    /// The most that the table may hold (net.netfilter.nf_conntrack_max); 0 when it cannot be read.
    pub max: u64,
    /// Packets that belong to no connection and cannot open one.
    pub invalid: u64,
    /// Packets that were not tracked on purpose.
    pub ignore: u64,
    /// Packets lost because their connection could not be entered: another CPU was faster and the clash was not solved.
    pub insert_failed: u64,
    /// Packets lost because the table was full or memory short.
    pub drop: u64,
    /// Connections thrown out of a full table to make room for another.
    pub early_drop: u64,
    /// ICMP errors that could not be tracked: malformed or for no known connection.
    pub icmp_error: u64,
    /// Clashes of two CPUs over one connection that were solved.
    pub clash_resolve: u64,
    /// Packets lost because the chain of their bucket was too long.
    pub chain_too_long: u64,
}

impl Conntrack {
    /// Reads the counters; none when this kernel has no connection tracking.
    ///
    /// # Errors
    /// When the file is there but cannot be read.
    pub fn read(root: &Root) -> Result<Option<Self>, RootError> {
        let Some(text) = root.read_opt("proc/net/stat/nf_conntrack")? else { return Ok(None) };
        let number = |name: &str| {
            let text = root.read_opt(&format!("proc/sys/net/netfilter/{name}")).ok().flatten();
            text.and_then(|t| t.parse::<u64>().ok())
        };
        let mut counters = Self::parse(&text);
        counters.max = number("nf_conntrack_max").unwrap_or(0);
        counters.entries = number("nf_conntrack_count").unwrap_or(counters.entries);
        Ok(Some(counters))
    }

    /// Reads the table: a line of names, then a line of hexadecimal numbers per CPU. `entries` is the same in each line.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
        let mut sum = Self::default();
        for line in lines {
            for (name, word) in names.iter().zip(line.split_ascii_whitespace()) {
                let Ok(value) = u64::from_str_radix(word, 16) else { continue };
                let slot = match *name {
                    "entries" => {
                        sum.entries = value;
                        continue;
                    }
                    "invalid" => &mut sum.invalid,
                    "ignore" => &mut sum.ignore,
                    "insert_failed" => &mut sum.insert_failed,
                    "drop" => &mut sum.drop,
                    "early_drop" => &mut sum.early_drop,
                    "icmp_error" => &mut sum.icmp_error,
                    // The columns `clashres` and `chainlength` carry their names since 5.12; before, others stood there.
                    "clashres" => &mut sum.clash_resolve,
                    "chainlength" => &mut sum.chain_too_long,
                    _ => continue,
                };
                *slot = slot.saturating_add(value);
            }
        }
        sum
    }

    /// The counts between `earlier` and now; `entries` and `max` are those of now. Each CPU's counters are 32 bits
    /// wide in the kernel and may have wrapped; a sum that went back otherwise (the module was loaded anew) counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        // A wrap on any CPU takes 2^32 from the sum, so its lower half goes on.
        let minus = |now: u64, before: u64| match (now as u32).wrapping_sub(before as u32) {
            grown if grown <= i32::MAX as u32 => u64::from(grown),
            _ => now,
        };
        Self {
            entries: self.entries,
            max: self.max,
            invalid: minus(self.invalid, earlier.invalid),
            ignore: minus(self.ignore, earlier.ignore),
            insert_failed: minus(self.insert_failed, earlier.insert_failed),
            drop: minus(self.drop, earlier.drop),
            early_drop: minus(self.early_drop, earlier.early_drop),
            icmp_error: minus(self.icmp_error, earlier.icmp_error),
            clash_resolve: minus(self.clash_resolve, earlier.clash_resolve),
            chain_too_long: minus(self.chain_too_long, earlier.chain_too_long),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_add_up_and_entries_do_not() {
        let text = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n\
            00000010  00000001 00000000 00000000 0000000a 00000000 00000000 00000003 00000000 00000002 00000005 00000001 00000000  00000000 00000000 00000000 00000000\n\
            00000010  00000001 00000000 00000000 0000000b 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000004  00000000 00000000 00000000 00000000\n";
        let c = Conntrack::parse(text);
        assert_eq!((c.entries, c.clash_resolve, c.invalid, c.chain_too_long), (16, 2, 21, 3));
        assert_eq!((c.insert_failed, c.drop, c.early_drop, c.icmp_error), (2, 6, 1, 4));
        let d = c.since(&Conntrack { drop: 4, invalid: 21, ..Conntrack::default() });
        assert_eq!((d.entries, d.drop, d.invalid), (16, 2, 0));
        assert_eq!(Conntrack::parse(""), Conntrack::default());
    }

    #[test]
    fn a_wrap_on_one_cpu_goes_on() {
        let before = Conntrack::parse("drop invalid\nfffffffe 00000009\n00000010 00000000\n");
        let now = Conntrack::parse("drop invalid\n00000003 00000002\n00000011 00000000\n");
        let d = now.since(&before);
        assert_eq!((d.drop, d.invalid), (6, 2), "five and one; the module was loaded anew");
    }

    #[test]
    fn the_table_of_a_copy() {
        let files = [
            ("proc/net/stat/nf_conntrack", "entries drop\n00000001 00000002\n"),
            ("proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
        ];
        let root = Root::from_files(files.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
        let c = Conntrack::read(&root).unwrap().expect("a table");
        assert_eq!((c.entries, c.max, c.drop), (1, 65_536, 2));
        assert_eq!(Conntrack::read(&Root::from_files([].into())).unwrap(), None);
    }
}
