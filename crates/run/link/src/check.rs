//! A check of all nodes: reachability, frame length, duplicate names, versions.

use std::{collections::BTreeMap, net::SocketAddr, panic::resume_unwind, thread};

use model::{
    link::{LinkNode, LinkStatus},
    link_check::{LinkCheck, LinkChecked, LinkProblem},
};
use transport::{HEADER_BYTES, VERSION};

use crate::{Address, ETHERTYPE, LinkError, UDP_PORT, error::some_of};

/// Probes of one length before it counts as too long.
const PROBES_MAX: u32 = 3;
/// Nodes that are probed at once.
const NODES_AT_ONCE_MAX: usize = 8;

/// Judges what the broker knows, and what becomes of probes: `probe` sends one with so many bytes behind its header to an address, and says whether
/// it came back.
pub fn check(
    status: &LinkStatus,
    probe: impl Fn(&str, u16) -> Result<bool, LinkError> + Sync,
) -> Result<LinkCheck, LinkError> {
    let header = HEADER_BYTES as u32 + behind(&status.address);
    let mtu = header + u32::from(status.payload_max);
    let (mut nodes, mut problems) = (Vec::new(), duplicate_names(status));
    let longest_to = |other: &LinkNode| {
        longest(status.payload_max, |bytes| {
            for _ in 0..PROBES_MAX {
                if probe(&other.address, bytes)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    };
    for (other, most) in status.nodes.iter().zip(of_each(&status.nodes, longest_to)) {
        let most = most?;
        let passes = most.map(|bytes| header + u32::from(bytes));
        match passes {
            None => problems.push(problem(
                &other.name,
                format!("{} answers no probe, though it announced itself: it has just ended, hangs, or frames are lost", other.address),
                "run `evenkeel link status` there".to_owned(),
            )),
            Some(passes) if passes < mtu => problems.push(problem(
                &other.name,
                format!("frames larger than {passes} bytes do not arrive, and the MTU of {} is {mtu}", status.interface),
                format!(
                    "give {} there, this one, and the switch between them one MTU: `ip link set dev INTERFACE mtu {mtu}` there, or {} here (a device may let pass 4 bytes more than its MTU, for the tag of a VLAN)",
                    other.address,
                    passes - 4
                ),
            )),
            Some(_) => {}
        }
        nodes.push(LinkChecked { name: other.name.clone(), address: other.address.clone(), path_mtu: passes });
    }
    problems.extend(status.other_versions.iter().map(|other| {
        problem(
            &other.address,
            format!("it speaks version {} of the protocol, and this node {VERSION}", other.version),
            "install one version of evenkeel on all nodes".to_owned(),
        )
    }));
    if status.nodes.is_empty() && problems.is_empty() {
        problems.push(silent(&status.node, "no other node answers", behind(&status.address) > 0));
    }
    Ok(LinkCheck {
        node: status.node.clone(),
        interface: status.interface.clone(),
        mtu,
        nodes,
        problems,
        machines: None,
    })
}

/// Names machines that were reached in another way, and that link does not see. `machines` has each with its host name, which a broker takes
/// unless it is told another: while there are as many nodes as machines, nobody is missed.
pub fn missed(check: &LinkCheck, machines: &[(String, String)]) -> Vec<LinkProblem> {
    if machines.len() <= check.nodes.len() + 1 {
        return Vec::new();
    }
    let is_udp = check.nodes.iter().any(|node| behind(&node.address) > 0);
    let seen = |host: &str| check.node == host || check.nodes.iter().any(|node| node.name == host);
    let unseen = machines.iter().filter(|(_, host)| !seen(host));
    unseen
        .map(|(machine, host)| {
            silent(machine, &format!("no node {host} answers over link, though ssh reaches it"), is_udp)
        })
        .collect()
}

/// Says that connections over link pass by what filters on this machine (`filters`, in words), unless somebody has said what may come in so.
pub fn passed_by(status: &LinkStatus, filters: Option<&str>) -> Option<LinkProblem> {
    let filters = filters.filter(|_| status.allowed_by_default && !status.allowed.is_empty())?;
    Some(problem(
        &status.node,
        format!("connections over link bypass the firewall ({filters}): {} may connect", status.allowed.join(", ")),
        format!(
            "restrict who may connect: `evenkeel link serve {} --cluster PREFIX --allow PREFIX:PORTS`",
            status.interface
        ),
    ))
}

/// Bytes of the headers of IP and UDP before a frame, where nodes have such addresses.
fn behind(address: &str) -> u32 {
    match address.parse() {
        Ok(Address::Udp(SocketAddr::V4(_))) => 28,
        Ok(Address::Udp(SocketAddr::V6(_))) => 48,
        _ => 0,
    }
}

fn silent(node: &str, what: &str, is_udp: bool) -> LinkProblem {
    let (dropped, seen) = match is_udp {
        true => (format!("a firewall drops UDP port {UDP_PORT}"), format!("udp port {UDP_PORT}")),
        false => ("switch or cloud drops EtherType 0x88B5".to_owned(), format!("ether proto {ETHERTYPE:#06x}")),
    };
    problem(
        node,
        format!("{what}: no broker serves there, or {dropped}"),
        format!(
            "run `evenkeel link serve INTERFACE` there; if one serves, check whether its frames arrive: `tcpdump -i INTERFACE {seen}`"
        ),
    )
}

fn problem(node: &str, what: String, fix: String) -> LinkProblem {
    LinkProblem { node: node.to_owned(), problem: what, fix }
}

/// Names that several nodes have, with the addresses of all.
fn duplicate_names(status: &LinkStatus) -> Vec<LinkProblem> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    names.entry(&status.node).or_default().push(&status.address);
    let alike = status.duplicate_names.iter().map(|address| (status.node.as_str(), address.as_str()));
    for (name, address) in status.nodes.iter().map(|n| (n.name.as_str(), n.address.as_str())).chain(alike) {
        let all = names.entry(name).or_default();
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let several = names.into_iter().filter(|(_, all)| all.len() > 1);
    several
        .map(|(name, all)| {
            problem(
                name,
                format!("{} nodes have this name: {}", all.len(), some_of(&all)),
                "start one of them with another: `evenkeel link serve INTERFACE --name NAME`".to_owned(),
            )
        })
        .collect()
}

/// The results of `work` in the order of the items, several of which are worked on at once.
fn of_each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let share = items.len().div_ceil(NODES_AT_ONCE_MAX).max(1);
    thread::scope(|scope| {
        let workers: Vec<_> =
            items.chunks(share).map(|some| scope.spawn(|| some.iter().map(&work).collect::<Vec<_>>())).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        workers.into_iter().flat_map(join).collect()
    })
}

/// The most bytes that pass; none: not even a frame without any.
fn longest(most: u16, mut passes: impl FnMut(u16) -> Result<bool, LinkError>) -> Result<Option<u16>, LinkError> {
    // A node that is gone costs one length's tries.
    if !passes(0)? {
        return Ok(None);
    }
    if passes(most)? {
        return Ok(Some(most));
    }
    let (mut good, mut bad) = (0, most);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match passes(middle)? {
            true => good = middle,
            false => bad = middle,
        }
    }
    Ok(Some(good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_frame_is_found() {
        for limit in [0, 1, 63, 64, 1367, 1467, 1468] {
            assert_eq!(longest(1468, |bytes| Ok(bytes <= limit)).unwrap(), Some(limit));
        }
        assert_eq!(longest(1468, |_| Ok(false)).unwrap(), None);
    }

    #[test]
    fn behind_udp_the_mtu_has_its_headers_and_the_advice_its_port() {
        assert_eq!(["10.0.0.1:885", "[fd00::1]:885", "02:00:00:00:00:01"].map(behind), [28, 48, 0]);
        let silent = silent("a", "no other node answers", true);
        assert!(silent.problem.contains("UDP port 885") && silent.fix.contains("udp port 885"), "{silent:?}");
    }

    #[test]
    fn machines_that_link_does_not_see_are_named() {
        let nodes = ["b", "c"].map(|n| LinkChecked { name: n.into(), address: String::new(), path_mtu: None });
        let check = LinkCheck {
            node: "a".into(),
            interface: "eth0".into(),
            mtu: 1500,
            nodes: nodes.into(),
            problems: vec![],
            machines: None,
        };
        let machines = |all: &[&str]| all.iter().map(|m| (format!("root@{m}"), (*m).to_owned())).collect::<Vec<_>>();
        assert_eq!(missed(&check, &machines(&["a", "b", "x"])), [], "x is perhaps named c by --name");
        let found = missed(&check, &machines(&["a", "b", "c", "d"]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].node, "root@d");
        assert!(found[0].problem.contains("switch or cloud drops EtherType 0x88B5"), "{}", found[0].problem);
    }
}
