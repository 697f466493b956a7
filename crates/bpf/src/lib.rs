//! The kernel programs and one safe handle for each.
