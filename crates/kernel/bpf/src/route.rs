//! A program that forwards frames in the kernel's stead.

pub(crate) mod look;
pub(crate) mod port;
pub(crate) mod shadow;
pub(crate) mod steering;
pub(crate) mod tables;
pub(crate) mod watch;
pub(crate) mod xdp_fib;
