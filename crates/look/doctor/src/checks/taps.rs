//! Other readers of packets: XDP programs and packet sockets.

use std::collections::BTreeMap;

use host::setting::{
    Missing,
    packet_sockets::{self, PacketSocket},
    xdp,
};
use model::xdp::XdpMode;

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// Programs that ask for every packet and let a filter in the kernel keep all but a few away from them.
const FILTERED: [&str; 8] =
    ["dhclient", "dhcpcd", "udhcpc", "systemd-network", "NetworkManager", "lldpd", "hostapd", "wpa_supplicant"];

/// ETH_P_ALL: every packet.
const ETH_P_ALL: u16 = 3;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "xdp-programs",
        group: "taps",
        question: "Is an XDP program attached to an interface, and does it run in the driver?",
        reads: "the kernel's list of links (rtnetlink, IFLA_XDP)",
        fix: "none by itself: whose program it is, its owner knows",
        risk: "whatever the program does ends with it",
        roles: &[],
        run: |ev| or_unknown(programs(ev)),
    },
    Check {
        id: "packet-readers",
        group: "taps",
        question: "Which processes read every packet by system calls instead of a ring?",
        reads: "/proc/net/packet, the processes' descriptors and mappings",
        fix: "none by itself: the program's option for a ring (TPACKET_V3) or AF_XDP",
        risk: "none; a ring takes some megabytes",
        roles: &[],
        run: |ev| or_unknown(readers(ev)),
    },
];

fn programs(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let judge = |program: xdp::XdpProgram| {
        let name = program.name.as_deref().unwrap_or("without a readable name");
        let (outcome, mode) = match program.mode {
            XdpMode::Generic => {
                let why = "In generic mode the program runs after the socket buffer is made (and often copied): it costs time and \
                    saves none.";
                let advice = format!(
                    "# have its loader attach it to {} in the driver (native mode), where the driver can",
                    program.nic
                );
                (Outcome::improve(why).advise(advice), "generic")
            }
            XdpMode::Native => (Outcome::good("The program runs in the driver, before the stack."), "native"),
            XdpMode::Offload => (Outcome::good("The program runs in the card."), "offloaded"),
        };
        let saw = format!("program {} ({name}), {mode} mode: it sees every packet before the stack does", program.id);
        outcome.on(&program.nic).saw(saw).holds("XDP program", format!("{name} ({mode})"))
    };
    Ok(xdp::read(&ev.root)?.into_iter().map(judge).collect())
}

fn readers(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let mut by_owner: BTreeMap<String, Vec<PacketSocket>> = BTreeMap::new();
    for socket in packet_sockets::read(&ev.root)?.into_iter().filter(|socket| socket.protocol != 0) {
        let name = socket.owner.as_ref().map_or("a process that could not be found", |(_, name)| name);
        by_owner.entry(name.to_owned()).or_default().push(socket);
    }
    Ok(by_owner.iter().map(|(name, sockets)| judge_reader(ev, name, sockets)).collect())
}

fn judge_reader(ev: &Evidence, name: &str, sockets: &[PacketSocket]) -> Outcome {
    let every: Vec<&PacketSocket> = sockets.iter().filter(|s| s.protocol == ETH_P_ALL).collect();
    let outcome = if every.is_empty() {
        Outcome::good("It reads a protocol of few packets.")
    } else if FILTERED.contains(&name) {
        Outcome::good("It has a filter in the kernel that lets few packets through.")
    } else if every.iter().any(|s| s.ring == Some(false)) {
        let why = "Every packet of the interface that its filter lets through is cloned and queued for it, and read by a system \
            call each: that loses packets from about a hundred thousand per second on, and slows down everything else.";
        Outcome::improve(why)
            .advise(format!("# {name}: its option for a memory-mapped ring (TPACKET_V3), or a reader that has one"))
    } else if every.iter().any(|s| s.ring.is_none()) {
        Outcome::unknown("whether it has mapped a ring could not be seen (run as root)")
    } else {
        Outcome::good("It reads every packet through a mapped ring.")
    };
    let pids: Vec<String> = sockets.iter().filter_map(|s| s.owner.as_ref()).map(|(pid, _)| pid.to_string()).collect();
    let on = |index: u32| match ev.host.nics.iter().find(|nic| nic.index == index) {
        Some(nic) => nic.name.clone(),
        None if index == 0 => "every interface".to_owned(),
        None => format!("interface {index}"),
    };
    sockets.iter().fold(outcome.on(name).saw(format!("process {}", pids.join(", "))), |outcome, socket| {
        let takes = if socket.protocol == ETH_P_ALL {
            "every packet".to_owned()
        } else {
            format!("ethertype {:#06x}", socket.protocol)
        };
        let ring = match socket.ring {
            Some(true) => "through a ring",
            Some(false) => "without a ring",
            None => "ring unknown",
        };
        outcome.saw(format!("{takes} of {}, {ring}", on(socket.ifindex)))
    })
}
