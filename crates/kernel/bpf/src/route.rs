//! A program that forwards frames in the kernel's stead.

pub(crate) mod xdp_fib;
