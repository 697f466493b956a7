//! Two nodes and a network that the bytes command: it loses, doubles, reorders, cuts, changes, replays and forges frames, and lets time go by. Nothing
//! comes twice or in another order, nobody who does not know its numbers ends a connection, and what is open gets all through in the end.

#![cfg_attr(feature = "run", no_main)]

#[path = "../../crates/words/transport/tests/scripts/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostile::play(bytes));

#[cfg(not(feature = "run"))]
fn main() {}
