//! Compiles every `src/bpf/*.bpf.c` with clang and writes one skeleton each to `OUT_DIR`.
//!
//! Only uapi headers and libbpf's own are used: neither the running kernel's BTF nor bpftool.

use std::{env, ffi::OsStr, fs, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let dir = PathBuf::from("src/bpf");
    println!("cargo:rerun-if-changed={}", dir.display());
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    for entry in fs::read_dir(&dir).expect("src/bpf is readable").flatten() {
        let path = entry.path();
        println!("cargo:rerun-if-changed={}", path.display());
        let Some(name) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".bpf.c")) else {
            continue;
        };
        SkeletonBuilder::new()
            .source(&path)
            .obj(out.join(format!("{name}.o")))
            .clang_args([
                OsStr::new("-Wall"),
                OsStr::new("-Werror"),
                OsStr::new(&format!("-mcpu={}", instructions(name))),
                OsStr::new("-Isrc/bpf"),
                OsStr::new(&format!("-I/usr/include/{arch}-linux-gnu")),
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
    }
}

/// The set of instructions: 32-bit ones make the shield's machine code a fourteenth shorter. The verifier refuses `drops` with them, so that all
/// others have the oldest, whatever the compiler's own choice is.
fn instructions(program: &str) -> &'static str {
    if program == "shield" { "v3" } else { "v1" }
}
