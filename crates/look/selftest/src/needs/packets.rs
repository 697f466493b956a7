//! Trials of packet sockets, filters and TAP devices.

use std::time::{Duration, Instant};

use capture::filter;
use sys::{
    packet::{Fanout, FanoutAlgorithm, PacketSocket, RingLayout, RxRing},
    privilege::Capability,
    tun::Tap,
};

use crate::{
    Place,
    bed::{ARRIVAL_TIMEOUT, NEAR, SENT, SENT_COUNT},
    trial::{Need, Tried, words},
};

const RAW: &[Capability] = &[Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN];
const PORT: u16 = 9;
/// Offset of the protocol in an Ethernet frame of IPv4, and the protocol number of UDP.
const PROTOCOL_OFFSET: usize = 23;
const UDP: u8 = 17;
/// Limit of one wait for a block of a ring, which the kernel hands over after 10 ms.
const WAIT: Duration = Duration::from_millis(100);

pub(super) const NEEDS: &[Need] = &[
    Need {
        name: "packet ring (TPACKET_V3)",
        verbs: &["capture"],
        capabilities: RAW,
        trial: ring,
        fix: "boot a kernel with CONFIG_PACKET (modprobe af_packet); use --backend packet",
    },
    Need {
        name: "fanout",
        verbs: &["capture"],
        capabilities: RAW,
        trial: fanout,
        fix: "use --backend ring or packet, without +fanout",
    },
    Need {
        name: "libpcap",
        verbs: &["capture"],
        capabilities: RAW,
        trial: filter_of_pcap,
        fix: "install libpcap; without it capture takes no filter",
    },
    Need {
        name: "TAP device",
        verbs: &["gen", "bench"],
        capabilities: RAW,
        trial: tap,
        fix: "modprobe tun; in a container, add the device /dev/net/tun",
    },
];

fn ring(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let layout = RingLayout { block_bytes: 1 << 16, blocks: 2, retire_ms: 10, rx_hash: false, node: None };
    let open = || -> Result<RxRing, String> {
        let ring = RxRing::new(PacketSocket::open().map_err(words)?, layout).map_err(words)?;
        ring.socket().bind(bed.near.index).map_err(words)?;
        Ok(ring)
    };
    let mut ring = bed.middle.run(open).map_err(words)??;
    bed.send(NEAR, PORT, SENT_COUNT).map_err(words)?;
    let mut count = 0;
    let began = Instant::now();
    // The kernel may hand over a block before the last frame is in it, and the next block late on a slow machine.
    while count < SENT_COUNT && began.elapsed() < ARRIVAL_TIMEOUT {
        ring.socket().wait(WAIT).map_err(words)?;
        while let Some(block) = ring.next_block() {
            count += block.frames().filter(|frame| is_sent(frame.data)).count() as u64;
        }
    }
    Ok(Tried::arrived(count, SENT_COUNT, "use --backend packet"))
}

/// True for a datagram of the left host, and false for an ICMP error of the box.
fn is_sent(frame: &[u8]) -> bool {
    frame.windows(SENT.len()).any(|part| part == SENT) && frame.get(PROTOCOL_OFFSET) == Some(&UDP)
}

fn fanout(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let fanout = Fanout { algorithm: FanoutAlgorithm::Hash, defrag: false, rollover: false, ignore_outgoing: false };
    let join = || -> Result<(), String> {
        let sockets = [PacketSocket::open().map_err(words)?, PacketSocket::open().map_err(words)?];
        for socket in &sockets {
            socket.bind(bed.near.index).map_err(words)?;
        }
        let id = sockets[0].make_fanout(fanout).map_err(words)?;
        sockets[1].join_fanout(id, fanout).map_err(words)
    };
    bed.middle.run(join).map_err(words)??;
    Ok(Tried::works(""))
}

fn filter_of_pcap(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let compile = || filter::compile(&bed.near.name, "udp port 53", 128, filter::Place::Socket);
    let compiled = bed.middle.run(compile).map_err(words)?.map_err(words)?;
    Ok(Tried::works(format!("`udp port 53` in {} instructions", compiled.program.len())))
}

fn tap(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    bed.middle.run(|| Tap::create("ekst%d").map(drop)).map_err(words)?.map_err(words)?;
    Ok(Tried::works(""))
}
