//! Status of a router.

use bpf::{RouteKey, RoutePort, XdpMode};
use model::{
    CpuSet,
    route::{Obstacle, PortCounters, RouteCpu, RouteMode, RouteStatus, RouteTotals},
};

use super::Router;
use crate::{RouteError, cpus, plan::key_words, stateful};

impl Router {
    pub fn mode(&self) -> RouteMode {
        self.mode.active()
    }

    /// Notes: limits of the requested mode, and settings that work against the CPUs that forward.
    pub fn notes(&self) -> Vec<Obstacle> {
        let mut notes = match self.mode.requested() {
            RouteMode::Stateful => stateful::notes(self.follower.evidence()),
            _ => Vec::new(),
        };
        if !self.cpus().is_empty() {
            notes.extend(cpus::notes(self.ports()));
        }
        notes
    }

    pub fn ports(&self) -> &[String] {
        self.ports.names()
    }

    /// The CPUs that forward; empty: the cores that receive.
    pub fn cpus(&self) -> &CpuSet {
        self.assignment.cpus()
    }

    /// Obstacles to the fast path.
    pub fn obstacles(&self) -> &[Obstacle] {
        self.mode.obstacles()
    }

    /// Fields that next hops depend on.
    pub fn key(&self) -> RouteKey {
        self.ports.applied().key
    }

    /// The kernel's functions whose changes are noticed by netlink only.
    pub fn untraced(&self) -> &[String] {
        self.watch.missing()
    }

    /// The ports with what they did.
    pub fn counts(&self) -> Result<Vec<(&str, RouteTotals)>, RouteError> {
        let of = |port: &'_ RoutePort| port.counts().map_err(RouteError::from);
        self.ports.each().iter().map(|port| Ok((port.slot().interface(), of(port)?))).collect()
    }

    pub fn status(&self) -> Result<RouteStatus, RouteError> {
        let port = |port: &RoutePort| {
            let device = self.ports.applied().interfaces.get(&port.ifindex());
            Ok::<_, RouteError>(model::route::RoutePort {
                interface: port.slot().interface().to_owned(),
                xdp: port.slot().mode().to_string(),
                can_transmit: device.is_some_and(|device| device.out),
                totals: port.counts()?,
                reattached: port.slot().times_put_back(),
                lost: self.assignment.lost(port)?,
                cpus: by_cpu(port)?,
                counters: PortCounters::default(),
            })
        };
        Ok(RouteStatus {
            pid: std::process::id(),
            uptime_s: self.begun.elapsed().as_secs_f64(),
            fib_key: key_words(self.key()),
            notes: self.notes(),
            untraced: self.watch.missing().to_vec(),
            ports: self.ports.each().iter().map(port).collect::<Result<_, _>>()?,
            cpus: Some(self.cpus().clone()).filter(|cpus| !cpus.is_empty()),
            rules: self.rules.as_ref().map(|rules| rules.status(self.ports.ended())),
            ..self.mode.status()
        })
    }

    /// The mode in which the programs run.
    pub fn xdp_mode(&self) -> XdpMode {
        self.ports.xdp_mode()
    }
}

/// Counters of the CPUs that handled frames of a port; empty without steering.
fn by_cpu(port: &RoutePort) -> Result<Vec<RouteCpu>, RouteError> {
    if port.queues_id().is_none() {
        return Ok(Vec::new());
    }
    let all = port.counts_by_cpu()?.into_iter().zip(0..).map(|(totals, cpu)| {
        let RouteTotals { enqueued, dequeued, forwarded, .. } = totals;
        RouteCpu { cpu, enqueued, dequeued, forwarded }
    });
    Ok(all.filter(|of| of.enqueued + of.dequeued + of.forwarded > 0).collect())
}
