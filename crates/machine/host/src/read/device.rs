//! The device behind an interface: its driver, its place on the bus, its interrupts.

use std::collections::BTreeSet;

use super::soft_number;
use crate::{role::is_pci_address, root::Root};

#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) driver: Option<String>,
    /// PCI address of the device, or else its folder's name.
    pub(super) bus: Option<String>,
    /// The folder of the device itself: for virtio not the PCI function's.
    pub(super) folder: String,
    pub(super) pci: Option<String>,
    /// True behind a USB controller, whose interrupt brings its packets.
    pub(super) is_usb: bool,
    pub(super) node: Option<u32>,
    /// The message-signalled interrupts that the device was given.
    pub(super) msi_irqs: BTreeSet<u32>,
    /// Or else its interrupt line, which others may share.
    pub(super) line: Option<u32>,
}

impl Device {
    pub(super) fn find(root: &Root, base: &str) -> Self {
        let link = |rel: &str| root.link(rel).ok();
        let last = |target: String| target.rsplit('/').next().map(str::to_owned);
        let driver = link(&format!("{base}/device/driver")).and_then(last);
        // ../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0: the PCI function is the device or a folder above it.
        let path = link(base)
            .and_then(|target| Some(format!("sys/{}", target.trim_start_matches("../").rsplit_once("/net/")?.0)))
            .filter(|path| !path.starts_with("sys/devices/virtual"));
        let own = path.clone().unwrap_or_else(|| format!("{base}/device"));
        let is_usb = own.split('/').any(|folder| folder.strip_prefix("usb").is_some_and(|n| n.parse::<u32>().is_ok()));
        let mut function = own.as_str();
        while !is_pci_address(name_of(function)) {
            match function.rsplit_once('/') {
                Some((above, _)) if above != "sys/devices" && !is_usb => function = above,
                _ => {
                    function = &own;
                    break;
                }
            }
        }
        let pci = Some(name_of(function)).filter(|name| is_pci_address(name)).map(str::to_owned);
        let folder = match &path {
            Some(path) => name_of(path).to_owned(),
            None => link(&format!("{base}/device")).and_then(last).unwrap_or_default(),
        };
        let msi = root.list(&format!("{function}/msi_irqs")).unwrap_or_default();
        let msi_irqs: BTreeSet<u32> = msi.iter().filter_map(|number| number.parse().ok()).collect();
        let line = if msi_irqs.is_empty() { soft_number(root, &format!("{function}/irq")) } else { None };
        Self {
            driver,
            bus: pci.clone().or_else(|| Some(folder.clone()).filter(|folder| !folder.is_empty())),
            folder,
            pci,
            is_usb,
            // -1 on machines without NUMA.
            node: soft_number(root, &format!("{function}/numa_node")),
            msi_irqs,
            line: line.filter(|&irq| irq != 0),
        }
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
