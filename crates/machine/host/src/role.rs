//! The work of an interrupt, from the name its driver gave it in /proc/interrupts.
//!
//! Every driver has its own habit; the table test below is the list of those known. Names are read from their end: the front is the
//! interface's name, a former one, the driver's, or a PCI address.

use crate::picture::QueueRole;

/// A possible owner of an interrupt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owner<'a> {
    pub nic: &'a str,
    /// Its driver; empty when not known.
    pub driver: &'a str,
    /// The device's folder in sysfs: `0000:03:00.0`, `virtio2`, `vif-0`, `fd580000.ethernet`.
    pub device: &'a str,
    pub pci: Option<&'a str>,
}

/// The meaning of an interrupt's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    Queue(QueueRole),
    /// A number without a kind, behind these words: `eth0-3`, `mlx4-3`. A queue, unless other interrupts name theirs.
    Numbered(String, u32),
    /// Nothing: the interface's name and no more, a name cut off, words of an unknown driver.
    Silent,
    /// Link state, mailbox, asynchronous events: no packets.
    Control,
}

/// Words for both directions, for one, and for interrupts without packets.
const BOTH: [&str; 17] = [
    "txrx",
    "rxtx",
    "tr",
    "fp",
    "q",
    "queue",
    "comp",
    "ring",
    "ch",
    "chan",
    "channel",
    "slice",
    "io",
    "napi",
    "txr",
    "virtqueues",
    "blk",
];
const RX: [&str; 2] = ["rx", "input"];
const TX: [&str; 2] = ["tx", "output"];
const CONTROL: [&str; 40] = [
    "misc", "mbx", "mbox", "mailbox", "async", "mgmnt", "mgmt", "link", "lsc", "event", "events", "err", "error",
    "errors", "notify", "config", "control", "aq", "adminq", "admin", "hwc", "fweventq", "fw", "mcc", "pages", "cmd",
    "health", "ptp", "aeq", "ceq", "aeqceq", "nq", "sp", "safety", "wol", "lpi", "other", "xdp", "eq", "temp",
];

/// True if the name says that the interrupt is this interface's.
pub fn belongs(action: &str, owner: &Owner<'_>) -> bool {
    let ends = |rest: &str| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    let begins = |name: &str, front: &str| !front.is_empty() && name.strip_prefix(front).is_some_and(ends);
    let behind_driver = |name: &str| match name.split_once('-') {
        Some((front, rest)) if !owner.driver.is_empty() && front == owner.driver => begins(rest, owner.nic),
        // A copy may not tell the driver.
        Some(("i40e" | "ice" | "iavf" | "bnxt_en", rest)) => owner.driver.is_empty() && begins(rest, owner.nic),
        _ => false,
    };
    let name = action.trim();
    begins(name, owner.nic)
        || behind_driver(name)
        || owner.pci.is_some_and(|address| name.contains(address))
        || begins(name, owner.device)
        // xen-netfront: `vif0-q0-tx` of the device `vif-0`.
        || owner.device.strip_prefix("vif-").is_some_and(|n| begins(name, &format!("vif{n}")))
}

/// The meaning of the name of an interrupt that belongs to the owner.
pub fn meaning(action: &str, owner: &Owner<'_>) -> Meaning {
    // `mlx5_comp3@pci:0000:03:00.0`, `ena-mgmnt@pci:0000:00:05.0`: the address says nothing about the role.
    let name = without_address(action.split('@').next().unwrap_or(action).trim());
    if name == owner.nic || name == owner.device {
        return Meaning::Silent;
    }
    if owner.driver == "virtio_net" && !name.contains('-') {
        return Meaning::Silent; // `virtio2`: one line for all
    }
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let control =
        || words.iter().skip(1).any(|word| CONTROL.contains(&word.trim_end_matches(|c: char| c.is_ascii_digit())));
    if let Some(role) = queue(&words) {
        return Meaning::Queue(role);
    }
    if control() {
        return Meaning::Control;
    }
    let front = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match name[front.len()..].parse() {
        Ok(number) => Meaning::Numbered(front.to_owned(), number),
        Err(_) => Meaning::Silent,
    }
}

/// The queue that the last words name: `…-TxRx-3`, `…-Tx-Rx-3`, `…-tx-0-rx-3`, `…_q3`, `…-Rx3`, `…-q3-tx`, `…-virtqueues`.
fn queue(words: &[&str]) -> Option<QueueRole> {
    // The first word is a name, whatever it looks like.
    let (_, words) = words.split_first()?;
    let number = |word: &str| word.parse::<u32>().ok();
    let split = |word: &str| {
        let kind = word.trim_end_matches(|c: char| c.is_ascii_digit());
        number(&word[kind.len()..]).map(|n| (kind.len(), n))
    };
    let role = |kind: &str, before: &[&str], n| {
        let is = |list: &[&str], word: Option<&&str>| word.is_some_and(|word| list.contains(word));
        // `Tx-Rx-3`, and `tx-0-rx-3` of the ring that transmits as well.
        let last = before.last().filter(|word| number(word).is_none()).or_else(|| before.iter().rev().nth(1));
        match kind {
            kind if BOTH.contains(&kind) => Some(QueueRole::RxTx(n)),
            kind if RX.contains(&kind) => Some(if is(&TX, last) { QueueRole::RxTx(n) } else { QueueRole::Rx(n) }),
            kind if TX.contains(&kind) => Some(if is(&RX, last) { QueueRole::RxTx(n) } else { QueueRole::Tx(n) }),
            _ => None,
        }
    };
    let (last, before) = words.split_last()?;
    if let Some(n) = number(last) {
        let (kind, before) = before.split_last()?;
        return role(kind, before, n);
    }
    if let Some((kind, n)) = split(last) {
        return role(&last[..kind], before, n);
    }
    if *last == "virtqueues" {
        return Some(QueueRole::RxTx(0));
    }
    // The number before the direction: `vif0-q3-tx`.
    let (kind, n) = before.last().and_then(|word| split(word))?;
    let of_queue = before.last().is_some_and(|word| &word[..kind] == "q");
    of_queue.then(|| role(last, &[], n)).flatten()
}

/// The name without the PCI addresses in it: `hns3-0000:7d:00.0-TxRx-3`.
fn without_address(name: &str) -> String {
    const LEN: usize = "0000:03:00.0".len();
    let mut rest = name;
    let mut out = String::with_capacity(name.len());
    while let Some(c) = rest.chars().next() {
        match rest.get(..LEN) {
            Some(address) if is_pci_address(address) => rest = &rest[LEN..],
            _ => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out.trim_matches(['-', ':']).to_owned()
}

/// `0000:03:00.0`
pub(crate) fn is_pci_address(name: &str) -> bool {
    let digits = |text: &str, len| text.len() >= len && text.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = name.split(':');
    let (domain, bus, slot) = (parts.next(), parts.next(), parts.next().and_then(|s| s.split_once('.')));
    parts.next().is_none()
        && domain.is_some_and(|d| digits(d, 4))
        && bus.is_some_and(|b| digits(b, 2))
        && slot.is_some_and(|(device, function)| digits(device, 2) && digits(function, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(front: &str, n: u32) -> Meaning {
        Meaning::Numbered(front.to_owned(), n)
    }

    #[test]
    fn every_driver_has_its_habit() {
        use Meaning::{Control, Queue, Silent};
        use QueueRole::{Rx, RxTx, Tx};
        let table: &[(&str, &str, &str, Meaning)] = &[
            ("ixgbe", "eth0", "eth0-TxRx-3", Queue(RxTx(3))),
            ("ixgbe", "eth0", "eth0-rx-2", Queue(Rx(2))),
            ("ixgbe", "enp3s0f0", "enp3s0f0-TxRx-11", Queue(RxTx(11))),
            ("ixgbe", "eth0", "lan-1-TxRx-11", Queue(RxTx(11))),
            ("ixgbe", "eth0", "eth0", Silent),
            ("i40e", "eth0", "i40e-eth0-TxRx-13", Queue(RxTx(13))),
            ("i40e", "eth0", "i40e-0000:03:00.0:misc", Control),
            ("iavf", "ens5", "iavf-ens5-TxRx-0", Queue(RxTx(0))),
            ("ice", "eth0", "ice-eth0-TxRx-3", Queue(RxTx(3))),
            ("ice", "eth0", "ice-0000:18:00.0:misc", Control),
            ("igb", "eth0", "eth0-TxRx-1", Queue(RxTx(1))),
            ("igb", "eth0", "eth0-rx-0", Queue(Rx(0))),
            ("igb", "eth0", "eth0-tx-0", Queue(Tx(0))),
            ("mlx5_core", "eth0", "mlx5_comp3@pci:0000:03:00.0", Queue(RxTx(3))),
            ("mlx5_core", "eth0", "mlx5_comp63", Queue(RxTx(63))),
            ("mlx5_core", "eth0", "mlx5_async0@pci:0000:03:00.0", Control),
            ("mlx5_core", "eth0", "mlx5_async@pci:0000:03:00.0", Control),
            ("mlx5_core", "eth0", "mlx5_pages_eq@pci:0000:03:00.0", Control),
            ("mlx4_en", "eth0", "mlx4-3@0000:03:00.0", number("mlx4-", 3)),
            ("mlx4_core", "eth0", "mlx4-async@pci:0000:03:00.0", Control),
            ("mlx4_core", "eth0", "mlx4-comp-5@pci:0000:03:00.0", Queue(RxTx(5))),
            ("ena", "eth0", "eth0-Tx-Rx-3", Queue(RxTx(3))),
            ("ena", "eth0", "ena-mgmnt@pci:0000:00:05.0", Control),
            ("virtio_net", "eth0", "virtio2-input.0", Queue(Rx(0))),
            ("virtio_net", "eth0", "virtio2-output.7", Queue(Tx(7))),
            ("virtio_net", "eth0", "virtio2-config", Control),
            ("virtio_net", "eth0", "virtio2-virtqueues", Queue(RxTx(0))),
            ("virtio_net", "eth0", "virtio2", Silent),
            ("vmxnet3", "ens192", "ens192-rxtx-3", Queue(RxTx(3))),
            ("vmxnet3", "ens192", "ens192-rx-1", Queue(Rx(1))),
            ("vmxnet3", "ens192", "ens192-event-4", Control),
            ("e1000e", "eth0", "eth0-rx-0", Queue(Rx(0))),
            ("bnxt_en", "eth0", "eth0-TxRx-5", Queue(RxTx(5))),
            ("bnxt_en", "enp65s0f0np0", "enp65s0f0np0-TxRx", Silent),
            ("bnxt_en", "enp129s0f0np0", "enp129s0f0np0-TxR", Silent),
            ("bnxt_en", "eth0", "bnxt_re-nq-0@pci:0000:41:00.0", Control),
            ("gve", "eth0", "gve-ntfy-blk5@pci:0000:00:04.0", Queue(RxTx(5))),
            ("gve", "eth0", "gve-mgmnt@pci:0000:00:04.0", Control),
            ("tg3", "eth0", "eth0-txrx-1", Queue(RxTx(1))),
            ("tg3", "eth0", "eth0-0", number("eth0-", 0)),
            ("vif", "eth0", "eth0-q3-rx", Queue(Rx(3))),
            ("vif", "eth0", "vif0-q3-tx", Queue(Tx(3))),
            ("vif", "eth0", "vif0-q3", Queue(RxTx(3))),
            ("mana", "eth0", "mana_q7@pci:7870:00:00.0", Queue(RxTx(7))),
            ("mana", "eth0", "mana_hwc@pci:7870:00:00.0", Control),
            ("hns3", "eth0", "hns3-0000:7d:00.0-TxRx-12", Queue(RxTx(12))),
            ("hns3", "eth0", "hclge-misc-0000:7d:00.0", Control),
            ("bnx2", "eth0", "eth0-5", number("eth0-", 5)),
            ("bnx2x", "eth0", "eth0-fp-5", Queue(RxTx(5))),
            ("sfc", "eth0", "eth0-xdp-0", Control),
            ("sfc", "eth0", "eth0-rx-0", Queue(Rx(0))),
            ("r8125", "eth0", "eth0-21", number("eth0-", 21)),
            ("qlcnic", "eth0", "eth0-rx-2", Queue(Rx(2))),
            ("qlcnic", "eth0", "eth0-tx-0-rx-3", Queue(RxTx(3))),
            ("cxgb4", "eth0", "eth0-Rx3", Queue(Rx(3))),
            ("stmmac", "eth0", "eth0:rx-1", Queue(Rx(1))),
            ("ixgbe", "eth0", "eth0-TxRx-99999999999", Silent),
            ("ixgbe", "eth0", "", Silent),
            ("ixgbe", "q1", "q1", Silent),
            ("ixgbe", "tx", "tx-TxRx-1", Queue(RxTx(1))),
        ];
        for (driver, nic, action, expected) in table {
            let owner = Owner { nic, driver, device: "0000:03:00.0", pci: Some("0000:03:00.0") };
            assert_eq!(meaning(action, &owner), *expected, "{driver} {nic} {action}");
        }
    }

    #[test]
    fn a_name_belongs_to_one_interface() {
        let owner = |nic, driver, device| Owner { nic, driver, device, pci: None };
        for (of, action, whether) in [
            (owner("eth0", "ixgbe", ""), "eth0-TxRx-3", true),
            (owner("eth0", "ixgbe", ""), "eth01-TxRx-3", false),
            (owner("eth1", "ixgbe", ""), "eth0-TxRx-3", false),
            (owner("eth0", "i40e", ""), "i40e-eth0-TxRx-13", true),
            (owner("eth0", "i40e", ""), "i40e-eth1-TxRx-13", false),
            (owner("eth0", "", ""), "ice-eth0-TxRx-0", true),
            (owner("eth0", "e1000", ""), "uhci_hcd:usb1", false),
            (owner("eth0", "vif", "vif-0"), "vif0-q0-tx", true),
            (owner("eth0", "vif", "vif-1"), "vif0-q0-tx", false),
            (owner("eth0", "virtio_net", "virtio1"), "virtio1", true),
            (owner("eth0", "virtio_net", "virtio1"), "virtio11", false),
            (owner("eth0", "virtio_net", "virtio1"), "virtio1-input.0", true),
            (owner("end0", "fec", "30be0000.ethernet"), "30be0000.ethernet", true),
            (Owner { pci: Some("0000:7d:00.0"), ..owner("eth0", "hns3", "") }, "hns3-0000:7d:00.0-TxRx-0", true),
            (Owner { pci: Some("0000:7d:00.1"), ..owner("eth0", "hns3", "") }, "hns3-0000:7d:00.0-TxRx-0", false),
        ] {
            assert_eq!(belongs(action, &of), whether, "{} {action}", of.nic);
        }
    }
}
