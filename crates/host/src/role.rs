//! What an interrupt serves, from the name its driver gave it in /proc/interrupts.
//!
//! Every driver has its own habit; the table test below is the list of those known.

use crate::picture::QueueRole;

/// What the interrupt called `action` serves, if it belongs to the interface `nic` with that driver; none when the name
/// is not one of the driver's, or is of another interface.
///
/// mlx5 and mlx4 name their interrupts by vector and PCI address, not by interface: there, and for virtio_net, the caller
/// must know by the device's `msi_irqs` that the interrupt is this interface's.
pub fn role_of(action: &str, nic: &str, driver: Option<&str>) -> Option<QueueRole> {
    // `mlx5_comp3@pci:0000:03:00.0`, `ena-mgmnt@pci:0000:00:05.0`: the address says nothing about the role.
    let name = action.split('@').next().unwrap_or(action).trim();
    match driver {
        Some("virtio_net") => virtio(name),
        Some("mlx5_core") => mellanox(name, "mlx5_"),
        Some("mlx4_en" | "mlx4_core") => mellanox(name, "mlx4"),
        Some("ena") if name.starts_with("ena-mgmnt") => Some(QueueRole::Control),
        Some("gve") if name == "gve-mgmnt" => Some(QueueRole::Control),
        Some("gve") => gve(name),
        Some(driver) => by_interface(name, nic, driver),
        None => by_interface(name, nic, ""),
    }
}

/// `virtio2-input.0`, `virtio2-output.0`, `virtio2-config`, `virtio2-control`; `virtio2-virtqueues` when all share one.
fn virtio(name: &str) -> Option<QueueRole> {
    let (device, role) = name.split_once('-')?;
    device.strip_prefix("virtio")?.parse::<u32>().ok()?;
    match role.split_once('.') {
        Some(("input", queue)) => queue.parse().ok().map(QueueRole::Rx),
        Some(("output", queue)) => queue.parse().ok().map(QueueRole::Tx),
        None if role == "config" || role == "control" => Some(QueueRole::Control),
        None if role == "virtqueues" => Some(QueueRole::RxTx(0)),
        _ => None,
    }
}

/// `mlx5_comp3`, `mlx5_async`, `mlx5_async0`, `mlx5_pages_eq`; `mlx4-3`, `mlx4-comp-3`, `mlx4-async`.
fn mellanox(name: &str, prefix: &str) -> Option<QueueRole> {
    let rest = name.strip_prefix(prefix)?.trim_start_matches('-');
    let rest = rest.strip_prefix("comp").unwrap_or(rest).trim_start_matches('-');
    Some(rest.parse().map_or(QueueRole::Control, QueueRole::RxTx))
}

/// `gve-ntfy-blk3`: transmit blocks first, then receive blocks; how many of each, only the device knows, so that the
/// block's number stands for the queue.
fn gve(name: &str) -> Option<QueueRole> {
    name.strip_prefix("gve-ntfy-blk")?.parse().ok().map(QueueRole::RxTx)
}

/// The names that contain the interface's: `eth0-TxRx-3`, `i40e-eth0-TxRx-3`, `eth0-rx-0`, `eth0:v2`, `eth0`.
fn by_interface(name: &str, nic: &str, driver: &str) -> Option<QueueRole> {
    let own = name.strip_prefix(nic).or_else(|| {
        // The driver or its family in front: `i40e-eth0-TxRx-3`, `ice-eth0-TxRx-3`, `iavf-eth0-TxRx-3`.
        name.split_once('-').filter(|(front, _)| is_driver(front, driver)).and_then(|(_, rest)| rest.strip_prefix(nic))
    });
    let Some(rest) = own else {
        // `i40e-0000:03:00.0:misc`, `ice-0000:03:00.0:misc`, `bnxt_en-…`: the function's other causes.
        return name
            .split_once('-')
            .filter(|(front, rest)| is_driver(front, driver) && rest.contains(':'))
            .map(|_| QueueRole::Control);
    };
    if rest.is_empty() {
        // One line for all: e1000, e1000e without MSI-X; or the link interrupt of ixgbe, igb, igc and e1000e with it.
        // Who has more than one interrupt corrects it.
        return Some(QueueRole::RxTx(0));
    }
    if !rest.starts_with(['-', ':', '_']) {
        return None; // eth01 is not eth0
    }
    let lower = rest[1..].to_ascii_lowercase();
    if let Some((queue, direction)) = lower.strip_prefix('q').and_then(|r| r.split_once('-')) {
        // xen-netfront: `eth0-q0-rx`.
        let role = if direction == "rx" { QueueRole::Rx } else { QueueRole::Tx };
        return queue.parse().ok().map(role);
    }
    let end = lower.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (kind, number) = (lower[..end].trim_end_matches(['-', '_', '.', ':']), lower[end..].parse::<u32>());
    let number = || number.clone().ok();
    match kind {
        "txrx" | "rxtx" | "tx-rx" | "rx-tx" | "tr" | "fp" | "q" | "queue" => number().map(QueueRole::RxTx),
        "rx" | "input" => number().map(QueueRole::Rx),
        "tx" | "output" => number().map(QueueRole::Tx),
        // vmxnet3 numbers its event interrupt by vector; cxgb4 and others have a word for theirs.
        _ => Some(QueueRole::Control),
    }
}

fn is_driver(front: &str, driver: &str) -> bool {
    front == driver || (driver.is_empty() && matches!(front, "i40e" | "ice" | "iavf" | "bnxt_en"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_has_its_habit() {
        use QueueRole::{Control, Rx, RxTx, Tx};
        let table: &[(&str, &str, &str, Option<QueueRole>)] = &[
            ("ixgbe", "eth0", "eth0-TxRx-3", Some(RxTx(3))),
            ("ixgbe", "eth0", "eth0-rx-2", Some(Rx(2))),
            ("ixgbe", "eth1", "eth0-TxRx-3", None),
            ("ixgbe", "eth0", "eth01-TxRx-3", None),
            ("ixgbe", "enp3s0f0", "enp3s0f0-TxRx-11", Some(RxTx(11))),
            ("i40e", "eth0", "i40e-eth0-TxRx-13", Some(RxTx(13))),
            ("i40e", "eth0", "i40e-0000:03:00.0:misc", Some(Control)),
            ("i40e", "eth0", "i40e-eth1-TxRx-13", None),
            ("iavf", "ens5", "iavf-ens5-TxRx-0", Some(RxTx(0))),
            ("ice", "eth0", "ice-eth0-TxRx-3", Some(RxTx(3))),
            ("ice", "eth0", "ice-0000:18:00.0:misc", Some(Control)),
            ("igb", "eth0", "eth0-TxRx-1", Some(RxTx(1))),
            ("igb", "eth0", "eth0-rx-0", Some(Rx(0))),
            ("igb", "eth0", "eth0-tx-0", Some(Tx(0))),
            ("igc", "eth0", "eth0", Some(RxTx(0))),
            ("mlx5_core", "eth0", "mlx5_comp3@pci:0000:03:00.0", Some(RxTx(3))),
            ("mlx5_core", "eth0", "mlx5_comp63", Some(RxTx(63))),
            ("mlx5_core", "eth0", "mlx5_async0@pci:0000:03:00.0", Some(Control)),
            ("mlx5_core", "eth0", "mlx5_async@pci:0000:03:00.0", Some(Control)),
            ("mlx5_core", "eth0", "mlx5_pages_eq@pci:0000:03:00.0", Some(Control)),
            ("mlx4_en", "eth0", "mlx4-3@0000:03:00.0", Some(RxTx(3))),
            ("mlx4_core", "eth0", "mlx4-async@pci:0000:03:00.0", Some(Control)),
            ("mlx4_core", "eth0", "mlx4-comp-5@pci:0000:03:00.0", Some(RxTx(5))),
            ("ena", "eth0", "eth0-Tx-Rx-3", Some(RxTx(3))),
            ("ena", "eth0", "ena-mgmnt@pci:0000:00:05.0", Some(Control)),
            ("virtio_net", "eth0", "virtio2-input.0", Some(Rx(0))),
            ("virtio_net", "eth0", "virtio2-output.7", Some(Tx(7))),
            ("virtio_net", "eth0", "virtio2-config", Some(Control)),
            ("virtio_net", "eth0", "virtio2-virtqueues", Some(RxTx(0))),
            ("virtio_net", "eth0", "virtio1-req.0", None),
            ("vmxnet3", "ens192", "ens192-rxtx-3", Some(RxTx(3))),
            ("vmxnet3", "ens192", "ens192-rx-1", Some(Rx(1))),
            ("vmxnet3", "ens192", "ens192-event-4", Some(Control)),
            ("e1000e", "eth0", "eth0-rx-0", Some(Rx(0))),
            ("e1000e", "eth0", "eth0-tx-0", Some(Tx(0))),
            ("e1000e", "eth0", "eth0", Some(RxTx(0))),
            ("e1000", "eth0", "eth0", Some(RxTx(0))),
            ("e1000", "eth0", "uhci_hcd:usb1", None),
            ("bnxt_en", "eth0", "eth0-TxRx-5", Some(RxTx(5))),
            ("gve", "eth0", "gve-ntfy-blk5@pci:0000:00:04.0", Some(RxTx(5))),
            ("gve", "eth0", "gve-mgmnt@pci:0000:00:04.0", Some(Control)),
            ("tg3", "eth0", "eth0-txrx-1", Some(RxTx(1))),
            ("r8169", "eth0", "ahci[0000:00:1f.2]", None),
            ("vif", "eth0", "eth0-q3-rx", Some(Rx(3))),
            ("vif", "eth0", "eth0-q3-tx", Some(Tx(3))),
            ("ixgbe", "eth0", "eth0-TxRx-99999999999", None),
            ("ixgbe", "eth0", "", None),
        ];
        for (driver, nic, action, role) in table {
            assert_eq!(role_of(action, nic, Some(driver)), *role, "{driver} {nic} {action}");
        }
    }
}
