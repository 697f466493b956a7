//! The machine: CPUs, NUMA, NICs, queues, IRQs, counters (read); knobs and the journal (write).

pub mod picture;
