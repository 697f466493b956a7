//! Decides whether KVM runs a guest: by a trial boot, never by a device file.

use std::time::Duration;

use crate::{Guest, GuestError, Kernel, Nic, Root, Settings};

/// The engine that runs a guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    Kvm,
    /// QEMU translates them (TCG).
    Emulation,
}

/// A guest by KVM answers within this time.
const BOOT_TIMEOUT: Duration = Duration::from_secs(10);

/// Boots the guest's kernel by KVM, without cards.
pub fn trial(kernel: &Kernel, root: &Root) -> Result<Duration, GuestError> {
    let settings = Settings {
        nic: Nic::Virtio,
        cards: Vec::new(),
        accel: Accel::Kvm,
        cpus: 1,
        memory_mib: 1024,
        traced: false,
        namespace: None,
        within: Vec::new(),
        disk: None,
    };
    Guest::start(&settings, kernel, root, BOOT_TIMEOUT).map(|guest| guest.ready)
}
