//! Clients beside a flood: what a protection leaves of a service under attack.
//!
//! ```text
//! protection   what stands in front of the listener, behind a trait: those of the kernel are in `kernel`
//! bed          two namespaces, one link that the flood and the clients share; or a gateway between them, with two links
//! relay        the flood's way to a gateway of packet rings
//! addresses    who has which, in IPv4 or IPv6
//! attack       the generator: spoofed SYNs, live frames
//! clients      connect, ask, read the answer, close
//! server       the service
//! shield       this program's own `shield run` as a protection
//! counters     of interfaces and TCP; `account` says by them where the flood's packets ended
//! cores        which core does what
//! run          all modes and rates
//! ```

mod account;
mod addresses;
mod attack;
mod bed;
mod clients;
mod cores;
mod counters;
mod kernel;
mod protection;
mod relay;
mod run;
mod server;
mod shield;

use crate::BenchError;
use kernel::KERNEL_MODES;
use shield::SHIELDS;

pub use cores::FloodCores;
pub use protection::{About, Counter, Layout, Place, Protecting, Protection};
pub use run::{FloodConfig, Rate, run_flood};

/// The protection with this key.
///
/// # Errors
/// [`BenchError::Setting`] for a key that none has.
pub fn protection(key: &str) -> Result<Box<dyn Protection>, BenchError> {
    let mut all = protections();
    match all.iter().position(|mode| mode.about().key == key) {
        Some(found) => Ok(all.swap_remove(found)),
        None => {
            let keys: Vec<&str> = all.iter().map(|mode| mode.about().key).collect();
            Err(BenchError::Setting(format!("--modes has no `{key}`; there are {}", keys.join(", "))))
        }
    }
}

/// All of them, those of the kernel first.
fn protections() -> Vec<Box<dyn Protection>> {
    let of_kernel = KERNEL_MODES.map(|mode| Box::new(mode) as Box<dyn Protection>);
    of_kernel.into_iter().chain(SHIELDS.map(|shield| Box::new(shield) as Box<dyn Protection>)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protection_is_found_by_its_key() {
        for mode in protections() {
            assert_eq!(protection(mode.about().key).unwrap().about(), mode.about());
        }
        assert!(matches!(protection("luck"), Err(BenchError::Setting(_))));
    }
}
