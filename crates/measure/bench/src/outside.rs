//! A box outside of this machine, cabled to two of its interfaces.
//!
//! Addresses are those of RFC 2544 (appendix C.2.2) and RFC 5180 as the lab's boxes have them, lent to the ports for as long as the run
//! lasts. The gateways' MAC addresses are found by the kernel, by ARP or neighbour discovery.

use std::{fmt::Write, fs, net::IpAddr, time::Duration};

use host::netdev::Netdev;
use lab::{
    LentAddress, Mac,
    boxes::{Family, Network, Target},
};
use traffic::{Allowance, Interface, TrafficError};

use crate::{
    BenchError,
    dut::{Dut, Identity, TestPort},
};

/// The time to wait for an answer: three questions by ARP; discovery may first have to wait until the port's own address is settled.
const NEIGHBOUR_TIMEOUT_V4: Duration = Duration::from_secs(3);
const NEIGHBOUR_TIMEOUT_V6: Duration = Duration::from_secs(5);

/// The addresses around a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressing {
    pub family: Family,
    /// The address of each port, and the length of its network's prefix.
    pub own: [(IpAddr, u8); 2],
    /// The box's address towards each port; none for a box that forwards by MAC address.
    pub gateways: Option<[IpAddr; 2]>,
    /// The hosts that seem to be behind each port: the frames are theirs.
    pub hosts: [Network; 2],
}

impl Addressing {
    /// A router or firewall between the two networks that the RFCs set aside.
    pub fn routed(family: Family) -> Self {
        let len = if family == Family::V4 { 16 } else { 64 };
        Self {
            family,
            own: [(family.sender(), len), (family.receiver(), len)],
            gateways: Some([family.entry(), family.exit()]),
            hosts: [family.hosts_of_sender(), family.hosts_of_receiver()],
        }
    }

    /// A bridge, a switch or a cable: frames are for the other port's MAC address.
    pub fn bridged(family: Family) -> Self {
        Self { gateways: None, ..Self::routed(family) }
    }

    /// Settings that the box needs, as commands of Linux; `IN` and `OUT` are its interfaces. None for a box that forwards by MAC address.
    pub fn set_up(&self) -> Vec<String> {
        let Some(gateways) = self.gateways else { return Vec::new() };
        let v6 = self.family == Family::V6;
        let ip = if v6 { "ip -6" } else { "ip" };
        let mut commands = Vec::new();
        for (gateway, ((_, len), name)) in gateways.into_iter().zip(self.own.into_iter().zip(["IN", "OUT"])) {
            commands.push(format!("{ip} addr add {gateway}/{len} dev {name}"));
        }
        for (hosts, (own, _)) in self.hosts.into_iter().zip(self.own) {
            commands.push(format!("{ip} route add {hosts} via {own}"));
        }
        commands.push(match v6 {
            true => "sysctl -w net.ipv6.conf.all.forwarding=1".into(),
            false => "sysctl -w net.ipv4.ip_forward=1".into(),
        });
        commands
    }
}

/// Two names from a list such as `eth2,eth3`.
///
/// # Errors
/// [`BenchError::Setting`] for less or more than two, or the same twice.
pub fn two_ports<S: AsRef<str>>(names: &[S]) -> Result<[String; 2], BenchError> {
    let names: Vec<&str> = names.iter().map(|n| n.as_ref().trim()).filter(|n| !n.is_empty()).collect();
    let wanted = "name the two interfaces that are cabled to the box, as in --ports eth2,eth3";
    match names[..] {
        [a, b] if a == b => Err(BenchError::Setting(format!(
            "{a} is named twice: frames go in at one port and come out at another; {wanted}"
        ))),
        [a, b] => Ok([a.to_owned(), b.to_owned()]),
        [] => Err(BenchError::Setting(format!("no port is named: {wanted}"))),
        [a] => Err(BenchError::Setting(format!("{a} alone is named, and a box has two sides: {wanted}"))),
        _ => Err(BenchError::Setting(format!("{} ports are named: {wanted}", names.len()))),
    }
}

/// The box between `ports`, which routes, at the RFCs' addresses.
pub fn connect(ports: [&str; 2], family: Family) -> Result<Dut, BenchError> {
    connect_with(ports, &Addressing::routed(family))
}

/// The box between `ports`. Checks them, lends them their addresses and finds the gateways.
///
/// # Errors
/// [`BenchError::Setting`] for the same port twice; a port that is missing, down, without carrier, in use for this machine's own traffic
/// or unable to send what programs redirect to it; a gateway that does not answer, with what the box needs to be message.
pub fn connect_with(ports: [&str; 2], addressing: &Addressing) -> Result<Dut, BenchError> {
    let seen = look_at(ports, addressing.family)?;
    let mut lent = Vec::new();
    if addressing.gateways.is_some() {
        for (port, (address, len)) in ports.into_iter().zip(addressing.own) {
            lent.extend(LentAddress::lend(port, address, len)?);
        }
    }
    let next_hops = match addressing.gateways {
        Some(gateways) => [ask(&seen[0], gateways[0], addressing)?, ask(&seen[1], gateways[1], addressing)?],
        None => [seen[1].mac, seen[0].mac],
    };
    let port = |i: usize| {
        let target = Target {
            mac: next_hops[i],
            source_mac: seen[i].mac,
            sources: addressing.hosts[i],
            destinations: addressing.hosts[1 - i],
        };
        TestPort::here(ports[i], seen[i].mac, target)
    };
    let identity = identity(ports, addressing, next_hops);
    Ok(Dut::outside([port(0), port(1)], identity, Box::new(lent)))
}

/// True if `ports` can be used at all. Nothing is changed, and nobody is asked.
///
/// # Errors
/// [`BenchError::Setting`] for the same port twice; a port that is missing, down, without carrier, in use for this machine's own traffic
/// or unable to send what programs redirect to it.
pub fn check_ports(ports: [&str; 2], family: Family) -> Result<(), BenchError> {
    look_at(ports, family).map(drop)
}

/// True if `ports` are there, be they up or not: a plan names no interfaces that do not exist.
///
/// # Errors
/// [`BenchError::Setting`] for the same port twice; a port that is missing.
pub fn are_there(ports: [&str; 2]) -> Result<(), BenchError> {
    two_ports(&ports)?;
    ports.into_iter().try_for_each(|port| match Interface::look(port) {
        Err(missing @ TrafficError::NoInterface(_)) => Err(missing.into()),
        _ => Ok(()),
    })
}

fn look_at(ports: [&str; 2], family: Family) -> Result<[Interface; 2], BenchError> {
    two_ports(&ports)?;
    let seen = [look(ports[0])?, look(ports[1])?];
    for port in &seen {
        check(port, family)?;
    }
    Ok(seen)
}

fn look(port: &str) -> Result<Interface, BenchError> {
    let interface = Interface::look(port)?;
    Allowance::default().check_interface(&interface)?;
    Ok(interface)
}

fn check(port: &Interface, family: Family) -> Result<(), BenchError> {
    let name = &port.name;
    let ability = Netdev::open().map_err(|e| BenchError::Machine(e.to_string()))?;
    // An old kernel does not tell: then sending itself will.
    let ability = ability.and_then(|mut netdev| netdev.xdp_ability(port.index));
    if ability.is_some_and(|a| !a.transmit) {
        return Err(BenchError::Machine(format!(
            "{name} takes no frames that programs redirect to it: its driver has no ndo_xdp_xmit, or its other end (a veth) runs no \
             NAPI (`ethtool -K PEER gro off; ethtool -K PEER gro on` there, while it is up); take another port"
        )));
    }
    if family == Family::V6 {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        let off = fs::read_to_string(path).map_or(true, |text| text.trim() != "0");
        if off {
            return Err(BenchError::Machine(format!(
                "IPv6 is off on {name}: `sysctl -w net.ipv6.conf.{name}.disable_ipv6=0`"
            )));
        }
    }
    Ok(())
}

fn ask(port: &Interface, gateway: IpAddr, addressing: &Addressing) -> Result<Mac, BenchError> {
    let (how, patience) = match addressing.family {
        Family::V4 => ("ARP", NEIGHBOUR_TIMEOUT_V4),
        Family::V6 => ("neighbour discovery", NEIGHBOUR_TIMEOUT_V6),
    };
    if let Some(mac) = lab::resolve(&port.name, gateway, patience)? {
        return Ok(mac);
    }
    let mut text = format!(
        "no answer by {how} from {gateway} on {}: is the box up, cabled to this port, and has it that address? As commands of Linux, with \
         IN its interface towards the first port and OUT towards the second, it needs:",
        port.name
    );
    for command in addressing.set_up() {
        let _ = write!(text, "\n  {command}");
    }
    Err(BenchError::Machine(text))
}

fn identity(ports: [&str; 2], addressing: &Addressing, next_hops: [Mac; 2]) -> Identity {
    let mut settings = Vec::new();
    for i in 0..2 {
        let (own, len) = addressing.own[i];
        settings.push(match addressing.gateways {
            Some(gateways) => format!("{}: {own}/{len}, gateway {} is {}", ports[i], gateways[i], next_hops[i]),
            None => format!("{}: frames for {}", ports[i], next_hops[i]),
        });
        settings.push(format!("{}: hosts {}", ports[i], addressing.hosts[i]));
    }
    let by = if addressing.gateways.is_some() { "IP address" } else { "MAC address" };
    Identity {
        key: "ports".into(),
        name: format!("box at {} and {}", ports[0], ports[1]),
        what: format!("A box outside of this machine, cabled to {} and {}, that forwards by {by}.", ports[0], ports[1]),
        settings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_ports_are_wanted() {
        let message = |names: &[&str]| two_ports(names).unwrap_err().to_string();
        assert!(message(&["eth2"]).starts_with("eth2 alone is named"), "{}", message(&["eth2"]));
        assert!(message(&["eth2", ""]).starts_with("eth2 alone"));
        assert!(message(&["eth2", "eth2"]).contains("twice") && message(&[]).contains("no port"));
        assert!(message(&["a", "b", "c"]).starts_with("3 ports"));
        assert_eq!(two_ports(&["eth2", " eth3"]).unwrap(), ["eth2", "eth3"]);
    }

    #[test]
    fn the_box_is_given_what_it_needs() {
        assert_eq!(
            Addressing::routed(Family::V4).set_up(),
            [
                "ip addr add 198.18.0.1/16 dev IN",
                "ip addr add 198.19.0.1/16 dev OUT",
                "ip route add 198.18.128.0/17 via 198.18.0.2",
                "ip route add 198.19.128.0/17 via 198.19.0.2",
                "sysctl -w net.ipv4.ip_forward=1",
            ]
        );
        assert!(
            Addressing::routed(Family::V6).set_up()[2]
                .starts_with("ip -6 route add 2001:2:0:100::/56 via 2001:2:0:1::2")
        );
        assert!(Addressing::bridged(Family::V4).set_up().is_empty());
    }

    #[test]
    fn a_port_that_is_not_there_is_named() {
        let error = connect(["ek-none0", "ek-none1"], Family::V4).unwrap_err().to_string();
        assert!(error.contains("no interface `ek-none0`"), "{error}");
    }
}
