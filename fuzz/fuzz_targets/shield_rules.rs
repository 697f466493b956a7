//! The shield's file of rules: any text is rules that can be compiled and looked up in, or an error with a place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shield::{
    ShieldError,
    compile::{Counters, Now, lookup, tables},
    reference,
    rules::file,
};

/// Ethernet, IPv4, TCP SYN from 198.18.0.1:1000 to 198.18.0.2:80.
const FRAME: &[u8] =
    b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\x45\0\0\x28\0\0\0\0\x40\x06\0\0\xc6\x12\0\x01\xc6\x12\0\x02\
    \x03\xe8\0\x50\0\0\0\x01\0\0\0\0\x50\x02\x01\0\0\0\0\0";

fuzz_target!(|text: &str| {
    let rules = match file::parse(text, "fuzz") {
        Ok(rules) => rules,
        Err(ShieldError::Rules(problems)) => {
            assert!(problems.iter().all(|problem| problem.line > 0 && problem.column > 0));
            return;
        }
        Err(_) => return,
    };
    let now = Now::read();
    if let Ok(tables) = tables(&rules, &mut Counters::new(), now) {
        let found = lookup::decide_frame(&tables, FRAME, now.monotonic_ns, |_, _| false);
        assert_eq!(found, reference::decide_frame(&rules, FRAME, now));
    }
});
