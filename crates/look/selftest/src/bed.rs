//! The lab of a self-test: two hosts and a forwarding box between them.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use lab::{Lab, LabError, Namespace, VethEnd};

/// Addresses for measurements (RFC 2544): the left host, the box's two, and the right host.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 1);
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 2);
/// Payload of a datagram.
pub(crate) const SENT: &[u8] = b"evenkeel";
/// Datagrams that a trial sends.
pub(crate) const SENT_COUNT: u64 = 8;
/// Time within which these arrive.
pub(crate) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// Port of the datagrams that are forwarded while a verb runs, and the time between two.
const PORT: u16 = 9;
const SEND_PERIOD: Duration = Duration::from_millis(5);

/// The left host, the box and the right host. Dropping the value removes them.
#[derive(Debug)]
pub(crate) struct Bed {
    pub left: Namespace,
    pub middle: Namespace,
    pub right: Namespace,
    /// The ends of the left pair: the host's and the box's.
    pub left_end: VethEnd,
    pub near: VethEnd,
    /// The ends of the right pair: the box's and the host's.
    pub far: VethEnd,
    pub right_end: VethEnd,
}

impl Bed {
    pub(crate) fn make() -> Result<Self, LabError> {
        let lab = Lab::new("selftest")?;
        let [left, middle, right] = ["left", "box", "right"].map(|role| lab.namespace(role));
        let (left, middle, right) = (left?, middle?, right?);
        let names = ["la", "lb", "ra", "rb"].map(|label| lab.interface(label));
        let (left_end, near) = lab.veth((&left, &names[0]), (&middle, &names[1]), 1)?;
        let (far, right_end) = lab.veth((&middle, &names[2]), (&right, &names[3]), 1)?;
        let bed = Self { left, middle, right, left_end, near, far, right_end };
        // The hosts have no routes: the other side is on-link, with the box's MAC address as neighbour.
        bed.left.add_address(&bed.left_end.name, HOST.into(), 15)?;
        bed.middle.add_address(&bed.near.name, NEAR.into(), 24)?;
        bed.middle.add_address(&bed.far.name, FAR.into(), 24)?;
        bed.right.add_address(&bed.right_end.name, OTHER.into(), 15)?;
        for address in [NEAR, OTHER] {
            bed.left.add_neighbour(&bed.left_end.name, address.into(), bed.near.mac)?;
        }
        for address in [FAR, HOST] {
            bed.right.add_neighbour(&bed.right_end.name, address.into(), bed.far.mac)?;
        }
        bed.middle.add_neighbour(&bed.near.name, HOST.into(), bed.left_end.mac)?;
        bed.middle.add_neighbour(&bed.far.name, OTHER.into(), bed.right_end.mac)?;
        bed.middle.set_sysctl("net.ipv4.ip_forward", "1")?;
        for (space, end) in [
            (&bed.left, &bed.left_end),
            (&bed.middle, &bed.near),
            (&bed.middle, &bed.far),
            (&bed.right, &bed.right_end),
        ] {
            // With GRO a veth takes frames that XDP redirects to it. Without the offload, checksums are complete.
            space.set_feature(&end.name, "rx-gro", true)?;
            space.set_feature(&end.name, "tx-checksum-ip-generic", false)?;
        }
        Ok(bed)
    }

    /// Sends datagrams from the left host.
    pub(crate) fn send(&self, to: Ipv4Addr, port: u16, count: u64) -> io::Result<()> {
        let send = || {
            let socket = UdpSocket::bind((HOST, 0))?;
            (0..count).try_for_each(|_| socket.send_to(SENT, (IpAddr::from(to), port)).map(drop))
        };
        self.left.run(send).map_err(io::Error::other)?
    }

    /// Opens a port of the right host, which then sends no ICMP errors for it.
    pub(crate) fn listen(&self, port: u16) -> io::Result<UdpSocket> {
        self.right.run(|| UdpSocket::bind((OTHER, port))).map_err(io::Error::other)?
    }

    /// Sends from the left host through the box to the right one until `work` is done.
    pub(crate) fn while_forwarding<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let _listening = self.listen(PORT)?;
        let sender = self.left.run(|| UdpSocket::bind((HOST, 0))).map_err(io::Error::other)??;
        let is_over = AtomicBool::new(false);
        let send = || {
            while !is_over.load(Ordering::Relaxed) {
                // Sending fails while a verb has the link down for a moment.
                let _ = sender.send_to(SENT, (OTHER, PORT));
                sleep(SEND_PERIOD);
            }
        };
        Ok(thread::scope(|scope| {
            scope.spawn(send);
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            done
        }))
    }

    /// Waits for `SENT_COUNT` datagrams at a socket. Returns the number that arrived in time.
    pub(crate) fn received(&self, socket: &UdpSocket) -> io::Result<u64> {
        socket.set_nonblocking(true)?;
        let mut count = 0;
        self.counted(|| {
            while count < SENT_COUNT && socket.recv(&mut [0; 16]).is_ok() {
                count += 1;
            }
            Ok(count)
        })
    }

    /// Accepts a connection. The server of a challenged client has it after the client, whose last segment makes it.
    pub(crate) fn accept(&self, server: &TcpListener) -> io::Result<TcpStream> {
        server.set_nonblocking(true)?;
        let began = Instant::now();
        loop {
            match server.accept() {
                Err(e) if e.kind() == ErrorKind::WouldBlock && began.elapsed() < ARRIVAL_TIMEOUT => sleep(POLL_PERIOD),
                accepted => return accepted.map(|(client, _)| client),
            }
        }
    }

    /// Calls `count` until it returns `SENT_COUNT` or the time is over. Returns the last count.
    pub(crate) fn counted<E>(&self, mut count: impl FnMut() -> Result<u64, E>) -> Result<u64, E> {
        let began = Instant::now();
        loop {
            let now = count()?;
            if now >= SENT_COUNT || began.elapsed() > ARRIVAL_TIMEOUT {
                return Ok(now);
            }
            sleep(POLL_PERIOD);
        }
    }
}
