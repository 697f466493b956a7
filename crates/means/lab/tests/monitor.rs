//! The monitor reports each kind of change that `ip` and `nft` make in a namespace, of each IP version, and says which it cannot. Needs root.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    io::Write,
    net::IpAddr,
    process::{Command, Stdio},
    time::Duration,
};

use host::{
    interface::Link,
    netlink::{
        Netlink,
        monitor::{Change, Event, Monitor},
        route::{self, Address, Hop, Neighbour, Prefix, Route, RouteKind, Rule, RuleAction},
    },
};
use nix::sys::socket::SockProtocol;
use serde_json::Value;
use testbed::{Bed, run, wait, wait_reporting};

/// Runs `test` in a namespace of its own that has a veth pair ekm0 - ekm1, both up, or not at all without privilege; in CI that is a failure.
fn within(tag: &str, test: impl FnOnce() + Send) {
    let Some(bed) = Bed::new(tag, &["m"]) else { return };
    bed.space("m").run(|| {
        run("ip link add ekm0 type veth peer name ekm1");
        run("ip link set ekm0 up");
        run("ip link set ekm1 up");
        test();
    });
}

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix { address: address.parse().unwrap(), length: length.parse().unwrap() }
}

/// Everything heard so far, until `done`.
fn hear(monitor: &mut Monitor, what: &str, mut done: impl FnMut(&Event) -> bool) {
    let (heard, mut found) = (RefCell::new(Vec::new()), false);
    let hears = || {
        monitor.wait(Duration::from_millis(100)).unwrap();
        monitor
            .read(|event| {
                found |= done(&event);
                heard.borrow_mut().push(event);
            })
            .unwrap();
        found
    };
    wait_reporting(what, hears, || format!("only {:?} was heard", heard.borrow()));
}

/// Runs `ip` and waits until a change of this kind tells of an object that is as `is_it` says.
fn heard<T>(
    monitor: &mut Monitor,
    command: &str,
    change: Change,
    object: impl Fn(&Event) -> Option<(Change, &T)>,
    is_it: impl Fn(&T) -> bool,
) {
    run(&format!("ip {command}"));
    hear(monitor, command, |event| object(event).is_some_and(|(how, object)| how == change && is_it(object)));
}

fn link(event: &Event) -> Option<(Change, &Link)> {
    if let Event::Link(change, _, link) = event { Some((*change, link)) } else { None }
}

fn address(event: &Event) -> Option<(Change, &Address)> {
    if let Event::Address(change, address) = event { Some((*change, address)) } else { None }
}

fn route(event: &Event) -> Option<(Change, &Route)> {
    if let Event::Route(change, route) = event { Some((*change, route)) } else { None }
}

fn rule(event: &Event) -> Option<(Change, &Rule)> {
    if let Event::Rule(change, rule) = event { Some((*change, rule)) } else { None }
}

fn neighbour(event: &Event) -> Option<(Change, &Neighbour)> {
    if let Event::Neighbour(change, neighbour) = event { Some((*change, neighbour)) } else { None }
}

fn nexthop(event: &Event) -> Option<(Change, &u32)> {
    if let Event::Nexthop(change, id) = event { Some((*change, id)) } else { None }
}

#[test]
fn links_are_heard() {
    within("mln", || {
        let monitor = &mut Monitor::open().unwrap();
        heard(monitor, "link add ekm2 type veth peer name ekm3", Change::Set, link, |l| l.name == "ekm2" && !l.up);
        heard(monitor, "link set ekm2 mtu 1400", Change::Set, link, |l| l.name == "ekm2" && l.mtu == 1400);
        heard(monitor, "link set ekm2 address 02:00:00:00:00:07", Change::Set, link, |l| {
            l.name == "ekm2" && l.address == "02:00:00:00:00:07"
        });
        run("ip link set ekm2 up");
        heard(monitor, "link set ekm3 up", Change::Set, link, |l| l.name == "ekm2" && l.running);
        heard(monitor, "link set ekm3 down", Change::Set, link, |l| l.name == "ekm2" && l.up && !l.running);
        run("ip link add ekmbr type bridge");
        heard(monitor, "link set ekm2 master ekmbr", Change::Set, link, |l| l.name == "ekm2" && l.master.is_some());
        heard(monitor, "link del ekm2", Change::Gone, link, |l| l.name == "ekm2");
    });
}

#[test]
fn addresses_are_heard() {
    within("mad", || {
        let monitor = &mut Monitor::open().unwrap();
        let index = nix::net::if_::if_nametoindex("ekm0").unwrap();
        for text in ["192.0.2.1/24", "2001:db8::1/64"] {
            let wanted = Address { ifindex: index, prefix: prefix(text) };
            heard(monitor, &format!("addr add {text} dev ekm0"), Change::Set, address, |a| *a == wanted);
            heard(monitor, &format!("addr del {text} dev ekm0"), Change::Gone, address, |a| *a == wanted);
        }
        // The own end, not the other.
        let own: IpAddr = "192.0.2.5".parse().unwrap();
        let command = "addr add 192.0.2.5 peer 192.0.2.6/32 dev ekm0";
        heard(monitor, command, Change::Set, address, |a| a.prefix.address == own);
    });
}

#[test]
fn routes_are_heard() {
    within("mro", || {
        run("ip addr add 192.0.2.1/24 dev ekm0");
        run("ip addr add 2001:db8::1/64 dev ekm0 nodad");
        let index = nix::net::if_::if_nametoindex("ekm0").unwrap();
        let monitor = &mut Monitor::open().unwrap();
        for (to, near) in [("198.51.100.0/24", "192.0.2."), ("2001:db8:1::/48", "2001:db8::")] {
            let hop = |last: u8, weight| Hop {
                ifindex: Some(index),
                gateway: Some(format!("{near}{last}").parse().unwrap()),
                weight,
                is_dead: false,
                wraps: false,
            };
            let it = |r: &Route| r.to == prefix(to) && r.table == 254;
            heard(monitor, &format!("route add {to} via {near}2 metric 7 mtu 1300"), Change::Set, route, |r| {
                it(r) && r.hops == [hop(2, 1)] && (r.metric, r.mtu, r.kind) == (7, Some(1300), RouteKind::Unicast)
            });
            heard(monitor, &format!("route replace {to} via {near}3 metric 7"), Change::Replaced, route, |r| {
                it(r) && r.hops == [hop(3, 1)] && r.mtu.is_none()
            });
            heard(monitor, &format!("route del {to} metric 7"), Change::Gone, route, it);
            heard(monitor, &format!("route add blackhole {to} table 77"), Change::Set, route, |r| {
                r.to == prefix(to) && (r.table, r.kind) == (77, RouteKind::Blackhole)
            });
            let several = format!("route add {to} nexthop via {near}2 weight 3 nexthop via {near}3");
            run(&format!("ip {several}"));
            // IPv6 tells hop by hop, or of all at once.
            let mut hops = BTreeSet::new();
            hear(monitor, &several, |event| {
                if let Some((Change::Set, route)) = route(event).filter(|(_, r)| it(r)) {
                    hops.extend(route.hops.clone());
                }
                hops == [hop(2, 3), hop(3, 1)].into()
            });
            heard(monitor, &format!("route del {to}"), Change::Gone, route, it);
            heard(monitor, &format!("nexthop add id 9 via {near}4 dev ekm0"), Change::Set, nexthop, |id| *id == 9);
            heard(monitor, &format!("route add {to} nhid 9"), Change::Set, route, |r| {
                it(r) && r.nexthop == Some(9) && r.hops == [hop(4, 1)]
            });
            heard(monitor, "nexthop del id 9", Change::Gone, nexthop, |id| *id == 9);
        }
        heard(monitor, "route add 203.0.113.0/24 via inet6 2001:db8::9 dev ekm0", Change::Set, route, |r| {
            r.hops.first().is_some_and(|hop| hop.gateway == Some("2001:db8::9".parse().unwrap()))
        });
    });
}

#[test]
fn rules_are_heard() {
    within("mru", || {
        let monitor = &mut Monitor::open().unwrap();
        for (family, from) in [("-4", "198.18.0.0/15"), ("-6", "2001:db8:7::/48")] {
            let v6 = family == "-6";
            heard(monitor, &format!("{family} rule add from {from} table 100 pref 1000"), Change::Set, rule, |r| {
                let decides = (r.v6, r.preference, r.action) == (v6, 1000, RuleAction::Table(100));
                decides && r.from == Some(prefix(from)) && !r.is_partial && !r.is_for_all()
            });
            heard(monitor, &format!("{family} rule del pref 1000"), Change::Gone, rule, |r| r.preference == 1000);
            heard(monitor, &format!("{family} rule add iif ekm0 prohibit pref 1001"), Change::Set, rule, |r| {
                r.iif.as_deref() == Some("ekm0") && r.action == RuleAction::Prohibit && !r.is_partial
            });
            heard(monitor, &format!("{family} rule add fwmark 5 table 100 pref 1002"), Change::Set, rule, |r| {
                (r.v6, r.preference, r.is_partial) == (v6, 1002, true)
            });
            heard(monitor, &format!("{family} rule add not to {from} table 100 pref 1003"), Change::Set, rule, |r| {
                r.preference == 1003 && r.is_partial
            });
            heard(monitor, &format!("{family} rule add table 300 pref 1004"), Change::Set, rule, |r| {
                r.preference == 1004 && r.is_for_all() && r.action == RuleAction::Table(300)
            });
        }
    });
}

#[test]
fn neighbours_are_heard() {
    within("mne", || {
        let monitor = &mut Monitor::open().unwrap();
        for address in ["192.0.2.9", "2001:db8::9"] {
            let it = |n: &Neighbour| n.address == address.parse::<IpAddr>().unwrap();
            let with = |mac: &str| format!("neigh replace {address} lladdr {mac} dev ekm0 nud permanent");
            heard(monitor, &with("02:00:00:00:00:01"), Change::Set, neighbour, |n| {
                it(n) && n.is_usable() && n.lladdr == [2, 0, 0, 0, 0, 1]
            });
            heard(monitor, &with("02:00:00:00:00:02"), Change::Set, neighbour, |n| it(n) && n.lladdr[5] == 2);
            heard(monitor, &format!("neigh del {address} dev ekm0"), Change::Gone, neighbour, it);
        }
    });
}

#[test]
fn every_change_of_nftables_has_its_number() {
    within("mnf", || {
        let monitor = &mut Monitor::open().unwrap();
        let mut last = None;
        for command in ["nft add table inet ekm", "nft add chain inet ekm c", "nft delete table inet ekm"] {
            run(command);
            hear(monitor, command, |event| {
                let Event::Nftables(number) = event else { return false };
                let is_next = last.is_none_or(|last| *number == last + 1);
                last = Some(*number);
                is_next
            });
        }
    });
}

/// Adds `count` routes in one go.
fn add_routes(count: u32) {
    let mut batch = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = batch.stdin.take().unwrap();
    for n in 0..count {
        writeln!(input, "route add blackhole 198.18.{}.{}/32", n / 256, n % 256).unwrap();
    }
    drop(input);
    assert!(batch.wait().unwrap().success());
}

#[test]
fn a_burst_that_overflows_is_reported_and_what_comes_later_is_heard() {
    within("mov", || {
        let mut monitor = Monitor::with_buffer(8 << 10).unwrap();
        add_routes(1000);
        // A change of nftables is heard by a socket of its own, on which nothing was lost.
        run("nft add table inet ekm");
        let mut heard = Vec::new();
        monitor.read(|event| heard.push(event)).unwrap();
        let of_routes: Vec<&Event> = heard.iter().filter(|e| !matches!(e, Event::Nftables(_))).collect();
        assert_eq!(of_routes, [&Event::Lost], "what waited is older than what is to be read anew");
        assert!(heard.iter().any(|e| matches!(e, Event::Nftables(_))), "{heard:?}");
        let routes = route::routes(&mut Netlink::open(SockProtocol::NetlinkRoute).unwrap()).unwrap();
        assert_eq!(routes.iter().filter(|r| r.kind == RouteKind::Blackhole).count(), 1000);
        let command = "ip route add blackhole 203.0.113.0/24";
        run(command);
        hear(&mut monitor, command, |event| {
            assert_ne!(*event, Event::Lost);
            route(event).is_some_and(|(_, r)| r.to == prefix("203.0.113.0/24"))
        });
    });
}

#[test]
fn a_storm_is_heard_whole_where_there_is_room() {
    within("mst", || {
        let mut monitor = Monitor::open().unwrap();
        add_routes(1000);
        let mut heard = BTreeSet::new();
        wait("all of them are heard", || {
            monitor
                .read(|event| {
                    assert_ne!(event, Event::Lost);
                    heard.extend(route(&event).filter(|(_, r)| r.kind == RouteKind::Blackhole).map(|(_, r)| r.to));
                })
                .unwrap();
            heard.len() >= 1000
        });
    });
}

fn listed(arguments: &str) -> Vec<Value> {
    serde_json::from_str(&run(&format!("ip {arguments}"))).unwrap()
}

#[test]
fn what_is_read_is_what_ip_lists() {
    within("mrd", || {
        for (v, near) in [("-4", "192.0.2."), ("-6", "2001:db8::")] {
            run(&format!("ip {v} addr add {near}1/{} dev ekm0", if v == "-4" { 24 } else { 64 }));
            run(&format!("ip {v} route add default via {near}2 dev ekm0"));
            run(&format!("ip {v} neigh add {near}3 lladdr 02:00:00:00:00:01 dev ekm0"));
            run(&format!("ip {v} rule add from all table 100 pref 1000"));
        }
        // Until IPv6 has its own addresses and routes for good.
        let settled = || !listed("-j -6 addr show tentative").iter().any(|i| i["addr_info"][0].is_object());
        wait("duplicate address detection ends", settled);
        let netlink = &mut Netlink::open(SockProtocol::NetlinkRoute).unwrap();
        let texts = |values: &mut dyn Iterator<Item = String>| values.collect::<BTreeSet<String>>();

        let infos = listed("-j addr");
        let infos = infos.iter().flat_map(|i| i["addr_info"].as_array().unwrap().clone());
        let theirs = texts(&mut infos.map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"])));
        let addresses = route::addresses(netlink).unwrap();
        let ours = texts(&mut addresses.iter().map(|a| format!("{}/{}", a.prefix.address, a.prefix.length)));
        assert_eq!(ours, theirs);
        assert!(ours.len() >= 4, "{ours:?}");

        let whole = |p: Prefix| p.length == if p.address.is_ipv4() { 32 } else { 128 };
        let words = |r: &Route| {
            let to = match r.to {
                to if to.length == 0 => "default".to_owned(),
                to if whole(to) => to.address.to_string(),
                to => format!("{}/{}", to.address, to.length),
            };
            let table = if r.table == 255 { "local".to_owned() } else { r.table.to_string() };
            format!(
                "{to} {table} {}",
                r.hops.iter().find_map(|h| h.gateway).map_or_else(String::new, |g| g.to_string())
            )
        };
        let ours = texts(&mut route::routes(netlink).unwrap().iter().map(words));
        let routes = ["-4", "-6"].iter().flat_map(|v| listed(&format!("{v} -j route show table all")));
        let theirs = texts(&mut routes.map(|r| {
            let word = |key: &str| r[key].as_str().unwrap_or_default().to_owned();
            let table = r["table"].as_str().unwrap_or("254");
            format!("{} {table} {}", word("dst"), word("gateway"))
        }));
        assert_eq!(ours, theirs);

        let ours: Vec<u32> = route::rules(netlink).unwrap().iter().map(|r| r.preference).collect();
        let rules = ["-4", "-6"].iter().flat_map(|v| listed(&format!("{v} -j rule")));
        let theirs: Vec<u32> = rules.map(|r| r["priority"].as_u64().unwrap() as u32).collect();
        assert_eq!(ours, theirs);

        let neighbours = route::neighbours(netlink).unwrap();
        let permanent = neighbours.iter().filter(|n| n.lladdr == [2, 0, 0, 0, 0, 1]).map(|n| n.address.to_string());
        assert_eq!(permanent.collect::<BTreeSet<_>>(), ["192.0.2.3".to_owned(), "2001:db8::3".to_owned()].into());
    });
}
