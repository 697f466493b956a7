//! The C interface of messages between nodes: include/evenkeel_link.h, which says what each call does.
//!
//! `handle` is what a program holds and how a call ends, `errno` makes numbers of errors, `border` looks at pointers. `open`, `connections`, `data` and `wait`
//! are the calls; none does more than that of [`link::Engine`] or [`link::Claim`] beneath it.

#![allow(unsafe_code, reason = "the border to C: pointers that the caller answers for")]

mod border;
mod connections;
mod data;
mod errno;
mod handle;
mod open;
mod wait;
