//! Obstacles to the fast path: each has a code and a remedy.

use bpf::{XdpMode, chain::users, link::attached, shadow_lacks, stateful_lacks};
use model::route::{CtMark, Obstacle, RouteCheck, RouteMode};

use crate::{
    RouteError, driver,
    evidence::{Evidence, Reader},
    plan::{key_words, planned},
    stateful,
};

/// Disciplines that do not shape, drop or reorder what there is room for.
const PLAIN_QDISCS: [&str; 9] = ["", "noqueue", "noop", "pfifo_fast", "pfifo", "bfifo", "mq", "fq_codel", "fq"];
/// Kinds of devices on top of a port that do not see its frames first: VLAN devices have frames of their own.
const HONOURED_ON_TOP: [&str; 1] = ["vlan"];

/// Obstacles to forwarding between `ports` in XDP mode `xdp`; with `consent`, of connections that a rule gave that mark.
pub(crate) fn obstacles(evidence: &Evidence, ports: &[String], consent: Option<CtMark>, xdp: XdpMode) -> Vec<Obstacle> {
    let mut found = consent.map(|mark| stateful::obstacles(evidence, mark)).unwrap_or_default();
    let mut add =
        |code: &str, what: String, remedy: String| found.push(Obstacle { code: code.to_owned(), what, remedy });
    for what in evidence.netfilter.chains.iter().chain(&evidence.netfilter.old).filter(|_| consent.is_none()) {
        let remedy = "remove the rules, write them for the shield (`evenkeel shield run`), or use mode stateful \
                      (`evenkeel route rules`)";
        add("netfilter", what.clone(), remedy.to_owned());
    }
    if evidence.xfrm_policies > 0 {
        let what = format!("IPsec policies for forwarded packets: {}", evidence.xfrm_policies);
        add("xfrm", what, "see `ip xfrm policy`; the fast path would send unencrypted".to_owned());
    }
    for route in evidence.routes.own.iter().filter(|route| route.to.length < 32) {
        let what =
            format!("{}/{} is a local route: every address in it is this machine's", route.to.address, route.to.length);
        add("local-prefix", what, format!("ip route del local {}/{}", route.to.address, route.to.length));
    }
    let policies = evidence.hash_policy.iter().zip(["ipv4", "ipv6"]).filter(|(policy, _)| **policy > 1);
    for (policy, ip) in policies.filter(|_| !evidence.routes.multipath.is_empty()) {
        let what = format!("net.{ip}.fib_multipath_hash_policy is {policy}, and the fast path knows 0 and 1");
        add("hash-policy", what, format!("sysctl -w net.{ip}.fib_multipath_hash_policy=1"));
    }
    let mut forwards = false;
    for (index, link) in evidence.links.iter().filter(|(_, link)| ports.contains(&link.name)) {
        let name = &link.name;
        if !PLAIN_QDISCS.contains(&link.qdisc.as_str()) {
            let what = format!("{name} has the qdisc {}, which the fast path would bypass", link.qdisc);
            add("qdisc", what, format!("tc qdisc del dev {name} root"));
        }
        if let Some(master) = link.master.and_then(|master| evidence.links.get(&master)) {
            let what = format!("{name} belongs to {} ({})", master.name, master.kind);
            add("master", what, format!("ip link set {name} nomaster"));
        }
        let stacked = evidence.links.values().filter(|above| above.lower == Some(*index) && !above.elsewhere);
        for above in stacked.filter(|above| above.kind != "veth" && !HONOURED_ON_TOP.contains(&above.kind.as_str())) {
            let what = format!("{} ({}) sits on {name}", above.name, above.kind);
            add("stacked", what, format!("ip link del {}", above.name));
        }
        let switches = evidence.switches.get(index).copied().unwrap_or_default();
        forwards |= switches.forwards_v4 || switches.forwards_v6;
    }
    if !forwards {
        let what = "this machine does not forward between these ports".to_owned();
        add("forwarding", what, "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1".to_owned());
    }
    // Generic XDP sends socket buffers.
    let stands = |it: &&Obstacle| it.code != "jumbo" || xdp == XdpMode::Native;
    found.extend(evidence.drivers.iter().filter(stands).cloned());
    found
}

/// The XDP program of another tool on a port: the fast path does not start beside it.
fn foreign_program(port: &str) -> Result<Option<Obstacle>, RouteError> {
    let Some(it) = attached(port)?.filter(|it| users(it.id).is_empty()) else { return Ok(None) };
    let what = format!("{port} runs the XDP program `{}` (id {}, {} mode)", it.name, it.id, it.mode);
    Ok(Some(Obstacle { code: "xdp".to_owned(), what, remedy: it.way_out(port) }))
}

/// The mark that mode `mode` asks for; none: it asks for none.
pub(crate) fn consent(mode: RouteMode, mark: CtMark) -> Option<CtMark> {
    (mode == RouteMode::Stateful).then_some(mark)
}

/// Obstacles to `mode` on `ports`, and the key of its next hops, without starting anything.
///
/// # Errors
/// An interface that is not there; what the kernel refuses to tell.
pub fn check(ports: &[String], mode: RouteMode, mark: CtMark, xdp: XdpMode) -> Result<RouteCheck, RouteError> {
    let mut reader = Reader::open()?;
    let routes = reader.routes()?;
    let evidence = reader.read(ports, routes)?;
    let plan = planned(&evidence, ports)?;
    let can_transmit = driver::can_transmit(ports, xdp);
    let mut obstacles = obstacles(&evidence, ports, consent(mode, mark), xdp);
    for port in ports {
        obstacles.extend(foreign_program(port)?);
        obstacles.extend(driver::without_xdp(port, xdp));
    }
    let mut notes = Vec::new();
    if mode == RouteMode::Stateful {
        notes.extend(stateful::notes(&evidence));
        // Without connection tracking nobody knows yet what it could do.
        obstacles.extend(stateful_lacks().filter(|_| evidence.conntrack.is_some()).map(|lacking| Obstacle {
            code: "kernel".to_owned(),
            what: lacking.to_string(),
            remedy: "stay in mode standard or routed, or boot a later kernel".to_owned(),
        }));
    }
    notes.extend(shadow_lacks().map(|lacking| Obstacle {
        code: "trial".to_owned(),
        what: lacking.to_string(),
        remedy: "evenkeel route run --trial 0".to_owned(),
    }));
    notes.extend(driver::notes(ports, xdp));
    Ok(RouteCheck {
        mode,
        obstacles,
        notes,
        cannot_transmit: ports
            .iter()
            .zip(&can_transmit)
            .filter(|(_, out)| !**out)
            .map(|(name, _)| name.clone())
            .collect(),
        fib_key: key_words(plan.key),
        ports: ports.to_vec(),
    })
}
