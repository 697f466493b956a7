//! Sets of CPUs: what is read is written and read again as the same set.

#![cfg_attr(feature = "run", no_main)]

use libfuzzer_sys::fuzz_target;
use model::CpuSet;

fuzz_target!(|text: &str| {
    if let Ok(set) = CpuSet::parse_list(text) {
        assert_eq!(CpuSet::parse_list(&set.to_string()).as_ref(), Ok(&set));
    }
    if let Ok(set) = CpuSet::parse_mask(text) {
        assert_eq!(CpuSet::parse_mask(&set.to_mask()).as_ref(), Ok(&set));
    }
});

#[cfg(not(feature = "run"))]
fn main() {}
