//! Sockets with what they lost: `sock_diag` over netlink for TCP, UDP and AF_PACKET, `/proc/net/udp` and `/proc/net/raw`
//! where that is refused.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use nix::sys::socket::SockProtocol;

use super::unread::{SocketKind, Source, Unread};
use crate::{
    netlink::{DUMP, Netlink, ONE, attributes, u32_at},
    root::Root,
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_SKMEMINFO: u16 = 7;
const PACKET_DIAG_INFO: u16 = 0;
const PACKET_DIAG_RX_RING: u16 = 2;
const PACKET_DIAG_FANOUT: u16 = 4;
const PACKET_DIAG_MEMINFO: u16 = 6;
/// PACKET_SHOW_INFO | _RING_CFG | _FANOUT | _MEMINFO
const PACKET_SHOW: u32 = 1 | 4 | 8 | 16;
/// The words of SK_MEMINFO that are looked at (include/uapi/linux/sock_diag.h).
const RMEM_ALLOC: usize = 0;
const RCVBUF: usize = 1;
const DROPS: usize = 8;
/// `struct inet_diag_msg`: family, state, timer, retrans, addresses, expires, queues, uid, inode.
const INET_DIAG_MSG_BYTES: usize = 72;
/// `struct packet_diag_msg`: family, type, protocol, inode, cookie.
const PACKET_DIAG_MSG_BYTES: usize = 16;
const TCP_LISTEN: u8 = 10;
/// All states but TIME_WAIT and NEW_SYN_RECV, which are no sockets with queues.
const TCP_STATES: u32 = 0xfff & !(1 << 6);
/// With more TCP sockets than this only those that listen are read: a dump of a million takes a second.
const TCP_SOCKETS_MAX: u64 = 20_000;

/// The process that holds a socket: the one with the lowest id, if several do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub pid: u32,
    /// Name of the process, at most 15 characters.
    pub comm: String,
}

/// Settings of an AF_PACKET socket alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PacketTap {
    /// The ethertype it listens to; 3 (ETH_P_ALL) for everything, 0 for nothing.
    pub ethertype: u16,
    /// The version of its ring, counted from 0 (TPACKET_V3 is 2); none when it has no receive ring.
    pub ring_version: Option<u32>,
    /// The bytes of its receive ring.
    pub ring_bytes: u64,
    /// The number of its fanout group.
    pub fanout: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    pub kind: SocketKind,
    /// Local address; none for AF_PACKET.
    pub local: Option<SocketAddr>,
    /// The other end, where it is connected.
    pub remote: Option<SocketAddr>,
    /// The interface it is bound to; 0 for all.
    pub ifindex: u32,
    /// Inode of the socket; 0 for a connection that no process holds.
    pub inode: u32,
    pub uid: u32,
    /// Bytes waiting to be read; for a listener the connections that wait to be accepted.
    pub receive_queue: u32,
    /// For a listener the most connections that may wait; for others the bytes waiting to be sent.
    pub send_queue: u32,
    /// Bytes of memory that received packets occupy now.
    pub receive_memory: u32,
    /// Bytes that they may occupy (SO_RCVBUF as the kernel counts it).
    pub receive_buffer: u32,
    /// Packets it lost, by `sk_drops` (32 bits wide in the kernel). A ring of AF_PACKET does not count here.
    pub drops: u64,
    /// The process that holds it; looked up only for sockets that lost something, servers (TCP that listens, UDP without
    /// another end) and packet taps.
    pub owner: Option<Owner>,
    /// Settings of AF_PACKET alone.
    pub packet: Option<PacketTap>,
}

impl Socket {
    fn new(kind: SocketKind) -> Self {
        Self {
            kind,
            local: None,
            remote: None,
            ifindex: 0,
            inode: 0,
            uid: 0,
            receive_queue: 0,
            send_queue: 0,
            receive_memory: 0,
            receive_buffer: 0,
            drops: 0,
            owner: None,
            packet: None,
        }
    }

    /// True if its process is worth the search.
    pub(super) fn matters(&self) -> bool {
        // UDP with another end is a client's, made and closed at every question to a name server.
        let server = self.kind == SocketKind::Udp && self.remote.is_none();
        self.drops > 0 || server || matches!(self.kind, SocketKind::TcpListener | SocketKind::Packet)
    }

    /// The losses between `earlier` and now; the rest is that of now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let lost = (self.drops as u32).wrapping_sub(earlier.drops as u32);
        Self { drops: lost.into(), ..self.clone() }
    }
}

/// Identity of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SocketKey {
    /// The socket's cookie: the number that BPF programs see too.
    Cookie(u64),
    /// The inode of a socket that only the text files told of.
    Inode(u32),
}

/// The sockets by what tells them apart.
pub type Sockets = BTreeMap<SocketKey, Socket>;

/// Asks for the sockets of the namespace in which `diag` was opened. What is refused is said in `unread`.
pub(super) fn read(diag: &mut Netlink, root: &Root, unread: &mut Unread) -> Sockets {
    let mut all = Sockets::new();
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        let (name, states) = match tcp_sockets(root, family) > TCP_SOCKETS_MAX {
            true => ("listening TCP", 1 << TCP_LISTEN),
            false => ("TCP", TCP_STATES),
        };
        if states != TCP_STATES {
            unread.miss(
                Source::Sockets(SocketKind::Tcp),
                format!("more than {TCP_SOCKETS_MAX} TCP sockets: only those that listen were read"),
            );
        }
        for (protocol, states, name) in [(libc::IPPROTO_TCP, states, name), (libc::IPPROTO_UDP, u32::MAX, "UDP")] {
            if let Err(e) = inet(diag, family, protocol as u8, states, &mut all) {
                let kinds: &[SocketKind] = match protocol {
                    libc::IPPROTO_TCP => &[SocketKind::Tcp, SocketKind::TcpListener],
                    _ => &[SocketKind::Udp],
                };
                unread.missed.extend(kinds.iter().map(|kind| Source::Sockets(*kind)));
                unread.notes.push(format!("{name} sockets cannot be listed (sock_diag): {e}"));
            }
        }
    }
    if let Err(e) = packet(diag, &mut all) {
        unread.miss(
            Source::Sockets(SocketKind::Packet),
            format!("packet taps cannot be listed (packet_diag; CONFIG_PACKET_DIAG): {e}"),
        );
    }
    for (file, v6) in [("raw", false), ("raw6", true)] {
        all.extend(table(root, file, SocketKind::Raw, v6));
    }
    all
}

/// The TCP sockets that listen: `receive_queue` connections wait to be taken up, `send_queue` may.
pub(crate) fn listeners() -> io::Result<Vec<Socket>> {
    let mut diag = Netlink::open(SockProtocol::NetlinkSockDiag)?;
    let mut all = Sockets::new();
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        inet(&mut diag, family, libc::IPPROTO_TCP as u8, 1 << TCP_LISTEN, &mut all)?;
    }
    Ok(all.into_values().collect())
}

/// The TCP sockets that listen in the caller's network namespace: their addresses, by inode.
///
/// # Errors
/// The kernel does not list them (sock_diag; CONFIG_INET_DIAG).
pub fn listening() -> io::Result<BTreeMap<u64, SocketAddr>> {
    Ok(listeners()?.iter().filter_map(|socket| Some((u64::from(socket.inode), socket.local?))).collect())
}

/// The kernel's number (SO_COOKIE) of the TCP socket that has these two addresses as its own and its peer's; none: there is none that is connected.
///
/// # Errors
/// The kernel does not tell (sock_diag; CONFIG_INET_DIAG).
pub fn tcp_cookie(diag: &mut Netlink, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u64>> {
    const TCP_ESTABLISHED: u8 = 1;
    const COOKIE_AT: usize = 44;
    tcp_socket(diag, local, remote, |state, payload| {
        let [low, high] = [u32_at(payload, COOKIE_AT)?, u32_at(payload, COOKIE_AT + 4)?];
        (state == TCP_ESTABLISHED).then_some(u64::from(high) << 32 | u64::from(low))
    })
}

/// The inode of the socket that the kernel gives a new connection from `remote` to `local`; none: nobody listens there. It costs the same however many
/// sockets listen elsewhere.
pub fn listener_for(diag: &mut Netlink, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u64>> {
    const TCP_LISTEN: u8 = 10;
    const INODE_AT: usize = 68;
    let inode = |state, payload: &[u8]| u32_at(payload, INODE_AT).filter(|_| state == TCP_LISTEN).map(u64::from);
    tcp_socket(diag, local, remote, inode)
}

/// The result of `read` for the state and the inet_diag_msg of the TCP socket that a segment from `remote` to `local` reaches.
fn tcp_socket(
    diag: &mut Netlink,
    local: SocketAddr,
    remote: SocketAddr,
    read: impl Fn(u8, &[u8]) -> Option<u64>,
) -> io::Result<Option<u64>> {
    let bytes = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => [v4.octets(), [0; 4], [0; 4], [0; 4]].concat(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states; struct inet_diag_sockid: ports, addresses, interface, no cookie.
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend(TCP_STATES.to_ne_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(remote.port().to_be_bytes());
    body.extend(bytes(local.ip()));
    body.extend(bytes(remote.ip()));
    body.extend(0_u32.to_ne_bytes());
    body.extend([0xff; 8]);
    let mut found = None;
    let done = diag.ask(SOCK_DIAG_BY_FAMILY, ONE, &body, |kind, payload| {
        if kind == SOCK_DIAG_BY_FAMILY {
            found = payload.get(1).and_then(|&state| read(state, payload));
        }
    });
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(|()| found),
    }
}

/// The sockets that text files alone tell of: UDP and raw.
pub(super) fn read_files(root: &Root) -> Sockets {
    let files = [
        ("udp", SocketKind::Udp, false),
        ("udp6", SocketKind::Udp, true),
        ("raw", SocketKind::Raw, false),
        ("raw6", SocketKind::Raw, true),
    ];
    files.into_iter().flat_map(|(file, kind, v6)| table(root, file, kind, v6)).collect()
}

/// The number of TCP sockets, by /proc/net/sockstat; 0 when it does not say.
fn tcp_sockets(root: &Root, family: u8) -> u64 {
    let file = if family == libc::AF_INET as u8 { "proc/net/sockstat" } else { "proc/net/sockstat6" };
    let text = root.read(file).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("TCP"));
    line.and_then(|l| l.split_ascii_whitespace().nth(2)).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn inet(diag: &mut Netlink, family: u8, protocol: u8, states: u32, all: &mut Sockets) -> io::Result<()> {
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states, an address that is not looked at.
    let mut body = [0; 56];
    body[..4].copy_from_slice(&[family, protocol, 1 << (INET_DIAG_SKMEMINFO - 1), 0]);
    body[4..8].copy_from_slice(&states.to_ne_bytes());
    let udp = i32::from(protocol) == libc::IPPROTO_UDP;
    diag.ask(SOCK_DIAG_BY_FAMILY, DUMP, &body, |kind, payload| {
        if kind == SOCK_DIAG_BY_FAMILY {
            all.extend(parse_inet(payload, udp));
        }
    })
}

fn parse_inet(payload: &[u8], udp: bool) -> Option<(SocketKey, Socket)> {
    let header = payload.get(..INET_DIAG_MSG_BYTES)?;
    let (family, state) = (header[0], header[1]);
    let kind = match (udp, state) {
        (true, _) => SocketKind::Udp,
        (false, TCP_LISTEN) => SocketKind::TcpListener,
        (false, _) => SocketKind::Tcp,
    };
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let address = |at: usize| {
        let bytes: [u8; 16] = header[at..at + 16].try_into().expect("sixteen bytes");
        match i32::from(family) {
            libc::AF_INET => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
            _ => IpAddr::V6(Ipv6Addr::from(bytes)),
        }
    };
    let word = |at: usize| u32_at(header, at).unwrap_or(0);
    let mut socket = Socket::new(kind);
    socket.local = Some(SocketAddr::new(address(8), port(4)));
    socket.remote = Some(SocketAddr::new(address(24), port(6))).filter(|a| a.port() != 0);
    socket.ifindex = word(40);
    socket.receive_queue = word(56);
    socket.send_queue = word(60);
    socket.uid = word(64);
    socket.inode = word(68);
    for attribute in attributes(&payload[INET_DIAG_MSG_BYTES..]) {
        if attribute.kind() == INET_DIAG_SKMEMINFO {
            memory(attribute.value(), &mut socket);
        }
    }
    Some((SocketKey::Cookie(u64::from(word(44)) | u64::from(word(48)) << 32), socket))
}

fn packet(diag: &mut Netlink, all: &mut Sockets) -> io::Result<()> {
    // struct packet_diag_req: family, protocol, padding, inode, what to show, cookie.
    let mut body = [0; 20];
    body[0] = libc::AF_PACKET as u8;
    body[8..12].copy_from_slice(&PACKET_SHOW.to_ne_bytes());
    diag.ask(SOCK_DIAG_BY_FAMILY, DUMP, &body, |kind, payload| {
        if kind == SOCK_DIAG_BY_FAMILY {
            all.extend(parse_packet(payload));
        }
    })
}

fn parse_packet(payload: &[u8]) -> Option<(SocketKey, Socket)> {
    let header = payload.get(..PACKET_DIAG_MSG_BYTES)?;
    let word = |at: usize| u32_at(header, at).unwrap_or(0);
    let mut socket = Socket::new(SocketKind::Packet);
    socket.inode = word(4);
    let mut tap = PacketTap { ethertype: u16::from_ne_bytes([header[2], header[3]]), ..PacketTap::default() };
    let mut version = 0;
    for attribute in attributes(&payload[PACKET_DIAG_MSG_BYTES..]) {
        let value = attribute.value();
        let word = |at: usize| u32_at(value, at).unwrap_or(0);
        match attribute.kind() {
            PACKET_DIAG_INFO => {
                socket.ifindex = word(0);
                version = word(4);
            }
            // struct packet_diag_ring: block size, blocks, frame size, frames, …
            PACKET_DIAG_RX_RING => {
                tap.ring_bytes = u64::from(word(0)) * u64::from(word(4));
                tap.ring_version = (tap.ring_bytes > 0).then_some(0);
            }
            PACKET_DIAG_FANOUT => tap.fanout = Some(word(0) as u16),
            PACKET_DIAG_MEMINFO => memory(value, &mut socket),
            _ => {}
        }
    }
    tap.ring_version = tap.ring_version.map(|_| version);
    socket.packet = Some(tap);
    Some((SocketKey::Cookie(u64::from(word(8)) | u64::from(word(12)) << 32), socket))
}

fn memory(value: &[u8], socket: &mut Socket) {
    let word = |index: usize| u32_at(value, index * 4).unwrap_or(0);
    socket.receive_memory = word(RMEM_ALLOC);
    socket.receive_buffer = word(RCVBUF);
    socket.drops = word(DROPS).into();
    if socket.kind == SocketKind::Packet {
        socket.receive_queue = word(RMEM_ALLOC);
    }
}

/// `/proc/net/udp` and its like, by inode.
fn table(root: &Root, file: &str, kind: SocketKind, v6: bool) -> Vec<(SocketKey, Socket)> {
    let text = root.read(&format!("proc/net/{file}")).unwrap_or_default();
    text.lines().skip(1).filter_map(|line| table_line(line, kind, v6)).collect()
}

fn table_line(line: &str, kind: SocketKind, v6: bool) -> Option<(SocketKey, Socket)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let mut socket = Socket::new(kind);
    socket.local = Some(hex_address(words.get(1)?, v6)?);
    socket.remote = hex_address(words.get(2)?, v6).filter(|a| a.port() != 0);
    let (send, receive) = words.get(4)?.split_once(':')?;
    socket.send_queue = u32::from_str_radix(send, 16).ok()?;
    socket.receive_queue = u32::from_str_radix(receive, 16).ok()?;
    socket.uid = words.get(7)?.parse().ok()?;
    socket.inode = words.get(9)?.parse().ok()?;
    socket.drops = words.get(12)?.parse().ok()?;
    Some((SocketKey::Inode(socket.inode), socket))
}

/// `0100007F:0035`: 32-bit words in the machine's own order.
fn hex_address(text: &str, v6: bool) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = if v6 {
        let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
        IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
    } else {
        IpAddr::V4(Ipv4Addr::from(word(0)?))
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::push_attribute;

    fn memory_words(rmem: u32, rcvbuf: u32, drops: u32) -> Vec<u8> {
        [rmem, rcvbuf, 0, 0, 0, 0, 0, 0, drops].map(u32::to_ne_bytes).concat()
    }

    #[test]
    fn a_udp_socket_of_the_kernel() {
        let mut message = vec![0; INET_DIAG_MSG_BYTES];
        message[0] = libc::AF_INET as u8;
        message[4..6].copy_from_slice(&9000u16.to_be_bytes());
        message[8..12].copy_from_slice(&[198, 18, 0, 2]);
        message[40..44].copy_from_slice(&7u32.to_ne_bytes());
        message[44..52].copy_from_slice(&0x1_0000_0002u64.to_ne_bytes());
        message[56..60].copy_from_slice(&4096u32.to_ne_bytes());
        message[68..72].copy_from_slice(&1234u32.to_ne_bytes());
        push_attribute(&mut message, INET_DIAG_SKMEMINFO, &memory_words(8192, 212_992, 55));
        let (cookie, mut socket) = parse_inet(&message, true).expect("a socket");
        assert_eq!(cookie, SocketKey::Cookie(0x1_0000_0002));
        assert_eq!(socket.local, Some("198.18.0.2:9000".parse().unwrap()));
        assert_eq!((socket.kind, socket.remote, socket.ifindex, socket.inode), (SocketKind::Udp, None, 7, 1234));
        assert_eq!((socket.receive_queue, socket.receive_buffer, socket.drops), (4096, 212_992, 55));
        socket.drops = 0;
        assert!(socket.matters(), "it may be a server");
        message[6..8].copy_from_slice(&53u16.to_be_bytes());
        message.truncate(INET_DIAG_MSG_BYTES);
        assert!(!parse_inet(&message, true).expect("a socket").1.matters(), "a client of another server");
        message[1] = TCP_LISTEN;
        assert_eq!(parse_inet(&message, false).expect("a socket").1.kind, SocketKind::TcpListener);
    }

    #[test]
    fn a_packet_tap_of_the_kernel() {
        let mut message = vec![0; PACKET_DIAG_MSG_BYTES];
        message[2..4].copy_from_slice(&3u16.to_ne_bytes());
        message[4..8].copy_from_slice(&99u32.to_ne_bytes());
        message[8..16].copy_from_slice(&5u64.to_ne_bytes());
        push_attribute(&mut message, PACKET_DIAG_INFO, &[12u32, 2, 0, 0, 0, 0].map(u32::to_ne_bytes).concat());
        push_attribute(&mut message, PACKET_DIAG_RX_RING, &[65_536u32, 8, 2048, 256].map(u32::to_ne_bytes).concat());
        push_attribute(&mut message, PACKET_DIAG_FANOUT, &77u32.to_ne_bytes());
        push_attribute(&mut message, PACKET_DIAG_MEMINFO, &memory_words(0, 212_992, 3));
        let (cookie, socket) = parse_packet(&message).expect("a socket");
        assert_eq!((cookie, socket.ifindex, socket.inode, socket.drops), (SocketKey::Cookie(5), 12, 99, 3));
        let want = PacketTap { ethertype: 3, ring_version: Some(2), ring_bytes: 524_288, fanout: Some(77) };
        assert_eq!(socket.packet, Some(want));
    }

    #[test]
    fn the_text_file() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
            352: 0200120A:2328 00000000:0000 07 00000000:00001300 00:00000000 00000000  1000        0 20993 2 0000000000000000 44\n";
        let root = Root::from_files([("proc/net/udp".to_owned(), text.to_owned())].into());
        let sockets = read_files(&root);
        let socket = &sockets[&SocketKey::Inode(20_993)];
        assert_eq!(socket.local, Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0200_120Au32.to_ne_bytes())), 9000)));
        assert_eq!((socket.receive_queue, socket.uid, socket.drops), (0x1300, 1000, 44));
        assert!(socket.matters());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), line in "\\PC{0,120}") {
            let _ = parse_inet(&bytes, true);
            let _ = parse_packet(&bytes);
            let _ = table_line(&line, SocketKind::Raw, true);
        }
    }
}
