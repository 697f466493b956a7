//! A run of the RFC 2544 bench as text, CSV and page, and several of them side by side.

mod charts;
mod compare;
mod conditions;
mod csv;
mod figures;
mod page;
mod table;
mod tables;
mod text;

pub use compare::bench_compare_text;
pub use csv::{BenchCsv, CsvError, bench_csv};
pub use page::bench_page;
pub use text::{BenchView, bench_text, has_figures};
