//! The kernel's changes: read as they happen, and held as evidence.

use std::{
    collections::HashSet,
    io,
    net::IpAddr,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use bpf::{RouteNeighbour, RouteTables};
use host::netlink::{
    monitor::{Change, Event, Monitor},
    route::{neighbours, use_neighbour},
};

use crate::{
    RouteError,
    evidence::{Evidence, Reader},
    shadow::now_ns,
};

/// Period in which neighbours are confirmed and settings without a netlink message are read.
const REFRESH_PERIOD: Duration = Duration::from_secs(1);
/// IPv6 routes of several hops come hop by hop: after such a change all routes are read anew, this much later.
const REREAD_DELAY: Duration = Duration::from_millis(500);
/// For changes that were not read yet. The kernel takes twice that, only as far as it is needed, and 832 bytes for a route: room for 80,000 changes of a
/// routing daemon's.
const CHANGES_BYTES: usize = 32 << 20;

/// The kernel's configuration, and its changes.
#[derive(Debug)]
pub(crate) struct Follower {
    monitor: Monitor,
    reader: Reader,
    evidence: Evidence,
    refreshed: Instant,
    /// Time at which all routes are read again.
    reread_at: Option<Instant>,
    /// Time at which neighbours were last confirmed, by CLOCK_MONOTONIC.
    neighbours_ns: u64,
}

/// Changes that the kernel's messages told of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes {
    /// Something changed that the evidence holds.
    pub any: bool,
    pub lost: bool,
}

impl Follower {
    /// Listens, then reads the configuration of `ports`.
    pub(crate) fn open(ports: &[String]) -> Result<Self, RouteError> {
        let monitor = Monitor::with_buffer(CHANGES_BYTES)
            .map_err(RouteError::system("listen to changes of the kernel's configuration"))?;
        let mut reader = Reader::open()?;
        let routes = reader.routes()?;
        let evidence = reader.read(ports, routes)?;
        let (refreshed, neighbours_ns) = (Instant::now(), now_ns());
        Ok(Self { monitor, reader, evidence, refreshed, reread_at: None, neighbours_ns })
    }

    pub(crate) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Waits for a change, for `timeout` at the most.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<(), RouteError> {
        match self.monitor.wait(timeout) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                Err(RouteError::System { operation: "wait for changes of the kernel's configuration", source: e })
            }
            _ => Ok(()),
        }
    }

    /// Sockets that become readable with a change.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.monitor.sockets()
    }

    /// Reads the messages. Where the kernel's own calls are `untraced` the programs forget their next hops by them.
    pub(crate) fn read(&mut self, tables: &RouteTables, untraced: bool) -> Result<Changes, RouteError> {
        let (mut changes, mut messages, mut routes_anew) = (Changes::default(), 0, false);
        let routes = &mut self.evidence.routes;
        let read = self.monitor.read(|event| {
            // What the kernel's own calls do not tell of is forgotten with the first message.
            if untraced && messages == 0 {
                tables.flush();
            }
            messages += 1;
            match event {
                Event::Link(..) | Event::Address(..) | Event::Rule(..) | Event::Nftables(_) => changes.any = true,
                Event::Nexthop(..) => routes_anew = true,
                Event::Route(Change::Gone, route) => changes.any |= routes.remove(&route),
                Event::Route(change, route) => {
                    routes_anew |= route.to.address.is_ipv6() && change == Change::Set;
                    changes.any |= routes.add(route);
                }
                Event::Neighbour(..) => {}
                Event::Lost => changes.lost = true,
            }
        });
        // What changed while these were read was asked for before it changed, perhaps.
        if untraced && messages > 1 {
            tables.flush();
        }
        read.map_err(RouteError::system("read the kernel's changes"))?;
        if changes.lost {
            self.reread_at = Some(Instant::now());
        }
        if routes_anew {
            self.reread_at.get_or_insert_with(|| Instant::now() + REREAD_DELAY);
        }
        Ok(changes)
    }

    /// Reads all routes anew if that is due; whether it was.
    pub(crate) fn reread_routes(&mut self) -> Result<bool, RouteError> {
        if self.reread_at.is_none_or(|at| at > Instant::now()) {
            return Ok(false);
        }
        self.reread_at = None;
        self.evidence.routes = self.reader.routes()?;
        Ok(true)
    }

    /// True if all routes are about to be read again.
    pub(crate) fn is_rereading(&self) -> bool {
        self.reread_at.is_some()
    }

    /// Reads all but the routes anew.
    pub(crate) fn reread(&mut self, ports: &[String]) -> Result<(), RouteError> {
        let routes = std::mem::take(&mut self.evidence.routes);
        self.evidence = self.reader.read(ports, routes)?;
        Ok(())
    }

    /// True once a second has passed since [`Follower::refresh`].
    pub(crate) fn is_due(&self) -> bool {
        self.refreshed.elapsed() >= REFRESH_PERIOD
    }

    /// Once a second: has the kernel ask for the neighbours that frames were sent to.
    pub(crate) fn refresh(&mut self, tables: &RouteTables) -> Result<(), RouteError> {
        self.refreshed = Instant::now();
        tables.start_second();
        let since = std::mem::replace(&mut self.neighbours_ns, now_ns());
        self.keep_alive(&tables.used_neighbours(since)?)
    }

    /// Has the kernel ask for those neighbours that frames were sent to and that are stale, as it would if it had sent them itself.
    fn keep_alive(&mut self, used: &[RouteNeighbour]) -> Result<(), RouteError> {
        if used.is_empty() {
            return Ok(());
        }
        let used: HashSet<(u32, IpAddr)> = used.iter().map(|hop| (hop.ifindex, hop.address)).collect();
        let known = neighbours(self.reader.netlink()).map_err(RouteError::system("read the neighbours"))?;
        for stale in known.iter().filter(|n| n.is_stale() && used.contains(&(n.ifindex, n.address))) {
            // One that has just gone is not missed.
            let _ = use_neighbour(self.reader.netlink(), stale.ifindex, stale.address);
        }
        Ok(())
    }
}
