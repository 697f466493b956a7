//! Senders of live frames, and programs that count, measure or drop them where they arrive.

mod bench_clock;
pub mod bench_rx;
pub mod bench_tx;
pub(crate) mod flood_end;
pub mod r#gen;
pub(crate) mod live_run;
pub(crate) mod verdict;
