//! Where packets die: every packet offered to the machine is delivered, lost at a named station, or unexplained.
mod balance;
mod convert;
pub mod input;
mod others;
pub mod places;
mod run;
mod stations;
mod verdict;

pub use balance::{Balance, balance};
pub use run::{Ledger, LedgerError, Options};
pub use stations::{Found, losses};
pub use verdict::{Head, report};
