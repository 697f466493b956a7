//! Compiles every `*.bpf.c` under `src` with clang and writes one skeleton each to `OUT_DIR`.
//!
//! Only uapi headers and libbpf's own are used: neither the running kernel's BTF nor bpftool. The environment variable CLANG names another compiler
//! than `clang` (tools/clangs).

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    // A new program is named there.
    println!("cargo:rerun-if-changed=src/skel.rs");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let version = Command::new(&clang).arg("--version").output().unwrap_or_else(|e| panic!("{}: {e}", clang.display()));
    let version =
        String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or("an unknown clang").trim().to_owned();
    println!("cargo:rustc-env=EVENKEEL_CLANG={version}");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets the crate's folder");
    let root = format!("-ffile-prefix-map={}=.", root.trim_end_matches("/crates/kernel/bpf"));
    let mut files = Vec::new();
    walk(Path::new("src"), &mut files);
    for path in files {
        let file = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if file.ends_with(".h") || file.ends_with(".c") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        let Some(name) = file.strip_suffix(".bpf.c") else { continue };
        SkeletonBuilder::new()
            .source(&path)
            .clang(&clang)
            .obj(out.join(format!("{name}.o")))
            .clang_args([
                OsStr::new("-Wall"),
                OsStr::new("-Werror"),
                OsStr::new(&format!("-mcpu={}", instructions(&path))),
                OsStr::new("-Isrc"),
                // The paths in line numbers are relative, so that objects do not depend on the repository's place.
                OsStr::new(&root),
                OsStr::new(&format!("-I/usr/include/{arch}-linux-gnu")),
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
    }
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).flatten() {
        let path = entry.path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}

/// The set of instructions that the program names (`clang: -mcpu=`). All others have the oldest, whatever the compiler's own choice is: the verifier
/// refuses some programs with newer ones.
fn instructions(program: &Path) -> String {
    let text = fs::read_to_string(program).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let named = text.split_once("clang: -mcpu=").and_then(|(_, rest)| rest.split_whitespace().next());
    named.unwrap_or("v1").to_owned()
}
