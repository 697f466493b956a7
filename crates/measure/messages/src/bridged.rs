//! A namespace for each node, and a bridge in one more that joins them.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use bpf::XdpMode;
use lab::{Lab, LabError, Namespace, VethEnd};
use link::{Engine, Handle, Raw, State};

use crate::MessagesError;

/// Bytes of the ring that an engine receives by.
pub(crate) const RING_BYTES: usize = 4 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const PREFIX_LEN: u8 = 24;

/// A node's namespace and its interface.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) space: Namespace,
    pub(crate) link: VethEnd,
    pub(crate) address: Ipv4Addr,
}

/// Nodes on a bridge. They go when it is dropped.
impl Place {
    /// The engine of the node.
    pub(crate) fn engine(&self) -> Result<Engine<Raw>, MessagesError> {
        let name = self.link.name.as_str();
        let open = || Engine::new(Raw::open_ring(name, XdpMode::Native, RING_BYTES)?, name);
        Ok(self.space.run(open)??)
    }
}

/// A connection from an engine to another one of this process, which listens: its handles at both.
pub(crate) fn connected(
    from: &mut Engine<Raw>,
    to: &mut Engine<Raw>,
    port: u16,
    stream: bool,
) -> Result<[Handle; 2], MessagesError> {
    let ours = from.connect(to.carrier().address(), port, stream)?;
    let (mut theirs, began) = (None, Instant::now());
    while began.elapsed() < CONNECT_TIMEOUT {
        from.poll()?;
        to.poll()?;
        theirs = theirs.or_else(|| to.accept(port));
        if let (Some(theirs), Some(State::Open)) = (theirs, from.state(ours)) {
            return Ok([ours, theirs]);
        }
    }
    Err(MessagesError::Silent("link"))
}

#[derive(Debug)]
pub(crate) struct Bridged {
    pub(crate) places: Vec<Place>,
    _hub: Namespace,
}

impl Bridged {
    /// So many nodes of a lab of that name.
    pub(crate) fn new(tag: &str, nodes: u32) -> Result<Self, LabError> {
        let lab = Lab::new(tag)?;
        let hub = lab.namespace("hub")?;
        let (mut places, mut ports) = (Vec::new(), Vec::new());
        for node in 0..nodes {
            let space = lab.namespace(&format!("n{node}"))?;
            let names = [lab.interface(&format!("n{node}")), lab.interface(&format!("h{node}"))];
            let (link, port) = lab.veth((&space, &names[0]), (&hub, &names[1]), 1)?;
            places.push(Place { space, link, address: Ipv4Addr::new(198, 18, 0, node as u8 + 1) });
            ports.push(port);
        }
        let behind: Vec<_> = ports.iter().zip(&places).map(|(port, place)| (port, place.link.mac)).collect();
        lab.bridge(&hub, &lab.interface("hb"), &behind)?;
        for place in &places {
            place.space.add_address(&place.link.name, IpAddr::V4(place.address), PREFIX_LEN)?;
            for other in places.iter().filter(|other| other.address != place.address) {
                place.space.add_neighbour(&place.link.name, IpAddr::V4(other.address), other.link.mac)?;
            }
        }
        Ok(Self { places, _hub: hub })
    }
}
