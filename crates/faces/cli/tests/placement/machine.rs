//! Machines as their files: laid out by hand, read from a tar, and changed as the kernel would.

use std::{collections::BTreeMap, fs, io::Read, path::Path};

use host::{
    knob::{Change, Knob},
    root::{Node, Tree},
};
use model::CpuSet;

/// A card.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub(crate) driver: &'static str,
    pub(crate) up: bool,
    pub(crate) node: Option<u32>,
    pub(crate) rx: u32,
    pub(crate) tx: u32,
    /// The names of its interrupts.
    pub(crate) vectors: Vec<String>,
    /// Where each may go and goes now, as lists of CPUs; used in turn.
    pub(crate) affinities: Vec<(CpuSet, CpuSet)>,
    /// Interrupts that the kernel keeps, by their place among the vectors.
    pub(crate) managed: Vec<u32>,
    /// The masks of its transmit and receive queues, in turn.
    pub(crate) xps: Option<Vec<CpuSet>>,
    pub(crate) rps: Vec<CpuSet>,
    /// The CPUs of its NAPI threads; none: it has no threads.
    pub(crate) threads: Option<CpuSet>,
}

/// A machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    /// Node, capacity of each CPU; threads of a core follow each other.
    pub(crate) cpus: Vec<(u32, u32)>,
    pub(crate) threads: u32,
    pub(crate) offline: CpuSet,
    pub(crate) isolated: CpuSet,
    /// A row per node that is online.
    pub(crate) distances: Vec<Vec<u32>>,
    pub(crate) cards: Vec<Card>,
}

impl Machine {
    /// Its files.
    pub(crate) fn tree(&self) -> Tree {
        const CPU: &str = "sys/devices/system/cpu";
        const NODE: &str = "sys/devices/system/node";
        let mut files = Files::default();
        let all: CpuSet = (0..self.cpus.len() as u32).collect();
        let online = all.difference(&self.offline);
        files.put("proc/sys/kernel/hostname", "made-up");
        files.put("proc/sys/kernel/osrelease", "6.12.0");
        files.put("proc/sys/net/ipv4/ip_forward", "0");
        files.put("evenkeel/format", "2");
        files.put(&format!("{CPU}/present"), &all.to_string());
        files.put(&format!("{CPU}/online"), &online.to_string());
        files.put(&format!("{CPU}/isolated"), &self.isolated.to_string());
        for (id, (_, capacity)) in (0u32..).zip(&self.cpus) {
            let first = id / self.threads * self.threads;
            let siblings: CpuSet = (first..first + self.threads).filter(|&s| online.contains(s)).collect();
            files.put(&format!("{CPU}/cpu{id}/topology/thread_siblings_list"), &siblings.to_string());
            files.put(&format!("{CPU}/cpu{id}/cpu_capacity"), &capacity.to_string());
        }
        files.put(&format!("{NODE}/online"), &(0..self.distances.len() as u32).collect::<CpuSet>().to_string());
        for (node, row) in (0u32..).zip(&self.distances) {
            let cpus: CpuSet = online.iter().filter(|&id| self.cpus[id as usize].0 == node).collect();
            files.put(&format!("{NODE}/node{node}/cpulist"), &cpus.to_string());
            files.put(
                &format!("{NODE}/node{node}/distance"),
                &row.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
            );
        }
        let mut table: String = online.iter().map(|id| format!(" CPU{id}")).collect();
        let mut number = 30;
        for (n, card) in self.cards.iter().enumerate() {
            number = card.write(&mut files, n as u32, number, &online, &mut table);
        }
        files.put("proc/interrupts", &table);
        files.0
    }
}

impl Card {
    /// Writes its files and lines; gives the first number that is free behind its own.
    fn write(&self, files: &mut Files, n: u32, first: u32, online: &CpuSet, table: &mut String) -> u32 {
        let name = format!("eth{n}");
        let function = format!("sys/devices/pci0000:00/0000:{:02x}:00.0", n + 1);
        let base = format!("{function}/net/{name}");
        files.link(&format!("sys/class/net/{name}"), &format!("../../{}", &base["sys/".len()..]));
        files.link(&format!("{base}/device"), "../..");
        files.link(&format!("{function}/driver"), &format!("../../../bus/pci/drivers/{}", self.driver));
        files.put(&format!("{function}/numa_node"), &self.node.map_or(-1, i64::from).to_string());
        files.put(&format!("{base}/ifindex"), &(n + 2).to_string());
        files.put(&format!("{base}/flags"), if self.up { "0x1003" } else { "0x1002" });
        files.put(&format!("{base}/mtu"), "1500");
        files.put(&format!("{base}/operstate"), "up");
        for q in 0..self.rx {
            let mask = self.rps.get(q as usize % self.rps.len().max(1)).cloned().unwrap_or_default();
            files.put(&format!("{base}/queues/rx-{q}/rps_cpus"), &mask.to_mask());
        }
        for q in 0..self.tx {
            files.put(&format!("{base}/queues/tx-{q}/tx_timeout"), "0");
            if let Some(masks) = &self.xps {
                let mask = masks.get(q as usize % masks.len().max(1)).cloned().unwrap_or_default();
                files.put(&format!("{base}/queues/tx-{q}/xps_cpus"), &mask.to_mask());
            }
        }
        for (v, vector) in (0u32..).zip(&self.vectors) {
            let irq = first + v;
            let counts = " 7".repeat(online.len());
            table.push_str(&format!("\n{irq}:{counts}  PCI-MSIX-0000:{:02x}:00.0   {v}-edge      {vector}", n + 1));
            files.put(&format!("{function}/msi_irqs/{irq}"), "msix");
            let (affinity, effective) = &self.affinities[v as usize % self.affinities.len()];
            files.put(&format!("proc/irq/{irq}/smp_affinity_list"), &affinity.to_string());
            files.put(&format!("proc/irq/{irq}/effective_affinity_list"), &effective.to_string());
            if self.managed.contains(&v) {
                files.put(&format!("proc/irq/{irq}/fixed"), "1");
            }
        }
        if let Some(cpus) = &self.threads {
            files.put(&format!("{base}/threaded"), "1");
            for q in 0..self.rx {
                let pid = 1000 + 100 * n + q;
                files.put(&format!("proc/{pid}/comm"), &format!("napi/{name}-{}", 8193 + q));
                files.put(&format!("proc/{pid}/status"), &format!("Name:\tnapi\nCpus_allowed_list:\t{cpus}"));
            }
        }
        first + self.vectors.len() as u32
    }
}

#[derive(Default)]
struct Files(Tree);

impl Files {
    fn put(&mut self, path: &str, text: &str) {
        self.0.insert(path, Node::File(format!("{text}\n")));
    }

    fn link(&mut self, path: &str, target: &str) {
        self.0.insert(path, Node::Link(target.to_owned()));
    }
}

/// The files of a saved machine.
pub(crate) fn unpack(tar: &Path) -> Tree {
    let mut tree = Tree::default();
    for entry in tar::Archive::new(fs::File::open(tar).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().trim_end_matches('/').to_owned();
        if let Some(target) = entry.link_name().unwrap() {
            tree.insert(path, Node::Link(target.to_string_lossy().into_owned()));
        } else if entry.header().entry_type().is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            tree.insert(path, Node::File(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    tree
}

/// Makes the changes as the kernel would: an interrupt goes where it is told, and the lists follow the masks.
pub(crate) fn carry_out(tree: &mut Tree, changes: &[Change]) {
    let folders: BTreeMap<String, String> = tree
        .iter()
        .filter_map(|(path, node)| {
            let nic = path.strip_prefix("sys/class/net/")?;
            let Node::Link(target) = node else { return None };
            Some((nic.to_owned(), format!("sys/{}", target.trim_start_matches("../"))))
        })
        .collect();
    let mut put = |path: String, text: String| tree.insert(path, Node::File(text + "\n"));
    for change in changes {
        let cpus = change.knob.cpus(&change.new).unwrap_or_else(|| panic!("{} is no placement", change.knob));
        match &change.knob {
            Knob::IrqAffinity { irq } => {
                put(format!("proc/irq/{irq}/smp_affinity_list"), cpus.to_string());
                put(format!("proc/irq/{irq}/effective_affinity_list"), cpus.to_string());
            }
            Knob::RpsCpus { nic, queue } => {
                let folder = folders.get(nic).cloned().unwrap_or_else(|| format!("sys/class/net/{nic}"));
                put(format!("{folder}/queues/rx-{queue}/rps_cpus"), cpus.to_mask());
            }
            Knob::XpsCpus { nic, queue } => {
                let folder = folders.get(nic).cloned().unwrap_or_else(|| format!("sys/class/net/{nic}"));
                put(format!("{folder}/queues/tx-{queue}/xps_cpus"), cpus.to_mask());
            }
            Knob::NapiThreadAffinity { pid, .. } => {
                put(format!("proc/{pid}/status"), format!("Name:\tnapi\nCpus_allowed_list:\t{cpus}"));
            }
            other => panic!("{other} is no placement"),
        }
    }
}
