//! The CPUs that forward, and the flows assigned to each.

use bpf::{ROUTE_BUCKETS, RouteLosses, RoutePort, RouteTables, XdpMode};
use model::{
    CpuSet,
    route::{RouteEvent, RouteLost},
};

use crate::{
    RouteError,
    cpus::{self, IndirectionTable},
};

/// The CPU of each group of flows.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// The CPUs asked for; empty: the cores that receive.
    requested: CpuSet,
    /// The requested CPUs that are online.
    cpus: CpuSet,
    /// Frames that the queue of a port to each CPU holds.
    queue: u32,
    buckets: IndirectionTable,
    losses: Option<RouteLosses>,
}

impl Assignment {
    /// No CPU: the cores that receive forward.
    pub(crate) fn new(queue: u32) -> Self {
        Self { requested: CpuSet::new(), cpus: CpuSet::new(), queue, buckets: [0; ROUTE_BUCKETS], losses: None }
    }

    /// The CPUs that forward; empty: the cores that receive.
    pub(crate) fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Frames of a port that its queues to other CPUs lost; none: there are none, or the kernel does not tell.
    pub(crate) fn lost(&self, port: &RoutePort) -> Result<Option<RouteLost>, RouteError> {
        match (&self.losses, port.queues_id()) {
            (Some(losses), Some(map)) => Ok(Some(losses.of(map)?)),
            _ => Ok(None),
        }
    }

    /// Has these CPUs forward from now on; none: the cores that receive.
    ///
    /// # Errors
    /// A CPU that is not there, or offline; what the kernel refuses. Those before go on then.
    pub(crate) fn request(
        &mut self,
        cpus: &CpuSet,
        xdp: XdpMode,
        ports: &mut [RoutePort],
        tables: &RouteTables,
    ) -> Result<(), RouteError> {
        cpus::check(cpus, xdp)?;
        self.assign(cpus, ports, tables)?;
        self.requested = cpus.clone();
        Ok(())
    }

    /// Follows CPUs that went offline, or came back.
    pub(crate) fn follow_online(
        &mut self,
        ports: &mut [RoutePort],
        tables: &RouteTables,
    ) -> Result<Option<RouteEvent>, RouteError> {
        let online = self.requested.intersection(&cpus::online()?);
        if online == self.cpus {
            return Ok(None);
        }
        self.assign(&online, ports, tables)?;
        Ok(Some(RouteEvent::Cpus { cpus: online }))
    }

    fn assign(&mut self, cpus: &CpuSet, ports: &mut [RoutePort], tables: &RouteTables) -> Result<(), RouteError> {
        if *cpus == self.cpus {
            return Ok(());
        }
        // All have queues before the first flow is assigned, and keep them until the last one is.
        let added = ports.iter_mut().try_for_each(|port| port.add_cpus(tables, cpus, self.queue));
        if let Err(error) = added {
            ports.iter_mut().try_for_each(|port| port.use_cpus(&self.cpus))?;
            return Err(error.into());
        }
        if !cpus.is_empty() {
            self.buckets = cpus::assign(&self.buckets, cpus);
            tables.set_indirection(&self.buckets);
        }
        if self.losses.is_none() {
            let maps: Vec<u32> = ports.iter().filter_map(RoutePort::queues_id).collect();
            self.losses = RouteLosses::attach(&maps)?;
        }
        ports.iter_mut().try_for_each(|port| port.use_cpus(cpus))?;
        self.cpus = cpus.clone();
        Ok(())
    }
}
