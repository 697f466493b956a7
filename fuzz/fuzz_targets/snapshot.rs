//! Saved machines: any bytes are a picture or an error.

#![cfg_attr(feature = "run", no_main)]

use std::{env, fs, process};

use host::{Host, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = env::temp_dir().join(format!("ekfuzz-{}.tar", process::id()));
    fs::write(&file, bytes).expect("a folder for temporary files");
    if let Ok(root) = Root::open(&file) {
        let _ = Host::read(&root);
    }
    let _ = fs::remove_file(&file);
});

#[cfg(not(feature = "run"))]
fn main() {}
