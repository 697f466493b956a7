//! The live terminal view; knows model and nothing else.

pub mod top;
