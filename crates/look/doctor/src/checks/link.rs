//! The link and the slot: PCI Express, pause frames, duplex, MTU of bridge ports, queue length.

use host::{
    knob::{Knob, NicFile},
    picture::Nic,
    setting::{Missing, link, pcie},
};

use super::or_unknown_of;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// The kernel's own length of a transmit queue for Ethernet, in packets.
const QUEUE_LENGTH: u64 = 1000;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "pcie-link",
        group: "link",
        question: "Does the card have the PCI Express lanes and speed that it supports?",
        reads: "current_link_width and _speed against max_link_width and _speed, the speed of the network link",
        fix: "another slot, or the firmware's setting for it",
        risk: "the machine has to be switched off",
        roles: &[],
        run: |ev| ev.ports().flat_map(|nic| or_unknown_of(&nic.name, pcie_link(ev, nic))).collect(),
    },
    Check {
        id: "pause-frames",
        group: "link",
        question: "Do pause frames stop the link?",
        reads: "ethtool -a, the pause counters of ethtool -S",
        fix: "ethtool -A rx off tx off on machines that packets pass through",
        risk: "bursts that the switch held back are then dropped in the ring; the link may go down for a moment; leave it on for \
            storage networks that count on it",
        roles: &[],
        run: |ev| ev.ports().flat_map(|nic| or_unknown_of(&nic.name, pause(ev, nic))).collect(),
    },
    Check {
        id: "duplex",
        group: "link",
        question: "Is the link at full duplex and at 1 Gbit/s or more?",
        reads: "/sys/class/net/*/duplex and speed",
        fix: "the cable, the port, or autonegotiation at both ends",
        risk: "the link goes down for a moment",
        roles: &[],
        run: |ev| ev.ports().flat_map(|nic| or_unknown_of(&nic.name, duplex(ev, nic))).collect(),
    },
    Check {
        id: "bridge-mtu",
        group: "link",
        question: "Have all ports of a bridge the same MTU?",
        reads: "/sys/class/net/BRIDGE/brif, the MTU of the bridge and of its ports",
        fix: "none by itself: which MTU is right is the network's choice",
        risk: "frames larger than the smaller MTU are lost until every station agrees",
        roles: &[],
        run: |ev| ev.devices().flat_map(|nic| or_unknown_of(&nic.name, bridge_mtu(ev, nic))).collect(),
    },
    Check {
        id: "tx-queue-length",
        group: "link",
        question: "Is the transmit queue of a sensible length?",
        reads: "/sys/class/net/*/tx_queue_len",
        fix: "ip link set dev NIC txqueuelen 1000",
        risk: "none that is known; a queueing discipline that is already there keeps its own limit",
        roles: &[],
        run: |ev| ev.ports().flat_map(|nic| or_unknown_of(&nic.name, queue_length(ev, nic))).collect(),
    },
];

fn pcie_link(ev: &Evidence, nic: &Nic) -> Result<Vec<Outcome>, Missing> {
    let Some(link) = pcie::read(&ev.root, &nic.name)? else { return Ok(Vec::new()) };
    let full = link.width >= link.width_max && link.speed_gts >= link.speed_max_gts;
    let network = nic.speed_mbps.map(|mbps| f64::from(mbps) / 1000.0);
    let outcome = if full {
        Outcome::good("The card has the lanes and speed that it supports.")
    } else if network.is_some_and(|gbps| link.gbps() < gbps) {
        Outcome::bad("The slot carries less than the network link: the card drops what it cannot hand over in time.")
    } else {
        let why =
            "The slot gives the card less than it can use, which costs small packets most: each is several transfers.";
        Outcome::improve(why)
    };
    let shown = format!(
        "x{} at {} GT/s ({:.1} Gbit/s) of x{} at {} GT/s",
        link.width,
        link.speed_gts,
        link.gbps(),
        link.width_max,
        link.speed_max_gts
    );
    let mut outcome =
        outcome.on(&nic.name).saw(shown).holds("PCIe link", format!("x{} {} GT/s", link.width, link.speed_gts));
    if let Some(gbps) = network {
        outcome = outcome.saw(format!("network link {gbps} Gbit/s"));
    }
    if !full {
        let bus = nic.bus.as_deref().unwrap_or("the card's address");
        outcome = outcome.advise(format!("lspci -vv -s {bus} | grep -e LnkCap -e LnkSta")).advise(
            "# move the card to a slot with all its lanes; see the firmware for a slower generation or split lanes",
        );
    }
    Ok(vec![outcome])
}

fn pause(ev: &Evidence, nic: &Nic) -> Result<Vec<Outcome>, Missing> {
    let Some(pause) = link::pause(&ev.root, &nic.name)? else { return Ok(Vec::new()) };
    let counted = link::pause_frames(&link::statistics(&ev.root, &nic.name)?);
    let on = |on: bool| if on { "on" } else { "off" };
    let set = format!("rx {}, tx {}", on(pause.rx), on(pause.tx));
    let (received, sent) = counted.unwrap_or((0, 0));
    let outcome = if !pause.rx && !pause.tx {
        Outcome::good("Pause frames are off.")
    } else if received > 0 || sent > 0 {
        let why = "A pause frame stops everything on the link, not only the flow that is too fast: one slow receiver holds up all.";
        Outcome::bad(why)
    } else if ev.role.forwards() {
        Outcome::improve(
            "Under overload a router with pause frames stops its neighbours instead of dropping the excess.",
        )
    } else {
        Outcome::good("Pause frames are on, and none were sent or received.")
    };
    let seen = match counted {
        Some((received, sent)) => format!("{received} pause frames received, {sent} sent"),
        None => "the driver counts no pause frames".to_owned(),
    };
    let outcome = outcome.on(&nic.name).saw(set.clone()).saw(seen).holds("pause frames", set);
    Ok(vec![match outcome.verdict.is_finding() {
        true => {
            let outcome = match sent {
                0 => outcome,
                _ => outcome.advise("# frames that were sent say that this machine was too slow: see the checks rings, queue-irqs and uneven first"),
            };
            outcome.advise(format!("ethtool -A {} autoneg off rx off tx off", nic.name))
        }
        false => outcome,
    }])
}

fn duplex(ev: &Evidence, nic: &Nic) -> Result<Vec<Outcome>, Missing> {
    let Some(duplex) = link::duplex(&ev.root, &nic.name)? else { return Ok(Vec::new()) };
    let Some(mbps) = nic.speed_mbps else { return Ok(Vec::new()) };
    let advice = format!("ethtool {}  # what both ends offer; then cable and port", nic.name);
    let outcome = if duplex == "half" {
        Outcome::bad(
            "At half duplex each side waits for the other, and with a peer at full duplex frames collide and are lost.",
        )
        .advise(advice)
    } else if mbps < 1000 {
        let why = "Such a speed comes from a bad cable or a failed negotiation more often than from an old switch.";
        Outcome::improve(why).advise(advice)
    } else {
        Outcome::good("The link is at full duplex.")
    };
    Ok(vec![
        outcome
            .on(&nic.name)
            .saw(format!("{mbps} Mbit/s, {duplex} duplex"))
            .holds("link", format!("{mbps} Mbit/s {duplex}")),
    ])
}

fn bridge_mtu(ev: &Evidence, nic: &Nic) -> Result<Vec<Outcome>, Missing> {
    let Some(ports) = link::bridge_ports(&ev.root, &nic.name)? else { return Ok(Vec::new()) };
    let mtus: Vec<(&str, u32)> = ports.iter().filter_map(|p| Some((p.as_str(), ev.host.nic(p)?.mtu))).collect();
    let Some(&(_, first)) = mtus.first() else { return Ok(Vec::new()) };
    let shown: Vec<String> = mtus.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect();
    let saw = format!("{} {}; ports: {}", nic.name, nic.mtu, shown.join(", "));
    let least = mtus.iter().map(|(_, mtu)| *mtu).min().unwrap_or(first);
    let outcome = if mtus.iter().all(|&(_, mtu)| mtu == first) {
        Outcome::good("A frame that fits one port fits all.")
    } else {
        let why = "A bridge cannot fragment: a frame larger than the MTU of the port that it leaves by is dropped without a word.";
        let narrow = mtus.iter().find(|(_, mtu)| *mtu == least).map_or("NIC", |(name, _)| *name);
        Outcome::bad(why)
            .advise(format!(
                "# where every station may send large frames: ip link set dev {narrow} mtu {}",
                largest(&mtus)
            ))
            .advise(format!("# otherwise: MTU {least} on every port and station"))
    };
    Ok(vec![outcome.on(&nic.name).saw(saw).holds("smallest port MTU", least)])
}

fn largest(mtus: &[(&str, u32)]) -> u32 {
    mtus.iter().map(|(_, mtu)| *mtu).max().unwrap_or(0)
}

fn queue_length(ev: &Evidence, nic: &Nic) -> Result<Vec<Outcome>, Missing> {
    let Some(length) = link::tx_queue_len(&ev.root, &nic.name)? else { return Ok(Vec::new()) };
    let outcome = match length {
        0 => Outcome::improve(
            "With a length of 0 a queueing discipline that is made later has no room, and drops what is not sent at once.",
        ),
        n if n > 10 * QUEUE_LENGTH => Outcome::improve(
            "A long queue in front of the card turns overload into seconds of delay instead of a few losses.",
        ),
        _ => Outcome::good("The queue holds a burst and no more."),
    };
    let outcome = outcome.on(&nic.name).saw(format!("txqueuelen {length}")).holds("transmit queue length", length);
    let knob = Knob::NicFile { nic: nic.name.clone(), file: NicFile::TxQueueLen };
    Ok(vec![match outcome.verdict.is_finding() {
        true => outcome.set(knob, length.to_string(), QUEUE_LENGTH.to_string()),
        false => outcome,
    }])
}
