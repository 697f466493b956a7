//! Two hosts with a router between them, its rules of nftables, and what the hosts send each other.

use std::{collections::BTreeMap, env, net::Ipv4Addr, thread, time::Duration};

use testbed::{Dice, RouterBed, counted, write_pcap};

use crate::flows::{ACK, FIN, Flow, PUSH, RST, SYN, Shape, in_two};

/// Its own addresses, and the one that it translates sources to.
pub(crate) const ROUTERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 18, 2, 1), Ipv4Addr::new(198, 18, 2, 77)];
/// Of the way to `b`.
pub(crate) const MTU: usize = 1400;

/// Sources are translated by the router's own address, or to another port of another one; destinations are those of services behind it.
pub(crate) const RULES: &str = "
table inet nat {
  chain pre {
    type nat hook prerouting priority dstnat;
    meta l4proto { tcp, udp } ip daddr 198.18.1.1 th dport 8080 dnat ip to 198.18.2.2:80
    meta l4proto { tcp, udp } ip daddr 198.18.1.1 th dport 8081 dnat ip to 198.18.2.2:81
    meta l4proto { tcp, udp } ip6 daddr 2001:2:0:1::1 th dport 8080 dnat ip6 to [2001:2:0:2::2]:80
    meta l4proto { tcp, udp } ip6 daddr 2001:2:0:1::1 th dport 8081 dnat ip6 to [2001:2:0:2::2]:81
  }
  chain post {
    type nat hook postrouting priority srcnat;
    oifname OUT meta l4proto { tcp, udp } th sport 20000-29999 masquerade
    oifname OUT meta l4proto tcp th sport 30001 snat ip to 198.18.2.77:5555
    oifname OUT meta l4proto udp th sport 30001 snat ip to 198.18.2.77:5555
    oifname OUT meta l4proto { tcp, udp } th sport 30002 snat ip6 to [2001:2:0:2::77]:5556
  }
}
table inet filter {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname IN ct state new accept
  }
}
table inet helpers {
  ct helper ftp { type \"ftp\" protocol tcp; }
  chain pre {
    type filter hook prerouting priority filter;
    tcp dport 7021 ct helper set \"ftp\"
  }
}
table inet marks {
  chain forward {
    type filter hook forward priority filter + 10; policy accept;
    meta l4proto { tcp, udp } th sport 7999 accept
    meta l4proto { tcp, udp } th dport 7999 accept
    ct state established ct mark set ct mark | 0x10000000
  }
}
";

/// `a` - `r` - `b`.
pub(crate) fn world(tag: &str) -> Option<RouterBed> {
    let mut bed = RouterBed::new(tag, &["a", "b"])?;
    for (side, neighbour) in ["a", "b"].into_iter().enumerate() {
        bed.join(neighbour, side as u8 + 1, macs(side), true);
    }
    bed.near[1].link_set(&format!("mtu {MTU}"));
    bed.forward(&[""; 0]);
    bed.router.nft(&RULES.replace("IN", bed.near[0].interface()).replace("OUT", bed.near[1].interface()));
    bed.router.set("net.netfilter.nf_conntrack_tcp_be_liberal", "1");
    Some(bed)
}

/// Untranslated, source, source and port, destination and port, both; one that no rule marks, and one that a helper follows.
pub(crate) fn flows() -> Vec<Flow> {
    let mut all = Vec::new();
    for tcp in [true, false] {
        let mut add = |out: [&str; 2], back: [&str; 2]| all.push(Flow::new(tcp, out, back));
        add(["198.18.1.2:10001", "198.18.2.2:7001"], ["198.18.2.2:7001", "198.18.1.2:10001"]);
        add(["198.18.1.2:20001", "198.18.2.2:7002"], ["198.18.2.2:7002", "198.18.2.1:20001"]);
        add(["198.18.1.2:30001", "198.18.2.2:7003"], ["198.18.2.2:7003", "198.18.2.77:5555"]);
        add(["198.18.1.2:10002", "198.18.1.1:8080"], ["198.18.2.2:80", "198.18.1.2:10002"]);
        add(["198.18.1.2:20002", "198.18.1.1:8081"], ["198.18.2.2:81", "198.18.2.1:20002"]);
        add(["198.18.1.2:20003", "198.18.2.2:7999"], ["198.18.2.2:7999", "198.18.2.1:20003"]);
        add(["198.18.1.2:10021", "198.18.2.2:7021"], ["198.18.2.2:7021", "198.18.1.2:10021"]);
        let (a, b) = ("[2001:2:0:1::2]", "[2001:2:0:2::2]");
        let mut add6 = |from: &str, to: &str, server: &str, seen: &str| {
            add([&format!("{a}{from}"), to], [&format!("{b}{server}"), seen]);
        };
        add6(":10001", "[2001:2:0:2::2]:7001", ":7001", "[2001:2:0:1::2]:10001");
        add6(":20001", "[2001:2:0:2::2]:7002", ":7002", "[2001:2:0:2::1]:20001");
        add6(":30002", "[2001:2:0:2::2]:7003", ":7003", "[2001:2:0:2::77]:5556");
        add6(":10002", "[2001:2:0:1::1]:8080", ":80", "[2001:2:0:1::2]:10002");
        add6(":20002", "[2001:2:0:1::1]:8081", ":81", "[2001:2:0:2::1]:20002");
    }
    all
}

/// The same and so many others, of clients' ports that the router leaves as they are: more than are remembered, where they are many.
pub(crate) fn many_flows(others: u16) -> Vec<Flow> {
    let mut all = flows();
    for n in 0..others {
        let (tcp, plain, masqueraded) = (n % 2 == 0, 11_000 + n / 8, 21_000 + n / 8);
        let (a, b) = ("[2001:2:0:1::2]", "[2001:2:0:2::2]");
        let [out, back] = match n / 2 % 4 {
            0 => [
                [format!("198.18.1.2:{plain}"), "198.18.2.2:7001".to_owned()],
                ["198.18.2.2:7001".to_owned(), format!("198.18.1.2:{plain}")],
            ],
            1 => [
                [format!("198.18.1.2:{masqueraded}"), "198.18.1.1:8081".to_owned()],
                ["198.18.2.2:81".to_owned(), format!("198.18.2.1:{masqueraded}")],
            ],
            2 => [
                [format!("{a}:{masqueraded}"), format!("{b}:7002")],
                [format!("{b}:7002"), format!("[2001:2:0:2::1]:{masqueraded}")],
            ],
            _ => [
                [format!("{a}:{plain}"), "[2001:2:0:1::1]:8080".to_owned()],
                [format!("{b}:80"), format!("{a}:{plain}")],
            ],
        };
        all.push(Flow::new(tcp, out.each_ref().map(String::as_str), back.each_ref().map(String::as_str)));
    }
    all
}

/// A number that the environment may set.
pub(crate) fn number(name: &str, else_this: u64) -> u64 {
    env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(else_this)
}

/// A frame of the client goes to the router's first port, one of the server to its second.
pub(crate) fn macs(side: usize) -> [[u8; 6]; 2] {
    [1, 2].map(|end| [2, 0, 0, 0, side as u8 + 1, end])
}

pub(crate) fn send(world: &RouterBed, side: usize, name: &str, frames: &[Vec<u8>]) {
    let path = world.bed.path(&format!("{name}.pcap"));
    write_pcap(&path, frames);
    world.far[side].replay(&path, 20_000);
}

/// Has every connection be an established one: handshakes, and UDP in both directions for more than two seconds.
pub(crate) fn establish(world: &RouterBed, flows: &mut [Flow]) {
    let mut step = |name: &str, side: usize, tcp: Option<u8>, udp: bool| {
        let of = flows.iter_mut().filter(|flow| if flow.tcp { tcp.is_some() } else { udp });
        let packet = |flow: &mut Flow| {
            flow.packet(side, tcp.unwrap_or(0), if flow.tcp { b"" } else { b"x" }, &Shape::plain(macs(side)))
        };
        let all: Vec<Vec<u8>> = of.map(packet).collect();
        send(world, side, name, &all);
    };
    step("syn", 0, Some(SYN), true);
    step("synack", 1, Some(SYN | ACK), true);
    step("ack", 0, Some(ACK), true);
    thread::sleep(Duration::from_millis(2300));
    step("again", 0, None, true);
    step("back", 1, None, true);
}

/// Packets of both sides, near all limits.
pub(crate) fn traffic(flows: &mut [Flow], count: u64) -> [Vec<Vec<u8>>; 2] {
    let mut dice = Dice::new(number("EK_ORACLE_SEED", 7));
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..count {
        let (side, at) = (dice.below(2) as usize, dice.below(flows.len() as u64) as usize);
        let flow = &mut flows[at];
        let shape = Shape::random(macs(side), &mut dice);
        let header = if flow.out[0].is_ipv4() { 20 } else { 40 } + if flow.tcp { 20 } else { 8 };
        let len = match dice.below(4) {
            // What is larger than the link takes never comes from `b`.
            0 if side == 1 => MTU - header - 70 + dice.below(36) as usize,
            0 => MTU - header - 20 + dice.below(41) as usize,
            1 => dice.below(600) as usize,
            _ => dice.below(40) as usize,
        };
        let mut payload: Vec<u8> = (0..len).map(|_| dice.draw() as u8).collect();
        if dice.one_in(20) {
            flow.sum_up_to_zero(side, &mut payload);
        }
        let frame = flow.packet(side, dice.of(&[ACK, ACK | PUSH]), &payload, &shape);
        if dice.one_in(25) {
            // The receiver complains of it: the message holds what he received, which is the inverse of what he sends.
            let [from, to] = if side == 0 { flow.back } else { flow.out };
            let mut seen = Flow { out: [to, from], ..*flow };
            let about = seen.packet(0, ACK, b"12345678", &Shape::plain(macs(0)));
            all[1 - side].push(Shape::plain(macs(1 - side)).error(from.ip(), to.ip(), &about));
        }
        if dice.one_in(25) && !shape.options {
            all[side].extend(in_two(&frame));
        } else {
            all[side].push(frame);
        }
        if dice.one_in(50) {
            // Nobody tracks what it carries.
            let [from, to] = ["198.18.1.2", "198.18.2.2"].map(|text| text.parse().unwrap());
            all[0].push(Shape::random(macs(0), &mut dice).frame(from, to, dice.of(&[47, 50, 99]), b"something"));
        }
    }
    // Of no connection at all.
    for n in 0..20u16 {
        let to = format!("198.18.2.2:{}", 9000 + n);
        let mut flow = Flow::new(n % 2 == 0, ["198.18.1.2:10009", &to], [&to, "198.18.1.2:10009"]);
        for side in [1, 0] {
            all[side].push(flow.packet(side, ACK, b"stray", &Shape::plain(macs(side))));
        }
    }
    for flow in flows.iter_mut().filter(|flow| flow.tcp) {
        all[0].push(flow.packet(
            0,
            if flow.out[0].port() < 20000 { RST } else { FIN | ACK },
            b"",
            &Shape::plain(macs(0)),
        ));
    }
    all
}

/// What `a` and `b` received of it, by frame.
pub(crate) fn exchange(world: &RouterBed) -> [BTreeMap<Vec<u8>, i64>; 2] {
    let count = number("EK_ORACLE_FRAMES", 8000);
    // At the most as many as the ports of a client's leave room for.
    let mut flows = many_flows((count / 200).min(20_000) as u16);
    let came = world.received_while(|| {
        establish(world, &mut flows);
        let [out, back] = traffic(&mut flows, count);
        send(world, 1, "server", &back);
        send(world, 0, "client", &out);
    });
    [0, 1].map(|at| counted(&came[at], &ROUTERS))
}
