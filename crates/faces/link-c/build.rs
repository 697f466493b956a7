//! The name that programs are linked to: the interface's version, 0 until it is settled.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libevenkeel_link.so.0");
}
