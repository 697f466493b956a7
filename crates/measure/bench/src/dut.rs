//! The box under test and the two ports that it is tested through.
//!
//! ```text
//! port 0 -- forward -->  [ box ]  -- forward -->  port 1
//!        <-- backward --          <-- backward --
//! ```

mod cores;
mod established;
mod fast_path;
mod lab_box;
mod port;

use std::{any::Any, fmt, thread, time::Duration};

use bpf::bench_tx::BenchRings;
use lab::{
    BoxKind, Lab, TestBox,
    boxes::{Family, Napi, RuleForm, Ruleset},
};
use model::{CpuSet, bench::Direction, route::RouteMode, run::Sharing};
use serde::{Deserialize, Serialize};
use wire::FlowKey;

use crate::{BenchError, keyed::keyed};

pub use cores::Cores;
use fast_path::FastPath;
pub use port::TestPort;

/// Frames that a receive ring of a lab's box holds: as many as the largest rings of common network cards have descriptors, 5 ms at
/// 0.8 million frames per second. What a hypervisor takes the core away for is less than that most of the time.
const RING_FRAMES: u32 = 4096;

/// The boxes that can be built here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DutKind {
    /// None: the tester's own ceiling.
    Wire,
    Router,
    /// The kernel routes past rules of nftables that ask for the connection's state.
    Stateful,
    /// The kernel routes past rules of nftables that do not.
    Stateless,
    Bridge,
    /// An XDP program forwards by the kernel's routing table.
    XdpFib,
    /// The programs of `evenkeel route` are there, and the kernel routes.
    RouteStandard,
    /// `evenkeel route` forwards.
    Route,
    /// `evenkeel route` forwards past as many stateless rules as a filter has.
    RouteRules,
    /// `evenkeel route` forwards established connections, past the rules of [`DutKind::Stateful`].
    RouteStateful,
    /// The kernel routes past those rules and translates sources.
    Nat,
    /// `evenkeel route` forwards and translates established connections, past the same.
    RouteNat,
}

keyed! {
    DutKind: Wire "wire", Router "router", Stateful "stateful", Stateless "stateless", Bridge "bridge", XdpFib "xdp-fib",
        RouteStandard "route-standard", Route "route", RouteRules "route-rules", RouteStateful "route-stateful", Nat "nat",
        RouteNat "route-nat";
    |key, all| format!("there is no box called `{key}`; there are {}, and guest", all.join(", "))
}

impl DutKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "no box",
            Self::Router => "router",
            Self::Stateful => "stateful filter",
            Self::Stateless => "stateless filter",
            Self::Bridge => "bridge",
            Self::XdpFib => "XDP forwarding",
            Self::RouteStandard => "fast path, standard",
            Self::Route => "fast path",
            Self::RouteRules => "fast path, rules",
            Self::RouteStateful => "stateful fast path",
            Self::Nat => "translating filter",
            Self::RouteNat => "translating fast path",
        }
    }

    /// True if rules of a filter belong to it.
    pub fn filters(self) -> bool {
        matches!(self, Self::Stateful | Self::Stateless | Self::RouteRules) || self.tracks().is_some()
    }

    /// For a box whose connections are there before the first frame: whether their sources are translated.
    fn tracks(self) -> Option<bool> {
        match self {
            Self::RouteStateful => Some(false),
            Self::Nat | Self::RouteNat => Some(true),
            _ => None,
        }
    }

    /// The mode of the fast path on it; none: there is none.
    fn fast_path(self) -> Option<RouteMode> {
        match self {
            Self::RouteStandard => Some(RouteMode::Standard),
            Self::Route | Self::RouteRules => Some(RouteMode::Routed),
            Self::RouteStateful | Self::RouteNat => Some(RouteMode::Stateful),
            _ => None,
        }
    }
}

impl fmt::Display for DutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The order of a filter's rules, of which the last one alone matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleOrder {
    /// As in the study: one half refuses addresses on the first port, the other on the second, the last one accepts on both.
    #[default]
    Study,
    /// As RFC 2544 (section 11.4.1) has it: all refuse addresses wherever they come from, the last one accepts.
    Rfc2544,
}

impl RuleOrder {
    /// Name of the order on the command line and in files.
    pub fn key(self) -> &'static str {
        match self {
            Self::Study => "study",
            Self::Rfc2544 => "rfc2544",
        }
    }

    pub(crate) fn form(self) -> RuleForm {
        match self {
            Self::Study => RuleForm::PerSide,
            Self::Rfc2544 => RuleForm::Linear,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct DutOptions<'a> {
    pub family: Family,
    /// Rules of a filter, at least 1.
    pub rules: u32,
    pub order: RuleOrder,
    pub cores: &'a Cores,
    /// Its receive work is in threads of NAPI, which can be moved, and not in receive rings.
    pub threaded: bool,
}

/// A part that can be reset while traffic runs (RFC 6201).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetKind {
    /// The link of the second port goes down and comes up.
    Link,
    /// The forwarding part ends and starts anew, with its configuration: a process restart.
    Forwarding,
}

/// A box in the words of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `wire`, `router`, … `ports`.
    pub key: String,
    pub name: String,
    /// A description, in a sentence.
    pub what: String,
    /// Settings of the box, as commands or `name = value`.
    pub settings: Vec<String>,
}

/// The box under test. A lab goes away with it.
pub struct Dut {
    identity: Identity,
    family: Family,
    ports: [TestPort; 2],
    // In the order in which they are to go.
    fast_path: Option<FastPath>,
    /// Its connections are made before the first frame; whether translated.
    tracks: Option<bool>,
    made: Option<TestBox>,
    /// True: the box is no lab's, and works on this machine's cores.
    is_here: bool,
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Dut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dut").field("identity", &self.identity).field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Dut {
    /// Builds a box in namespaces of its own, with NAPI on all ends and each core's work where `options.cores` has it.
    pub fn lab(lab: &Lab, kind: DutKind, options: &DutOptions<'_>) -> Result<Self, BenchError> {
        lab_box::build(lab, kind, options)
    }

    /// A box that somebody else has built: for tests. It must forward.
    ///
    /// # Errors
    /// [`BenchError::Setting`] for a box that ends frames; what the kernel refuses.
    pub fn from_box(made: TestBox) -> Result<Self, BenchError> {
        let identity = Identity {
            key: "box".into(),
            name: "box".into(),
            what: format!("a box of the lab: {:?}", made.spec().kind),
            settings: Vec::new(),
        };
        lab_box::adopt(made, identity)
    }

    /// Two ports to whatever joins them: for tests. The family is that of the first port's target.
    pub fn from_ports(ports: [TestPort; 2]) -> Self {
        let identity = Identity {
            key: "ports".into(),
            name: "ports".into(),
            what: format!("what joins {} and {}", ports[0].interface, ports[1].interface),
            settings: Vec::new(),
        };
        Self::outside(ports, identity, Box::new(()))
    }

    /// A box outside of this machine. `held` is dropped with it: what puts the ports back as they were.
    pub fn outside(ports: [TestPort; 2], identity: Identity, held: Box<dyn Any + Send + Sync>) -> Self {
        let v4 = ports[0].target.destinations.address.is_ipv4();
        let family = if v4 { Family::V4 } else { Family::V6 };
        Self { identity, family, ports, fast_path: None, tracks: None, made: None, is_here: false, _held: Some(held) }
    }

    /// A guest, or another program: a box that works on this machine's cores between two of its ports. `held` is dropped with it.
    pub fn here(ports: [TestPort; 2], identity: Identity, held: Box<dyn Any + Send + Sync>) -> Self {
        Self { is_here: true, ..Self::outside(ports, identity, held) }
    }

    /// True for a box that is no lab's and works on this machine's cores.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// The port that sends forward, the port that sends backward.
    pub fn ports(&self) -> [&TestPort; 2] {
        [&self.ports[0], &self.ports[1]]
    }

    /// The port that sends in `direction`.
    pub fn sender(&self, direction: Direction) -> &TestPort {
        &self.ports[direction.index()]
    }

    /// The port at which frames of `direction` arrive.
    pub fn receiver(&self, direction: Direction) -> &TestPort {
        &self.ports[1 - direction.index()]
    }

    /// The name, the description and the settings.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// The lesser of the ports' MTUs, in bytes.
    pub fn mtu(&self) -> Result<u32, BenchError> {
        Ok(self.ports[0].mtu()?.min(self.ports[1].mtu()?))
    }

    /// The lab box behind the ports, to be watched; none for a box outside.
    pub fn lab_box(&self) -> Option<&TestBox> {
        self.made.as_ref()
    }

    /// The receive rings that stand before its ports; none where the ports have their own, or its work shares the sender's core.
    pub fn rings(&self, cores: &Cores) -> Option<BenchRings> {
        let made = self.made.as_ref()?;
        if cores.sharing() == Sharing::Inline || made.spec().napi != Napi::Inline {
            return None;
        }
        let queues = if cores.hands_over { 1 } else { cores.of_box.len().max(1) };
        let cpu = |direction: usize| cores.of_box.get(direction % queues).copied();
        Some(BenchRings { cpus: [cpu(0)?, cpu(1)?], frames: RING_FRAMES })
    }

    /// Puts the fast path on the box, a router, until the box goes.
    fn start_fast_path(&mut self, mode: RouteMode, rules: Option<&Ruleset>, cpus: &CpuSet) -> Result<(), BenchError> {
        let start = |made: &TestBox| Some(FastPath::start(made.inside()?, made.spec().family, mode, rules, cpus));
        self.fast_path = self.made.as_ref().and_then(start).transpose()?;
        Ok(())
    }

    /// Makes the connections of `flows`, established ones, on a box that is to have them.
    pub(crate) fn establish(&self, flows: &[FlowKey]) -> Result<(), BenchError> {
        match (self.tracks, self.made.as_ref().and_then(TestBox::inside)) {
            (Some(translated), Some(inside)) => established::make(inside, self.family, flows, translated),
            _ => Ok(()),
        }
    }

    /// The parts that can be reset.
    pub fn resets(&self) -> Vec<ResetKind> {
        match self.made.as_ref().map(|m| &m.spec().kind) {
            Some(BoxKind::Wire) | None => vec![ResetKind::Link],
            Some(_) => vec![ResetKind::Link, ResetKind::Forwarding],
        }
    }

    pub fn reset_in_words(&self, kind: ResetKind) -> String {
        match (kind, self.made.as_ref().map(|m| &m.spec().kind)) {
            (ResetKind::Link, _) => "link of the second port down and up",
            (ResetKind::Forwarding, Some(BoxKind::Firewall(_))) => "forwarding off, rules loaded anew, forwarding on",
            (ResetKind::Forwarding, Some(BoxKind::XdpFib)) => "XDP program unloaded and loaded anew",
            (ResetKind::Forwarding, Some(BoxKind::Bridge)) => "bridge down and up",
            (ResetKind::Forwarding, _) => "forwarding off and on",
        }
        .to_owned()
    }

    /// Resets it, and leaves it down for `down`.
    ///
    /// # Errors
    /// The kernel refuses; [`BenchError::Setting`] for a part that is not among [`Dut::resets`].
    pub fn reset(&self, kind: ResetKind, down: Duration) -> Result<(), BenchError> {
        if kind == ResetKind::Link {
            let port = &self.ports[1];
            port.set_link(false)?;
            thread::sleep(down);
            return port.set_link(true);
        }
        let Some(made) = self.made.as_ref().filter(|_| self.resets().contains(&kind)) else {
            let text = format!("what forwards in `{}` cannot be restarted from here; its link can", self.identity.name);
            return Err(BenchError::Setting(text));
        };
        made.stop_forwarding()?;
        thread::sleep(down);
        Ok(made.start_forwarding()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_the_kind() {
        for kind in DutKind::ALL {
            assert_eq!(kind.key().parse::<DutKind>().unwrap(), kind);
        }
        let message = "switch".parse::<DutKind>().unwrap_err().to_string();
        assert!(message.contains("switch") && message.contains("xdp-fib"), "{message}");
        for order in [RuleOrder::Study, RuleOrder::Rfc2544] {
            assert_eq!(serde_json::to_value(order).unwrap(), order.key(), "runs are saved with it");
        }
    }
}
