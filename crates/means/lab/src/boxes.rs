//! Boxes under test: what stands between a sender and a receiver, or at the sender's other end.
//!
//! ```text
//! sender namespace          inside                      receiver namespace
//! [sender] ---------------- [entry]  box  [exit] ------ [receiver]      forwards both ways: router, firewall, bridge, XDP
//! [sender] ---------------- [entry]  box                                ends: XDP drop, capture
//! [sender] -------------------------------------------- [receiver]      wire
//! ```
//!
//! Neighbours are permanent, so that no packet but the test's own crosses the box. All frames of a test go to
//! [`TestBox::target`]; those of the other direction to [`TestBox::back`].

mod bridge;
mod counters;
mod filter;
mod router;
mod settings;
mod spec;
mod translate;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use bpf::{FibCounts, XdpDrop, XdpFib, XdpLink, XdpMode};

use crate::{Lab, LabError, Mac, Namespace, VethEnd};

pub use crate::link::Network;
pub use counters::{BoxCounters, PortCounters};
pub use filter::TABLE;
pub use filter::text as filter_text;
pub use spec::{BoxKind, BoxSpec, Family, Napi, RuleForm, Ruleset, Sink, Target};

/// The MAC address of nobody: taps see its frames, and the stack drops them right after.
pub const NOBODY: Mac = Mac([0x02, 0, 0, 0, 0, 0x02]);
/// Nobody's on the sender's side: a bridge must not find both on one side.
pub const NOBODY_BACK: Mac = Mac([0x02, 0, 0, 0, 0, 0x03]);

/// The boxes made by this process so far: their interfaces and namespaces must not share names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// An interface and the namespace that it is in.
#[derive(Debug)]
pub struct Place {
    pub namespace: Namespace,
    pub end: VethEnd,
}

type At<'a> = (&'a Namespace, &'a VethEnd);

/// The namespace of the box itself, and its interfaces.
#[derive(Debug)]
pub struct Inside {
    pub namespace: Namespace,
    pub entry: VethEnd,
    /// Towards the receiver; none for a box that ends the frames.
    pub exit: Option<VethEnd>,
}

/// A box under test with its sender and its receiver. Everything goes away when it is dropped.
#[derive(Debug)]
pub struct TestBox {
    spec: BoxSpec,
    // Dropped before the namespaces.
    drop_all: Option<XdpDrop>,
    fib: Mutex<Option<XdpFib>>,
    sender: Place,
    inside: Option<Inside>,
    receiver: Option<Place>,
}

impl TestBox {
    /// Builds the box of `spec`.
    pub fn build(lab: &Lab, spec: &BoxSpec) -> Result<Self, LabError> {
        let number = MADE.fetch_add(1, Ordering::Relaxed) % 1000;
        let role = |name: &str| format!("{name}{number}");
        let name = |letter: char| lab.interface(&format!("{letter}{number}"));
        let sender = lab.namespace(&role("tx"))?;
        let queues = spec.queues.max(1);
        let (s, i, o, r) = (name('s'), name('i'), name('o'), name('r'));
        let (inside, sender_end) = if spec.kind == BoxKind::Wire {
            (None, None)
        } else {
            let namespace = lab.namespace(&role("box"))?;
            let (sender_end, entry) = lab.veth((&sender, &s), (&namespace, &i), queues)?;
            (Some(Inside { namespace, entry, exit: None }), Some(sender_end))
        };
        let (inside, receiver, sender_end) = match (inside, sender_end) {
            (Some(mut inside), Some(sender_end)) if spec.kind.forwards() => {
                let receiver = lab.namespace(&role("rx"))?;
                let (exit, end) = lab.veth((&inside.namespace, &o), (&receiver, &r), queues)?;
                inside.exit = Some(exit);
                (Some(inside), Some(Place { namespace: receiver, end }), sender_end)
            }
            (Some(inside), Some(sender_end)) => (Some(inside), None, sender_end),
            _ => {
                let receiver = lab.namespace(&role("rx"))?;
                let (sender_end, end) = lab.veth((&sender, &s), (&receiver, &r), queues)?;
                (None, Some(Place { namespace: receiver, end }), sender_end)
            }
        };
        let sender = Place { namespace: sender, end: sender_end };
        let mut made = Self { spec: spec.clone(), drop_all: None, fib: Mutex::new(None), sender, inside, receiver };
        made.furnish()?;
        Ok(made)
    }

    fn furnish(&mut self) -> Result<(), LabError> {
        match &self.spec.kind {
            BoxKind::Router | BoxKind::Firewall(_) | BoxKind::XdpFib | BoxKind::XdpRouter => router::furnish(self)?,
            BoxKind::Bridge => bridge::furnish(self)?,
            BoxKind::Wire | BoxKind::XdpDrop | BoxKind::Capture => self.address_ends()?,
        }
        if let BoxKind::Firewall(rules) = &self.spec.kind {
            self.load_rules(rules)?;
        }
        self.start_napi()?;
        if self.spec.kind == BoxKind::XdpDrop
            && let Some(inside) = &self.inside
        {
            self.drop_all = Some(inside.namespace.run(|| XdpDrop::attach(&inside.entry.name, XdpMode::Native))??);
        }
        self.start_fib()?;
        self.pin_napi()
    }

    /// Starts NAPI where frames enter, without which a veth takes no live and no redirected frames.
    fn start_napi(&self) -> Result<(), LabError> {
        let (entry, exit, ends) = self.places();
        // Only these hand frames to the ends by XDP; the others do it by socket buffers, which the kernel's backlog takes as well.
        let ends = ends.filter(|_| self.spec.kind == BoxKind::Wire || self.spec.kind.redirects());
        for (namespace, end) in [Some(entry), exit].into_iter().flatten().chain(ends.into_iter().flatten()) {
            if self.spec.kind != BoxKind::XdpDrop {
                namespace.set_feature(&end.name, "rx-gro", true)?;
            }
        }
        // A host leaves the checksum to the device, which on a veth leaves it to nobody; XDP would forward it unfinished.
        for (namespace, end) in ends.into_iter().flatten().filter(|_| self.spec.kind.redirects()) {
            namespace.set_feature(&end.name, "tx-checksum-ip-generic", false)?;
        }
        Ok(())
    }

    /// Puts NAPI into the kernel threads asked for.
    fn pin_napi(&self) -> Result<(), LabError> {
        let Napi::Threads(cpus) = &self.spec.napi else { return Ok(()) };
        let (entry, exit, _) = self.places();
        entry.0.thread_napi(&entry.1.name, cpus)?;
        let Some((namespace, end)) = exit else { return Ok(()) };
        let mut second = cpus.clone();
        second.rotate_left(usize::from(cpus.len() > 1));
        namespace.thread_napi(&end.name, &second)
    }

    /// The interface at the sender's other end, the box's second one, and both ends where there is a receiver.
    fn places(&self) -> (At<'_>, Option<At<'_>>, Option<[At<'_>; 2]>) {
        let exit = self.inside.as_ref().and_then(|i| Some((&i.namespace, i.exit.as_ref()?)));
        let ends = self.receiver.as_ref().map(|r| [(&self.sender.namespace, &self.sender.end), (&r.namespace, &r.end)]);
        (self.entry(), exit, ends)
    }

    /// Attaches the program that forwards, for a box that has one.
    fn start_fib(&self) -> Result<(), LabError> {
        if let (BoxKind::XdpFib, Some(Inside { namespace, entry, exit: Some(exit) })) = (&self.spec.kind, &self.inside)
        {
            let both = [entry.name.as_str(), exit.name.as_str()];
            let program = namespace.run(|| XdpFib::attach(&both, XdpMode::Native))??;
            *self.fib.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
        }
        Ok(())
    }

    /// Ends the forwarding, and forgets its configuration where that is a process's: rules, a program. The wires stay. A wire forwards nothing by
    /// itself: nothing is done.
    ///
    /// # Errors
    /// The error of the kernel or of `nft`.
    pub fn stop_forwarding(&self) -> Result<(), LabError> {
        let Some(inside) = &self.inside else { return Ok(()) };
        match &self.spec.kind {
            BoxKind::Bridge => return bridge::set_up(inside, false),
            BoxKind::Router | BoxKind::Firewall(_) | BoxKind::XdpFib | BoxKind::XdpRouter => {
                self.set_forwarding(inside, false)?;
            }
            BoxKind::Wire | BoxKind::XdpDrop | BoxKind::Capture => return Ok(()),
        }
        drop(self.fib.lock().unwrap_or_else(PoisonError::into_inner).take());
        if matches!(self.spec.kind, BoxKind::Firewall(_)) {
            filter::unload(&inside.namespace)?;
        }
        Ok(())
    }

    /// Starts anew what [`TestBox::stop_forwarding`] has ended.
    pub fn start_forwarding(&self) -> Result<(), LabError> {
        let Some(inside) = &self.inside else { return Ok(()) };
        match &self.spec.kind {
            BoxKind::Bridge => return bridge::set_up(inside, true),
            BoxKind::Firewall(rules) => self.load_rules(rules)?,
            BoxKind::XdpFib => self.start_fib()?,
            BoxKind::Router | BoxKind::XdpRouter => {}
            BoxKind::Wire | BoxKind::XdpDrop | BoxKind::Capture => return Ok(()),
        }
        self.set_forwarding(inside, true)
    }

    fn set_forwarding(&self, inside: &Inside, on: bool) -> Result<(), LabError> {
        inside.namespace.run(|| router::set_forwarding(self.spec.family, on))?
    }

    /// Counters of the XDP program that forwards; none for other boxes.
    pub fn fib_counts(&self) -> Result<Option<FibCounts>, LabError> {
        let fib = self.fib.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(fib.as_ref().map(XdpFib::counts).transpose()?)
    }

    /// The modes in which that program runs, at the entry and at the exit; empty for other boxes.
    pub fn fib_modes(&self) -> Vec<XdpMode> {
        let fib = self.fib.lock().unwrap_or_else(PoisonError::into_inner);
        fib.iter().flat_map(|f| f.links().iter().map(XdpLink::mode)).collect()
    }

    /// Everything that was set, as commands or `name = value`; the interfaces are called ENTRY and EXIT.
    pub fn settings(&self) -> Result<Vec<String>, LabError> {
        settings::of(self)
    }

    /// Gives sender and far end addresses in one network, and tells each the other's.
    fn address_ends(&self) -> Result<(), LabError> {
        let family = self.spec.family;
        let far = match (&self.receiver, &self.inside) {
            (Some(r), _) => (&r.namespace, &r.end),
            (None, Some(i)) => (&i.namespace, &i.entry),
            (None, None) => return Ok(()),
        };
        let near = (&self.sender.namespace, &self.sender.end);
        for ((namespace, end), own, peer, mac) in [
            (near, family.sender(), family.receiver(), far.1.mac),
            (far, family.receiver(), family.sender(), near.1.mac),
        ] {
            namespace.add_address(&end.name, own, family.whole_len())?;
            namespace.add_neighbour(&end.name, peer, mac)?;
        }
        Ok(())
    }

    /// Loads rules of nftables into the forward hook of the box, as a firewall has them.
    pub fn load_rules(&self, rules: &Ruleset) -> Result<(), LabError> {
        match &self.inside {
            Some(inside) => filter::load(inside, rules, &self.spec.family.whole()),
            None => Ok(()),
        }
    }

    /// Has the box translate the sources of both sides, one address to one ([`Family::translated`]).
    pub fn translate_sources(&self) -> Result<(), LabError> {
        self.inside.as_ref().map_or(Ok(()), |inside| translate::load(inside, self.spec.family))
    }

    pub fn spec(&self) -> &BoxSpec {
        &self.spec
    }

    /// The port from which frames are sent.
    pub fn sender(&self) -> &Place {
        &self.sender
    }

    /// The box; none for a wire.
    pub fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    /// The port where frames arrive; none for a box that ends them.
    pub fn receiver(&self) -> Option<&Place> {
        self.receiver.as_ref()
    }

    /// The interface at the sender's other end, with its namespace.
    pub fn entry(&self) -> (&Namespace, &VethEnd) {
        match (&self.inside, &self.receiver) {
            (Some(i), _) => (&i.namespace, &i.entry),
            (None, Some(r)) => (&r.namespace, &r.end),
            (None, None) => (&self.sender.namespace, &self.sender.end),
        }
    }

    /// The way of the sender's frames.
    pub fn target(&self) -> Target {
        let family = self.spec.family;
        let far = self.receiver.as_ref().map(|r| r.end.mac);
        let (entry, host) = (self.entry().1.mac, self.spec.sink == Sink::Host);
        let mac = match self.spec.kind {
            BoxKind::Router | BoxKind::Firewall(_) | BoxKind::XdpFib | BoxKind::XdpRouter => entry,
            BoxKind::Wire | BoxKind::Bridge if host => far.unwrap_or(entry),
            BoxKind::XdpDrop if host => entry,
            _ => NOBODY,
        };
        let destinations = if host { Network::host(family.receiver()) } else { family.hosts_of_receiver() };
        Target { mac, source_mac: self.sender.end.mac, sources: family.hosts_of_sender(), destinations }
    }

    /// Destination of the receiver's frames in the other direction; none for a box that ends frames.
    pub fn back(&self) -> Option<Target> {
        let receiver = self.receiver.as_ref()?;
        let family = self.spec.family;
        let host = self.spec.sink == Sink::Host;
        let mac = match (&self.inside, self.spec.kind.routes()) {
            (Some(Inside { exit: Some(exit), .. }), true) => exit.mac,
            _ if host => self.sender.end.mac,
            _ => NOBODY_BACK,
        };
        let destinations = if host { Network::host(family.sender()) } else { family.hosts_of_sender() };
        Some(Target { mac, source_mac: receiver.end.mac, sources: family.hosts_of_receiver(), destinations })
    }

    /// The MAC address to which a forwarding box hands frames on their last hop: `end`'s own, or nobody's.
    pub(crate) fn last_hop(&self, end: &VethEnd) -> Mac {
        match self.spec.sink {
            Sink::Host => end.mac,
            Sink::Discard => NOBODY,
        }
    }

    /// Every counter of the box's wires now.
    pub fn counters(&self) -> Result<BoxCounters, LabError> {
        counters::read(self)
    }

    /// Packets that the firewall's last rule has let pass (its own nft counter); none for other boxes.
    pub fn accepted(&self) -> Result<Option<u64>, LabError> {
        match (&self.spec.kind, &self.inside) {
            (BoxKind::Firewall(_), Some(inside)) => filter::accepted(&inside.namespace).map(Some),
            _ => Ok(None),
        }
    }
}

impl Family {
    pub fn sender(self) -> IpAddr {
        self.pick(Ipv4Addr::new(198, 18, 0, 2), Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 2))
    }

    /// The address of the receiver, or of a box that ends frames.
    pub fn receiver(self) -> IpAddr {
        self.pick(Ipv4Addr::new(198, 19, 0, 2), Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 2))
    }

    /// The address of a router towards the sender.
    pub fn entry(self) -> IpAddr {
        self.pick(Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1))
    }

    /// The address of a router towards the receiver.
    pub fn exit(self) -> IpAddr {
        self.pick(Ipv4Addr::new(198, 19, 0, 1), Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 1))
    }

    /// The hosts behind the sender: RFC 2544's half of 198.18.0.0/15, or RFC 5180's network.
    pub fn hosts_of_sender(self) -> Network {
        let v6 = Ipv6Addr::new(0x2001, 2, 0, 0x100, 0, 0, 0, 0);
        Network { address: self.pick(Ipv4Addr::new(198, 18, 128, 0), v6), prefix_len: self.len(17, 56) }
    }

    /// The hosts behind the receiver.
    pub fn hosts_of_receiver(self) -> Network {
        let v6 = Ipv6Addr::new(0x2001, 2, 0, 0x200, 0, 0, 0, 0);
        Network { address: self.pick(Ipv4Addr::new(198, 19, 128, 0), v6), prefix_len: self.len(17, 56) }
    }

    /// A network that holds both sides: 198.18.0.0/15 (RFC 2544), 2001:2::/48 (RFC 5180).
    pub fn whole(self) -> Network {
        let v6 = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);
        Network { address: self.pick(Ipv4Addr::new(198, 18, 0, 0), v6), prefix_len: self.whole_len() }
    }

    /// The prefix length of a network that holds both sides.
    fn whole_len(self) -> u8 {
        self.len(15, 48)
    }

    /// The prefix length of one side's link.
    fn link_len(self) -> u8 {
        self.len(16, 64)
    }

    fn pick(self, v4: Ipv4Addr, v6: Ipv6Addr) -> IpAddr {
        match self {
            Self::V4 => v4.into(),
            Self::V6 => v6.into(),
        }
    }

    fn len(self, v4: u8, v6: u8) -> u8 {
        match self {
            Self::V4 => v4,
            Self::V6 => v6,
        }
    }
}
