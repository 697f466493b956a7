//! The interrupts of an interface, and the queue that each serves.
//!
//! Names tell, where a driver gives telling ones. Where they do not (all alike, cut off by the driver, of an unknown form) the
//! interrupts are taken in their order, and the picture says so.

use std::collections::{BTreeMap, BTreeSet};

use super::device::Device;
use crate::{
    picture::{Irq, IrqSource, NicIrq, QueueRole},
    role::{Meaning, Owner, belongs, meaning},
};

/// An interface whose interrupts are sought.
pub(super) struct Serves<'a> {
    pub(super) name: &'a str,
    pub(super) driver: Option<&'a str>,
    pub(super) device: &'a Device,
    pub(super) rx: usize,
    pub(super) tx: usize,
}

/// An interrupt and what its name tells.
struct Vector {
    irq: u32,
    meaning: Meaning,
}

impl Serves<'_> {
    /// The interrupts of the interface by queue, then by number, and how they are known.
    pub(super) fn irqs(&self, irqs: &[Irq]) -> (Vec<NicIrq>, IrqSource) {
        if self.device.bus.is_none() && self.device.driver.is_none() {
            return (Vec::new(), IrqSource::Virtual); // it has none, whatever it is called
        }
        if self.device.is_usb
            || matches!(self.driver, Some("hv_netvsc"))
            || self.driver.is_some_and(|d| d.starts_with("qeth"))
        {
            return (Vec::new(), IrqSource::Elsewhere);
        }
        let owner = Owner {
            nic: self.name,
            driver: self.driver.unwrap_or_default(),
            device: &self.device.folder,
            pci: self.device.pci.as_deref(),
        };
        let vectors: Vec<Vector> = irqs.iter().filter_map(|irq| self.vector(irq, &owner)).collect();
        if vectors.is_empty() {
            return (Vec::new(), IrqSource::NotFound);
        }
        let (mut found, ordered) = roles(&vectors, self.rx as u32, self.tx as u32, self.driver == Some("gve"));
        found.sort_by_key(|i| (queue_of(i.role), i.irq));
        (found, if ordered { IrqSource::Order } else { IrqSource::Names })
    }

    fn vector(&self, irq: &Irq, owner: &Owner<'_>) -> Option<Vector> {
        let vector = |action: &String| Vector { irq: irq.number, meaning: meaning(action, owner) };
        let named = || irq.actions.iter().find(|action| belongs(action, owner)).map(vector);
        if self.device.msi_irqs.contains(&irq.number) {
            // One without an action is allocated and not in use: of a port that is down, of a queue that is off.
            return named().or_else(|| irq.actions.first().map(vector));
        }
        // Where the device's interrupts are known, a name proves nothing: an interface may carry another's former name, which
        // that one's interrupts keep.
        if !self.device.msi_irqs.is_empty() || self.device.line.is_some_and(|line| line != irq.number) {
            return None;
        }
        named()
    }
}

/// The work of each interrupt, and true if it is known by their order alone.
fn roles(vectors: &[Vector], rx: u32, tx: u32, halves: bool) -> (Vec<NicIrq>, bool) {
    let mut queues: Vec<NicIrq> = Vec::new();
    let mut others: Vec<NicIrq> = Vec::new();
    let named = vectors.iter().any(|v| matches!(v.meaning, Meaning::Queue(_)));
    let front = commonest_front(vectors);
    let numbered = !named && front.is_some();
    let mut silent: Vec<u32> = Vec::new();
    for v in vectors {
        let irq = |role| NicIrq { irq: v.irq, role };
        match &v.meaning {
            Meaning::Queue(role) => queues.push(irq(*role)),
            Meaning::Numbered(words, n) if numbered && Some(words.as_str()) == front => {
                queues.push(irq(QueueRole::RxTx(*n)));
            }
            Meaning::Silent if !named && !numbered => silent.push(v.irq),
            // Beside interrupts that name their queue, the one that does not is for changes of the link.
            Meaning::Numbered(..) | Meaning::Silent | Meaning::Control => others.push(irq(QueueRole::Control)),
        }
    }
    if halves {
        split_halves(&mut queues);
    }
    let (repeated, alone) = (has_repeats(&queues), silent.len() == 1);
    if repeated {
        in_order(&mut queues);
    }
    if !silent.is_empty() {
        // The interrupts of queues come first; what is left is for the link.
        let most = if rx.max(tx) == 0 { silent.len() } else { rx.max(tx) as usize };
        let role = |n: usize| if n < most { QueueRole::RxTx(n as u32) } else { QueueRole::Control };
        queues.extend(silent.iter().enumerate().map(|(n, &irq)| NicIrq { irq, role: role(n) }));
    }
    fit(&mut queues, rx, tx);
    queues.append(&mut others);
    (queues, repeated || !silent.is_empty() && !alone)
}

/// The commonest text before the number among interrupts whose names differ in the number alone.
fn commonest_front(vectors: &[Vector]) -> Option<&str> {
    let mut fronts: BTreeMap<&str, usize> = BTreeMap::new();
    for v in vectors {
        if let Meaning::Numbered(front, _) = &v.meaning {
            *fronts.entry(front.as_str()).or_default() += 1;
        }
    }
    fronts.into_iter().max_by_key(|(_, count)| *count).map(|(front, _)| front)
}

/// gve: half of the blocks are for transmission, then half for reception.
fn split_halves(queues: &mut [NicIrq]) {
    let half = queues.len() as u32 / 2;
    for irq in queues {
        if let QueueRole::RxTx(block) = irq.role {
            irq.role = if block < half { QueueRole::Tx(block) } else { QueueRole::Rx(block - half) };
        }
    }
}

fn has_repeats(queues: &[NicIrq]) -> bool {
    let distinct: BTreeSet<QueueRole> = queues.iter().map(|i| i.role).collect();
    distinct.len() < queues.len()
}

/// Numbers the queues anew in the order of their interrupts, each direction for itself where they have interrupts apart.
fn in_order(queues: &mut [NicIrq]) {
    queues.sort_by_key(|i| i.irq);
    let both = queues.iter().any(|i| matches!(i.role, QueueRole::RxTx(_)));
    let (mut rx, mut tx) = (0.., 0..);
    for irq in queues {
        irq.role = match irq.role {
            _ if both => QueueRole::RxTx(rx.next().unwrap_or(0)),
            QueueRole::Tx(_) => QueueRole::Tx(tx.next().unwrap_or(0)),
            _ => QueueRole::Rx(rx.next().unwrap_or(0)),
        };
    }
}

/// Fits the numbers to the queues that are in use. A driver may count from 1 (tg3), or on from one direction to the other
/// (vmxnet3): then the order of the numbers counts. It may have interrupts of queues that are off (virtio_net, mlx5): they serve none.
fn fit(queues: &mut Vec<NicIrq>, rx: u32, tx: u32) {
    let both = queues.iter().any(|i| matches!(i.role, QueueRole::RxTx(_)));
    let sends = |i: &NicIrq| matches!(i.role, QueueRole::Tx(_));
    for (of_tx, most) in [(false, if both { rx.max(tx) } else { rx }), (true, tx)] {
        let numbers: BTreeSet<u32> = queues
            .iter()
            .filter(|i| i.role != QueueRole::Control && sends(i) == of_tx)
            .map(|i| queue_of(i.role))
            .collect();
        if most == 0 || numbers.last().is_none_or(|&last| last < most) {
            continue;
        }
        if numbers.len() > most as usize {
            queues.retain(|i| i.role == QueueRole::Control || sends(i) != of_tx || queue_of(i.role) < most);
            continue;
        }
        let rank: BTreeMap<u32, u32> = numbers.into_iter().zip(0..).collect();
        for irq in queues.iter_mut().filter(|i| sends(i) == of_tx) {
            let ranked = |n: u32| rank.get(&n).copied().unwrap_or(n);
            irq.role = match irq.role {
                QueueRole::Rx(n) => QueueRole::Rx(ranked(n)),
                QueueRole::Tx(n) => QueueRole::Tx(ranked(n)),
                QueueRole::RxTx(n) => QueueRole::RxTx(ranked(n)),
                QueueRole::Control => QueueRole::Control,
            };
        }
    }
}

fn queue_of(role: QueueRole) -> u32 {
    match role {
        QueueRole::Rx(n) | QueueRole::Tx(n) | QueueRole::RxTx(n) => n,
        QueueRole::Control => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Driver, interface, queues, names of the interrupts; what they serve, and how it is known.
    type Habit<'a> = (&'a str, &'a str, (usize, usize), Vec<String>, &'a str, IrqSource);

    /// The work of each of the device's interrupts, named so.
    fn served(driver: &str, nic: &str, queues: (usize, usize), names: &[String]) -> (Vec<String>, IrqSource) {
        let irq = |(number, name): (u32, &String)| Irq {
            number,
            chip: "PCI-MSIX".into(),
            actions: Some(name).filter(|n| !n.is_empty()).into_iter().cloned().collect(),
            affinity: model::CpuSet::single(0),
            effective: None,
            managed: false,
            counts: BTreeMap::new(),
        };
        let irqs: Vec<Irq> = (30..).zip(names).map(irq).collect();
        let device = Device {
            bus: Some("0000:03:00.0".into()),
            pci: Some("0000:03:00.0".into()),
            msi_irqs: irqs.iter().map(|i| i.number).collect(),
            ..Device::default()
        };
        let serves = Serves { name: nic, driver: Some(driver), device: &device, rx: queues.0, tx: queues.1 };
        let (found, source) = serves.irqs(&irqs);
        let text = |i: &NicIrq| match i.role {
            QueueRole::Rx(n) => format!("{}=rx{n}", i.irq),
            QueueRole::Tx(n) => format!("{}=tx{n}", i.irq),
            QueueRole::RxTx(n) => format!("{}={n}", i.irq),
            QueueRole::Control => format!("{}=-", i.irq),
        };
        (found.iter().map(text).collect(), source)
    }

    fn names(patterns: &[(&str, u32)]) -> Vec<String> {
        let many = |(pattern, count): &(&str, u32)| -> Vec<String> {
            (0..*count).map(|n| pattern.replace("{}", &n.to_string())).collect()
        };
        patterns.iter().flat_map(many).collect()
    }

    #[test]
    fn every_habit_ends_with_the_queues_apart() {
        use IrqSource::{Names, Order};
        let cut = |text: String| text.chars().take(17).collect::<String>();
        let bnxt = |nic: &str| (0..12).map(|n| cut(format!("{nic}-TxRx-{n}"))).collect::<Vec<_>>();
        let table: [Habit<'_>; 17] = [
            // atlantic: nothing but the interface's name, the link's last.
            ("atlantic", "enp5s0", (4, 4), names(&[("enp5s0", 5)]), "30=0 31=1 32=2 33=3 34=-", Order),
            // The same, renamed after the interrupts were named.
            ("atlantic", "lan", (4, 4), names(&[("eth7", 5)]), "30=0 31=1 32=2 33=3", Order),
            // bnxt cuts at 17 characters: a digit lost, and the whole number lost.
            (
                "bnxt_en",
                "enp3s0f0np",
                (12, 12),
                bnxt("enp3s0f0np"),
                "30=0 31=1 32=2 33=3 34=4 35=5 36=6 37=7 38=8 39=9 40=10 41=11",
                Order,
            ),
            ("bnxt_en", "enp65s0f0np", (2, 2), bnxt("enp65s0f0np")[..2].to_vec(), "30=0 31=1", Order),
            // A port that is down keeps its vectors without names.
            ("ixgbe", "eth0", (4, 4), vec![String::new(); 5], "", IrqSource::NotFound),
            ("ixgbe", "eth0", (2, 2), names(&[("lan-1-TxRx-{}", 2), ("lan-1", 1)]), "30=0 31=1 32=-", Names),
            (
                "mana",
                "eth0",
                (2, 2),
                names(&[("mana_hwc@pci:7870:00:00.0", 1), ("mana_q{}@pci:7870:00:00.0", 2)]),
                "31=0 32=1 30=-",
                Names,
            ),
            (
                "hns3",
                "eth0",
                (2, 2),
                names(&[("hclge-misc-0000:7d:00.0", 1), ("hns3-0000:7d:00.0-TxRx-{}", 2)]),
                "31=0 32=1 30=-",
                Names,
            ),
            ("bnx2", "eth0", (2, 2), names(&[("eth0-{}", 2)]), "30=0 31=1", Names),
            ("sfc", "eth0", (2, 2), names(&[("eth0-{}", 2), ("eth0-xdp-{}", 1)]), "30=0 31=1 32=-", Names),
            // r8125 of the vendor: 32 vectors, those behind the queues serve none.
            ("r8125", "eth0", (2, 2), names(&[("eth0-{}", 32)]), "30=0 31=1", Names),
            (
                "qlcnic",
                "eth0",
                (4, 1),
                names(&[("eth0-rx-{}", 3), ("eth0-tx-0-rx-3", 1)]),
                "30=rx0 31=rx1 32=rx2 33=3",
                Names,
            ),
            // tg3 counts from 1, and its first is for the link.
            (
                "tg3",
                "eth0",
                (2, 1),
                names(&[("eth0-0", 1), ("eth0-txrx-1", 1), ("eth0-rx-2", 1)]),
                "31=0 32=rx1 30=-",
                Names,
            ),
            // vmxnet3 with directions apart counts on.
            (
                "vmxnet3",
                "eth0",
                (2, 2),
                names(&[("eth0-tx-{}", 2), ("eth0-rx-2", 1), ("eth0-rx-3", 1), ("eth0-event-4", 1)]),
                "30=tx0 32=rx0 31=tx1 33=rx1 34=-",
                Names,
            ),
            // virtio_net keeps vectors of queues that are off.
            (
                "virtio_net",
                "eth0",
                (1, 1),
                names(&[("virtio2-config", 1), ("virtio2-input.{}", 4), ("virtio2-output.{}", 4)]),
                "31=rx0 35=tx0 30=-",
                Names,
            ),
            (
                "gve",
                "eth0",
                (1, 1),
                names(&[("gve-ntfy-blk{}@pci:0000:00:04.0", 4), ("gve-mgmnt@pci:0000:00:04.0", 1)]),
                "30=tx0 32=rx0 34=-",
                Names,
            ),
            // Nobody knows this driver.
            ("novel", "eth0", (2, 2), names(&[("frob-a", 1), ("frob-b", 1), ("frob-c", 1)]), "30=0 31=1 32=-", Order),
        ];
        for (driver, nic, queues, names, expected, source) in table {
            let (found, how) = served(driver, nic, queues, &names);
            assert_eq!((found.join(" ").as_str(), how), (expected, source), "{driver} {names:?}");
        }
    }

    #[test]
    fn devices_without_msi_are_known_by_their_names() {
        let irq = |number, actions: &[&str]| Irq {
            number,
            chip: String::new(),
            actions: actions.iter().map(|a| (*a).to_owned()).collect(),
            affinity: model::CpuSet::single(0),
            effective: None,
            managed: false,
            counts: BTreeMap::new(),
        };
        let irqs = [
            irq(24, &["virtio0"]),
            irq(25, &["virtio1"]),
            irq(26, &["uhci_hcd:usb1", "virtio3"]),
            irq(60, &["vif0-q0-tx"]),
            irq(61, &["vif0-q0-rx"]),
            irq(62, &["vif1-q0-rx"]),
            irq(70, &["eth0"]),
            irq(71, &["eth0"]),
            irq(80, &["30be0000.ethernet"]),
        ];
        let found = |name: &str, driver: &str, folder: &str, line: Option<u32>| {
            let device = Device {
                bus: Some(folder.into()),
                folder: folder.into(),
                line,
                is_usb: folder == "usb",
                ..Device::default()
            };
            let serves = Serves { name, driver: Some(driver), device: &device, rx: 2, tx: 2 };
            let (found, source) = serves.irqs(&irqs);
            (found.iter().map(|i| i.irq).collect::<Vec<_>>(), source)
        };
        assert_eq!(found("lan", "virtio_net", "virtio1", None), (vec![25], IrqSource::Names), "Firecracker's MMIO");
        assert_eq!(found("lan", "virtio_net", "virtio3", Some(26)), (vec![26], IrqSource::Names), "a line with others");
        assert_eq!(found("lan", "vif", "vif-0", None), (vec![60, 61], IrqSource::Names), "Xen");
        assert_eq!(
            found("eth0", "bcmgenet", "fd580000.ethernet", None),
            (vec![70, 71], IrqSource::Order),
            "Raspberry Pi"
        );
        assert_eq!(found("eth0", "fec", "30be0000.ethernet", None).0, [70, 71, 80]);
        assert_eq!(found("lan", "hv_netvsc", "f8b3781a-1e82", None), (vec![], IrqSource::Elsewhere));
        assert_eq!(found("lan", "qeth_l2", "0.0.1000", None), (vec![], IrqSource::Elsewhere));
        assert_eq!(found("lan", "asix", "usb", None), (vec![], IrqSource::Elsewhere));
        assert_eq!(found("lan", "exotic", "x0", Some(99)), (vec![], IrqSource::NotFound));
    }
}
