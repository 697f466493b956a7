//! The ports: their programs, their names as these change, and the tables that the programs read.

use std::collections::BTreeSet;

use bpf::{RoutePort, RouteTables, XdpMode, chain};
use model::route::{CtMark, RouteEvent};

use crate::{
    RouteError,
    driver::{can_transmit, transmit_changes},
    evidence::Evidence,
    pinned::PinnedRules,
    plan::{RoutePlan, plan},
    rules::RouteRules,
};

/// The ports of a router, by number.
#[derive(Debug)]
pub(crate) struct Ports {
    names: Vec<String>,
    xdp: XdpMode,
    ports: Vec<RoutePort>,
    /// The tables as the programs have them.
    applied: RoutePlan,
    /// Ports already reported as ended.
    ended: BTreeSet<String>,
}

impl Ports {
    /// Puts the programs on their ports, behind `rules`. Also notes on the rules.
    ///
    /// # Errors
    /// Rules of an earlier router where there are none now; a foreign program; what the kernel refuses.
    pub(crate) fn put(
        names: Vec<String>,
        xdp: XdpMode,
        evidence: &Evidence,
        plan: &RoutePlan,
        tables: &RouteTables,
        mut rules: Option<&mut RouteRules>,
    ) -> Result<(Self, Vec<String>), RouteError> {
        let is_raced = |error: &RouteError| matches!(error, RouteError::Xdp(error) if error.is_raced());
        let (ports, notes) = chain::retry_if_raced(is_raced, || {
            let mut ports = load(&names, xdp, evidence, plan, tables)?;
            let notes = match rules.as_mut() {
                Some(rules) => rules.begin(&mut ports)?,
                None => {
                    ports.iter_mut().try_for_each(RoutePort::put)?;
                    Vec::new()
                }
            };
            Ok((ports, notes))
        })?;
        let ports = Self { names, xdp, ports, applied: RoutePlan::default(), ended: BTreeSet::new() };
        Ok((ports, notes))
    }

    /// The ports, by the name last followed.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn each(&self) -> &[RoutePort] {
        &self.ports
    }

    pub(crate) fn each_mut(&mut self) -> &mut [RoutePort] {
        &mut self.ports
    }

    /// The tables as the programs have them.
    pub(crate) fn applied(&self) -> &RoutePlan {
        &self.applied
    }

    /// The mode in which the programs run.
    pub(crate) fn xdp_mode(&self) -> XdpMode {
        self.ports.first().map_or(self.xdp, |port| port.slot().mode())
    }

    /// The names of the ports' interfaces now. One that is gone, or in another network namespace, has none: another interface may have its name.
    pub(crate) fn names_now(&self) -> Vec<String> {
        self.ports.iter().map(|port| name(port).unwrap_or_default()).collect()
    }

    /// Follows the names that the ports' interfaces have now.
    pub(crate) fn follow_names(&mut self) -> Vec<RouteEvent> {
        let mut events = Vec::new();
        for (number, name) in self.names_now().into_iter().enumerate() {
            let known = &mut self.names[number];
            if !name.is_empty() && name != *known {
                self.ports[number].rename(&name);
                let from = std::mem::replace(known, name.clone());
                events.push(RouteEvent::Renamed { from, to: name });
            }
        }
        events
    }

    /// Gives the kernel programs what changed; the ports that frames can be sent out of again, or no longer.
    pub(crate) fn apply(
        &mut self,
        evidence: &Evidence,
        mark: CtMark,
        tables: &RouteTables,
    ) -> Result<Vec<RouteEvent>, RouteError> {
        let new = plan(evidence, &self.names_now(), &can_transmit(&self.names, self.xdp), mark);
        for (port, now) in self.ports.iter().zip(&new.ports) {
            let before = self.applied.ports.get(port.number()).copied().flatten();
            if before != *now {
                // One that is elsewhere now takes no frames there: they are for no address.
                port.set_mac(tables, now.unwrap_or_default());
            }
            // It may have been away and back between two readings. One that has just gone is told of by the next.
            if now.is_some() {
                let _ = port.enter(tables);
            }
        }
        // The key is set before interfaces that may need it.
        if new.key != self.applied.key {
            tables.set_key(new.key);
        }
        if new.mtus != self.applied.mtus {
            tables.set_mtus(&new.mtus)?;
        }
        if new.interfaces != self.applied.interfaces {
            tables.set_interfaces(&new.interfaces)?;
        }
        if new.own != self.applied.own {
            tables.set_own_addresses(new.own.iter().copied());
        }
        if new.track != self.applied.track {
            tables.set_track(new.track);
        }
        let before = std::mem::replace(&mut self.applied, new);
        Ok(transmit_changes(&self.names, &before.can_transmit, &self.applied.can_transmit))
    }

    /// The ports that others took the programs off: those put back, and those that ended.
    pub(crate) fn lost(&mut self) -> Vec<RouteEvent> {
        let put_back = self.ports.iter().filter_map(|port| port.slot().put_back());
        let mut events: Vec<_> = put_back.map(|what| RouteEvent::Reattached { what }).collect();
        let here: Vec<String> = self.ports.iter().filter_map(name).collect();
        self.ended.retain(|port| !here.contains(port));
        for port in self.ports.iter().filter(|port| name(port).is_none()) {
            if self.ended.insert(port.slot().interface().to_owned()) {
                let moved = || {
                    format!(
                        "{} was moved to another network namespace: its frames are no longer forwarded",
                        port.slot().interface()
                    )
                };
                let why = port.slot().why_ended().unwrap_or_else(moved);
                events.push(RouteEvent::PortEnded { reason: why });
            }
        }
        events
    }

    /// Ports whose programs ended.
    pub(crate) fn ended(&self) -> Vec<String> {
        self.ended.iter().cloned().collect()
    }
}

/// The programs of the ports, those also that an earlier router left on them.
fn load(
    names: &[String],
    xdp: XdpMode,
    evidence: &Evidence,
    plan: &RoutePlan,
    tables: &RouteTables,
) -> Result<Vec<RoutePort>, RouteError> {
    // Of hardware a driver finishes what it hands over, but for what only generic XDP gets.
    let virtual_one = |name: &str| evidence.links.values().any(|link| link.name == name && !link.kind.is_empty());
    let partial_csum = |name: &str| xdp == XdpMode::Generic || virtual_one(name);
    let pinned = PinnedRules::here();
    let one = |(number, (name, mac)): (usize, (&String, &Option<[u8; 6]>))| {
        let mac = mac.ok_or_else(|| RouteError::NoEthernet { interface: name.clone() })?;
        let Some(pin) = pinned.find(name)? else {
            return Ok(RoutePort::load(tables, number, name, mac, xdp, partial_csum(name))?);
        };
        let port = RoutePort::take_over(tables, number, &pin, mac, partial_csum(name))?;
        let runs = port.slot().mode();
        if runs != xdp {
            return Err(RouteError::PinnedInMode { interface: name.clone(), mode: runs });
        }
        Ok(port)
    };
    names.iter().zip(&plan.ports).enumerate().map(one).collect()
}

/// The name that a port's interface has now; none: it is gone, another tool took the program off, or it is in another network namespace.
fn name(port: &RoutePort) -> Option<String> {
    port.slot().is_alive().then(|| sys::link::name_of(port.ifindex())).flatten()
}
