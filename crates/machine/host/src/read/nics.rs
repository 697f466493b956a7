//! Network interfaces, from sys/class/net, the ethtool answers and the interrupts' names.

use std::collections::{BTreeMap, BTreeSet};

use model::CpuSet;

use super::{Answers, HostError, answers::Asker, device::Device, nic_irqs::Serves, soft, soft_number};
use crate::{
    picture::{Irq, Napi, Nic, RxQueue, TxQueue},
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

/// An interface; none for files beside them (`bonding_masters`) and for one that vanished in between.
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
