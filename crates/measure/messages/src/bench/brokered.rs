//! The ends of TCP sockets whose bytes brokers carry over link, as `evenkeel link run` makes them.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::{Duration, Instant},
};

use ipnet::{IpNet, Ipv4Net};
use model::link_bench::Receive;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sys::worker::Worker;

use super::{
    MessagesError,
    bed::{ADDRESSES, Bed, PREFIX_LEN, Place},
    end::{End, MESSAGE_TIMEOUT},
};
use link::{
    LinkError, Paths,
    broker::{Broker, BrokerSettings, Receive as Frames},
    sockets::{BrokerClient, Sockets},
};

/// Time for both nodes to discover each other.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(8);
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// A broker on threads of its own. They end when it is dropped.
#[derive(Debug)]
struct Serves {
    _worker: Worker,
}

impl Serves {
    fn start(place: &Place, name: &'static str, cluster: IpNet) -> Result<Self, MessagesError> {
        let interface = place.link.name.clone();
        let (ready, is_ready) = mpsc::channel::<Result<(), LinkError>>();
        let serves = move |stop: &AtomicBool| {
            let settings =
                BrokerSettings { interface, name: name.to_owned(), group: None, xdp: Frames::Auto, udp: None };
            let started = Paths::here().lock().and_then(|held| {
                let broker = Broker::start(settings, &held)?;
                let sockets = Sockets::start(&[cluster], &[], broker.known(), broker.disposer())?;
                Ok((held, broker, sockets))
            });
            match started {
                Err(error) => drop(ready.send(Err(error))),
                Ok((_held, mut broker, mut sockets)) => {
                    let _ = ready.send(Ok(()));
                    thread::scope(|scope| {
                        // Workload goes wrong is seen by the ends, which nobody serves then.
                        scope.spawn(move || drop(sockets.run(stop)));
                        let _ = broker.run(stop, |_| ());
                    });
                }
            }
        };
        let system = MessagesError::system("start a broker");
        // A thread is in the namespace of the one that starts it.
        let worker = place.space.run(|| Worker::start("ek-broker", serves))?.map_err(system)?;
        is_ready.recv().map_err(|_| MessagesError::Silent("a broker"))??;
        Ok(Self { _worker: worker })
    }
}

/// An end of such a connection, and the brokers of both.
pub(super) struct Brokered {
    pub(super) end: TcpStream,
    _brokers: Arc<[Serves; 2]>,
}

pub(super) fn brokered(bed: &Bed, receive: Receive) -> Result<[Brokered; 2], MessagesError> {
    let system = MessagesError::system;
    let cluster = IpNet::V4(Ipv4Net::new_assert(ADDRESSES[0], PREFIX_LEN).trunc());
    let [a, b] = &bed.places;
    let brokers = Arc::new([Serves::start(a, "a", cluster)?, Serves::start(b, "b", cluster)?]);
    let listener = b.space.run(|| {
        let listener = TcpListener::bind((ADDRESSES[1], 0))?;
        BrokerClient::here().listens(listener.as_fd())?;
        Ok(listener)
    })?;
    let listener = listener.map_err(system("listen"))?;
    let to = listener.local_addr().map_err(system("read an address"))?;
    let began = Instant::now();
    let here = loop {
        match a.space.run(|| connect(to))?.map_err(system("connect through a broker"))? {
            Some(end) => break end,
            None if began.elapsed() > DISCOVERY_TIMEOUT => return Err(MessagesError::Silent("a broker")),
            None => thread::sleep(RETRY_PERIOD),
        }
    };
    let there = b.space.run(|| {
        let (tcp, _) = listener.accept()?;
        match BrokerClient::here().accepted(tcp.as_fd())? {
            Some(end) => Ok(end),
            None => Err(std::io::Error::other("the connection is none of the broker's")),
        }
    })?;
    let there = there.map_err(system("accept through a broker"))?;
    let end = |fd: OwnedFd| {
        // Workload is asked of it, reads, writes and time-outs, is the same for all stream sockets.
        let end = TcpStream::from(fd);
        end.set_read_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))?;
        end.set_write_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))?;
        end.set_nonblocking(receive == Receive::Spinning).map_err(system("set a socket"))?;
        Ok::<_, MessagesError>(Brokered { end, _brokers: Arc::clone(&brokers) })
    };
    Ok([end(here)?, end(there)?])
}

/// The end that a connection gets; none: the nodes do not know each other yet.
fn connect(to: SocketAddr) -> std::io::Result<Option<OwnedFd>> {
    let tcp = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    match BrokerClient::here().connect(tcp.as_fd(), to, true)? {
        Some(end) => Ok(Some(end)),
        None => Ok(None),
    }
}

impl End for Brokered {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        self.end.send(message)
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError> {
        self.end.receive(place)
    }
}
