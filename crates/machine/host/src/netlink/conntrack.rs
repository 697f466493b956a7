//! Connections of conntrack's, made and changed (ctnetlink, linux/netfilter/nfnetlink_conntrack.h).

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use nix::sys::socket::SockProtocol;

use super::{Netlink, push_attribute};

/// NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW
const CT_NEW: u16 = 1 << 8;
/// NLM_F_REQUEST, NLM_F_ACK; NLM_F_CREATE
const CHANGE: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400;
/// NLA_F_NESTED
const NESTED: u16 = 0x8000;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const NAT_SOURCE: u16 = 6;
const TIMEOUT: u16 = 7;
const MARK: u16 = 8;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const NAT_PORTS: u16 = 3;
const UDP: u8 = 17;
/// IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED
const ESTABLISHED_BITS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A socket of ctnetlink, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Connections(Netlink);

impl Connections {
    pub fn open() -> io::Result<Self> {
        Netlink::open(SockProtocol::NetlinkNetFilter).map(Self)
    }

    /// Makes an established UDP connection from `from` to `to` with this mark, which lives for `seconds`; with `source` that is what its source
    /// is translated to.
    ///
    /// # Errors
    /// There is one already, or no room; what the kernel refuses.
    pub fn make(
        &mut self,
        [from, to]: [SocketAddr; 2],
        source: Option<SocketAddr>,
        mark: u32,
        seconds: u32,
    ) -> io::Result<()> {
        let mut body = header(from);
        push_attribute(&mut body, TUPLE_ORIGINAL | NESTED, &tuple(from, to));
        push_attribute(&mut body, TUPLE_REPLY | NESTED, &tuple(to, from));
        push_attribute(&mut body, STATUS, &ESTABLISHED_BITS.to_be_bytes());
        push_attribute(&mut body, TIMEOUT, &seconds.to_be_bytes());
        push_attribute(&mut body, MARK, &mark.to_be_bytes());
        if let Some(source) = source {
            push_attribute(&mut body, NAT_SOURCE | NESTED, &translation(source));
        }
        self.0.ask(CT_NEW, CHANGE | CREATE, &body, |_, _| {})
    }

    /// Gives the UDP connection from `from` to `to` another mark, or another time to live in seconds.
    pub fn change(&mut self, [from, to]: [SocketAddr; 2], mark: Option<u32>, seconds: Option<u32>) -> io::Result<()> {
        let mut body = header(from);
        push_attribute(&mut body, TUPLE_ORIGINAL | NESTED, &tuple(from, to));
        for (kind, value) in [(MARK, mark), (TIMEOUT, seconds)] {
            if let Some(value) = value {
                push_attribute(&mut body, kind, &value.to_be_bytes());
            }
        }
        self.0.ask(CT_NEW, CHANGE, &body, |_, _| {})
    }
}

/// `struct nfgenmsg`
fn header(of: SocketAddr) -> Vec<u8> {
    vec![if of.is_ipv4() { AF_INET } else { AF_INET6 }, 0, 0, 0]
}

fn address(body: &mut Vec<u8>, kinds: [u16; 2], address: IpAddr) {
    match address {
        IpAddr::V4(v4) => push_attribute(body, kinds[0], &v4.octets()),
        IpAddr::V6(v6) => push_attribute(body, kinds[1], &v6.octets()),
    }
}

fn tuple(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (mut ip, mut protocol, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    address(&mut ip, [1, 3], from.ip());
    address(&mut ip, [2, 4], to.ip());
    push_attribute(&mut protocol, 1, &[UDP]);
    push_attribute(&mut protocol, 2, &from.port().to_be_bytes());
    push_attribute(&mut protocol, 3, &to.port().to_be_bytes());
    push_attribute(&mut whole, TUPLE_IP | NESTED, &ip);
    push_attribute(&mut whole, TUPLE_PROTOCOL | NESTED, &protocol);
    whole
}

fn translation(to: SocketAddr) -> Vec<u8> {
    let (mut whole, mut ports) = (Vec::new(), Vec::new());
    address(&mut whole, [1, 4], to.ip());
    address(&mut whole, [2, 5], to.ip());
    push_attribute(&mut ports, 1, &to.port().to_be_bytes());
    push_attribute(&mut ports, 2, &to.port().to_be_bytes());
    push_attribute(&mut whole, NAT_PORTS | NESTED, &ports);
    whole
}
