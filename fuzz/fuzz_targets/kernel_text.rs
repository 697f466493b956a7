//! The files of /proc and the names of interrupts and statistics.

#![cfg_attr(feature = "run", no_main)]

use host::{
    counters,
    read::parse_interrupts,
    role::{self, Owner},
};
use libfuzzer_sys::fuzz_target;

const DRIVERS: [&str; 6] = ["virtio_net", "mlx5_core", "ena", "gve", "vmxnet3", "ixgbe"];

fuzz_target!(|text: &str| {
    for irq in parse_interrupts(text) {
        for action in &irq.actions {
            for driver in DRIVERS {
                let owner = Owner { nic: "eth0", driver, ..Owner::default() };
                let _ = (role::belongs(action, &owner), role::meaning(action, &owner));
            }
        }
    }
    let table = counters::interrupts(text);
    assert!(table.lines().all(|(_, row)| row.len() == table.cpus.len()));
    let cpus = counters::cpu_times(text);
    let _ = (counters::softirqs(text), counters::softnet(text, cpus.keys().copied()));
    let names: Vec<&str> = text.lines().collect();
    let _ = counters::QueueNames::find(&names).gather(&vec![1; names.len()]);
});

#[cfg(not(feature = "run"))]
fn main() {}
