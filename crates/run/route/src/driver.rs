//! Obstacles between a port's driver and the routes, beside netfilter and qdiscs: programs and filters at tc, and what a card does to frames
//! before XDP sees them.

use bpf::{
    XdpError, XdpMode, link::tcx_programs, runs_native_xdp, takes_large_redirected_frames, takes_redirected_frames,
};
use host::{
    interface::Peer,
    netlink::{Netlink, tc},
};
use model::route::{Obstacle, RouteEvent};
use port::offloads::{self, Feature, LRO, Tags};

use crate::RouteError;

/// Prefix of the names of evenkeel's own programs.
const OWN_PREFIX: &str = "ek_";

/// Merging by the card, before generic XDP. The kernel's GRO skips an interface with such a program.
const MERGED: Feature = ("rx-gro-hw", "rx-gro-hw");
/// Feature by which a veth hands over packets with CHECKSUM_PARTIAL.
const PARTIAL_CHECKSUM: Feature = ("tx-checksum-ip-generic", "tx");
/// The largest MTU of which one buffer of any driver holds a frame with two tags: a page less the room before and behind it.
const ONE_BUFFER_MTU: u32 = 3_400;

/// The ports that can transmit redirected frames. A driver that does not say is taken to; frames of generic XDP leave by any device.
pub(crate) fn can_transmit(ports: &[String], xdp: XdpMode) -> Vec<bool> {
    let takes = |name: &String| takes_redirected_frames(name).ok().flatten() != Some(false);
    ports.iter().map(|name| xdp == XdpMode::Generic || takes(name)).collect()
}

/// Events for ports that can transmit again, or no longer; none the first time, when `before` is empty.
pub(crate) fn transmit_changes(ports: &[String], before: &[bool], now: &[bool]) -> Vec<RouteEvent> {
    let each = ports.iter().zip(before.iter().zip(now)).filter(|(_, (before, now))| before != now);
    each.map(|(interface, (_, &sends))| RouteEvent::Transmit { interface: interface.clone(), can_transmit: sends })
        .collect()
}

/// A port whose driver runs no program in native mode.
pub(crate) fn without_xdp(port: &str, xdp: XdpMode) -> Option<Obstacle> {
    let lacks = xdp == XdpMode::Native && matches!(runs_native_xdp(port), Ok(Some(false)));
    lacks.then(|| Obstacle {
        code: "driver".to_owned(),
        what: format!("the driver of {port} runs no XDP program in native mode"),
        remedy: "--xdp-mode generic, which is slower; or name the interface below it".to_owned(),
    })
}

/// Notes: settings that keep packets off the fast path, not the fast path itself.
pub(crate) fn notes(ports: &[String], xdp: XdpMode) -> Vec<Obstacle> {
    let mut notes = Vec::new();
    let mut add =
        |code: &str, what: String, remedy: String| notes.push(Obstacle { code: code.to_owned(), what, remedy });
    for port in ports {
        let (what, remedy) = match offloads::peer(port) {
            Ok(Some(Peer::Here(peer))) if offloads::on(&peer, &[PARTIAL_CHECKSUM]).is_ok_and(|on| !on.is_empty()) => {
                let what =
                    format!("packets from {peer}, the peer of {port}, have partial checksums (a veth's default)");
                (what, offloads::off(&peer, &[PARTIAL_CHECKSUM.1]))
            }
            Ok(Some(Peer::Elsewhere)) => (
                format!(
                    "packets from the peer of {port} may have partial checksums (a veth's default; it cannot be checked from this network namespace)"
                ),
                offloads::off("PEER", &[PARTIAL_CHECKSUM.1]),
            ),
            _ => continue,
        };
        add("partial-checksum", format!("{what}: the kernel forwards those"), remedy);
    }
    for port in ports.iter().filter(|_| xdp == XdpMode::Native) {
        if matches!(takes_redirected_frames(port), Ok(None)) {
            let what = format!(
                "packets leaving by {port} are lost if its driver takes no redirected frames, which kernels before Linux 6.3 do not tell"
            );
            let remedy = "on a veth: `ethtool -K PEER gro off`, then `gro on` at the other end, once it is up; `evenkeel ledger` shows losses in mode routed";
            add("exit-unknown", what, remedy.into());
        }
    }
    let merges = |port: &&String| offloads::on(port, &[MERGED]).is_ok_and(|on| !on.is_empty());
    for port in ports.iter().filter(|_| xdp == XdpMode::Generic).filter(merges) {
        let what = format!("{port} merges received packets: the kernel forwards merged ones");
        add("merged", what, offloads::off(port, &[MERGED.1]));
    }
    notes
}

/// The obstacles at one port that is there. They are read anew each time: no message tells of most of them.
pub(crate) fn obstacles(route: &mut Netlink, ifindex: u32, port: &str, mtu: u32) -> Result<Vec<Obstacle>, RouteError> {
    let mut found = Vec::new();
    let mut add =
        |code: &str, what: String, remedy: String| found.push(Obstacle { code: code.to_owned(), what, remedy });
    let filters = tc::filters(route, ifindex).map_err(RouteError::system("read the filters at tc"))?;
    for (hook, kind) in filters {
        let what = format!("{port} has filters at tc {hook} ({kind})");
        add("tc", what, format!("tc filter del dev {port} {hook}"));
    }
    let programs = match tcx_programs(port) {
        // It goes just now, and that is told of by itself.
        Err(XdpError::NoInterface(_)) => Vec::new(),
        other => other?,
    };
    for (id, name) in programs.into_iter().filter(|(_, name)| !name.starts_with(OWN_PREFIX)) {
        let what = format!("{port} runs the program `{name}` (id {id}) at tc");
        add("tc", what, format!("end the tool that it belongs to; `bpftool net show dev {port}` shows it"));
    }
    // Who cannot be asked has no such features.
    if offloads::on(port, &[LRO]).is_ok_and(|on| !on.is_empty()) {
        let what = format!("{port} merges received packets (LRO), which must not be forwarded");
        add("lro", what, offloads::off(port, &[LRO.1]));
    }
    // A kernel that does not tell (before 6.3) redirects none to any device.
    if mtu > ONE_BUFFER_MTU && takes_large_redirected_frames(port).ok().flatten() != Some(true) {
        let what = format!(
            "{port} has MTU {mtu}, and its driver, or a kernel before 6.3, sends no redirected frames of several buffers"
        );
        add("jumbo", what, format!("ip link set {port} mtu {ONE_BUFFER_MTU}"));
    }
    match offloads::tags(port) {
        Ok(Tags::Beside { who, switch }) if tags_come(port) => {
            let what =
                format!("tagged frames would be forwarded untagged: {who} takes VLAN tags out before XDP sees them");
            add("tags", what, switch);
        }
        _ => {}
    }
    Ok(found)
}

/// True if tags can arrive: a veth whose other end is here gets them from VLAN devices there alone.
fn tags_come(port: &str) -> bool {
    match offloads::peer(port) {
        Ok(Some(Peer::Here(peer))) => offloads::vlans(&peer).is_ok_and(|vlans| !vlans.is_empty()),
        _ => true,
    }
}
