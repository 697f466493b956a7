//! The card models, bursts and lengths; what this machine lacks.

use std::path::Path;

use guest::{Kernel, Nic};

/// Frames under way at once.
pub(super) const BURSTS: [u32; 2] = [1, 8];
/// Bursts of a short and of a long train: the slope between them is what a frame costs.
pub(super) const LENGTHS: [u32; 2] = [400, 6400];

#[derive(Debug, Clone)]
pub struct Options {
    pub nics: Vec<Nic>,
    pub runs: u32,
    /// The cost of an exit, in nanoseconds, if the user knows it of another machine.
    pub exit_ns: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct Plan {
    /// The request, without the card models that are left out.
    pub options: Options,
    pub skipped: Vec<String>,
}

impl Plan {
    /// Plans a run with this kernel of the guest.
    pub fn new(mut options: Options, kernel: &Kernel) -> Self {
        let mut skipped = Vec::new();
        options.nics.retain(|nic| {
            let why = lacking(nic, kernel);
            skipped.extend(why.map(|why| format!("{nic}: {why}")));
            lacking(nic, kernel).is_none()
        });
        Self { options, skipped }
    }
}

/// The reason why a card model cannot be a guest's here, with the command of an owner of what lacks.
fn lacking(nic: &Nic, kernel: &Kernel) -> Option<String> {
    match nic {
        Nic::VirtioVhost if !Path::new("/dev/vhost-net").exists() => {
            Some("the host's kernel has no vhost-net (no /dev/vhost-net); where it has: modprobe vhost_net, and the same command again".into())
        }
        Nic::Passthrough(pci) => {
            let groups = std::fs::read_dir("/sys/kernel/iommu_groups").map_or(0, Iterator::count);
            Some(match groups {
                0 => format!(
                    "this machine has no IOMMU group to pass a card through by; where it has one (intel_iommu=on or amd_iommu=on): driverctl set-override {pci} vfio-pci, and -device vfio-pci,host={pci} for QEMU with KVM"
                ),
                _ => format!("a card that is passed through is measured with KVM alone: driverctl set-override {pci} vfio-pci, and the same command on a machine whose KVM carries a guest"),
            })
        }
        Nic::Virtio | Nic::VirtioMq | Nic::VirtioVhost | Nic::E1000 | Nic::E1000e | Nic::Vmxnet3 => {
            (!kernel.has(nic.module())).then(|| {
                format!("the guest's kernel {} has no driver {}; name another with --guest-kernel", kernel.release, nic.module())
            })
        }
    }
}
