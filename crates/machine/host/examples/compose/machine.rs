//! A machine described in a page of TOML, laid out as the files that its kernel would show.

use std::{collections::BTreeMap, fmt::Write};

use host::root::{Node, Tree};
use model::CpuSet;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    hostname: String,
    kernel: String,
    #[serde(default)]
    irqbalance: bool,
    cpus: Cpus,
    nics: Vec<Nic>,
    #[serde(default)]
    irqs: Vec<Line>,
    /// Number of nftables rules that each drop one address, one after the other.
    #[serde(default)]
    linear_rules: u32,
    /// Any other files by path; they go over what is composed.
    #[serde(default)]
    files: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpus {
    packages: u32,
    cores: u32,
    threads: u32,
    numbering: Numbering,
    /// The ids of a package's cores, where they are not 0, 1, 2 …
    #[serde(default)]
    core_ids: Vec<u32>,
    #[serde(default)]
    offline: CpuSet,
    #[serde(default)]
    isolated: CpuSet,
}

/// Order in which the firmware numbers CPUs; the second threads of all cores come after the first ones of all.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Numbering {
    /// Packages take turns: even CPUs on package 0, odd ones on package 1.
    Interleaved,
    /// A package after the other.
    Blocked,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nic {
    name: String,
    index: u32,
    mac: String,
    driver: String,
    /// The PCI address and the bridge's folder above it, such as `pci0000:00/0000:00:03.0`.
    path: String,
    /// Its folder below the PCI function, for virtio.
    below: Option<String>,
    node: i32,
    speed_mbps: i64,
    #[serde(default = "mtu")]
    mtu: u32,
    rx: u32,
    tx: u32,
    threaded: Option<bool>,
    /// The name of the interrupts' chip; one that ends with `MSIX` is followed by the PCI address.
    #[serde(default)]
    chip: String,
    /// The names of its message-signalled interrupts; `{0..8}` stands for eight of them.
    #[serde(default)]
    vectors: Vec<String>,
    #[serde(default)]
    first_irq: u32,
    /// The interrupt line of a device without them.
    line: Option<u32>,
    rings: Option<[u32; 2]>,
    combined: Option<[u32; 2]>,
    #[serde(default)]
    rss_slots: u32,
    /// The id of the first NAPI instance, on kernels that list them.
    first_napi: Option<u32>,
    rx_usecs: Option<u32>,
    #[serde(default)]
    features: BTreeMap<String, bool>,
    #[serde(default)]
    statistics: BTreeMap<String, u64>,
    /// Any other files below the interface's folder.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Any other files below the folder of its PCI function.
    #[serde(default)]
    card: BTreeMap<String, String>,
}

fn mtu() -> u32 {
    1500
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    number: u32,
    chip: String,
    #[serde(default)]
    actions: Vec<String>,
    #[serde(default)]
    count: u64,
}

struct Cpu {
    package: u32,
    core: u32,
    siblings: CpuSet,
}

impl Machine {
    pub(crate) fn compose(&self) -> Tree {
        let mut files = Files::default();
        let cpus = self.cpus.all();
        files.put("proc/sys/kernel/hostname", &self.hostname);
        files.put("proc/sys/kernel/osrelease", &self.kernel);
        if self.irqbalance {
            files.put("proc/812/comm", "irqbalance");
        }
        self.cpus.write(&mut files, &cpus);
        let mut lines = self.irqs.clone();
        for nic in &self.nics {
            nic.write(&mut files, cpus.len());
            lines.extend(nic.lines());
        }
        lines.sort_by_key(|line| line.number);
        self.write_irqs(&mut files, &lines, cpus.len() as u32);
        if self.linear_rules > 0 {
            files.put("setting/nft.json", &rules(self.linear_rules));
        }
        for (path, text) in &self.files {
            files.put(path, text);
        }
        files.0
    }

    /// Every interrupt may go anywhere, and goes where the kernel puts it: to the next CPU in turn.
    fn write_irqs(&self, files: &mut Files, lines: &[Line], cpus: u32) {
        let all: CpuSet = (0..cpus).collect();
        let online: Vec<u32> = all.difference(&self.cpus.offline).iter().collect();
        let general: Vec<u32> = all.difference(&self.cpus.offline).difference(&self.cpus.isolated).iter().collect();
        let mut table = " ".repeat(4);
        for cpu in &online {
            write!(table, " {:>10}", format!("CPU{cpu}")).expect("a String takes all");
        }
        table.push('\n');
        for (index, line) in lines.iter().enumerate() {
            let target = general[index % general.len()];
            write!(table, "{:>3}:", line.number).expect("a String takes all");
            for &cpu in &online {
                let count = if cpu == target { line.count } else { 0 };
                write!(table, " {count:>10}").expect("a String takes all");
            }
            writeln!(table, "  {}      {}", line.chip, line.actions.join(", ")).expect("a String takes all");
            files.put(&format!("proc/irq/{}/smp_affinity_list", line.number), &all.to_string());
            files.put(&format!("proc/irq/{}/effective_affinity_list", line.number), &target.to_string());
        }
        let _ = writeln!(table, "NMI: {}  Non-maskable interrupts", " 0".repeat(online.len()));
        files.put("proc/interrupts", table.trim_end());
        files.put("proc/irq/default_smp_affinity", &all.to_mask());
    }
}

/// Rules of the chain `inet filter input` that each drop one address, as `nft -j list ruleset` shows them.
fn rules(count: u32) -> String {
    let rule = |n: u32| {
        let address = json!({"payload": {"protocol": "ip", "field": "saddr"}});
        let right = format!("198.51.100.{n}");
        let expr = json!([{"match": {"op": "==", "left": address, "right": right}}, {"drop": null}]);
        json!({"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": n + 2, "expr": expr}})
    };
    json!({"nftables": (0..count).map(rule).collect::<Vec<_>>()}).to_string()
}

impl Cpus {
    fn all(&self) -> Vec<Cpu> {
        let per_thread = self.packages * self.cores;
        let place = |id: u32| match self.numbering {
            Numbering::Interleaved => (id % self.packages, id % per_thread / self.packages),
            Numbering::Blocked => (id % per_thread / self.cores, id % self.cores),
        };
        (0..per_thread * self.threads)
            .map(|id| {
                let (package, core) = place(id);
                Cpu {
                    package,
                    core: self.core_ids.get(core as usize).copied().unwrap_or(core),
                    siblings: (0..self.threads).map(|thread| id % per_thread + thread * per_thread).collect(),
                }
            })
            .collect()
    }

    fn write(&self, files: &mut Files, cpus: &[Cpu]) {
        const CPU: &str = "sys/devices/system/cpu";
        const NODE: &str = "sys/devices/system/node";
        let all: CpuSet = (0..cpus.len() as u32).collect();
        let online = all.difference(&self.offline);
        files.put(&format!("{CPU}/present"), &all.to_string());
        files.put(&format!("{CPU}/online"), &online.to_string());
        files.put(&format!("{CPU}/isolated"), &self.isolated.to_string());
        for id in online.iter() {
            let cpu = &cpus[id as usize];
            let topology = format!("{CPU}/cpu{id}/topology");
            files.put(&format!("{topology}/physical_package_id"), &cpu.package.to_string());
            files.put(&format!("{topology}/core_id"), &cpu.core.to_string());
            files.put(&format!("{topology}/thread_siblings_list"), &cpu.siblings.difference(&self.offline).to_string());
        }
        files.put(&format!("{NODE}/online"), &(0..self.packages).collect::<CpuSet>().to_string());
        for node in 0..self.packages {
            let list: CpuSet = online.iter().filter(|&id| cpus[id as usize].package == node).collect();
            files.put(&format!("{NODE}/node{node}/cpulist"), &list.to_string());
        }
    }
}

impl Nic {
    fn bus(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The names of its interrupts, `{0..8}` written out.
    fn vectors(&self) -> Vec<String> {
        let expand = |pattern: &String| {
            let parts = pattern.split_once('{').and_then(|(front, rest)| Some((front, rest.split_once('}')?)));
            let Some((front, (range, back))) = parts else { return vec![pattern.clone()] };
            let (first, end) = range.split_once("..").expect("a range such as 0..8");
            let number = |text: &str| text.parse::<u32>().expect("a number");
            (number(first)..number(end)).map(|n| format!("{front}{n}{back}")).collect()
        };
        self.vectors.iter().flat_map(expand).collect()
    }

    fn lines(&self) -> Vec<Line> {
        let chip = |n: u32| match self.chip.ends_with("MSIX") {
            true => format!("{}-{}   {n}-edge", self.chip, self.bus()),
            false => format!("{} {}-edge", self.chip, self.first_irq * 4096 + n),
        };
        let line = |(n, name)| Line {
            number: self.first_irq + n,
            chip: chip(n),
            actions: vec![name],
            count: 100_000 + u64::from(n) * 1000,
        };
        (0..).zip(self.vectors()).map(line).collect()
    }

    fn write(&self, files: &mut Files, cpus: usize) {
        let function = format!("sys/devices/{}", self.path);
        let device = match &self.below {
            Some(below) => format!("{function}/{below}"),
            None => function.clone(),
        };
        let base = format!("{device}/net/{}", self.name);
        files.link(
            &format!("sys/class/net/{}", self.name),
            &format!("../../{}", base.strip_prefix("sys/").expect("it begins with sys/")),
        );
        let up = "../".repeat(device.matches('/').count());
        let bus = if self.below.is_some() { "virtio" } else { "pci" };
        files.link(&format!("{device}/driver"), &format!("{up}bus/{bus}/drivers/{}", self.driver));
        files.link(&format!("{base}/device"), &format!("../../../{}", device.rsplit('/').next().unwrap_or_default()));
        files.put(&format!("{function}/numa_node"), &self.node.to_string());
        files.put(&format!("{function}/irq"), &self.line.unwrap_or(0).to_string());
        for n in 0..self.vectors().len() as u32 {
            files.put(&format!("{function}/msi_irqs/{}", self.first_irq + n), "msix");
        }
        let mut put = |file: &str, text: &str| files.put(&format!("{base}/{file}"), text);
        put("ifindex", &self.index.to_string());
        put("address", &self.mac);
        put("mtu", &self.mtu.to_string());
        put("flags", "0x1003");
        put("operstate", "up");
        put("speed", &self.speed_mbps.to_string());
        if let Some(threaded) = self.threaded {
            put("threaded", &u32::from(threaded).to_string());
        }
        let none = vec!["00000000"; cpus.div_ceil(32)].join(",");
        for n in 0..self.rx {
            put(&format!("queues/rx-{n}/rps_cpus"), &none);
            put(&format!("queues/rx-{n}/rps_flow_cnt"), "0");
        }
        for n in 0..self.tx {
            if self.tx > 1 {
                put(&format!("queues/tx-{n}/xps_cpus"), &none);
            } else {
                put(&format!("queues/tx-{n}/tx_timeout"), "0");
            }
        }
        for (file, text) in &self.files {
            put(file, text);
        }
        for (file, text) in &self.card {
            files.put(&format!("{function}/{file}"), text);
        }
        let answers = serde_json::to_string_pretty(&self.answers()).expect("plain data");
        files.put(&format!("ethtool/{}.json", self.name), &answers);
    }

    fn answers(&self) -> host::read::Answers {
        let napi = |first: u32| {
            // The interrupt with the bare name is for changes of the link.
            let owner =
                host::role::Owner { nic: &self.name, driver: &self.driver, device: self.bus(), pci: Some(self.bus()) };
            let serves_queue =
                |line: &Line| matches!(host::role::meaning(&line.actions[0], &owner), host::role::Meaning::Queue(_));
            let queue_irqs = self.lines().into_iter().filter(serves_queue);
            let napi = |(queue, line): (u32, Line)| json!({"ifindex": self.index, "id": first + queue, "irq": line.number, "pid": null, "rx_queue": queue});
            (0..).zip(queue_irqs).map(napi).collect::<Vec<_>>()
        };
        let features: BTreeMap<_, _> =
            self.features.iter().map(|(name, on)| (name, json!({"on": on, "fixed": false}))).collect();
        let answers = json!({
            "driver": self.driver,
            "rings": self.rings.map(|[now, max]| json!({"rx": now, "rx_max": max, "tx": now, "tx_max": max})),
            "channels": self.combined.map(|[now, max]| json!({
                "rx": 0, "rx_max": 0, "tx": 0, "tx_max": 0, "combined": now, "combined_max": max})),
            "coalescing": self.rx_usecs.map(|usecs| json!({
                "adaptive_rx": false, "adaptive_tx": false, "rx_usecs": usecs, "rx_frames": 0, "tx_usecs": 0, "tx_frames": 0})),
            "features": features,
            "rss": (self.rss_slots > 0).then(|| json!({
                "indirection": (0..self.rss_slots).map(|slot| slot % self.rx).collect::<Vec<_>>(),
                "key": (0..40).collect::<Vec<u8>>(),
                "function": "toeplitz"})),
            "napis": self.first_napi.map(napi),
            "statistics": self.statistics,
        });
        serde_json::from_value(answers).expect("the readers' own form")
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
