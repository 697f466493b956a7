//! Names for kernel addresses, from /proc/kallsyms: the kernel itself, its modules and loaded BPF programs.
//!
//! The table gives no sizes, so that an address belongs to the last function that begins at or below it. Of several names
//! of one address the most public one is taken: global before local before weak, then the one with the fewest underscores
//! in front. (`perf` takes the last in the list: its `__pi_memcpy` is `memcpy` here.)
//!
//! Load the table after the addresses were collected, or [`KernelSymbols::reload`] it then: a BPF program that came in
//! between is listed at once, but would be taken for its neighbour by an older table.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use crate::root::{Root, RootError};

const KALLSYMS: &str = "proc/kallsyms";
/// No function is larger than this, in bytes: what lies farther behind the last symbol has no name here.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Least time between two readings of the table by lookups that found nothing.
const RELOAD_PERIOD: Duration = Duration::from_secs(1);

/// A reason why kernel addresses have no names.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    #[error("no names for kernel functions: {0}; it takes a kernel with CONFIG_KALLSYMS and a mounted /proc")]
    Read(#[from] RootError),
    #[error(
        "no names for kernel functions: the kernel hides their addresses (every one in /proc/kallsyms is zero; \
         kernel.kptr_restrict = {kptr_restrict}, kernel.perf_event_paranoid = {paranoid}); {}",
        way_out(kptr_restrict)
    )]
    Hidden {
        /// The value of /proc/sys/kernel/kptr_restrict; `unknown` where it cannot be read.
        kptr_restrict: String,
        paranoid: String,
    },
    #[error("no names for kernel functions: /proc/kallsyms has no line that is one ({lines} lines)")]
    Empty { lines: usize },
}

/// kernel/ksyms_common.c, kallsyms_show_value(): with 2 nobody sees them, with 1 who has CAP_SYSLOG, with 0 also everybody
/// if perf_event_paranoid is at most 1.
fn way_out(kptr_restrict: &str) -> &'static str {
    match kptr_restrict {
        "0" | "1" => "run as root (CAP_SYSLOG shows them)",
        _ => "as root, `sysctl kernel.kptr_restrict=1` shows them to root alone",
    }
}

model::classified!(SymbolError: Lacking);

/// The name of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The function, as the kernel lists it: with the compiler's suffix, if it has one (`.isra.0`, `.cold`).
    pub name: &'a str,
    /// The module; `bpf` for a BPF program; none for the kernel itself.
    pub module: Option<&'a str>,
    /// The distance of the address from the function's beginning, in bytes.
    pub offset: u64,
}

impl<'a> Symbol<'a> {
    /// The function's name in the source: without what the compiler put behind it when it split or copied the function.
    pub fn function(&self) -> &'a str {
        match self.name.find('.') {
            Some(dot) if dot > 0 => &self.name[..dot],
            _ => self.name,
        }
    }
}

/// The kernel's functions by address, at the moment they were read.
#[derive(Debug, Clone)]
pub struct KernelSymbols {
    root: Root,
    table: Table,
    read_at: Instant,
}

#[derive(Debug, Clone, Default)]
struct Table {
    /// The kernel's own list, into which the entries point.
    text: String,
    /// By ascending address, one per address.
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    /// The offset of its name in the text.
    name: u32,
    name_len: u16,
    /// The module's name follows the symbol's, in brackets; 0: none.
    module_len: u16,
    /// Marks the end of a section: what follows has no name.
    end: bool,
}

impl KernelSymbols {
    /// Reads the list of the machine or saved copy.
    ///
    /// # Errors
    /// When there is none, when the kernel hides the addresses from this process, or when it holds no function.
    pub fn load(root: &Root) -> Result<Self, SymbolError> {
        Ok(Self { root: root.clone(), table: read(root)?, read_at: Instant::now() })
    }

    /// The function that an address lies in; none below the first, behind a section's end, or more than 1 MiB behind the
    /// last beginning.
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        self.table.lookup(address)
    }

    /// As [`Self::lookup`]; an address without a name makes the list be read again, at most once a second, because a
    /// module or BPF program may have come.
    pub fn lookup_or_reload(&mut self, address: u64) -> Option<Symbol<'_>> {
        let missing = self.table.lookup(address).is_none();
        if missing && self.read_at.elapsed() >= RELOAD_PERIOD {
            // The names it has stay good if the list cannot be read any more.
            let _ = self.reload();
        }
        self.table.lookup(address)
    }

    /// Reads the list again.
    ///
    /// # Errors
    /// As [`Self::load`]; the names it had stay.
    pub fn reload(&mut self) -> Result<(), SymbolError> {
        self.read_at = Instant::now();
        self.table = read(&self.root)?;
        Ok(())
    }

    /// The functions of a stack whose innermost frame comes first; none for a frame without a name. The outer frames are
    /// return addresses, behind the call: a call that is its function's last instruction is still looked up in it.
    pub fn stack<'a>(&'a self, frames: &[u64]) -> Vec<Option<Symbol<'a>>> {
        let inside = |(depth, &address): (usize, &u64)| self.lookup(address - u64::from(depth > 0 && address > 0));
        frames.iter().enumerate().map(inside).collect()
    }

    /// The number of known functions.
    pub fn len(&self) -> usize {
        self.table.entries.iter().filter(|e| !e.end).count()
    }

    /// True if none is known; never, since such a list is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn read(root: &Root) -> Result<Table, SymbolError> {
    let table = Table::parse(root.read(KALLSYMS)?);
    match table.entries.as_slice() {
        [] => Err(SymbolError::Empty { lines: table.text.lines().count() }),
        [only] if only.address == 0 => {
            let sysctl = |name: &str| {
                let value = root.read_trimmed(&format!("proc/sys/kernel/{name}"));
                value.unwrap_or_else(|_| "unknown".to_owned())
            };
            Err(SymbolError::Hidden { kptr_restrict: sysctl("kptr_restrict"), paranoid: sysctl("perf_event_paranoid") })
        }
        _ => Ok(table),
    }
}

impl Table {
    fn parse(text: String) -> Self {
        let start = text.as_ptr() as usize;
        let mut named: Vec<(u64, Entry, Rank)> = text
            .lines()
            .filter_map(|line| {
                let (address, kind, name, module) = fields(line)?;
                let end = matches!(name, "_etext" | "_einittext" | "__init_end");
                if !end && (!matches!(kind, b't' | b'T' | b'w' | b'W') || is_no_function(name)) {
                    return None;
                }
                let entry = Entry {
                    address,
                    name: u32::try_from(name.as_ptr() as usize - start).ok()?,
                    name_len: u16::try_from(name.len()).ok()?,
                    module_len: u16::try_from(module.map_or(0, str::len)).ok()?,
                    end,
                };
                // A function that begins where a section ends is a function.
                let rank = (end, matches!(kind, b'w' | b'W'), kind == b't', underscores(name), Reverse(name.len()));
                Some((address, entry, rank))
            })
            .collect();
        // A stable sort: of equals the first in the list stays.
        named.sort_by_key(|(address, _, rank)| (*address, *rank));
        named.dedup_by_key(|(address, ..)| *address);
        let entries = named.into_iter().map(|(_, entry, _)| entry).collect();
        Self { text, entries }
    }

    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let behind = self.entries.partition_point(|e| e.address <= address);
        let entry = self.entries.get(behind.checked_sub(1)?)?;
        let offset = address - entry.address;
        if entry.end || offset > MAX_FUNCTION_BYTES {
            return None;
        }
        let name_end = entry.name as usize + usize::from(entry.name_len);
        let module_at = name_end + "\t[".len();
        let module = self.text.get(module_at..module_at + usize::from(entry.module_len));
        Some(Symbol {
            name: self.text.get(entry.name as usize..name_end)?,
            module: module.filter(|m| !m.is_empty()),
            offset,
        })
    }
}

/// Order among several names of an address; the smallest is the best.
type Rank = (bool, bool, bool, usize, Reverse<usize>);

/// `ffffffffc0025bc0 t bpf_dispatcher_xdp\t[bpf]`.
fn fields(line: &str) -> Option<(u64, u8, &str, Option<&str>)> {
    let (address, rest) = line.split_once(' ')?;
    let (kind, name) = rest.split_once(' ')?;
    let &[kind] = kind.as_bytes() else { return None };
    let (name, module) = match name.split_once("\t[") {
        Some((name, module)) => (name, Some(module.strip_suffix(']')?)),
        None => (name, None),
    };
    Some((u64::from_str_radix(address, 16).ok()?, kind, name, module))
}

fn underscores(name: &str) -> usize {
    name.bytes().take_while(|&b| b == b'_').count()
}

/// Marks of linker and compiler that are no functions: bounds of sections, padding before functions (`__pfx_`), mapping
/// symbols (`$x`) and local labels.
fn is_no_function(name: &str) -> bool {
    matches!(name, "_text" | "_stext" | "_sinittext")
        || name.starts_with("__pfx_")
        || name.starts_with('$')
        || name.starts_with(".L")
        || (name.starts_with("__") && (name.ends_with("_text_start") || name.ends_with("_text_end")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "\
ffffffff81000000 T srso_alias_untrain_ret
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t __pfx_ip_rcv
ffffffff81000110 T ip_rcv
ffffffff81000200 t ip_rcv_core.isra.0
ffffffff81000300 W __x64_sys_read_weak
ffffffff81000300 T __x64_sys_read
ffffffff81000300 T __do_sys_read
ffffffff81000400 T _etext
ffffffff82000000 D jiffies
ffffffff83000000 t setup_late
ffffffffc0001000 t veth_poll\t[veth]
ffffffffc0002000 t bpf_prog_6deef7357e7b4530_xdp_drop\t[bpf]
";

    fn machine(files: &[(&str, &str)]) -> Root {
        Root::from_files(files.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>())
    }

    fn symbols() -> KernelSymbols {
        KernelSymbols::load(&machine(&[(KALLSYMS, LIST)])).unwrap()
    }

    #[test]
    fn an_address_belongs_to_the_function_that_begins_before_it() {
        let s = symbols();
        let name = |address| s.lookup(address).map(|x| (x.name, x.module, x.offset));
        assert_eq!(name(0xffffffff81000000), Some(("srso_alias_untrain_ret", None, 0)));
        assert_eq!(name(0xffffffff81000110), Some(("ip_rcv", None, 0)));
        assert_eq!(name(0xffffffff810001ff), Some(("ip_rcv", None, 0xef)));
        assert_eq!(name(0xffffffffc0001fff), Some(("veth_poll", Some("veth"), 0xfff)));
        assert_eq!(name(0xffffffffc0002040), Some(("bpf_prog_6deef7357e7b4530_xdp_drop", Some("bpf"), 0x40)));
        assert_eq!(s.lookup(0xffffffff81000210).unwrap().function(), "ip_rcv_core");
        assert_eq!(s.len(), 7);
    }

    #[test]
    fn of_several_names_the_most_public() {
        // Global before weak, then the longest of those with the fewest underscores.
        assert_eq!(symbols().lookup(0xffffffff81000300).unwrap().name, "__x64_sys_read");
    }

    #[test]
    fn what_lies_outside_has_no_name() {
        let s = symbols();
        let outside = [0, 0xffffffff80ffffff, 0xffffffff81000400, 0xffffffff82000000, 0xffffffffc0202001, u64::MAX];
        for address in outside {
            assert_eq!(s.lookup(address), None, "{address:x}");
        }
    }

    #[test]
    fn a_return_address_belongs_to_the_caller() {
        let s = symbols();
        // The call is ip_rcv's last instruction, so that it would return to the function behind.
        let names: Vec<_> =
            s.stack(&[0xffffffff81000200, 0xffffffff81000200, 0]).iter().map(|f| f.map(|f| f.name)).collect();
        assert_eq!(names, [Some("ip_rcv_core.isra.0"), Some("ip_rcv"), None]);
    }

    #[test]
    fn hidden_addresses_are_reported_with_the_way_out() {
        let hidden = "0000000000000000 T _text\n0000000000000000 T ip_rcv\n0000000000000000 t veth_poll\t[veth]\n";
        let error = |kptr: &str| {
            let root = machine(&[
                (KALLSYMS, hidden),
                ("proc/sys/kernel/kptr_restrict", kptr),
                ("proc/sys/kernel/perf_event_paranoid", "2\n"),
            ]);
            KernelSymbols::load(&root).unwrap_err().to_string()
        };
        assert!(error("2\n").contains("kptr_restrict = 2") && error("2\n").contains("sysctl kernel.kptr_restrict=1"));
        assert!(error("1\n").contains("run as root (CAP_SYSLOG"), "{}", error("1\n"));
    }

    #[test]
    fn no_list_and_an_empty_list_are_errors() {
        let absent = KernelSymbols::load(&machine(&[("proc/stat", "")])).unwrap_err();
        assert!(absent.to_string().contains("CONFIG_KALLSYMS"), "{absent}");
        let empty = KernelSymbols::load(&machine(&[(KALLSYMS, "garbage\n\n12 T\n")])).unwrap_err();
        assert!(empty.to_string().contains("(3 lines)"), "{empty}");
    }

    #[test]
    fn the_table_is_read_again_but_not_at_every_miss() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(KALLSYMS), text).unwrap();
        write("ffffffff81000000 T ip_rcv\n");
        let mut s = KernelSymbols::load(&Root::open(folder.path()).unwrap()).unwrap();
        write("ffffffff81000000 T ip_rcv\nffffffffc0002000 t bpf_prog_1_x\t[bpf]\n");
        assert_eq!(s.lookup_or_reload(0xffffffffc0002001), None, "just read");
        s.read_at = s.read_at.checked_sub(RELOAD_PERIOD).unwrap();
        assert_eq!(s.lookup_or_reload(0xffffffffc0002001).unwrap().name, "bpf_prog_1_x");
        // A list that went keeps the names.
        write("");
        s.reload().unwrap_err();
        assert_eq!(s.lookup(0xffffffff81000001).unwrap().name, "ip_rcv");
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(text in "([0-9a-f]{0,17}[ \t]?[tTdW]?[ \t]?[\\[\\]\t_.$a-z]{0,12}\n){0,20}", address: u64) {
            let table = Table::parse(text);
            table.lookup(address);
            for entry in &table.entries {
                prop_assert!(entry.end || table.lookup(entry.address).is_some());
            }
        }
    }
}
