//! Numbered datagrams to destinations of many routes, and what each neighbour receives of them.

use std::{
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use testbed::{End, Ends, Space, Tap, wait};

/// Where the routes' addresses begin, and how long each one's prefix is.
const FIRST: u32 = u32::from_be_bytes([100, 64, 0, 0]);
pub(crate) const PREFIX_LEN: u8 = 28;
const ROUTE_ADDRESSES: u32 = 1 << (32 - PREFIX_LEN);
/// As many routes as 100.64.0.0/10 has room for.
pub(crate) const ROUTES_MAX: u32 = 1 << (PREFIX_LEN - 10);
const PORT: u16 = 4000;
const PAYLOAD_BYTES: usize = 16;
/// Datagrams in a row, then a pause.
const AT_ONCE: u32 = 20;
const SEND_PERIOD: Duration = Duration::from_millis(1);

/// The neighbour that a route leads to in a phase: each in turn, then none, as the route is withdrawn.
pub(crate) fn hop(route: u32, phase: u32) -> Option<usize> {
    [Some(0), Some(1), Some(2), None][((route + phase) % 4) as usize]
}

/// The first address of a route.
pub(crate) fn network(route: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + route * ROUTE_ADDRESSES)
}

/// The route of an address; none: it is of none.
pub(crate) fn route_of(address: Ipv4Addr) -> Option<u32> {
    address.to_bits().checked_sub(FIRST).map(|offset| offset / ROUTE_ADDRESSES).filter(|route| *route < ROUTES_MAX)
}

/// The phases before and after: epoch 2p is phase p, and 2p + 1 what leads from p to p + 1.
fn phases(epoch: u32) -> [u32; 2] {
    [epoch / 2, epoch.div_ceil(2)]
}

/// Frames of an epoch, sent and received.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) sent: AtomicU64,
    /// Frames that had a neighbour before and after, sent and received.
    pub(crate) due: AtomicU64,
    pub(crate) due_came: AtomicU64,
    pub(crate) at_old: AtomicU64,
    pub(crate) at_new: AtomicU64,
}

impl Epoch {
    /// Sent, due, due and come, come to the neighbour before and to the one after.
    pub(crate) fn figures(&self) -> [u64; 5] {
        [&self.sent, &self.due, &self.due_came, &self.at_old, &self.at_new].map(|figure| figure.load(Relaxed))
    }
}

/// Traffic that runs until it is stopped.
pub(crate) struct Traffic {
    routes: u32,
    epochs: Vec<Epoch>,
    epoch: AtomicU32,
    /// The epoch of the datagrams that are sent now.
    seen: AtomicU32,
    stop: AtomicBool,
    /// Numbers that came.
    numbers: Mutex<Vec<u64>>,
    /// Frames that should not have arrived.
    wrong: Mutex<Vec<String>>,
}

impl Traffic {
    pub(crate) fn new(routes: u32, phases: u32) -> Self {
        let epochs = (0..2 * phases).map(|_| Epoch::default()).collect();
        let (numbers, wrong) = (Mutex::default(), Mutex::default());
        Self { routes, epochs, epoch: 0.into(), seen: u32::MAX.into(), stop: false.into(), numbers, wrong }
    }

    /// Runs from one namespace to the neighbours while `work` is done.
    pub(crate) fn run<T>(&self, from: &Space, neighbours: [&End; 3], work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let taps = neighbours.map(|end| (Tap::open(end.space()), end.link.mac.0));
            for (n, (tap, mac)) in taps.into_iter().enumerate() {
                scope.spawn(move || self.listen(n, mac, &tap));
            }
            let sender = from.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
            scope.spawn(move || self.send(&sender));
            let ends = Ends(&self.stop);
            let done = work();
            drop(ends);
            done
        })
    }

    /// Starts an epoch: when this returns, no frame of an earlier one is sent any more.
    pub(crate) fn begin(&self, epoch: u32) {
        self.epoch.store(epoch, Relaxed);
        wait("the sender goes on", || self.seen.load(Relaxed) == epoch);
    }

    /// Result of an epoch.
    pub(crate) fn epoch(&self, epoch: u32) -> &Epoch {
        &self.epochs[epoch as usize]
    }

    /// Numbers that came, in order, and what should not have come.
    pub(crate) fn came(self) -> (Vec<u64>, Vec<String>) {
        let mut numbers = self.numbers.into_inner().unwrap();
        numbers.sort_unstable();
        (numbers, self.wrong.into_inner().unwrap())
    }

    fn send(&self, socket: &UdpSocket) {
        let (mut number, mut dice) = (0u64, 0x9e37_79b9_7f4a_7c15_u64);
        while !self.stop.load(Relaxed) {
            for _ in 0..AT_ONCE {
                let epoch = self.epoch.load(Relaxed);
                self.seen.store(epoch, Relaxed);
                // A generator of Marsaglia's (xorshift64).
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                let route = (dice >> 32) as u32 % self.routes;
                let address = Ipv4Addr::from(network(route).to_bits() + dice as u32 % ROUTE_ADDRESSES);
                let payload = [&number.to_be_bytes()[..], &epoch.to_be_bytes(), &route.to_be_bytes()].concat();
                let one = self.epoch(epoch);
                one.sent.fetch_add(1, Relaxed);
                let due = phases(epoch).iter().all(|phase| hop(route, *phase).is_some());
                one.due.fetch_add(due.into(), Relaxed);
                socket.send_to(&payload, SocketAddrV4::new(address, PORT)).unwrap();
                number += 1;
            }
            thread::sleep(SEND_PERIOD);
        }
    }

    fn listen(&self, neighbour: usize, mac: [u8; 6], tap: &Tap) {
        let (mut numbers, mut wrong) = (Vec::new(), Vec::new());
        let mut buffer = [0; 256];
        loop {
            match tap.next(&mut buffer).map(|frame| self.one(neighbour, mac, frame)) {
                Some(Some(Ok(number))) => numbers.push(number),
                Some(Some(Err(what))) => wrong.push(what),
                Some(None) => {}
                // All that was under way has come.
                None if self.stop.load(Relaxed) => break,
                None => {}
            }
        }
        self.numbers.lock().unwrap().extend(numbers);
        self.wrong.lock().unwrap().extend(wrong);
    }

    /// A frame that came to a neighbour: its number, or what is wrong with it; none: another's.
    fn one(&self, neighbour: usize, mac: [u8; 6], frame: &[u8]) -> Option<Result<u64, String>> {
        let (link, packet) = frame.split_at_checked(14)?;
        let (header, rest) = packet.split_at_checked(20)?;
        let (udp, payload) = rest.split_at_checked(8)?;
        let is_ours = link[12..] == [8, 0] && header[9] == 17 && udp[2..4] == PORT.to_be_bytes();
        let to = Ipv4Addr::from(<[u8; 4]>::try_from(&header[16..]).ok()?);
        let head = payload.get(..PAYLOAD_BYTES).filter(|_| is_ours && route_of(to).is_some())?;
        let number = u64::from_be_bytes(head[..8].try_into().ok()?);
        let [epoch, route] = [8, 12].map(|at| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes")));
        let what = |what: &str| Some(Err(format!("neighbour {neighbour}, epoch {epoch}, route {route}, {to}: {what}")));
        if route_of(to) != Some(route) {
            return what("of another route");
        }
        if link[..6] != mac {
            return what("for another's MAC address");
        }
        if header[8] != 63 {
            return what("went through more than one router, or none");
        }
        let [old, new] = phases(epoch).map(|phase| hop(route, phase));
        let one = self.epoch(epoch);
        if new == Some(neighbour) {
            one.at_new.fetch_add(1, Relaxed);
        } else if old == Some(neighbour) {
            one.at_old.fetch_add(1, Relaxed);
        } else {
            return what(&format!("neither {old:?} nor {new:?}"));
        }
        one.due_came.fetch_add((old.is_some() && new.is_some()).into(), Relaxed);
        Some(Ok(number))
    }
}
