//! Network interfaces, from sys/class/net, the ethtool answers and the interrupts' names.

use std::collections::{BTreeMap, BTreeSet};

use model::CpuSet;

use super::{Answers, HostError, answers::Asker, nic_irqs::Serves, soft, soft_number};
use crate::{
    picture::{Irq, Napi, Nic, RxQueue, TxQueue},
    role::is_pci_address,
    root::Root,
};

pub(super) fn read(root: &Root, irqs: &[Irq], processes: &[(u32, String)]) -> Result<Vec<Nic>, HostError> {
    let names = root.list("sys/class/net")?;
    let mut asker = Asker::new(root);
    let mut nics = Vec::new();
    for name in &names {
        nics.extend(read_one(root, name, &mut asker, irqs, processes)?);
    }
    nics.sort_by_key(|nic| nic.index);
    Ok(nics)
}

/// One interface; none for files beside them (`bonding_masters`) and for one that vanished in between.
fn read_one(
    root: &Root,
    name: &str,
    asker: &mut Asker,
    irqs: &[Irq],
    processes: &[(u32, String)],
) -> Result<Option<Nic>, HostError> {
    let base = format!("sys/class/net/{name}");
    let Some(index) = soft_number(root, &format!("{base}/ifindex")) else { return Ok(None) };
    let answers = asker.ask(root, name, index)?;
    let device = Device::find(root, &base);
    let driver = device.driver.clone().or_else(|| answers.driver.clone());
    let (rx_queues, tx_queues) = queues(root, &base);
    let serves = Serves { name, driver: driver.as_deref(), device: &device, rx: rx_queues.len(), tx: tx_queues.len() };
    let (nic_irqs, irq_source) = serves.irqs(irqs);
    Ok(Some(Nic {
        index,
        mac: soft(root, &format!("{base}/address")).filter(|mac| mac.len() == 17 && mac != "00:00:00:00:00:00"),
        bus: device.bus.clone(),
        node: device.node,
        // -1 (as 4294967295 too) says that the driver does not know.
        speed_mbps: soft_number::<i64>(root, &format!("{base}/speed"))
            .and_then(|mbps| u32::try_from(mbps).ok())
            .filter(|&mbps| mbps != 0 && mbps != u32::MAX),
        mtu: soft_number(root, &format!("{base}/mtu")).unwrap_or(0),
        operstate: soft(root, &format!("{base}/operstate")).unwrap_or_else(|| "unknown".to_owned()),
        flags: soft(root, &format!("{base}/flags"))
            .and_then(|hex| u32::from_str_radix(hex.trim_start_matches("0x"), 16).ok())
            .unwrap_or(0),
        irqs: nic_irqs,
        irq_source,
        napis: napis(root, name, rx_queues.len(), &answers, processes),
        // 2 is busy polling in the thread (Linux 6.18).
        threaded: soft_number::<u32>(root, &format!("{base}/threaded")).map(|mode| mode != 0),
        rings: answers.rings,
        channels: answers.channels,
        coalescing: answers.coalescing,
        features: answers.features,
        rss: answers.rss.filter(|rss| !rss.indirection.is_empty() || !rss.key.is_empty() || rss.function.is_some()),
        name: name.to_owned(),
        driver,
        rx_queues,
        tx_queues,
        unanswered: answers.failed,
    }))
}

/// The queues by number; a gap in the numbers ends the list.
fn queues(root: &Root, base: &str) -> (Vec<RxQueue>, Vec<TxQueue>) {
    let names: BTreeSet<String> = root.list(&format!("{base}/queues")).unwrap_or_default().into_iter().collect();
    let folder = |kind: &str, n: usize| {
        let name = format!("{kind}-{n}");
        names.contains(&name).then(|| format!("{base}/queues/{name}"))
    };
    let mask = |path: String| soft(root, &path).and_then(|text| CpuSet::parse_mask(&text).ok());
    let rx = (0..).map_while(|n| folder("rx", n)).map(|queue| RxQueue {
        rps_cpus: mask(format!("{queue}/rps_cpus")).unwrap_or_default(),
        rps_flow_cnt: soft_number(root, &format!("{queue}/rps_flow_cnt")).unwrap_or(0),
    });
    let tx = (0..).map_while(|n| folder("tx", n)).map(|queue| TxQueue { xps_cpus: mask(format!("{queue}/xps_cpus")) });
    (rx.collect(), tx.collect())
}

#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) driver: Option<String>,
    /// Its PCI address, or else its folder's name.
    pub(super) bus: Option<String>,
    /// The folder of the device itself: for virtio not the PCI function's.
    pub(super) folder: String,
    pub(super) pci: Option<String>,
    /// It hangs on a USB controller, whose interrupt brings its packets.
    pub(super) is_usb: bool,
    pub(super) node: Option<u32>,
    /// The message-signalled interrupts that the device was given.
    pub(super) msi_irqs: BTreeSet<u32>,
    /// Or else its interrupt line, which others may share.
    pub(super) line: Option<u32>,
}

impl Device {
    fn find(root: &Root, base: &str) -> Self {
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

/// The NAPI instances: as the kernel lists them, or else by their kernel threads' names (`napi/eth0-8193`).
/// Where the driver does not link them to queues but there is one for each, they count up with the queues, for drivers
/// make them in that order. Instances that only transmit (virtio_net has such) have no id but 0: they serve no receive queue,
/// and are left out.
fn napis(root: &Root, name: &str, queues: usize, answers: &Answers, processes: &[(u32, String)]) -> Vec<Napi> {
    let prefix = format!("napi/{name}-");
    let threads: BTreeMap<u32, u32> =
        processes.iter().filter_map(|(pid, comm)| Some((comm.strip_prefix(&prefix)?.parse().ok()?, *pid))).collect();
    let napi = |id, irq, pid: Option<u32>, rx_queue| Napi {
        id,
        irq,
        pid,
        cpus: pid.and_then(|pid| allowed(root, pid)),
        rx_queue,
    };
    let mut napis: Vec<Napi> = match &answers.napis {
        Some(listed) => listed
            .iter()
            .map(|n| napi(n.id, n.irq, n.pid.or_else(|| threads.get(&n.id).copied()), n.rx_queue))
            .collect(),
        None => threads.iter().map(|(&id, &pid)| napi(id, None, Some(pid), None)).collect(),
    };
    napis.retain(|napi| napi.id != 0);
    napis.sort_by_key(|napi| napi.id);
    if napis.len() == queues && napis.iter().all(|napi| napi.rx_queue.is_none()) {
        for (napi, queue) in napis.iter_mut().zip(0..) {
            napi.rx_queue = Some(queue);
        }
    }
    napis
}

/// The CPUs a thread may run on.
fn allowed(root: &Root, pid: u32) -> Option<CpuSet> {
    let status = soft(root, &format!("proc/{pid}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    CpuSet::parse_list(list).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_without_an_id_take_no_queue_from_those_with_one() {
        // virtio_net of Linux 6.1: two threads called `napi/eth0-0` for transmission beside two that receive.
        let thread = |pid, id: u32| (pid, format!("napi/eth0-{id}"));
        let processes =
            [thread(70, 8193), thread(71, 0), thread(72, 8194), thread(73, 0), (74, "napi/eth1-8195".into())];
        let root = Root::from_files([("proc/70/status".into(), "Cpus_allowed_list:\t0-3\n".into())].into());
        let of = |queues, processes: &[_]| -> Vec<(u32, Option<u32>, Option<u32>)> {
            let found = napis(&root, "eth0", queues, &Answers::default(), processes);
            found.into_iter().map(|n| (n.id, n.pid, n.rx_queue)).collect()
        };
        assert_eq!(of(2, &processes), [(8193, Some(70), Some(0)), (8194, Some(72), Some(1))]);
        assert_eq!(of(1, &processes[..2]), [(8193, Some(70), Some(0))], "the thread of the only queue");
    }
}
