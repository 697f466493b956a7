//! Conditions on two interfaces for frames to cross between them unchanged.

use bpf::XdpError;
use host::interface::{self, Peer};
use port::offloads::{self, LRO, MERGING, Tags, UNCUT};
use sys::link;

use super::{
    Pair,
    link_state::{failed, flags},
};
use crate::error::ShieldError;

/// The part of the kernel in which frames cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// XDP in the driver, before anything merges or changes frames.
    Native,
    /// XDP on finished socket buffers.
    Generic,
    Ring,
}

/// Refuses what would lose or change frames; what nobody here can tell is given in words. `ours`: a shield that was left there is taken over.
///
/// # Errors
/// An interface will not do; the message says why, and what to do about it.
pub fn check(pair: &Pair, datapath: Datapath, ours: bool) -> Result<Vec<String>, ShieldError> {
    let mut notes = Vec::new();
    for name in pair.names() {
        interface::index(name)?;
        if offloads::begins_with_ip(name)? {
            return Err(ShieldError::Lacking(format!(
                "{name} has no Ethernet headers, and --between carries Ethernet frames: filter there with `evenkeel shield run {name} --xdp-mode generic`"
            )));
        }
        if !ours && !flags(name)?.up {
            return Err(port::PortError::InterfaceDown { interface: name.to_owned() }.into());
        }
        if !ours && let Some(attached) = bpf::link::attached(name)?.filter(|it| !bpf::chain::is_chain(&it.name)) {
            return Err(XdpError::Occupied { interface: name.to_owned(), attached }.into());
        }
        notes.extend(features(name, datapath)?);
    }
    let mtu = |name: &str| link::mtu(name).map_err(failed("read the MTU of", name));
    let (first, second) = (mtu(&pair.first)?, mtu(&pair.second)?);
    if first != second {
        let (larger, smaller) = if first > second { (&pair.first, &pair.second) } else { (&pair.second, &pair.first) };
        return Err(ShieldError::Lacking(format!(
            "packets larger than the MTU of {smaller} would be lost without an ICMP error: the MTU is {first} on {} and {second} on {}; \
             `ip link set {larger} mtu {}` makes them equal (or raise that of {smaller})",
            pair.first,
            pair.second,
            first.min(second)
        )));
    }
    Ok(notes)
}

fn features(name: &str, datapath: Datapath) -> Result<Option<String>, ShieldError> {
    let merging: &[_] = if datapath == Datapath::Native { &[LRO] } else { &MERGING };
    let on = offloads::on(name, merging)?;
    if !on.is_empty() {
        let before = match datapath {
            Datapath::Native => "XDP sees them",
            Datapath::Generic => "generic XDP sees them",
            Datapath::Ring => "packet sockets receive them",
        };
        return Err(ShieldError::Lacking(format!(
            "{name} merges frames ({}) before {before}, and they would be sent on merged: `{}`",
            on.join(", "),
            offloads::off(name, &on)
        )));
    }
    // Native XDP on a veth has its other end cut them.
    let peer = offloads::peer(name)?.filter(|_| datapath != Datapath::Native);
    if let Some(Peer::Here(peer)) = &peer {
        let on = offloads::on(peer, &UNCUT)?;
        if !on.is_empty() {
            return Err(ShieldError::Lacking(format!(
                "{peer}, the other end of {name}, sends unsegmented packets, and they would be sent on larger than the MTU: `{}`",
                offloads::off(peer, &on)
            )));
        }
    }
    // A packet socket is told the tag that was taken out.
    if datapath == Datapath::Ring {
        return Ok((peer == Some(Peer::Elsewhere)).then(|| {
            format!(
                "frames larger than the MTU are dropped, and the other end of {name} may send such: it cannot be checked from this network namespace. There: \
                 `ethtool -K PEER tso off tx-udp-segmentation off`"
            )
        }));
    }
    match offloads::tags(name)? {
        Tags::Inside => Ok(None),
        Tags::Beside { who, switch } => Err(ShieldError::Lacking(format!(
            "frames would lose their VLAN tags: {who} may take them out before XDP sees them; `{switch}`, or use --backend ring"
        ))),
        Tags::Unknown { switch } => Ok(Some(format!(
            "receivers may drop frames for unfinished checksums: the other end of {name} cannot be checked from this network namespace. There: \
             `ethtool -K PEER tx off`, and if there are VLAN tags `{switch}`"
        ))),
    }
}

/// Refuses an interface that takes no frames by XDP redirect; some do so only once they run a program.
///
/// # Errors
/// An interface takes no redirected frames; the message has the remedy.
pub fn takes_frames(pair: &Pair) -> Result<(), ShieldError> {
    for name in pair.names() {
        if bpf::takes_redirected_frames(name)? == Some(false) {
            return Err(ShieldError::Lacking(format!(
                "{name} takes no redirected frames. On a veth: `ethtool -K PEER gro off`, then `gro on` at the other end (or an XDP program there); for other drivers use \
                 --backend ring or --xdp-mode generic"
            )));
        }
    }
    Ok(())
}
