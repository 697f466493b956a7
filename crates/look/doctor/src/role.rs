//! Role of the machine, guessed from its settings and traffic.

use host::{Host, Root, setting};
use model::doctor::Role;

/// IFF_UP and IFF_LOOPBACK of include/uapi/linux/if.h.
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
/// IFF_PROMISC.
const IFF_PROMISC: u32 = 0x100;

/// A guess and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    pub role: Role,
    /// Reasons for the guess.
    pub why: Vec<String>,
}

/// Guesses the role: a machine that forwards is a router, with rules for what it forwards a firewall; one that reads packets in
/// promiscuous mode captures; one with jumbo frames throughout and without a way out is a cluster node; any other is a server.
pub fn guess(root: &Root, host: &Host) -> Guess {
    let soft = |rel: &str| root.read_opt(rel).ok().flatten();
    let of = |role, why: Vec<String>| Guess { role, why };
    let is_on = |rel: &str| soft(rel).is_some_and(|v| v != "0");
    let forwarding: Vec<&str> = [
        ("proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward = 1"),
        ("proc/sys/net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding = 1"),
    ]
    .iter()
    .filter(|(rel, _)| is_on(rel))
    .map(|&(_, reason)| reason)
    .collect();
    let ways: Vec<&str> = host
        .nics
        .iter()
        .filter(|n| n.flags & IFF_UP != 0 && n.flags & IFF_LOOPBACK == 0)
        .filter(|n| !root.exists(&format!("sys/class/net/{}/brport", n.name)))
        .filter(|n| !["docker", "virbr", "cni", "br-", "lxcbr", "lxdbr"].iter().any(|p| n.name.starts_with(p)))
        .map(|n| n.name.as_str())
        .collect();
    if !forwarding.is_empty() && ways.len() >= 2 {
        let mut why: Vec<String> = forwarding.iter().map(|&f| f.to_owned()).collect();
        why.push(format!("{} interfaces to forward between: {}", ways.len(), shown(&ways)));
        if let Some(hooks) = forward_rules(root) {
            why.push(hooks);
            return of(Role::Firewall, why);
        }
        return of(Role::Router, why);
    }
    let promiscuous: Vec<&str> = host
        .nics
        .iter()
        .filter(|n| n.flags & IFF_UP != 0 && n.flags & IFF_PROMISC != 0)
        .map(|n| n.name.as_str())
        .collect();
    // 3 is every protocol (ETH_P_ALL).
    let sockets = setting::packet_sockets::read(root).unwrap_or_default();
    let readers = sockets.iter().filter(|s| s.protocol == 3).count();
    if readers > 0 && !promiscuous.is_empty() {
        return of(
            Role::Capture,
            vec![
                format!("{readers} AF_PACKET sockets for every protocol"),
                format!("promiscuous: {}", shown(&promiscuous)),
            ],
        );
    }
    let hardware: Vec<_> = host.nics.iter().filter(|n| n.flags & IFF_UP != 0 && n.bus.is_some()).collect();
    let way_out = setting::has_default_route(root).unwrap_or(true);
    if !way_out && !hardware.is_empty() && hardware.iter().all(|n| n.mtu >= 9000) {
        let why = vec!["jumbo frames on every port".to_owned(), "no default route".to_owned()];
        return of(Role::Cluster, why);
    }
    let why = match (forwarding.is_empty(), readers) {
        (false, _) => "forwarding is on, but there are not two interfaces to forward between".to_owned(),
        (true, 0) => "it does not forward, and nobody reads packets of others".to_owned(),
        (true, _) => "it does not forward, and no interface is promiscuous".to_owned(),
    };
    of(Role::Server, vec![why])
}

/// Rules judge what is forwarded, and how that shows.
fn forward_rules(root: &Root) -> Option<String> {
    let ruleset = setting::nft::ruleset(root).ok()?;
    let objects = ruleset.get("nftables")?.as_array()?;
    let hooks = objects.iter().filter_map(|o| o.get("chain")).filter(|c| c.get("hook").is_some_and(|h| h == "forward"));
    let name = |value: &serde_json::Value, field: &str| value.get(field).and_then(|v| v.as_str()).map(str::to_owned);
    let chains: Vec<(Option<String>, Option<String>)> = hooks.map(|c| (name(c, "table"), name(c, "name"))).collect();
    // Rules may stand in the hook's chain or in one it jumps to: any in its table counts.
    let judged = |rule: &serde_json::Value| chains.iter().any(|(table, _)| *table == name(rule, "table"));
    let rules = objects.iter().filter_map(|o| o.get("rule")).filter(|r| judged(r)).count();
    let (table, chain) = chains.first()?;
    (rules > 0).then(|| {
        format!(
            "{rules} rules in tables that judge what is forwarded (chain {} of table {})",
            chain.as_deref().unwrap_or("?"),
            table.as_deref().unwrap_or("?")
        )
    })
}

fn shown(names: &[&str]) -> String {
    match names {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        _ => names.join(", "),
    }
}
