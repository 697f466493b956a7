//! The live terminal view; knows model and nothing else.

pub mod ledger;
pub mod live;
pub mod shield;
pub mod top;
