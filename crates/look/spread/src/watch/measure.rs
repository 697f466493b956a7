//! From the kernel's counters to samples.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bpf::{NapiCost, NapiCostError, NapiCosts};
use host::{
    Host, HostError, Root, RootError,
    counters::{CpuTime, core_load, cpu_times},
    knob::{Knob, Live, Store},
    picture::{Nic, NicIrq},
};
use model::CpuSet;

use super::decide::{Core, Sample, Work};
use crate::plan::role_text;

#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    #[error(transparent)]
    Cost(#[from] NapiCostError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("cannot tell this network namespace (/proc/self/ns/net): {0}; is /proc mounted?")]
    Namespace(std::io::Error),
    #[error("cannot measure the load of the cores: {0}")]
    Root(#[from] RootError),
}

model::classified!(MeterError: Lacking; within: Cost Host Root);

/// The machine's picture is read again after so many samples: interfaces and threads come and go.
const SAMPLES_PER_PICTURE: u32 = 10;

/// Measures the live machine, one sample per call.
#[derive(Debug)]
pub struct Meter {
    root: Root,
    host: Host,
    costs: NapiCosts,
    allowed: CpuSet,
    nics: Vec<String>,
    before: Reading,
    age: u32,
    /// The network namespace of this process, as an inode number.
    netns: u64,
    /// Interrupts seen to schedule an instance.
    irq_of: BTreeMap<u64, u32>,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    costs: BTreeMap<(u64, u32), NapiCost>,
    cpus: BTreeMap<u32, CpuTime>,
}

impl Reading {
    fn take(root: &Root, costs: &NapiCosts) -> Result<Self, MeterError> {
        let cpus = cpu_times(&root.read("proc/stat")?);
        let costs = costs.read()?.into_iter().map(|c| ((c.instance, c.cpu), c)).collect();
        Ok(Self { at: Instant::now(), costs, cpus })
    }
}

impl Meter {
    /// Attaches to the kernel. `allowed` are the CPUs that work may be moved to, `nics` the interfaces whose work may be
    /// moved (empty: all).
    pub fn start(host: Host, allowed: CpuSet, nics: Vec<String>) -> Result<Self, MeterError> {
        let (root, costs) = (Root::live(), NapiCosts::attach()?);
        let before = Reading::take(&root, &costs)?;
        let netns = host::namespace::own().map_err(MeterError::Namespace)?;
        Ok(Self { root, host, costs, allowed, nics, before, age: 0, netns, irq_of: BTreeMap::new() })
    }

    /// The machine as last read.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Measures the time since the last call.
    pub fn sample(&mut self) -> Result<Sample, MeterError> {
        self.age += 1;
        if self.age.is_multiple_of(SAMPLES_PER_PICTURE) {
            self.host = Host::read(&self.root)?;
        }
        let now = Reading::take(&self.root, &self.costs)?;
        self.irq_of.extend(now.costs.values().filter_map(|c| Some((c.instance, c.irq?))));
        let sample = Sample { cores: self.cores(&now), work: self.work(&now) };
        self.before = now;
        Ok(sample)
    }

    fn cores(&self, now: &Reading) -> Vec<Core> {
        let online = self.host.cpus.iter().filter(|c| c.online);
        online
            .filter_map(|c| {
                let load = core_load(c.id, self.before.cpus.get(&c.id)?, now.cpus.get(&c.id)?);
                Some(Core {
                    cpu: c.id,
                    node: c.node,
                    busy_percent: load.busy_percent(),
                    allowed: self.allowed.contains(c.id),
                })
            })
            .collect()
    }

    fn work(&self, now: &Reading) -> Vec<Work> {
        let elapsed = now.at.duration_since(self.before.at).max(Duration::from_millis(1));
        let mut by_name: BTreeMap<String, Work> = BTreeMap::new();
        for (key, cost) in &now.costs {
            let (ns, packets) = self.before.costs.get(key).map_or((0, 0), |b| (b.ns, b.packets));
            let (ns, packets) = (cost.ns.saturating_sub(ns), cost.packets.saturating_sub(packets));
            let (name, knob, nic) = self.identify(cost);
            let work = by_name.entry(name.clone()).or_insert_with(|| Work {
                name,
                written: knob.as_ref().and_then(written),
                knob,
                node: nic.and_then(|n| n.node),
                percent: BTreeMap::new(),
                pps: 0.0,
            });
            *work.percent.entry(cost.cpu).or_default() += 100.0 * ns as f64 / elapsed.as_nanos() as f64;
            work.pps += packets as f64 / elapsed.as_secs_f64();
        }
        by_name.into_values().collect()
    }

    /// The name of an instance, and the knob that moves it: its thread's affinity, or that of its interrupt.
    fn identify(&self, cost: &NapiCost) -> (String, Option<Knob>, Option<&Nic>) {
        let ours = |n: &&Nic| n.index == cost.ifindex && u64::from(cost.netns) == self.netns;
        let Some(nic) = self.host.nics.iter().find(ours) else {
            let name = match cost.ifindex {
                0 => format!("backlog of CPU {}", cost.cpu),
                index => format!("interface {index} in namespace {}", cost.netns),
            };
            return (name, None, None);
        };
        let mine = self.nics.is_empty() || self.nics.contains(&nic.name);
        let listed = nic.napis.iter().find(|n| cost.napi_id != 0 && n.id == cost.napi_id);
        if let Some((napi, pid)) = listed.and_then(|n| Some((n, n.pid?))) {
            let knob = Knob::NapiThreadAffinity { nic: nic.name.clone(), napi: napi.id, pid };
            return (format!("{} NAPI thread {pid}", nic.name), Some(knob).filter(|_| mine), Some(nic));
        }
        let number = listed.and_then(|n| n.irq).or_else(|| self.irq_of.get(&cost.instance).copied());
        let queue = |irq: u32| nic.irqs.iter().find(|i| i.irq == irq);
        let Some(NicIrq { irq, role }) = number.and_then(queue) else {
            return (format!("{} NAPI {}", nic.name, cost.napi_id), None, Some(nic));
        };
        let managed = self.host.irq(*irq).is_some_and(|i| i.managed);
        let knob = Knob::IrqAffinity { irq: *irq };
        (format!("{} {}", nic.name, role_text(*role)), Some(knob).filter(|_| mine && !managed), Some(nic))
    }
}

fn written(knob: &Knob) -> Option<CpuSet> {
    Live.read(knob).ok().and_then(|value| knob.cpus(&value))
}
