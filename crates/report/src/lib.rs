//! Text, JSON and HTML of what was measured; knows model and nothing else.

mod charts;
mod demo_page;
mod demo_text;
mod doctor;
mod table;
mod top;

pub use demo_page::{PageError, demo_page};
pub use demo_text::{PUBLISHED, demo_text, ledger, stages};
pub use doctor::{doctor_list, doctor_table, doctor_text};
pub use table::Look;
pub use top::{coalescing, top_text};
