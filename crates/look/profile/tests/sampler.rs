//! The kernel's own table of names: what comes later is found in it, and where it is hidden that is said.

use std::thread;

use bpf::{CpuProfile, ProfileOptions};
use host::{
    Root,
    symbols::{KernelSymbols, SymbolError},
};
use model::{Classified, ErrorClass};
use testbed::privileged;

#[test]
fn a_bpf_program_that_came_later_is_in_the_table_read_again() {
    let Some(()) = privileged() else { return };
    let mut symbols = KernelSymbols::load(&Root::live()).unwrap();
    let profile = CpuProfile::open(&ProfileOptions::of([0])).unwrap();
    let listed = std::fs::read_to_string("/proc/kallsyms").unwrap();
    // Another test may have one too, and end it meanwhile; ours stays.
    symbols.reload().unwrap();
    let named = |line: &&str| {
        let address = line.split(' ').next().and_then(|a| u64::from_str_radix(a, 16).ok()).unwrap();
        symbols
            .lookup(address)
            .is_some_and(|s| s.name.ends_with("_sample_cpu") && s.module == Some("bpf") && s.offset == 0)
    };
    let ours: Vec<&str> = listed.lines().filter(|l| l.contains("_sample_cpu\t[bpf]")).collect();
    assert!(ours.iter().any(named), "{ours:?}");
    drop(profile);
}

#[test]
fn without_privilege_the_hidden_table_is_an_error_that_says_so() {
    let Some(()) = privileged() else { return };
    let loaded = thread::spawn(|| {
        sys::privilege::drop_all_but(&[]).unwrap();
        KernelSymbols::load(&Root::live()).map(|_| ())
    })
    .join()
    .unwrap();
    match loaded {
        Err(e @ SymbolError::Hidden { .. }) => {
            assert_eq!(e.class(), ErrorClass::Lacking);
            assert!(e.to_string().contains("run as root") || e.to_string().contains("as root, `sysctl"), "{e}");
            eprintln!("{e}");
        }
        Err(other) => panic!("{other}"),
        // A machine that shows them to everybody.
        Ok(()) => {
            let sysctl = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
            assert_eq!(sysctl("kptr_restrict").trim(), "0");
            assert!(sysctl("perf_event_paranoid").trim().parse::<i32>().unwrap() <= 1);
        }
    }
}
