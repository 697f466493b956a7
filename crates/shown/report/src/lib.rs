//! Text, JSON and HTML of what was measured; knows model and nothing else.

mod bench;
mod chart;
mod charts;
mod conditions;
mod demo_page;
mod demo_text;
mod doctor;
mod doctor_nodes;
mod flood;
mod flood_compare;
mod flood_page;
mod guest;
mod ledger;
mod ledger_details;
mod link;
mod link_bench;
mod link_bench_page;
mod link_check;
mod load_areas;
mod neighbour;
mod neighbour_page;
mod page;
mod paint;
mod profile;
mod route;
mod route_compare;
mod route_compare_page;
mod shield;
mod speedup;
mod speedup_page;
mod sweep;
mod sweep_page;
mod table;
mod top;

pub use bench::{
    BenchCsv, BenchView, CsvError, bench_compare_page, bench_compare_text, bench_csv, bench_page, bench_text,
    has_figures,
};
pub use demo_page::demo_page;
pub use demo_text::{demo_text, ledger, stages};
pub use doctor::{doctor_list, doctor_table, doctor_text};
pub use doctor_nodes::{compare_text, nodes_text};
pub use flood::flood_text;
pub use flood_compare::flood_compare_text;
pub use flood_page::flood_page;
pub use guest::guest_text;
pub use ledger::ledger_text;
pub use link::{link_nodes_text, link_ping_text, link_text};
pub use link_bench::link_bench_text;
pub use link_bench_page::link_bench_page;
pub use link_check::link_check_text;
pub use neighbour::neighbour_text;
pub use neighbour_page::neighbour_page;
pub use page::{PUBLISHED, PageError};
pub use paint::Paint;
pub use profile::{ProfileView, comparison_text, profile_text};
pub use route::{route_check_text, route_line, route_text};
pub use route_compare::route_compare_text;
pub use route_compare_page::route_compare_page;
pub use shield::{ShieldRow, shield_line, shield_list, shield_text};
pub use speedup::speedup_text;
pub use speedup_page::speedup_page;
pub use sweep::sweep_text;
pub use sweep_page::sweep_page;
pub use table::Look;
pub use top::{coalescing, top_text};
